"""Faults that strike a command: signals, full and read-only places, limits, folders that change, clocks that jump."""

import contextlib
import ctypes
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
_NEW_MOUNTS = 0x00020000
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


@dataclass(slots=True, kw_only=True)
class Scene:
    """Where a command runs, and what of it runs."""

    folder: Path
    """Its working folder, with ``out`` in it."""
    scratch: Path
    """Its folder for temporary files."""
    command: int = 0
    """Id of its process."""

    def processes(self) -> list[psutil.Process]:
        """Return the command's process, first, and all that descend from it, also those that lost their parent."""
        found = [each for each in psutil.Process().children(recursive=True) if _lives(each)]
        return sorted(found, key=lambda each: each.pid != self.command)


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


@dataclass(slots=True, kw_only=True)
class Fault:
    """One fault, drawn before the command begins."""

    kind: str
    about: str
    at: float
    """Moment, in lengths of an undisturbed command; 0 is its begin."""
    seed: int
    cold: bool = False
    """True for a command in a new interpreter, which loads all its modules."""
    sent: set[int] = field(default_factory=set)
    """Signals that the command itself was sent."""
    killed: bool = False
    """True once SIGKILL was sent to any process."""
    changed: bool = False
    """True once files were removed or replaced."""
    words: tuple[str, ...] = ()

    @property
    def needs_root(self) -> bool:
        """True where the fault needs mounts or another user."""
        return self.kind in ("disk", "read-only", "processes")

    def prepare(self, scene: Scene) -> None:
        """Make the places that the fault needs, before the command begins."""
        if self.kind == "disk":
            small_disk({"out": scene.folder / "out", "shm": Path("/dev/shm"), "tmp": scene.scratch}[self.words[0]])
        elif self.kind == "read-only":
            subprocess.run(["mount", "--bind", scene.folder / "out", scene.folder / "out"], check=True)
        if self.at == 0:
            self.strike(scene)

    def limit(self, scene: Scene) -> None:
        """Set limits in the process that becomes the command."""
        rng = random.Random(self.seed)
        if self.kind == "memory":
            used = 0 if self.cold else psutil.Process().memory_info().vms
            # in less than 1 GiB, OpenBLAS tries for ever to allocate while it is loaded
            low, high = (2**30, 4 * 2**30) if self.cold else (2**22, 2**30)
            _set(resource.RLIMIT_AS, used + int(low * (high / low) ** rng.random()))
        elif self.kind == "file size":
            _set(resource.RLIMIT_FSIZE, int(2 ** (rng.random() * 21)) - 1)
        elif self.kind == "descriptors":
            _set(resource.RLIMIT_NOFILE, rng.randrange(5, 40))
        elif self.kind == "processes":
            _set(resource.RLIMIT_NPROC, rng.randrange(1, 12))
            _become_user(self.seed % 10**6 + 10**6)
        elif self.kind == "clock":
            from chaos.jumping_clock import VARIABLE, jump

            os.environ |= {VARIABLE: str(self.seed), "PYTHONPATH": str(scene.scratch.with_name("start"))}
            jump(self.seed)

    def strike(self, scene: Scene) -> None:
        """Let the fault happen."""
        rng = random.Random(self.seed)
        if self.kind == "signal":
            self._signal(scene, rng)
        elif self.kind == "pause":
            self._pause(scene, rng)
        elif self.kind == "disk":
            place = {"out": scene.folder / "out", "shm": Path("/dev/shm"), "tmp": scene.scratch}[self.words[0]]
            fill(place, int(2 ** (rng.random() * 17)))
        elif self.kind == "read-only":
            subprocess.run(
                ["mount", "-o", "remount,bind,ro", scene.folder / "out"], check=False, stderr=subprocess.DEVNULL
            )
        elif self.kind == "folder":
            self.changed = True
            with contextlib.suppress(OSError):
                _change(self.words[0], scene)

    def undo(self, scene: Scene) -> None:
        """End the fault, so that the next command can work."""
        if self.kind == "disk":
            for place in (scene.folder / "out", Path("/dev/shm"), scene.scratch):
                (place / "filler").unlink(missing_ok=True)
        elif self.kind == "read-only":
            subprocess.run(["mount", "-o", "remount,bind,rw", scene.folder / "out"], check=True)

    def _signal(self, scene: Scene, rng: random.Random) -> None:
        """Send a signal to the command, its group, or one of its processes."""
        number = signal.Signals[self.words[0]]
        processes = scene.processes()
        if not processes:
            return
        target = self.words[1]
        if target == "one" and len(processes) > 1:
            chosen = rng.choice(processes[1:])
            self.about += f" ({' '.join(chosen.cmdline())[-60:]})" if _lives(chosen) else ""
            with contextlib.suppress(ProcessLookupError):
                os.kill(chosen.pid, number)
        else:
            self.sent.add(number)
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if target == "group" else os.kill)(scene.command, number)
        self.killed = number == signal.SIGKILL

    def _pause(self, scene: Scene, rng: random.Random) -> None:
        """Stop one process for a while."""
        processes = scene.processes()
        if not processes:
            return
        chosen = processes[0] if self.words[0] == "command" else rng.choice(processes)
        with contextlib.suppress(ProcessLookupError):
            os.kill(chosen.pid, signal.SIGSTOP)
            time.sleep(rng.choice([0.05, 0.5, 2.0]))
            os.kill(chosen.pid, signal.SIGCONT)


