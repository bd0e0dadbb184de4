"""What all tests share: one hypothesis profile, quick processes, few collections."""

import contextlib
import gc
import multiprocessing
import os
import signal
import stat
import sys
import tempfile
from multiprocessing import forkserver, spawn
from pathlib import Path

import pytest
import warm_python
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import engine
from warm_python import WARM

# Hundreds of processes are started, and compiling the project's modules again takes each a third of a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A process that the tests' server forks starts others as any interpreter does.
if os.path.dirname(sys.executable) == os.environ.get(WARM):
    sys.executable = sys.orig_argv[0]
    multiprocessing.set_executable(sys.executable)

# A defect of ours shows its traceback, here and in the commands that tests start.
os.environ["ORRERY_DEBUG"] = "1"

# More threads wait than there are cores: those that wait leave the cores to others.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Standard error holds what a test is about, however busy the machine is.
os.environ["ORRERY_PROGRESS"] = "off"

# Commands ignore what their caller ignores, as shells make background jobs ignore Ctrl-C; tests send these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The machine may be shared: no test depends on how long an example takes, and failures repeat.  As every run has the
# same examples, more of them would find something once at most; ``make fuzz`` looks for new ones.
# A failing example is made smaller for a while, not for the five minutes that hypothesis allows itself.
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)
settings.register_profile("orrery", deadline=None, derandomize=True, max_examples=20, phases=PHASES)
settings.load_profile("orrery")
engine.MAX_SHRINKING_SECONDS = 20

# Looking for cycles after every 700 new objects, as Python does, is a tenth of the time of tests of the planner.
gc.set_threshold(50_000, 10, 10)


LONGEST = (
    "test_documents.py",
    "test_every_page.py",
    "test_hybrid_search.py",
    "test_layerwise.py",
    "test_planned_transformers.py",
    "test_counted_memory.py",
    "test_lab.py",
    "test_workbench_clients.py",
    "test_workbench_in_browser.py",
    "test_imported_training.py",
    "test_storage_training.py",
    "test_workbench_jobs.py",
    "test_replay.py",
    "test_lab_network.py",
    "test_reproduce.py",
    "test_sweep_run.py",
    "test_validation.py",
    "test_library_fit.py",
    "test_torchrun.py",
    "test_alike_replicas.py",
    "test_mesh_training.py",
    "test_supervisor.py",
    "test_chaos.py",
    "test_compare.py",
    "test_calibrate.py",
    "test_whatif.py",
    "test_summed_training.py",
    "test_own_measurements.py",
    "test_imported_run.py",
    "test_packaging.py",
    "test_megatron_memory.py",
    "test_interrupts.py",
    "test_run_command.py",
    "test_rank_end.py",
    "test_refine.py",
    "test_failures.py",
    "test_oracle.py",
    "test_eight_bit_paper_page.py",
    "test_expert_training.py",
    "test_compressed_training.py",
    "test_plan_view.py",
    "test_host_launches.py",
    "test_recorded_parts.py",
    "test_onnx_files.py",
    "test_architecture.py",
    "test_ordered_gradient_sync.py",
    "test_model_files.py",
    "test_costs.py",
    "test_accuracy.py",
    "test_resume_residuals.py",
    "test_batch_statistics.py",
    "test_half_precision.py",
)
"""Files that take longest, the longest first: each goes to one process as a whole (``--dist loadfile``)."""


COLLECT = ["--collect-only", "-qq", "-p", "no:cacheprovider", str(Path(__file__).parent)]


