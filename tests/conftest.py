"""What all tests share: one hypothesis profile, quick processes, few collections."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python
from hypothesis import settings

# Hundreds of processes are started, and compiling the project's modules again takes each a third of a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A defect of ours shows its traceback, here and in the commands that tests start.
os.environ["ORRERY_DEBUG"] = "1"

# Standard error holds what a test is about, however busy the machine is.
os.environ["ORRERY_PROGRESS"] = "off"

# Commands ignore what their caller ignores, as shells make background jobs ignore Ctrl-C; tests send these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The machine may be shared: no test depends on how long an example takes, and failures repeat.
settings.register_profile("orrery", deadline=None, derandomize=True)
settings.load_profile("orrery")

# Looking for cycles after every 700 new objects, as Python does, is a tenth of the time of tests of the planner.
gc.set_threshold(50_000, 10, 10)


LONGEST = (
    "test_lab_network.py",
    "test_documents.py",
    "test_sweep_run.py",
    "test_fuzz.py",
    "test_chaos.py",
    "test_lab.py",
    "test_watchdog.py",
    "test_validation.py",
    "test_accuracy.py",
    "test_listening.py",
    "test_killed_supervisor.py",
    "test_replay.py",
    "test_input_channel_split.py",
    "test_hybrid_search.py",
    "test_comparison_page.py",
)
"""Files that take longest: each goes to one process as a whole (``--dist loadfile``), so they go first."""


def pytest_configure(config):
    """Compile the kernels of a fresh checkout once, before several processes begin and each would."""
    compiled = Path(__file__).parents[1] / "simulator" / "compiled" / "__pycache__"
    if not config.getoption("numprocesses", None) or any(compiled.glob("replay-*.cached")):
        return
    script, folder = "import warm_python; warm_python.preload()", Path(__file__).parent
    subprocess.run([sys.executable, "-c", script], cwd=folder, stderr=subprocess.DEVNULL, check=False)


def pytest_collection_modifyitems(items):
    first = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path.name, len(first)))


def pytest_collection_finish():
    """What is loaded by now stays: no later look for cycles, and none at the end, passes through it."""
    gc.freeze()


@pytest.fixture(scope="session")
def warm_programs(tmp_path_factory):
    """Folder with ``python`` and ``orrery`` that start warm."""
    folder = tmp_path_factory.mktemp("warm")
    with warm_python.started(folder):
        yield folder


@pytest.fixture(scope="module")
def warm_ranks(warm_programs):
    """Ranks that this module starts fork from a process that has imported torch, which takes each two seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(warm_programs / "python"))
        yield