KINDS = {
    "signal": 0.4,
    "pause": 0.08,
    "disk": 0.12,
    "read-only": 0.06,
    "folder": 0.1,
    "memory": 0.06,
    "file size": 0.06,
    "descriptors": 0.04,
    "processes": 0.04,
    "clock": 0.04,
}
"""Share of each kind of fault."""
_CHANGES = (
    "out removed",
    "out is a file",
    "out is another",
    "outputs are folders",
    "inputs removed",
    "temporary removed",
)


def fault_of(rng: random.Random, kind: str | None = None) -> Fault:
    """Draw a fault, of any kind if it is None."""
    kind = kind or rng.choices([*KINDS], [*KINDS.values()])[0]
    words: tuple[str, ...] = ()
    at = rng.random() * 1.05
    if kind == "signal":
        words = (rng.choice(_SIGNALS).name, rng.choice(["command", "group", "one", "one"]))
    elif kind == "pause":
        words = (rng.choice(["command", "one"]),)
    elif kind == "disk":
        words = (rng.choice(["out", "out", "shm", "tmp"]),)
    elif kind == "folder":
        words = (rng.choice(_CHANGES),)
    if kind in ("disk", "read-only") and rng.random() < 0.5:
        at = 0.0
    cold = rng.random() < (0.5 if kind == "memory" else 0.12) and kind not in ("clock", "descriptors", "processes")
    about = " ".join([kind, *words, f"at {at:.2f}", *["cold"] * cold])
    return Fault(kind=kind, about=about, at=at, seed=rng.randrange(2**31), cold=cold, words=words)


def private_mounts() -> None:
    """Give this process mounts of its own, with an empty folder of shared memory."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "unshare")
    _mount("none", "/", None, 0x4000 | 0x40000)  # MS_REC | MS_PRIVATE
    _mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=256m,mode=1777")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [word if word is None else word.encode() for word in (source, target, kind)]
    if ctypes.CDLL(None, use_errno=True).mount(*words, ctypes.c_ulong(flags), data.encode()):
        raise OSError(ctypes.get_errno(), f"mount {target}")


def small_disk(place: Path) -> None:
    """Put a disk of 16 MiB where a folder is, with the same content."""
    held = place.parent / ".held"
    if place.name != "shm":
        shutil.copytree(place, held)
    _mount("tmpfs", str(place), "tmpfs", 0, "size=16m,mode=1777")
    if place.name != "shm":
        shutil.copytree(held, place, dirs_exist_ok=True)
        shutil.rmtree(held)


def fill(place: Path, left_bytes: int) -> None:
    """Fill a disk but for some bytes."""
    with contextlib.suppress(OSError), (place / "filler").open("wb", buffering=0) as file:
        free = os.statvfs(place)
        size = free.f_bavail * free.f_frsize - left_bytes
        if left_bytes < 1000:
            size += 2**20
        while size > 0 and (written := file.write(bytes(min(size, 2**16)))):
            size -= written


def _change(what: str, scene: Scene) -> None:
    """Remove or replace files or folders."""
    out = scene.folder / "out"
    if what == "inputs removed":
        for name in ("plan.json", "sweep.yaml"):
            (scene.folder / name).unlink()
    elif what == "temporary removed":
        for folder in (scene.scratch, *(Path("/dev/shm").glob("orrery-*") if ROOT else ())):
            shutil.rmtree(folder, ignore_errors=True)
    elif what == "outputs are folders":
        for path in [*out.rglob("*")]:
            if path.is_file():
                path.unlink(missing_ok=True)
                path.mkdir()
    else:
        out.rename(scene.folder / "old")
        if what == "out is a file":
            out.write_text("here")
        elif what == "out is another":
            out.mkdir()
        shutil.rmtree(scene.folder / "old", ignore_errors=True)


def _become_user(number: int) -> None:
    """Become another user, for root has no limit of processes, that may read and write what root may."""
    libc = ctypes.CDLL(None)
    libc.prctl(8, 1)  # PR_SET_KEEPCAPS
    os.setgroups([])
    os.setgid(number)
    os.setuid(number)
    over_modes = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    libc.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[over_modes] * 3, 0, 0, 0))
    for which in (1, 2):
        libc.prctl(47, 2, which, 0, 0)  # PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE: also after an exec


def _set(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard),) * 2)
