"""Help is quick because a command's imports are inside it."""

import ast
import contextlib
import dataclasses
import inspect
import io
import json
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app

COMMANDS = (
    "models",
    "clusters",
    "devices",
    "completion",
    "import",
    "plan",
    "simulate",
    "replay",
    "analyse",
    "compare",
    "oracle",
    "streams",
    "size",
    "whatif",
    "sweep",
    "results",
    "run",
    "read",
    "probe",
    "calibrate",
    "trace",
    "chakra",
    "validate",
    "lab",
    "accuracy",
    "show",
    "timeline",
    "index",
    "serve",
    "reproduce",
    "fidelity",
)
HEAVY = ("numpy", "pandas", "numba", "torch", "plotly", "networkx", "msgspec", "reports", "simulator")
REQUESTS = {
    "planner.plan.plan_options",
    "planner.plan.plan_request",
    "studies.eight_bit.compression_request",
    "studies.eight_bit.lists",
    "studies.oracle.oracle_request",
    "studies.size.typed_values",
    "studies.size.size_requests",
    "studies.streams.stream_request",
    "executor.accuracy.accuracy_request",
    "executor.probe.probe_settings",
    "executor.runtime.optimizer_spec",
    "executor.runtime.run_options",
    "executor.streams.measure_request",
    "executor.validation.validation_request",
}
"""Of the parts below, the modules that declare options, and what these check them by."""


SCRIPT = """
import contextlib, io, json, sys
from orrery.cli import app
from orrery.terminal.exit_codes import run_app
before, rows = set(), {}
for command in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run_app(app, [*command.split(), "--help"])
    rows[command] = code, out.getvalue(), sorted(set(sys.modules) - before)
    before = set(sys.modules)
print(json.dumps(rows))
"""


@pytest.fixture(scope="module")
def helped():
    """Code, text and newly loaded modules of every command's help, one after another in one fresh process."""
    words = [sys.executable, "-c", SCRIPT, "", *COMMANDS]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_loads_nothing_heavy(command, helped):
    """The limit is 0.3 s: what would break it is an import of a library or of a part below."""
    code, out, loaded = helped[command]

    assert code == 0
    assert "Usage: orrery" in out
    if not command:
        assert "orrery.cli" in loaded
    assert [name for name in HEAVY if name in loaded] == []
    below = {name for name in loaded if name.partition(".")[0] in ("planner", "studies", "executor")}
    packages = {package for name in REQUESTS for package in (name.partition(".")[0], name.rpartition(".")[0])}
    assert below - packages - REQUESTS == set()


def test_help_lists_every_command(capsys):
    """The commands that the README names are the commands that there are, in groups, each with its whole sentence."""
    from orrery.cli import app
    from orrery.terminal.exit_codes import run_app

    assert run_app(app, ["--help"]) == 0
    lines = capsys.readouterr().out.partition("Look up:")[2].splitlines()
    listed = [line.split()[0] for line in lines if line[:2] == "  " and line[2:3].strip()]
    assert tuple(listed) == COMMANDS
    assert not any(line.endswith("...") for line in lines)
    assert "Others:" not in lines


def test_no_option_is_passed_over():
    """Whatever a command takes, it reads."""
    from typer.main import get_command

    from orrery.cli import app

    def callbacks(group):
        for command in group.commands.values():
            yield from callbacks(command) if hasattr(command, "commands") else (command.callback,)

    found = list(callbacks(get_command(app)))
    assert len(found) > len(COMMANDS)
    requests = set()
    for command in map(inspect.unwrap, found):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(command))).body
        read = {node.id for each in tree.body for node in ast.walk(each) if isinstance(node, ast.Name)}
        parameters = inspect.signature(command, eval_str=True).parameters
        assert set(parameters) - read == set(), command.__name__
        requests |= {each.annotation for each in parameters.values() if dataclasses.is_dataclass(each.annotation)}
    assert len(requests) >= 9
    root = Path(__file__).parents[2]
    code = "".join(
        path.read_text()
        for package in ("planner", "studies", "executor", "orrery")
        for path in (root / package).rglob("*.py")
    )
    for request in requests:
        for field in dataclasses.fields(request):
            assert re.search(rf"\.{field.name}\b|\"{field.name}\"", code), (request, field.name)


def test_public_names_load_on_first_use():
    """``import orrery`` loads nothing; what it lists is there, and nothing else is."""
    script = "import orrery, sys; print(sorted(n for n in sys.modules if n.split('.')[0] in ('numpy', 'planner')))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"

    import orrery

    assert len(orrery.__all__) > 60
    assert dir(orrery) == orrery.__all__
    for name in orrery.__all__:
        assert getattr(orrery, name).__name__ == name
        assert getattr(orrery, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = orrery.nothing


def test_many_options_stand_in_groups():
    """Every option once, none among Others; what all commands have comes last."""
    from typer.main import get_command

    from orrery.cli import app
    from orrery.terminal.exit_codes import run_app

    def commands(group, words):
        for name, command in getattr(group, "commands", {}).items():
            yield from commands(command, (*words, name))
            yield (*words, name), command

    grouped = 0
    for words, command in commands(get_command(app), ()):
        options = [each for each in command.params if each.param_type_name == "option"]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert run_app(app, [*words, "--help"]) == 0
        lines = out.getvalue().splitlines()
        listed = [line.split()[0] for line in lines if line.startswith("  --")]
        assert len(listed) == len(set(listed)) == len(options) + 1 or hasattr(command, "commands"), words
        assert listed[-1] == "--help", words
        assert "Others:" not in lines, words
        grouped += "Output:" in lines
    assert grouped >= 10


def test_the_version_is_that_of_the_distribution(capsys):
    assert run_app(app, ["--version"]) == 0
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert capsys.readouterr().out == f"orrery {pyproject['project']['version']}\n"
