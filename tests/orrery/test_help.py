"""Help is quick because a command's imports are inside it."""

import ast
import inspect
import json
import subprocess
import sys
import textwrap

import pytest

COMMANDS = (
    "models", "clusters", "plan", "simulate", "replay", "analyse", "compare", "oracle", "streams", "whatif", "sweep",
    "results", "run", "probe", "validate", "lab", "accuracy", "show", "timeline", "index", "reproduce",
)  # fmt: skip
HEAVY = ("numpy", "pandas", "numba", "torch", "plotly", "networkx", "planner", "reports", "simulator")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_loads_nothing_heavy(command):
    """The limit is 0.3 s: what would break it is an import of a library or of a part below."""
    words = [*command.split(), "--help"]
    script = (
        "import json, sys; from orrery.cli import app; from orrery.terminal.exit_codes import run; "
        "code = run(app, sys.argv[1:]); print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    code, loaded = json.loads(ended.stderr)

    assert code == 0
    assert "Usage: orrery" in ended.stdout
    assert [name for name in HEAVY if name in loaded] == []


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
    from typer import Typer

    from orrery.cli import app

    def commands(group: Typer):
        yield from (command.callback for command in group.registered_commands)
        for inner in group.registered_groups:
            yield from commands(inner.typer_instance)

    found = list(commands(app))
    assert len(found) > len(COMMANDS)
    for command in found:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(command))).body
        read = {node.id for each in tree.body for node in ast.walk(each) if isinstance(node, ast.Name)}
        assert set(inspect.signature(command).parameters) - read == set(), command.__name__


def test_public_names_load_on_first_use():
    """``import orrery`` loads nothing; what it lists is there, and nothing else is."""
    script = "import orrery, sys; print(sorted(n for n in sys.modules if n.split('.')[0] in ('numpy', 'planner')))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"

    import orrery

    assert all(getattr(orrery, name).__name__ == name for name in orrery.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = orrery.nothing
