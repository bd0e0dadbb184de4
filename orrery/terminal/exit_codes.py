"""End of a command: one line on standard error and an exit code, never a traceback."""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import typer
from typer.main import get_command

from groundwork.control_characters import printable
from groundwork.errors import ConfigError, OrreryError
from groundwork.input_files import last_input, noted_inputs
from groundwork.suggestions import did_you_mean
from orrery.terminal.completion import prepare_completion
from orrery.terminal.signals import ENDED_BY, cut_short, forget_signals, received

BAD_INPUT, INTERRUPTED = 2, 130
DEFECT = 70
"""Exit code for errors in a program itself (``EX_SOFTWARE`` of sysexits.h)."""
_LONGEST = 4_000
"""Characters of the longest message; a value in it may be as long as a file."""

_RULES = {
    "int_parsing": "must be a valid integer",
    "int_from_float": "must be a valid integer",
    "float_parsing": "must be a valid number",
    "bool_parsing": "must be true or false",
    "greater_than_equal": "must be greater than or equal to {ge:g}",
    "less_than_equal": "must be less than or equal to {le:g}",
}
"""Rules that a value can break, by the type of pydantic's error, with the error's context filled in."""


def run_app(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 after a failed rank, 2 for bad input, 130 after Ctrl-C.

    It is 143 after SIGTERM and 129 after SIGHUP, where ``interrupt`` handles them.

    Everything else is a defect of ours, with code 70: one line, or the traceback where ``ORRERY_DEBUG`` is set.
    """
    words = sys.argv[1:] if arguments is None else arguments
    prepare_completion()
    forget_signals()
    try:
        with noted_inputs():
            code = _command_of(app)(words, prog_name="orrery", standalone_mode=False) or 0
        if cut_short():
            sys.stdout.flush()
            code = code or INTERRUPTED
    except KeyboardInterrupt:  # before typer has begun, which turns it into a code
        code = INTERRUPTED
    except (OrreryError, OSError, typer.TyperException) as error:
        return _complain(_message(error), getattr(error, "exit_code", BAD_INPUT))
    except Exception as error:
        if said := _lacking(error):
            return _complain(said, BAD_INPUT)
        if received() is None:
            if os.environ.get("ORRERY_DEBUG"):
                raise
            return _complain(_defect(error, words), DEFECT)
        code = INTERRUPTED  # a library has made another error of it: Numba does while it compiles
    if code != INTERRUPTED:  # typer turns KeyboardInterrupt into this code
        return int(code)
    ended_by = received() or signal.SIGINT
    return _complain(ENDED_BY[ended_by], 128 + ended_by)


@lru_cache(maxsize=1)
def _command_of(app: typer.Typer) -> Callable[..., int | None]:
    """Return what runs an app's commands; to make it takes 30 ms, and processes that run many commands share it."""
    return get_command(app)


def _complain(message: str, code: int) -> int:
    """Print a message on one line of standard error, and return the exit code."""
    line = printable(" ".join(message.split()))
    try:
        print("orrery:", line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ...", file=sys.stderr, flush=True)
    except OSError:  # a full disk, or nobody reads it: the code says enough
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - the interpreter writes what is left at its end
    return code


def _lacking(error: Exception) -> str:
    """Return what the system has refused to a command, empty for other errors: neither is a defect."""
    if isinstance(error, MemoryError):
        return " ".join(["out of memory, or at a limit of it (ulimit -v, -d)", *[f"({error})"] * bool(str(error))])
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return "cannot start a thread: a limit of processes has been reached (ulimit -u, pids of the control group)"
    return ""


def _defect(error: Exception, words: Sequence[str]) -> str:
    """Return what a command was at when it met an error that none of its parts foresaw."""
    command = next((word for word in words if not word.startswith("-")), "the command")
    after = f" after reading {last_input()}" if last_input() else ""
    lines = str(error).strip().splitlines()
    said = f": {lines[0]}" if lines else ""
    return f"{command} broke off{after} ({type(error).__name__}{said}); ORRERY_DEBUG=1 shows where"


def _message(error: Exception) -> str:
    """Return what went wrong: the file and the system's words, or the option and the rule that its value breaks."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return f"cannot use {str(error.filename)!r}: {reason}" if error.filename else f"cannot go on: {reason}"
    if name := getattr(error, "option_name", ""):
        context: Any = getattr(error, "ctx", None)
        known = [option for each in context.command.params for option in each.opts] if context else []
        return f"{error}{did_you_mean(name, known) or _word_of_strategies(name.lstrip('-'), known)}"
    if not isinstance(error, typer.BadParameter):
        return str(error)
    # typer checks values by pydantic, whose error it keeps as the cause.
    rows: list[Any] = getattr(error.__cause__, "errors", list)()
    if rows:
        error.message = _broken_rule(rows[0])
    return error.format_message()


def _word_of_strategies(name: str, known: Sequence[str]) -> str:
    """Return how an option of ``orrery plan`` is given to a command that takes several plans; empty for others."""
    from planner.plan.plan_text import option_words

    if "--strategies" not in known or name not in option_words():
        return ""
    return f"; options of a plan follow its strategy, such as --strategies 'data,{name}=...'"


def _broken_rule(row: Mapping[str, Any]) -> str:
    """Return the rule of one of pydantic's errors and the value that breaks it."""
    context = row.get("ctx", {})
    if row["type"] == "value_error":  # raised by a parser, which says all
        text = str(context["error"])
        value, is_choice, listed = text.rstrip(".").partition(" is not one of ")
        if is_choice:
            choices = [each.strip("'") for each in listed.split(", ")]
            return f"must be one of {', '.join(choices)}, got {value}{did_you_mean(row['input'], choices)}"
        return text if repr(row["input"]) in text else f"{text.rstrip('.')}, got {row['input']!r}"
    return f"{_RULES.get(row['type'], row['msg']).format(**context)}, got {row['input']!r}"


def left_out(where: str, **options: object) -> None:
    """Refuse options that would be passed over in silence: all that are not None.

    Args:
        where: Circumstance in which the options have no meaning, such as ``with --cluster``.
        options: Values by the option's name.

    Raises:
        ConfigError: One is given.
    """
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"{name} must be left out {where}, got {str(value)!r}")
