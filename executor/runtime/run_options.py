"""Settings of a run beside its plan."""

from dataclasses import dataclass, field
from typing import Literal

from executor.runtime.optimizer_spec import OptimizerSpec
from groundwork.errors import ConfigError
from groundwork.requests import option


def typed_words(text: str) -> tuple[str, ...]:
    """Split a text at its commas; an empty text has no words."""
    return tuple(word.strip() for word in text.split(",")) if text else ()


def typed_strategies(text: str) -> tuple[str, ...]:
    """Split a list of strategies as ``planner.plan.plan_text.split_plan_texts`` does; each is returned once."""
    from planner.plan.plan_text import split_plan_texts

    return tuple(split_plan_texts(text))


def typed_data_types(text: str) -> tuple[str, ...]:
    """Split a list of data types, of which some may have parameters, such as ``float16,dynamic-tree:block=64``."""
    from studies.eight_bit.lists import type_list

    return type_list(text) if text else ()


JOIN_BYTES = 4 * 1024.0 * 1024.0
"""Gradients of several layers with two replicas join one bucket up to this size."""

MOST_THREADS = 1024
"""Largest number of threads of a rank; more of them would exhaust the system in the middle of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Settings of a run: the same on all ranks."""

    plan: str = ""
    """Path of the plan file; empty where the ranks get their programs in another way."""
    steps: int = option(10, metavar="K", help="Training steps in all; a resumed run counts those before.")
    seed: int = option(0, metavar="S", help="Seed of the initial parameters, the generated data and dropout.")
    data: str = option(
        "generated",
        metavar="D",
        help="Training data: generated, generated:N, FILE.npz, INPUTS.npy,TARGETS.npy or an image folder.",
    )
    """Data set, as for ``executor.data.load.load_data``."""
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    overlap: bool = option(True, help="Send messages while arithmetic goes on, or wait for each message to arrive.")
    stand_in: bool = option(
        False, names=("--stand-in-compute",), help="Wait for the predicted time of each task instead of computing it."
    )
    """Let waits of the predicted length stand in for arithmetic, and for compression and decompression."""
    real_compression: bool = False
    """True to compress and decompress random values although ``stand_in`` waits in place of computing."""
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", help="Device of each rank; auto takes a GPU for each rank where there are enough, else processors."
    )
    threads: int = option(
        0, low=0, metavar="T", help="Threads that each rank computes with; 0 shares the machine's cores equally."
    )
    join_bytes: float = JOIN_BYTES
    """Gradients of several layers are reduced as one buffer up to this size; see
    ``executor.program.buckets.largest_bucket_bytes``."""
    memory: bool = option(
        False,
        names=("--memory",),
        help="Count the bytes that the first two iterations allocate, and print them beside the prediction.",
    )
    """The count is exact; on a processor it slows those iterations down."""
    init: str = option("", metavar="FILE", help="Start from this state_dict, as torch.save wrote it; else at random.")
    """Empty for none; the model must be an imported one."""
    save: str = option("", metavar="FILE", help="Write the trained state_dict, for PyTorch to go on with.")
    """Empty for none; the model must be an imported one."""
    checkpoint: str = option("", metavar="DIR", help="Folder for checkpoints.")
    """Empty for none."""
    checkpoint_every: int = option(0, metavar="K", help="Steps between checkpoints; 0 saves only after the last step.")
    resume: bool = option(False, names=("--resume",), help="Go on from the newest checkpoint in the folder.")
    out: str = ""
    """Folder for the files of rank 0; empty for none."""
    timeout_s: float = 60.0
    """Time that a message or a collective may keep a rank waiting, in seconds."""

    def __post_init__(self) -> None:
        for name, low in (("steps", 1), ("threads", 0), ("checkpoint_every", 0), ("join_bytes", 0)):
            if getattr(self, name) < low:
                raise ConfigError(f"{name} must be >= {low}, got {getattr(self, name)}")
        if self.threads > MOST_THREADS:
            raise ConfigError(f"threads must be <= {MOST_THREADS}, got {self.threads}")
        if not self.timeout_s > 0:
            raise ConfigError(f"timeout_s must be > 0, got {self.timeout_s}")
        if (self.resume or self.checkpoint_every) and not self.checkpoint:
            raise ConfigError("checkpoint must name a folder where resume or checkpoint_every is given, got none")
        if self.real_compression and not self.stand_in:
            raise ConfigError("real_compression must be left out without stand_in: messages are compressed in any case")
        for name in ("checkpoint", "init", "save"):
            if self.stand_in and getattr(self, name):
                raise ConfigError(f"{name} must be left out with stand_in: nothing is trained")

    @property
    def stand_in_compression(self) -> bool:
        """True if waits stand in for compression and decompression too."""
        return self.stand_in and not self.real_compression
