"""How a command ends: one line on standard error and an exit code, never a traceback."""

import re
import sys
from collections.abc import Sequence

import typer

from hwprofiles import ConfigError, OrreryError

__all__ = ["left_out", "run_app"]

BAD_INPUT, INTERRUPTED = 2, 130


def run_app(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 after a failed rank, 2 for bad input, 130 after Ctrl-C.

    Everything else is our own bug and keeps its traceback.

    Args:
        app: The command line.
        arguments: Words after the program's name; those of the process if None.
    """
    try:
        code = app(arguments, prog_name="orrery", standalone_mode=False) or 0
    except (OrreryError, OSError, typer.TyperException) as error:
        return _complain(_message(error), getattr(error, "exit_code", BAD_INPUT))
    # typer turns KeyboardInterrupt into this code.
    return _complain("interrupted", INTERRUPTED) if code == INTERRUPTED else int(code)


def _complain(message: str, code: int) -> int:
    print("orrery:", " ".join(message.split()), file=sys.stderr)
    return code


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        # Which file, and the system's own words for the rule that it breaks.
        return f"cannot use {str(error.filename)!r}: {error.strerror}" if error.filename else str(error)
    # typer keeps the option's name apart from the message, and prefixes what its parsers raise.
    if not isinstance(error, typer.BadParameter):
        return str(error)
    text = error.format_message().replace("Value error, ", "").replace("Input should be", "must be")
    text = re.sub(", unable to parse string as an? (integer|number)", "", text)
    # What was got, where the parser's message does not say it.
    got = [repr(each["input"]) for each in getattr(error.__cause__, "errors", list)()]
    return text if not got or got[0] in text else f"{text.rstrip('.')}, got {got[0]}"


def left_out(where: str, **options: object) -> None:
    """Refuse options that would be passed over in silence: all that are not None.

    Raises:
        ConfigError: One is given.
    """
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"{name} must be left out {where}, got {str(value)!r}")
