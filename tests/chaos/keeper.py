"""One command that a fault strikes: it runs below a keeper process, which sees all of it and judges its end."""

import atexit
import ctypes
import hashlib
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import NoReturn

from chaos.commands import COMMANDS, STORE, wrong_outputs
from chaos.faults import ROOT, Fault, Scene, fault_of, private_mounts

PATIENCE_S, VANISH_S = 30.0, 5.0
"""Time to end after a fault, and for processes to be gone after the command."""
ENDS = (0, 1, 2, 129, 130, 143)
LOGS = (f"{STORE}-shm", f"{STORE}-wal")
_OTHERS = ("OpenBLAS ", "<jemalloc>")
"""Begin of what libraries say where no thread can be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command, the fault that strikes it, and whether outputs of an earlier command are there."""

    seed: int
    command: str
    fault: Fault
    again: bool
    repeated: bool = True
    """True to run the command once more, without a fault, and judge that too."""

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.command}, {self.fault.about}{', outputs there' if self.again else ''}"


@dataclass(slots=True)
class Outcome:
    """End of a case."""

    wrong: list[str] = field(default_factory=list)
    code: int = 0
    about: str = ""
    duration_s: float = 0.0
    said: str = ""


def case_of(seed: int, *, command: str | None = None, kind: str | None = None) -> Case:
    """Draw the case of a seed."""
    rng = random.Random(seed)
    drawn = rng.choices([*COMMANDS], [each.share for each in COMMANDS.values()])[0]
    return Case(seed=seed, command=command or drawn, again=rng.random() < 0.5, fault=fault_of(rng, kind))


