"""A request's dataclass is offered as options of a command."""

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import pytest
import typer

from groundwork.errors import ConfigError
from groundwork.requests import check_fields, option, whole_number
from orrery.terminal.exit_codes import run_app
from orrery.terminal.request_options import takes_requests

if TYPE_CHECKING:
    from nowhere import Heavy


def numbers(text):
    """Take a list of numbers apart."""
    return tuple(int(word) for word in text.split(",")) if text else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """All kinds of fields."""

    subject: str = option(help="Argument.", metavar="SUBJECT", positional=True)
    count: int = option(help="Required.", metavar="N", parser=whole_number)
    kind: Literal["one", "other", "third"] = option("one", help="Choice.")
    sizes: tuple[int, ...] = option((1, 2), typed="1,2", parser=numbers, help="List.")
    some: tuple[int, ...] | None = option(None, parser=numbers, help="Another list.")
    share: float | None = option(None, help="Nothing by default.")
    low: int = option(0, low=0, help="Not negative.")
    each: bool = option(False, names=("--each",), help="Flag.")
    inner: "Heavy | None" = None
    """Not an option; its type cannot be loaded."""

    def __post_init__(self):
        if self.low > 9:
            raise ConfigError(f"low must be <= 9, got {self.low}")


def app_of(command):
    """Make a program of one command."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command()(command)
    return app


@pytest.fixture
def asked():
    """Make a program that keeps its requests, and the list of them."""
    kept = []

    @takes_requests
    def command(*, question: Question, extra: Annotated[int, typer.Option()] = 3):
        """Keep the request."""
        kept.append((question, extra))

    return app_of(command), kept


def test_fields_become_the_options_of_a_command(asked):
    app, kept = asked
    assert run_app(app, ["it", "--count", "4"]) == 0
    words = "--kind other --sizes 3,4,5 --some 6 --share 0.5 --low 9 --each --extra 7"
    assert run_app(app, ["it", "--count", "4", *words.split()]) == 0

    assert kept[0] == (Question(subject="it", count=4, some=()), 3)
    assert kept[1] == (
        Question(subject="it", count=4, kind="other", sizes=(3, 4, 5), some=(6,), share=0.5, low=9, each=True),
        7,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--count 4", "Missing argument 'SUBJECT'."),
        ("it", "Missing option '--count'."),
        ("it --count 0", "Invalid value for '--count': must be a whole number >= 1, got '0'"),
        ("it --count x", "Invalid value for '--count': must be a whole number >= 1, got 'x'"),
        ("it --count 4 --kind two", "Invalid value for '--kind': must be one of one, other, third, got 'two'"),
        ("it --count 4 --low -1", "Invalid value for '--low': must be greater than or equal to 0, got '-1'"),
        ("it --count 4 --low 10", "low must be <= 9, got 10"),
        ("it --count 4 --share all", "Invalid value for '--share': must be a valid number, got 'all'"),
        ("it --count 4 --inner 4", "No such option: --inner"),
    ],
)
def test_unusable_words_are_refused(asked, words, message, capsys):
    app, kept = asked
    assert run_app(app, words.split()) == 2

    assert capsys.readouterr().err.startswith(f"orrery: {message}")
    assert kept == []


def test_help_has_the_line_of_every_field(asked, capsys):
    assert run_app(asked[0], ["--help"]) == 0
    said = capsys.readouterr().out

    assert [line in said for line in ("Argument.", "Choice.", "Another list.", "Not negative.", "Flag.")] == [True] * 5
    assert "--each " in said
    assert "--no-each" not in said
    assert "[default: 1,2]" in said
    assert "--inner" not in said


def test_options_stand_where_the_request_does(asked):
    app, _ = asked
    (registered,) = app.registered_commands
    names = list(inspect.signature(registered.callback).parameters)
    assert names == ["subject", "count", "kind", "sizes", "some", "share", "low", "each", "extra"]


def test_two_options_of_one_name_are_refused():
    def command(*, question: Question, low: int = 0):
        """Take the same option twice."""

    with pytest.raises(TypeError, match="command has the option low twice"):
        takes_requests(command)


def test_choices_are_checked_in_python_too():
    check_fields(Choices(kind="third", way="right"))
    with pytest.raises(ConfigError, match="kind must be one of one, other, third, got 'two'"):
        check_fields(Choices(kind="two"))
    with pytest.raises(ConfigError, match="way must be left or right, got 'up'"):
        check_fields(Choices(way="up"))
    with pytest.raises(ConfigError, match="share must be a number, got '3'"):
        check_fields(Choices(share="3"))
    with pytest.raises(ConfigError, match=r"many must be a whole number, got 2\.0"):
        check_fields(Choices(many=2.0))
    check_fields(Choices(share=3))
    with pytest.raises(ConfigError, match="many must be a whole number, got True"):
        check_fields(Choices(many=True))
    numbers = Choices(share=np.float32(0.5), many=np.int64(2))  # which no plan file could hold
    check_fields(numbers)
    assert [type(numbers.share), type(numbers.many), numbers.share, numbers.many] == [float, int, 0.5, 2]


@dataclass(frozen=True)
class Choices:
    """Fields of which some are choices."""

    kind: Literal["one", "other", "third"] = "one"
    way: Literal["left", "right"] = "left"
    number: int = 0
    share: float = 0.0
    many: int | None = None
