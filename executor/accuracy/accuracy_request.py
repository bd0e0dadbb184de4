"""What is trained: a network, data types of messages, ways to parallelise, seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from executor.runtime import OptimizerSpec
from hwprofiles import ConfigError
from planner.compression import compression

__all__ = ["FLOAT32", "AccuracyCase", "AccuracyRequest"]

FLOAT32 = "float32"
_MODES = ("data", "model")
"""``data``: samples are split, gradients compressed; ``model``: channels are, with tensors between layers and the
gradients of these compressed."""
GRADIENT_TYPES = (
    "dynamic-tree", "static-tree", "linear", "mantissa", "one-bit", "threshold:threshold=0.01,every=4", "float16",
    "bfloat16",
)  # fmt: skip
ACTIVATION_TYPES = (
    "dynamic-tree", "static-tree:offset=2", "linear", "mantissa:offset=2", "float16", "bfloat16",
)  # fmt: skip
"""Activations are larger than gradients: Sec. 3.1 of the 8-bit paper gives them an offset of the exponent."""
MOST_SEEDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyCase:
    """One way to train."""

    mode: str
    """One of ``_MODES``."""
    type: str
    """Of the messages; ``float32`` leaves them as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRequest:
    """What is to be trained and compared."""

    model: str = "digits"
    data: str = ""
    """Folder of the MNIST files; empty: the digits of scikit-learn."""
    modes: Sequence[str] = _MODES
    types: Sequence[str] = ()
    """Beside float32; empty: every type, in the model mode those without a residual, static ones with an offset."""
    seeds: int = 5
    """Trainings of each case, with seeds 0, 1, ...: first values, order of the samples and dropout."""
    epochs: int = 25
    batch: int = 240
    """Samples in a mini-batch, all ranks."""
    processes: int = 2
    optimizer: OptimizerSpec = field(default_factory=lambda: OptimizerSpec(learning_rate=0.2, momentum=0.0))

    def __post_init__(self) -> None:
        for name, low in (("seeds", 2), ("epochs", 1), ("batch", 1), ("processes", 2)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name} must be >= {low}, got {getattr(self, name)}")
        if self.seeds > MOST_SEEDS:
            raise ConfigError(f"seeds must be <= {MOST_SEEDS}, got {self.seeds}")
        if not self.modes or set(self.modes) - set(_MODES):
            raise ConfigError(f"modes must be of {', '.join(_MODES)}, got {', '.join(self.modes) or 'none'}")
        for text in self.types:
            compression(text)

    def cases(self) -> list[AccuracyCase]:
        """Every way to train, float32 first in each mode.

        Raises:
            ConfigError: In the model mode alone, none of the types can compress activations.
        """
        found = []
        for mode in dict.fromkeys(self.modes):
            types = self.types or (GRADIENT_TYPES if mode == "data" else ACTIVATION_TYPES)
            kept = [text for text in types if mode == "data" or not compression(text).feedback]
            found += [AccuracyCase(mode=mode, type=text) for text in dict.fromkeys([FLOAT32, *kept])]
        if all(case.type == FLOAT32 for case in found):
            raise ConfigError(
                "types must name one beside float32 that the modes can use: those with a residual compress gradients "
                f"alone, got {', '.join(self.types)} for {', '.join(self.modes)}"
            )
        return found

    def left_out(self) -> list[str]:
        """Types that the model mode cannot use."""
        types = self.types or GRADIENT_TYPES
        return [text for text in types if compression(text).feedback] if "model" in self.modes else []
