"""The errors of the whole project: bad input, and well-formed input that cannot be satisfied."""

from collections.abc import Callable
from typing import ClassVar

from hwprofiles.units import GIB

__all__ = ["ConfigError", "DeviceMemoryError", "InfeasiblePlanError", "OrreryError", "UnreachableError"]


class OrreryError(Exception):
    """The base of all errors that a user can cause.

    The command line prints the message on one line, so the message
    names the field, the rule and the value that was given.
    """

    exit_code: ClassVar[int] = 2
    """Exit code of the command line: 2 for bad input, 1 where the input is good and the machine fails."""


class ConfigError(OrreryError, ValueError):
    """A field of the input breaks a rule."""


class UnreachableError(OrreryError):
    """No route joins two devices of a cluster."""


class InfeasiblePlanError(OrreryError):
    """A well-formed plan that the given cluster cannot run."""


class DeviceMemoryError(InfeasiblePlanError):
    """A plan that needs more memory than a device has.

    Args:
        device: Device whose need is the largest multiple of its memory.
        needed_bytes: Memory that the plan needs there.
        capacity_bytes: Memory that the device has.
        change: Returns, in words, a change of the plan that fits; called only when the message is read, because the
            search for it takes long.
    """

    def __init__(self, *, device: str, needed_bytes: float, capacity_bytes: float, change: Callable[[], str]) -> None:
        self.device, self.needed_bytes, self.capacity_bytes = device, needed_bytes, capacity_bytes
        self._find_change, self._change = change, ""
        super().__init__(self.brief)

    @property
    def brief(self) -> str:
        """Message without the change that fits."""
        return (
            f"plan does not fit on {self.device}: needs {self.needed_bytes / GIB:.2f} GiB, the device has "
            f"{self.capacity_bytes / GIB:.2f} GiB"
        )

    @property
    def change(self) -> str:
        """Change of the plan that fits, in words."""
        self._change = self._change or self._find_change()
        return self._change

    def __str__(self) -> str:
        return f"{self.brief}; {self.change}"
