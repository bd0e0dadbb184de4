"""Interpreters that start warm: a server imports what commands and ranks import once, and forks each from itself.

Importing torch takes two seconds of a core, and tests start hundreds of processes.  ``started`` makes the
programs ``python``, ``orrery`` and ``torchrun``.  Each sends its arguments, environment, working directory and open
descriptors to the server, which forks a child that takes them over, in the process group and the network of the
program, and runs the module.  The program ends as the child ends; the child is killed when the program is.  Modules are
imported already and kernels are loaded; everything else is as in a process of its own.  Tests of imports, of what the
system says of a process, and of what it inherits use the real interpreter.
"""

import array
import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import marshal
import multiprocessing
import os
import pkgutil
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

PACKAGES = ("groundwork", "hwprofiles", "simulator", "planner", "studies", "executor", "reports", "orrery")
NOT_HERE = ("__main__", "triton_kernels", "first_process")
"""Modules that run when they are imported, or that need what not every machine has."""
SYMBOLS = "torch.fx.experimental.symbolic_shapes"
"""What torch imports, with all of SymPy, as it first computes a gradient: a third of a second of a core."""
LIBRARIES = (
    "pandas",
    "numba.np.arraymath",
    "safetensors.torch",
    "plotly.graph_objects",
    "scipy.stats",
    "torch._dynamo",
    "typer.rich_utils",
    SYMBOLS,
)
PROGRAMS = {"python": [], "orrery": ["-m", "orrery"], "torchrun": ["-m", "torch.distributed.run"]}
"""Names of the programs, and the words before those that they are called with."""
RANK = (
    "numba.np.arraymath",
    "safetensors.torch",
    SYMBOLS,
    "torch.distributed.run",
    "orrery.cli",
    "orrery.commands.run_command",
    "executor.run.plan_run",
    "executor.run.rank_entry",
    "executor.training.session",
    "planner.plan.lowered_plan",
    "planner.plan.make_plan",
)
"""Modules that ranks import."""
COVERAGE = "COVERAGE_PROCESS_START"
"""Names the settings of a measurement of what tests execute, if there is one: not of what the server imports."""
WARM = "ORRERY_WARM_PROGRAMS"
"""Names the folder of the programs, where several processes run tests."""
STARTS_S = 150
"""Longest time that programs wait for the server, which may have to compile the kernels."""
SMALL = [
    words.split()
    for words in (
        "compare lenet5 --cluster titanx-4 --batch 64",
        "plan resnet-cifar:depth=8 --cluster titanx-4 --batch 64 --strategy layerwise --refine 1",
    )
]
"""Commands that load the compiled kernels; what they need, most commands need."""
CLIENT = """#!{python} -IS
# the modules in C alone: others take as long to import as this takes in all
import array, marshal, os, sys, time, _signal as signal, _socket as socket
words = [*{before!r}, *sys.argv[1:]]
while words[:1] in (["-u"], ["-B"]):
    del words[0]
if words == [] and {before!r} == [] and not sys.stdin.isatty():
    words = ["-c", sys.stdin.read()]
if not words or not (words[0] in ("-m", "-c") or words[0].endswith(".py")):
    os.execv({python!r}, [{python!r}, *words])
server, until_s = socket.socket(socket.AF_UNIX), time.monotonic() + {starts_s}
while server.connect_ex({address!r}):
    if time.monotonic() > until_s:
        sys.exit("the warm interpreter has not started")
    time.sleep(0.05)
fds = [int(name) for name in os.listdir("/proc/self/fd")]
fds = [fd for fd in fds if os.path.exists(f"/proc/self/fd/{{fd}}") and os.get_inheritable(fd)]
job = dict(words=words, cwd=os.getcwd(), env=dict(os.environ), group=os.getpgid(0), fds=fds, pid=os.getpid())
job = marshal.dumps(job)
server.sendmsg([len(job).to_bytes(8, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
server.sendall(job)
child = int.from_bytes(server.recv(8), "little")
signal.signal(signal.SIGINT, signal.SIG_IGN)  # comes to the whole group, and the child decides
signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
status = server.recv(8)
code = os.waitstatus_to_exitcode(int.from_bytes(status, "little")) if status else 1
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextlib.contextmanager
def started(folder: Path, *, loaded: str = "all", first: Sequence[str] = ()) -> Iterator[None]:
    """Run a server whose programs ``python``, ``orrery`` and ``torchrun`` lie in ``folder``; they wait for it.

    Args:
        folder: Gets the programs.
        loaded: ``all`` that commands need, or only what every ``rank`` imports.
        first: What pytest is to do, with all modules imported, while the kernels are compiled; that is waited for.
    """
    with _short_folder() as short:
        address = f"{short}/socket"
        for name, before in PROGRAMS.items():
            program = folder / name
            program.write_text(CLIENT.format(python=sys.executable, before=before, address=address, starts_s=STARTS_S))
            program.chmod(0o755)
        words = [sys.executable, __file__, address, str(folder / "python"), loaded, *first]
        inherited = {name: value for name, value in os.environ.items() if name != COVERAGE}
        with subprocess.Popen(words, stdin=subprocess.PIPE, env=inherited) as server:  # closes its input, which ends it
            try:
                while first and not Path(address).exists() and server.poll() is None:
                    time.sleep(0.1)
                yield
            finally:
                if not Path(address).exists():  # it still imports, and serves nobody
                    server.kill()


@contextlib.contextmanager
def _short_folder() -> Iterator[Path]:
    """Yield a folder for a socket, whose path has at most 107 bytes.

    Unlike the standard library's, no fork of this process removes it when it ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def preload(first: Sequence[str]) -> None:
    """Import every module and load the compiled kernels, while a child does what pytest is to do first."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith(NOT_HERE):
                importlib.import_module(module.name)
    from orrery.cli import app
    from orrery.terminal.exit_codes import run_app
    from simulator.engines.engine import prepare

    child = os.fork() if first else None
    if child == 0:
        run_pytest(first)
    prepare()  # else the first small graphs would do without compiled code
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        for words in SMALL:
            assert run_app(app, [*words, "--out", f"{folder}/{words[0]}"]) == 0
    if child is not None:
        os.waitpid(child, 0)


def run_pytest(words: Sequence[str]) -> NoReturn:
    """Run pytest without a word, and without the programs, as they wait for its end; then end."""
    try:
        os.environ.pop(WARM, None)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        pytest.main([*words])
    finally:
        os._exit(0)


def preload_rank() -> None:
    """Import what every rank does, in half of the time."""
    for name in RANK:
        importlib.import_module(name)


def settle() -> None:
    """Spare forked processes what touches all that is imported: looks for cycles in it, and its finalizers."""
    for each in weakref.finalize._registry:
        each.atexit = False
    gc.set_threshold(50_000, 10, 10)
    gc.freeze()


def serve(address: str) -> None:
    """Fork a child for each connection, and send it the status that its child ended with."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    for each in (listener, woken, 0):
        selector.register(each, selectors.EVENT_READ)
    children: dict[int, socket.socket] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj == 0:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                return
            if key.fileobj == woken:
                os.read(woken, 4096)
                for pid, connection in list(children.items()):
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if ended:
                        del children[pid]
                        with contextlib.suppress(KeyError):
                            selector.unregister(connection)
                        with contextlib.suppress(OSError):
                            connection.sendall(status.to_bytes(8, "little"))
                        connection.close()
            elif key.fileobj is listener:
                connection = listener.accept()[0]
                head, rights, *_ = connection.recvmsg(8, socket.CMSG_SPACE(256 * 4))
                fds = array.array("i")
                for _, _, data in rights:
                    fds.frombytes(data)
                size, job = int.from_bytes(head, "little"), b""
                while len(job) < size and (more := connection.recv(size - len(job))):
                    job += more
                if not job or len(job) < size:  # the program was killed while it asked
                    for fd in (*fds, connection.detach()):
                        os.close(fd)
                    continue
                if (pid := os.fork()) == 0:
                    become(marshal.loads(job), list(fds), [listener.fileno(), connection.fileno(), woken, wake])
                for fd in fds:
                    os.close(fd)
                with contextlib.suppress(OSError):  # a program that was killed since is found to have ended below
                    connection.sendall(pid.to_bytes(8, "little"))
                children[pid] = connection
                selector.register(connection, selectors.EVENT_READ, pid)
            elif key.data in children:  # its program has ended
                with contextlib.suppress(ProcessLookupError):
                    os.kill(key.data, signal.SIGKILL)
                selector.unregister(key.fileobj)