def outcome(case: Case, samples: Path, length_s: float, *, keep: Path | None = None) -> Outcome:
    """Run a case in a process of its own.

    Args:
        case: The case.
        samples: Folder of inputs, with the outputs of undisturbed commands in ``after-COMMAND``.
        length_s: Duration of the undisturbed command.
        keep: New folder for what it leaves.
    """
    read, write = os.pipe()
    sys.stdout.flush()
    if (keeper := os.fork()) == 0:
        os.close(read)
        try:
            _adopt_orphans()
            result = _keep(case, samples, length_s, keep)
        except BaseException:
            result = Outcome(wrong=[f"keeper: {traceback.format_exc()}"])
        with os.fdopen(write, "w") as file:
            json.dump([result.wrong, result.code, case.fault.about, result.duration_s, result.said], file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(keeper, 0)
    return Outcome(*json.loads(text)) if text else Outcome(wrong=["the keeper died"])


@contextmanager
def folder_of(prefix: str) -> Iterator[Path]:
    """Yield a temporary folder; unlike the standard library's, no fork removes it when it ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _adopt_orphans() -> None:
    """Become the parent of all processes below that lose theirs, so that none is overlooked."""
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def _keep(case: Case, samples: Path, length_s: float, keep: Path | None) -> Outcome:
    """Run the command, let the fault happen, and judge."""
    with folder_of("chaos-case-") as base:
        scene = Scene(folder=base.joinpath("here"), scratch=base.joinpath("scratch"))
        shutil.copytree(samples / (f"after-{case.command}" if case.again else "new"), scene.folder)
        scene.scratch.mkdir(mode=0o777)
        base.joinpath("start").mkdir()
        base.joinpath("start", "sitecustomize.py").write_text(
            f"import sys\nsys.path.append({str(Path(__file__).parents[1])!r})\nimport chaos.jumping_clock\n"
        )
        base.chmod(0o755)
        if ROOT:
            private_mounts()
        result = _struck(case, scene, length_s)
        if keep:
            shutil.copytree(scene.folder, keep)
        if ROOT:  # before the folder can be removed
            _unmount(scene)
        return result


def _struck(case: Case, scene: Scene, length_s: float) -> Outcome:
    """Run the command with the fault, and the same command again after it."""
    fault = case.fault
    fault.prepare(scene)
    before = _digests(scene.folder)
    run = _Run(case, scene, fault)
    if fault.at > 0 and not run.ended(fault.at * (length_s + 1.2 * fault.cold)):
        fault.strike(scene)
    ended = run.ended(PATIENCE_S + 2 * length_s)
    code, left = run.finish()
    result = Outcome(code=code, about=fault.about, duration_s=run.duration_s, said=run.said)
    result.wrong += [f"took over {run.duration_s:.0f} s"] * (not ended) + left
    result.wrong += _wrong_end(fault, code, run.said)
    result.wrong += _wrong_rest(scene, killed=fault.killed)
    fault.undo(scene)
    if not fault.changed:
        # SQLite cannot fold its log into a store on a full disk, or without a descriptor; the next command does.
        logs = LOGS if fault.kind in ("disk", "descriptors", "file size") and code else ()
        wrong = wrong_outputs(case.command, scene.folder, killed=fault.killed)
        result.wrong += [each for each in wrong if not each.endswith(logs)]
        after = _digests(scene.folder)
        written = {name for name in before if name in COMMANDS[case.command].outputs}
        changed = [name for name in before if before[name] != after.get(name) and not _changes(name)]
        may = written if code in (0, *(-number for number in fault.sent)) else set()
        if code in [128 + number for number in fault.sent] and written <= set(changed):
            may = written  # interrupted behind its work: all outputs are new
        result.wrong += [f"{name} was changed" for name in changed if name not in may]
        result.wrong += _wrong_again(case, scene, length_s) if case.repeated else []
    return result


def _wrong_again(case: Case, scene: Scene, length_s: float) -> list[str]:
    """Return what is wrong after the same command without a fault: it works, and removes what was left."""
    if case.command == "run" and not case.fault.killed and case.seed % 3:
        return []  # takes long
    run = _Run(case, scene, None)
    ended = run.ended(PATIENCE_S + 2 * length_s)
    code, left = run.finish()
    wrong = [f"ended with {code}: {run.said[-300:]}"] * (code != 0) + ["took too long"] * (not ended) + left
    wrong += _wrong_rest(scene, killed=case.fault.killed and case.command != "run")
    wrong += wrong_outputs(case.command, scene.folder, killed=False)
    return [f"again: {each}" for each in wrong]


class _Run:
    """A command under way."""

    def __init__(self, case: Case, scene: Scene, fault: Fault | None) -> None:
        self._scene, self._parts = scene, list[bytes]()
        read, write = os.pipe()
        ready, begun = os.pipe()
        self._start_s = time.monotonic()
        if (child := os.fork()) == 0:
            for descriptor in (read, ready):
                os.close(descriptor)
            _become(COMMANDS[case.command].words.split(), scene, fault, write, begun)
        os.close(write)
        os.close(begun)
        scene.command = child
        self._handle = os.pidfd_open(child)
        self._reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self._reader.start()
        select.select([ready], [], [], PATIENCE_S)
        os.close(ready)
        self.duration_s = 0.0

    @property
    def said(self) -> str:
        """Return what the command has printed as errors."""
        return b"".join(self._parts).decode("utf-8", "replace")

    def _read(self, descriptor: int) -> None:
        while part := os.read(descriptor, 2**16):
            self._parts.append(part)
        os.close(descriptor)

    def ended(self, wait_s: float) -> bool:
        """Wait for the end; returns whether it came in time."""
        return bool(select.select([self._handle], [], [], wait_s)[0])

    def finish(self) -> tuple[int, list[str]]:
        """Return the exit code, and the processes that were left, which are ended."""
        self.duration_s = time.monotonic() - self._start_s
        if not self.ended(0):
            os.kill(self._scene.command, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self._scene.command, 0)[1])
        os.close(self._handle)
        deadline_s = time.monotonic() + VANISH_S
        while (left := self._scene.processes()) and time.monotonic() < deadline_s:
            time.sleep(0.02)
            _reap()
        said = []
        for process in left:
            with suppress(Exception):
                said.append(f"left process {' '.join(process.cmdline())[:200]}")
                process.kill()
        time.sleep(0.05 * bool(left))
        _reap()
        self._reader.join(2)
        return code, said


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(words: list[str], scene: Scene, fault: Fault | None, error: int, begun: int) -> NoReturn:
    """Run the command in this process, and end as the interpreter does."""
    code = 99
    try:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for source, target in ((nothing, 0), (nothing, 1), (error, 2)):
            os.dup2(source, target)
        os.dup2(begun, 3)
        os.closerange(4, 256)
        _forget_helpers()
        os.set_inheritable(3, False)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", buffering=1, closefd=False)
        sys.argv = ["orrery", *words]
        os.environ.pop("ORRERY_DEBUG", None)
        os.environ["ORRERY_PROGRESS"] = "off"
        os.environ["TMPDIR"] = tempfile.tempdir = str(scene.scratch)
        os.chdir(scene.folder)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if fault:
            fault.limit(scene)
        if fault and fault.cold:
            os.execv(sys.executable, [sys.executable, "-m", "orrery", *words])
        os.close(3)
        code = _main()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def _main() -> int:
    """Run the command line, and all that an interpreter runs at its end."""
    from orrery.entry import main

    code = 1
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    return code


def _wrong_end(fault: Fault, code: int, said: str) -> list[str]:
    """Return what is wrong with an exit code and what was printed with it."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith(_OTHERS)]
    ours = [line for line in lines if line.startswith("orrery: ")]
    early = fault.cold and code == -signal.SIGINT and "orrery/" not in said.replace("orrery/__main__", "")
    wrong = [f"ended with code {code}"] * (code not in ENDS and -code not in fault.sent)
    if code > 0 and not ours:
        wrong.append(f"ended with code {code} without a line")
    if len(ours) > 1 or (len(lines) > len(ours) and not early):
        wrong.append(f"said {len(lines)} lines: {said[-1500:]}")
    return [*wrong, f"it said {said[-300:]}"] if wrong and len(lines) == 1 else wrong


def _wrong_rest(scene: Scene, *, killed: bool) -> list[str]:
    """Return what was left in temporary folders and in shared memory."""
    shared = [path.name for path in Path("/dev/shm").iterdir()] if ROOT else []
    held = [path.name for path in scene.scratch.rglob("*")] if scene.scratch.is_dir() else []
    allowed = ("filler", "orrery-scratch-") if killed else ("filler",)
    return [f"left {name}" for name in (*shared, *held) if not name.startswith(allowed)]


def _changes(name: str) -> bool:
    """Return whether a command changes a file step by step: the store, checkpoints and logs."""
    return name.startswith(("out/store", "out/kept", "out/log", "out/filler"))


def _digests(folder: Path) -> dict[str, tuple[int, str]]:
    """Return each file's number in its file system and digest: an output that is as before may still be a new file."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in files
    }


def _unmount(scene: Scene) -> None:
    libc = ctypes.CDLL(None)
    for place in (scene.folder / "out", scene.scratch):
        libc.umount2(str(place).encode(), 2)


def _forget_helpers() -> None:
    """Forget the helpers of multiprocessing that tests before this one have started, whose pipes are closed now."""
    vars(forkserver._forkserver).update(_forkserver_address=None, _forkserver_alive_fd=None, _forkserver_pid=None)
    vars(resource_tracker._resource_tracker).update(_fd=None, _pid=None)
