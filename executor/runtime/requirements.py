"""Packages that must be installed to run a plan, checked without loading them."""

import importlib.util

from groundwork.errors import ConfigError


def check_torch(command: str) -> None:
    """Check that a command can execute plans.

    Raises:
        ConfigError: torch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise ConfigError(f"{command} must have torch, which the extra orrery-training[executor] brings")