def become(job: dict[str, Any], fds: list[int], closed: list[int]) -> None:
    """Take over the descriptors and the environment of a program, run its module, and end."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            os.setpgid(0, job["group"])
        except PermissionError:  # a group of another session
            os.setsid()
        enter_network(job["pid"])
        first = max([*fds, *job["fds"]]) + 1
        moved = [os.dup2(fd, first + i) for i, fd in enumerate(fds)]
        for fd in (*closed, *fds):
            with contextlib.suppress(OSError):
                os.close(fd)
        for fd, to in zip(moved, job["fds"], strict=True):
            os.dup2(fd, to)
            os.close(fd)
        sys.stdin, sys.stdout, sys.stderr = (
            io.TextIOWrapper(os.fdopen(fd, mode, closefd=False), line_buffering=os.isatty(fd), write_through=fd == 2)
            for fd, mode in ((0, "rb"), (1, "wb"), (2, "wb"))
        )
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        os.environ.clear()
        os.environ.update(job["env"])
        os.chdir(job["cwd"])
        if COVERAGE in os.environ:
            import coverage

            coverage.process_startup()
        if threads := job["env"].get("OMP_NUM_THREADS"):
            import torch

            torch.set_num_threads(int(threads))
        kind, what, *words = job["words"] if job["words"][0] in ("-m", "-c") else ("", *job["words"])
        paths = [path for path in job["env"].get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.path[:1] = [{"-m": job["cwd"], "-c": ""}.get(kind, os.path.dirname(what)), *paths]
        sys.argv = ["-c", *words] if kind == "-c" else [what, *words]
        code = run(kind, what)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def enter_network(pid: int) -> None:
    """Enter the network of a program, where that is another one: a host of a lab.

    Raises:
        OSError: The system does not let it.
    """
    theirs = f"/proc/{pid}/ns/net"
    if os.readlink(theirs) != os.readlink("/proc/self/ns/net"):
        with open(theirs) as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")


def run(kind: str, what: str) -> int:
    """Run a module, text or file as the main program; returns the exit code that an interpreter would end with."""
    try:
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        elif kind == "-c":
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_path(what, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 0


if __name__ == "__main__":
    preload(sys.argv[4:]) if sys.argv[3] == "all" else preload_rank()
    settle()
    sys.executable = sys.argv[2]
    multiprocessing.set_executable(sys.executable)
    serve(sys.argv[1])