def pytest_configure(config):
    """Before several processes run tests, start one server for all, which forks them: they import most there is.

    In a fresh checkout it compiles the kernels, while a child of it rewrites the tests' modules, once for all.
    """
    if not config.getoption("numprocesses", None):
        return
    for name in config.args:  # what several processes cannot find, they do not name
        if not Path(config.invocation_params.dir, name.partition("::")[0]).exists():
            raise pytest.UsageError(f"file or directory not found: {name}")
    stack, root = contextlib.ExitStack(), Path(__file__).parents[1]
    config.add_cleanup(stack.close)
    folder = os.environ[WARM] = stack.enter_context(tempfile.TemporaryDirectory())
    paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    fresh = not any((root / "simulator" / "compiled" / "__pycache__").glob("replay-*.cached"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", paths)
        stack.enter_context(warm_python.started(Path(folder), first=COLLECT if fresh else ()))
    config.option.tx = [f"popen//python={folder}/python"] * len(config.option.tx)


TESTS = Path(__file__).parent
SHARED = ("needs_chromium", "importing.imported_modules")
"""Words of files that share what one process has made: a browser, and traces of modules."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give all files that share something to one process, where each file goes to one process."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Shared(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return shared.get(file, file)

    texts = {path.relative_to(config.rootpath).as_posix(): path.read_text() for path in TESTS.rglob("test_*.py")}
    shared = {file: words for file, text in texts.items() for words in SHARED if words in text}
    return Shared(config, log)


def pytest_collection_modifyitems(items):
    """Let the longest files begin early, with others between them.

    Most of the longest wait for processes, and most others compute: side by side they keep the cores busy.
    """
    paths = list(dict.fromkeys(item.path for item in items))
    long = sorted((path for path in paths if path.name in LONGEST), key=lambda path: LONGEST.index(path.name))
    others = [path for path in paths if path.name not in LONGEST]
    between = len(others) / (len(long) + 1)
    turn = {path: place * between for place, path in enumerate(long)} | {path: at for at, path in enumerate(others)}
    items.sort(key=lambda item: turn[item.path])


FORKED = (
    "executor.checkpoints.checkpoint",
    "hypothesis",
    "numba.np.arraymath",
    "orrery.workbench.bench_process",
    "pandas",
    "pydantic",
    "pytest",
    "safetensors.torch",
    warm_python.SYMBOLS,
)
"""What the processes that tests fork need: a server imports it once, which takes seconds of a core."""


def pytest_collection_finish(session):
    """Prepare a quick run of what is collected; nothing is where a path does not exist, and pytest says so.

    What is loaded by now stays: no later look for cycles, and none at the end, passes through it.  There is one server
    that forks processes, and its first user decides what it imports, so that is told it here, for all of them.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(FORKED))
    if session.items and WARM in os.environ:  # a run of many files needs it, and it has imported all of that
        with started_warm(Path(os.environ[WARM])):
            forkserver.ensure_running()
    gc.freeze()


@pytest.fixture
def null_device(tmp_path_factory):
    """A device that discards what is written to it.

    Root, who could put a file in the place of the machine's own, gets another one; the test is skipped on a machine
    where /dev/null is no device.
    """
    made = tmp_path_factory.mktemp("devices") / "null"
    with contextlib.suppress(OSError):  # only root may make devices, and not on every file system
        os.mknod(made, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        made.write_text("gone")
        return made
    path = Path(os.devnull)
    if not path.is_char_device():
        pytest.skip(f"{path} is no device on this machine")
    return path


@pytest.fixture(scope="session")
def warm_programs(tmp_path_factory):
    """Folder with ``python`` and ``orrery`` that start warm."""
    if WARM in os.environ:
        yield Path(os.environ[WARM])
        return
    folder = tmp_path_factory.mktemp("warm")
    with warm_python.started(folder):
        yield folder


@pytest.fixture(scope="module")
def warm_ranks(warm_programs):
    """Ranks that this module starts fork from a process that has imported torch, which takes each two seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(warm_programs / "python"))
        yield


@contextlib.contextmanager
def started_warm(programs):
    """Processes of ``multiprocessing`` start warm meanwhile."""
    before = spawn.get_executable()
    multiprocessing.set_executable(str(programs / "python"))
    try:
        yield
    finally:
        multiprocessing.set_executable(before)


@pytest.fixture
def warm_workers(warm_programs):
    """Processes of ``multiprocessing`` that this test spawns fork from one that has imported what they need."""
    with started_warm(warm_programs):
        yield
