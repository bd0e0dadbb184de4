"""Request for a study of accuracy: a network, data types of messages, kinds of parallelism, and seeds."""

from dataclasses import dataclass
from typing import Literal

from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.run_options import typed_data_types, typed_words
from groundwork.errors import ConfigError
from groundwork.requests import option

FLOAT32 = "float32"
_MODES = ("data", "model")
"""``data``: samples are split, gradients compressed; ``model``: channels are split, tensors between layers and their
gradients compressed."""
GRADIENT_TYPES = (
    "dynamic-tree",
    "static-tree",
    "linear",
    "mantissa",
    "one-bit",
    "threshold:threshold=0.01,every=4",
    "float16",
    "bfloat16",
)
"""Data types of gradients that are compared if none are named."""
ACTIVATION_TYPES = ("dynamic-tree", "static-tree:offset=2", "linear", "mantissa:offset=2", "float16", "bfloat16")
"""Data types of activations that are compared if none are named.

Activations are larger than gradients, so the exponent has an offset.  Source: Dettmers, "8-Bit Approximations for
Parallelism in Deep Learning", ICLR 2016, Sec. 3.1.
"""
MOST_SEEDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyCase:
    """One kind of parallelism with one data type of messages."""

    mode: str
    """Kind of parallelism, one of ``_MODES``."""
    type: str
    """Data type of the messages; ``float32`` leaves them as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRequest:
    """Network to train, and the data types and kinds of parallelism to compare."""

    model: str = "digits"
    data: str = option(
        "", metavar="DIR", help="Folder of the MNIST files; the digits that scikit-learn brings if not given."
    )
    modes: tuple[str, ...] = option(
        _MODES,
        parser=typed_words,
        typed="data,model",
        metavar="M,M",
        help="Kinds of parallelism: data compresses gradients, model compresses activations and their gradients.",
    )
    types: tuple[str, ...] = option(
        (),
        parser=typed_data_types,
        metavar="T,T,...",
        help="Data types to compare with float32, such as dynamic-tree:block=64; every type if none are named.",
    )
    """Data types to compare with float32; empty: every type, in the model mode those without a residual, static ones
    with an offset."""
    seeds: int = option(5, metavar="N", help="Trainings of each type and mode, with seeds 0, 1, and so on.")
    """The seed determines the initial parameters, the order of the samples and dropout."""
    epochs: int = option(25, metavar="N", help="Epochs of each training.")
    batch: int = option(240, metavar="N", help="Samples in a mini-batch over all ranks.")
    processes: int = option(2, metavar="N", help="Ranks; started once for all trainings.")
    optimizer: Literal["sgd", "adam"] = option("sgd", help="Optimizer of all trainings.")
    learning_rate: float = option(0.2, metavar="R", help="Learning rate of the optimizer.")
    momentum: float = option(0.0, metavar="M", help="Momentum of sgd, in [0, 1); adam does not use it.")

    def __post_init__(self) -> None:
        from planner.compression.data_types import compression  # loads numpy, which a command line does without

        for name, low in (("seeds", 2), ("epochs", 1), ("batch", 1), ("processes", 2)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name} must be >= {low}, got {getattr(self, name)}")
        if self.seeds > MOST_SEEDS:
            raise ConfigError(f"seeds must be <= {MOST_SEEDS}, got {self.seeds}")
        if not self.modes or set(self.modes) - set(_MODES):
            raise ConfigError(f"modes must be of {', '.join(_MODES)}, got {', '.join(self.modes) or 'none'}")
        for text in self.types:
            compression(text)
        _ = self.optimizer_spec  # refuses rates that are out of range

    @property
    def optimizer_spec(self) -> OptimizerSpec:
        """Optimizer with its settings."""
        return OptimizerSpec(name=self.optimizer, learning_rate=self.learning_rate, momentum=self.momentum)

    def cases(self) -> list[AccuracyCase]:
        """Return every mode with every type that it can use, float32 first in each mode.

        Raises:
            ConfigError: In the model mode alone, none of the types can compress activations.
        """
        cases = []
        for mode in dict.fromkeys(self.modes):
            types = self.types or (GRADIENT_TYPES if mode == "data" else ACTIVATION_TYPES)
            usable = [text for text in types if mode == "data" or not _has_residual(text)]
            cases += [AccuracyCase(mode=mode, type=text) for text in dict.fromkeys([FLOAT32, *usable])]
        if all(case.type == FLOAT32 for case in cases):
            raise ConfigError(
                "types must name one beside float32 that the modes can use: those with a residual compress gradients "
                f"alone, got {', '.join(self.types)} for {', '.join(self.modes)}"
            )
        return cases

    def left_out(self) -> list[str]:
        """Return the types that the model mode cannot use."""
        return [text for text in self.types or GRADIENT_TYPES if _has_residual(text)] if "model" in self.modes else []


def _has_residual(text: str) -> bool:
    """Return whether a data type keeps what a message leaves out for the next message."""
    from planner.compression.data_types import compression

    return compression(text).feedback
