"""The errors of the whole project: bad input, and well-formed input that cannot be had."""

from collections.abc import Callable
from typing import ClassVar

from hwprofiles.units import GIB

__all__ = ["ConfigError", "DeviceMemoryError", "InfeasiblePlanError", "OrreryError", "UnreachableError"]


class OrreryError(Exception):
    """Base of every error that a user can cause.

    The command line prints its message on one line, so the message
    names the field, the rule and the value that was got.
    """

    exit_code: ClassVar[int] = 2
    """Of the command line; 1 where the input was good and the machine was not."""


class ConfigError(OrreryError, ValueError):
    """A field of the input breaks a rule."""


class UnreachableError(OrreryError):
    """No route joins two devices of a cluster."""


class InfeasiblePlanError(OrreryError):
    """A well-formed plan that the given cluster cannot run."""


class DeviceMemoryError(InfeasiblePlanError):
    """A plan that needs more memory than a device has.

    Args:
        device: The device whose need is the largest multiple of its memory.
        needed_bytes, capacity_bytes: What it needs, and what it has.
        change: Says what would fit, in words; asked only when the message is read, for finding out takes long.
    """

    def __init__(self, *, device: str, needed_bytes: float, capacity_bytes: float, change: Callable[[], str]) -> None:
        self.device, self.needed_bytes, self.capacity_bytes = device, needed_bytes, capacity_bytes
        self._find_change, self._change = change, ""
        super().__init__(self.brief)

    @property
    def brief(self) -> str:
        """The message without what would fit."""
        return (
            f"plan does not fit on {self.device}: needs {self.needed_bytes / GIB:.2f} GiB, the device has "
            f"{self.capacity_bytes / GIB:.2f} GiB"
        )

    @property
    def change(self) -> str:
        """What would fit, in words."""
        self._change = self._change or self._find_change()
        return self._change

    def __str__(self) -> str:
        return f"{self.brief}; {self.change}"
