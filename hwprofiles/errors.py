"""The errors of the whole project: bad input, and well-formed input that cannot be had."""

__all__ = ["ConfigError", "InfeasiblePlanError", "OrreryError", "UnreachableError"]


class OrreryError(Exception):
    """Base of every error that a user can cause.

    The command line prints its message on one line and exits with code 2, so the message
    names the field, the rule and the value that was got.
    """


class ConfigError(OrreryError, ValueError):
    """A field of the input breaks a rule."""


class UnreachableError(OrreryError):
    """No route joins two devices of a cluster."""


class InfeasiblePlanError(OrreryError):
    """A well-formed plan that the given cluster cannot run."""
