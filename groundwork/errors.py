"""The errors of the whole project: bad input, and well-formed input that cannot be satisfied."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from groundwork.units import GIB


class OrreryError(Exception):
    """The base of all errors that a user can cause.

    The command line prints the message on one line, so the message
    names the field, the rule and the value that was given.
    """

    exit_code: ClassVar[int] = 2
    """Exit code of the command line: 2 for bad input, 1 where the input is good and the machine fails."""

    @property
    def brief(self) -> str:
        """Message without what takes long to find out, such as changes with which a plan fits."""
        return str(self)


class ConfigError(OrreryError, ValueError):
    """A field of the input breaks a rule."""


class UnreachableError(OrreryError):
    """No route joins two devices of a cluster."""


class InfeasiblePlanError(OrreryError):
    """A well-formed plan that the given cluster cannot run."""

    needed_bytes: float = 0.0
    """Memory that the plan needs on its fullest device; 0 where it is not known, or not the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingChange:
    """A change with which a plan fits that did not."""

    words: str
    """Options as they are typed, such as ``--sub-batches 4 --sub-batch-from conv1_1``."""
    fields: Mapping[str, Any]
    """Fields of the plan's request, with their new values."""


def first_line(error: Exception) -> str:
    """Return the first line of what an error says that is not empty; without any the name of its class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)[:200]


def memory_in_words(memory_bytes: float, usable_bytes: float) -> str:
    """Return what memory a device has, and how much of it a plan can have."""
    has = f"the device has {memory_bytes / GIB:.2f} GiB"
    if usable_bytes < memory_bytes:
        has += f", {usable_bytes / GIB:.2f} GiB of it beside context, workspace and fragmentation"
    return has


class DeviceMemoryError(InfeasiblePlanError):
    """A plan that needs more memory than a device has.

    Args:
        device: Device whose need is the largest multiple of its memory.
        needed_bytes: Memory that the plan needs there.
        capacity_bytes: Memory that the device has for it.
        memory_bytes: Memory that the device has in all, with what its reserve keeps.
        fitting: Returns changes of the plan that fit; called only when they are asked for, because the search for them
            takes long.
        otherwise: Advice where there is no such change.
    """

    def __init__(
        self,
        *,
        device: str,
        needed_bytes: float,
        capacity_bytes: float,
        memory_bytes: float,
        fitting: Callable[[], Sequence[FittingChange]],
        otherwise: str,
    ) -> None:
        self.device, self.needed_bytes = device, needed_bytes
        self.capacity_bytes, self.memory_bytes = capacity_bytes, memory_bytes
        self._find, self._otherwise = fitting, otherwise
        self._found: Sequence[FittingChange] | None = None
        super().__init__(self.brief)

    def __reduce__(self) -> tuple[Any, ...]:
        """Make copies that know the changes that were found so far, and search for no others."""
        otherwise = "use more devices or a smaller batch" if self._found is None else self._otherwise
        copied = partial(
            type(self),
            device=self.device,
            needed_bytes=self.needed_bytes,
            capacity_bytes=self.capacity_bytes,
            memory_bytes=self.memory_bytes,
            fitting=partial(tuple, self._found or ()),
            otherwise=otherwise,
        )
        return copied, ()

    @property
    def brief(self) -> str:
        """Message without the changes that fit."""
        has = memory_in_words(self.memory_bytes, self.capacity_bytes)
        return f"plan does not fit on {self.device}: needs {self.needed_bytes / GIB:.2f} GiB, {has}"

    @property
    def fitting(self) -> Sequence[FittingChange]:
        """Changes of the plan that fit, those first that cost least to adopt."""
        if self._found is None:
            self._found = self._find()
        return self._found

    @property
    def change(self) -> str:
        """Changes of the plan that fit, in words."""
        if not self.fitting:
            return self._otherwise
        return f"what fits: {', or '.join(change.words for change in self.fitting)}"

    def __str__(self) -> str:
        return f"{self.brief}; {self.change}"
