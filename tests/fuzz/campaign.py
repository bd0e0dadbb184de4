"""Spoiled inputs by the thousand: each must end a command in one line, in time, and leave files as they were.

Run as ``python tests/fuzz/campaign.py [CASES] [FIRST_SEED]`` from the repository; every case is told by its seed, and
``python tests/fuzz/campaign.py --show SEED`` runs one and shows what it prints.
"""

import gc
import hashlib
import os
import random
import re
import resource
import select
import shlex
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from inputs import COMMANDS, file_as_output, make_samples, spoiled_file, spoiled_words  # noqa: E402, as the path is set above

LONGEST_S, MOST_BYTES = 30.0, 2 * 2**30
NAMES = tuple(COMMANDS)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Case:
    """A command line in a folder of samples, one of which may be spoiled."""

    seed: int
    name: str
    words: list[str]
    file: str
    closed: tuple[int, ...] = ()
    """Standard streams that are closed."""
    kept: str = ""
    """File that the words name as an output, and that the command reads."""

    def __str__(self) -> str:
        spoiled = f" with a spoiled {self.file}" if self.file else ""
        closed = f" without streams {self.closed}" if self.closed else ""
        return f"seed {self.seed}: {shlex.join(self.words)[:300]!a}{spoiled}{closed}"


def case_in(folder: Path, samples: Path, seed: int) -> Case:
    """Make the case of a seed in a new folder."""
    shutil.copytree(samples, folder, symlinks=True, ignore=shutil.ignore_patterns("pipe"))
    os.mkfifo(folder / "pipe")
    rng = random.Random(seed)
    name = rng.choice(NAMES)
    words, file, kept = COMMANDS[name].split(), "", ""
    if rng.random() < 0.6:
        file = spoiled_file(name, samples, folder, rng)
    if not file or rng.random() < 0.1:
        words = spoiled_words(name, rng)
    elif rng.random() < 0.05:
        words, kept = file_as_output(name), file
    closed = tuple(number for number in (0, 1, 2) if rng.random() < 0.5) if rng.random() < 0.05 else ()
    return Case(seed, name, words, file, closed, kept)


def snapshot(folder: Path) -> dict[str, str]:
    """Return a digest of every file in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_file() and about.st_size < 2**30:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = f"{about.st_mode}"
    return found


def outcome(case: Case, folder: Path, *, show: bool = False) -> tuple[list[str], float]:
    """Run a case in a child; returns what is wrong with its end, and its duration in seconds."""
    before = snapshot(folder)
    out, err = (os.fdopen(os.memfd_create(name), "r+b") for name in ("out", "err"))
    start_s = time.monotonic()
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        _become(case, folder, out.fileno(), err.fileno())
    handle = os.pidfd_open(child)
    ended = bool(select.select([handle], [], [], LONGEST_S)[0])
    if not ended:
        os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    os.close(handle)
    duration_s = time.monotonic() - start_s
    out.seek(0)
    err.seek(0)
    printed, said = (file.read().decode("utf-8", "replace") for file in (out, err))
    if show:
        print(printed[:5_000], said[:5_000], sep="\n")
    code = os.waitstatus_to_exitcode(status)
    wrong = [] if ended else [f"took over {LONGEST_S:g} s"]
    if ended:
        wrong += _wrong_words(code, printed, said, is_heard=2 not in case.closed)
    if used.ru_maxrss * 1024 > MOST_BYTES:
        wrong.append(f"took {used.ru_maxrss / 2**20:.1f} GiB")
    after = snapshot(folder)
    changed = [name for name in before if before[name] != after.get(name)]
    # An output is named, or lies by its usual name in a folder that is named.
    outputs = {name for name in changed if name in case.words or (code == 0 and str(Path(name).parent) in case.words)}
    wrong += [f"{name} was changed" for name in changed if name not in outputs or name == case.kept]
    new = [name for name in after if name not in before]
    if code != 0 and new:
        wrong.append(f"left {new}")
    if hidden := [name for name in new if Path(name).name.startswith(".")]:
        wrong.append(f"left {hidden}")
    return wrong, duration_s


def _wrong_words(code: int, printed: str, said: str, *, is_heard: bool) -> list[str]:
    """Return what is wrong with an exit code and what was printed with it."""
    lines = said.splitlines()
    wrong = []
    if code not in (0, 2):
        wrong.append(f"ended with code {code}: {' '.join(lines[-1:])[:300]}")
    elif code == 2 and "out of memory, or at a limit" in said:
        wrong.append(f"asked for memory that nothing had refused: {said[:300]!r}")
    elif code == 2 and is_heard and (len(lines) != 1 or not lines[0].startswith("orrery: ")):
        wrong.append(f"said {len(lines)} lines: {said[:300]!r}")
    elif code == 0 and lines and any(word in said for word in ("Traceback", "Warning", "warning:")):
        wrong.append(f"warned: {said[:300]!r}")
    if _CONTROL.search(printed) or _CONTROL.search(said.replace("\r", "")):
        wrong.append("printed control characters")
    return wrong


def _become(case: Case, folder: Path, out: int, err: int) -> None:
    """Run the command in this child, within limits, and end."""
    code = 99
    try:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        # pytest has put its own in their place
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30,) * 2)  # the machine stays usable, whatever is asked for
        os.environ.pop("ORRERY_DEBUG", None)
        os.environ["ORRERY_PROGRESS"] = "off"
        os.chdir(folder)
        from orrery import entry
        from orrery.cli import app
        from orrery.terminal.exit_codes import run_app

        for number in case.closed:
            os.close(number)
        entry._open_standard_streams()
        code = run_app(app, case.words)
        sys.stdout.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def campaign(seeds: range, samples: Path, *, budget_s: float = float("inf")) -> list[str]:
    """Run the cases of some seeds; returns the failures, a line each."""
    failures, start_s, slowest = [], time.monotonic(), (0.0, "")
    gc.freeze()
    for done, seed in enumerate(seeds):
        if time.monotonic() - start_s > budget_s:
            failures.append(f"only {done} of {len(seeds)} cases in {budget_s:g} s")
            break
        with tempfile.TemporaryDirectory(prefix="fuzz-") as base:
            case = case_in(Path(base) / "here", samples, seed)
            wrong, duration_s = outcome(case, Path(base) / "here")
        slowest = max(slowest, (duration_s, str(case)))
        if wrong:
            failures.append(f"{case}: {'; '.join(wrong)}")
            print(failures[-1], flush=True)
    print(
        f"{len(seeds):,} cases, {len(failures)} failed, {time.monotonic() - start_s:.0f} s;"
        f" slowest {slowest[0]:.1f} s: {slowest[1]}"
    )
    return failures


def main(arguments: list[str]) -> int:
    """Run a campaign, half of it in another process, or show one case."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as base:
        samples = Path(base) / "samples"
        samples.mkdir()
        make_samples(samples)
        if arguments[:1] == ["--show"]:
            case = case_in(Path(base) / "here", samples, int(arguments[1]))
            print(case)
            wrong, _ = outcome(case, Path(base) / "here", show=True)
            print(wrong)
            return 1 if wrong else 0
        count, first = (int(word) for word in (*arguments, *["20000", "0"][len(arguments) :]))
        half = first + count // 2
        if (child := os.fork()) == 0:
            code = 1
            try:
                code = 1 if campaign(range(half, first + count), samples) else 0
            finally:  # the samples are the parent's to remove
                os._exit(code)
        failed = campaign(range(first, half), samples)
        return 1 if os.waitpid(child, 0)[1] or failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
