"""What must be installed to run anything, asked without loading it."""

import importlib.util

from hwprofiles import ConfigError

__all__ = ["check_torch"]


def check_torch(command: str) -> None:
    """Check that a command can run things for real.

    Raises:
        ConfigError: torch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise ConfigError(f"{command} must have torch, which the extra orrery[executor] brings")
