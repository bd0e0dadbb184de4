"""The errors of the whole project: bad input, and well-formed input that cannot be had."""

from typing import ClassVar

__all__ = ["ConfigError", "InfeasiblePlanError", "OrreryError", "UnreachableError"]


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
