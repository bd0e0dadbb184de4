"""However a command goes wrong: one line on standard error, exit code 2, and nothing half done."""

import types

import pytest

from groundwork.errors import ConfigError
from orrery.cli import app
from orrery.terminal.exit_codes import run_app


def raises(error):
    """Make a function that raises."""

    def function(*arguments, **options):
        raise error

    return function


@pytest.fixture
def planner_that_ends_with(monkeypatch):
    """Make a planner whose ``simulated_plan`` raises the given error, after writing nothing."""

    def make(error):
        answers = {
            "hwprofiles.catalogue.cluster_catalogue.load_cluster": str,
            "planner.models.registry.load_model": lambda spec, batch, element_bytes: types.SimpleNamespace(
                element_bytes=element_bytes
            ),
            "planner.plan.make_plan.simulated_plan": raises(error),
            "planner.plan.plan_file.save_plan": lambda plan, path: path.write_text("plan"),
        }
        for name, answer in answers.items():
            monkeypatch.setattr(name, answer)

    return make


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "Missing command."),
        ("pan", "No such command 'pan'."),
        ("plan", "Missing argument 'MODEL'."),
        ("plan vgg16 --batch 8 --out p.json", "Missing option '--cluster'."),
        ("plan vgg16 --cluster k80-16 --batch 0 --out p.json", "'--batch': must be a whole number >= 1, got '0'"),
        ("plan vgg16 --cluster k80-16 --batch -4 --out p.json", "'--batch': must be a whole number >= 1, got '-4'"),
        ("plan vgg16 --cluster k80-16 --batch nan --out p.json", "'--batch': must be a whole number >= 1, got 'nan'"),
        ("plan vgg16 --cluster k80-16 --batch 1.5 --out p.json", "'--batch': must be a whole number >= 1, got '1.5'"),
        (
            "plan vgg16 --cluster k80-16 --batch 8 --out p.json --gradient-sync rng",
            "'--gradient-sync': must be one of ring, ",
        ),
        (
            "plan vgg16 --cluster k80-16 --batch 8 --refine -1 --out p.json",
            "'--refine': must be greater than or equal to 0, got '-1'",
        ),
        ("run p.json --seed x", "'--seed': must be a valid integer, got 'x'"),
        ("run p.json --learning-rate fast", "'--learning-rate': must be a valid number, got 'fast'"),
        ("simulate p.json --engine fast", "'--engine': must be one of auto, compiled, simpy, got 'fast'"),
        ("simulate p.json --iterations 0", "'--iterations': must be a whole number >= 1, got '0'"),
        ("simulate p.json --contended", "No such option: --contended"),
        ("plan vgg16 --batchsize 8", "No such option: --batchsize; did you mean '--batch'?"),
        ("plan vgg16 --precision bf16", "No such option: --precision; did you mean '--dtype'?"),
        ("compare vgg16 --optimizer adam", "a plan follow its strategy, such as --strategies 'data,optimizer=...'"),
        ("plan vgg16 --dtype bf16", "float8, got 'bf16'; did you mean 'bfloat16'?"),
        ("plan vgg16 --optimizer AdamW", "got 'AdamW'; did you mean 'adam'?"),
        ("simulate p.json q.json", "Got unexpected extra argument(s) (q.json)"),
        ("reproduce imagenet", "must be one of deepa, layerwise"),
    ],
)
def test_unusable_words_are_named_on_one_line(words, message, capsys):
    """Usage errors look like all others: no usage text, no box."""
    assert run_app(app, words.split()) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_errors_of_the_parts_end_as_one_line(planner_that_ends_with, tmp_path, capsys):
    """Line breaks inside a message do not break the line; the old plan stays as it was."""
    plan_file = tmp_path / "plan.json"
    plan_file.write_text("old")
    planner_that_ends_with(ConfigError("batch must divide,\n  got 7"))

    assert run_app(app, ["plan", "vgg16", "--cluster", "k80-16", "--batch", "7", "--out", str(plan_file)]) == 2

    assert capsys.readouterr().err == "orrery: batch must divide, got 7\n"
    assert plan_file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [plan_file]


def test_interrupt_ends_with_130_and_leaves_nothing(planner_that_ends_with, tmp_path, capsys):
    """Ctrl-C removes the folders that the command had made."""
    planner_that_ends_with(KeyboardInterrupt())

    assert (
        run_app(app, ["plan", "vgg16", "--cluster", "c", "--batch", "8", "--out", str(tmp_path / "a/b/p.json")]) == 130
    )

    assert capsys.readouterr().err == "orrery: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_unwritable_place_is_found_before_the_work(planner_that_ends_with, tmp_path, capsys):
    """A folder cannot be made below a file; the planner, which would fail, is never reached."""
    (tmp_path / "file").write_text("old")
    planner_that_ends_with(AssertionError("reached"))

    assert (
        run_app(app, ["plan", "vgg16", "--cluster", "c", "--batch", "8", "--out", str(tmp_path / "file/p.json")]) == 2
    )

    assert "output path must be writable, got" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "old"


def test_file_errors_name_the_file(planner_that_ends_with, tmp_path, capsys):
    """What the system refuses carries the name and the system's words."""
    planner_that_ends_with(PermissionError(13, "Permission denied", "tables.yaml"))

    assert run_app(app, ["plan", "vgg16", "--cluster", "c", "--batch", "8", "--out", str(tmp_path / "p.json")]) == 2

    assert capsys.readouterr().err == "orrery: cannot use 'tables.yaml': Permission denied\n"


PLANNING = ["plan", "vgg16", "--cluster", "c", "--batch", "8", "--out"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("1 GiB"), "out of memory, or at a limit of it (ulimit -v, -d) (1 GiB)"),
        (RuntimeError("can't start new thread"), "cannot start a thread: a limit of processes has been reached"),
    ],
)
def test_limits_of_the_system_are_no_bugs_of_ours(planner_that_ends_with, tmp_path, capsys, error, said):
    planner_that_ends_with(error)

    assert run_app(app, [*PLANNING, str(tmp_path / "p.json")]) == 2
    assert capsys.readouterr().err.startswith(f"orrery: {said}")


def test_our_own_bugs_keep_their_traceback_where_it_is_asked_for(planner_that_ends_with, tmp_path):
    """As in all these tests."""
    planner_that_ends_with(ZeroDivisionError("bug"))

    with pytest.raises(ZeroDivisionError, match="bug"):
        run_app(app, [*PLANNING, str(tmp_path / "p.json")])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("bug\nand more"), "(ZeroDivisionError: bug)"),
        (RecursionError("x\x1b[2J"), "x\\x1b[2J"),
    ],
)
def test_our_own_bugs_are_one_line_and_a_code_of_their_own(
    planner_that_ends_with, tmp_path, monkeypatch, capsys, error, said
):
    planner_that_ends_with(error)
    monkeypatch.delenv("ORRERY_DEBUG")

    assert run_app(app, [*PLANNING, str(tmp_path / "p.json")]) == 70
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("orrery: plan broke off")
    assert said in line
    assert list(tmp_path.iterdir()) == []
