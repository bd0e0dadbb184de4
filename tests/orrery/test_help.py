"""Help is quick because a command's imports are inside it."""

import json
import subprocess
import sys

import pytest

COMMANDS = (
    "models", "clusters", "plan", "simulate", "replay", "analyse", "compare", "reproduce", "accuracy", "run",
    "probe", "validate", "oracle", "streams", "sweep", "results", "timeline", "show", "index", "lab", "whatif",
)  # fmt: skip
HEAVY = ("numpy", "pandas", "numba", "torch", "plotly", "networkx", "planner", "reports", "simulator")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_loads_nothing_heavy(command):
    """The limit is 0.3 s: what would break it is an import of a library or of a part below."""
    words = [*command.split(), "--help"]
    script = (
        "import json, sys; from orrery.cli import app; from orrery.errors import run; "
        "code = run(app, sys.argv[1:]); print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    code, loaded = json.loads(ended.stderr)

    assert code == 0
    assert "Usage: orrery" in ended.stdout
    assert [name for name in HEAVY if name in loaded] == []


def test_help_lists_every_command(capsys):
    """The commands that the README names are the commands that there are."""
    from orrery.cli import app
    from orrery.errors import run

    assert run(app, ["--help"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.partition("Commands:")[2].splitlines() if line]
    assert listed == list(COMMANDS)


def test_public_names_load_on_first_use():
    """``import orrery`` loads nothing; what it lists is there, and nothing else is."""
    script = "import orrery, sys; print(sorted(n for n in sys.modules if n.split('.')[0] in ('numpy', 'planner')))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"

    import orrery

    assert all(getattr(orrery, name).__name__ == name for name in orrery.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = orrery.nothing
