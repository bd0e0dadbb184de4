"""Commands that are disturbed while they work: their words, what they write, and how whole outputs are told."""

import io
import json
import os
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command in a folder of samples; it writes below ``out`` only."""

    words: str
    outputs: tuple[str, ...]
    """Files that it writes whole or not at all."""
    share: float
    """Share of all cases: less for slow ones."""
    inputs: tuple[str, ...] = ()


COMMANDS = {
    "plan": Command(
        words="plan alexnet --cluster titanx-4 --batch 64 --refine 4 --out out/plan.json",
        outputs=("out/plan.json",),
        share=0.2,
    ),
    "compare": Command(
        words="compare lenet5 --cluster titanx-4 --batch 64 --out out",
        outputs=("out/index.html", "out/comparison.json"),
        share=0.25,
    ),
    "sweep": Command(
        words="sweep sweep.yaml --store out/store.sqlite --processes 2", outputs=(), share=0.2, inputs=("sweep.yaml",)
    ),
    "oracle": Command(
        words="oracle lenet5 --cluster titanx-4 --dataset 1024 --gpus 1..4 --strategies data,filter --simulate"
        " --out out",
        outputs=("out/index.html", "out/oracle.json"),
        share=0.2,
    ),
    "run": Command(
        words="run plan.json --steps 40 --device cpu --threads 1 --checkpoint out/kept --checkpoint-every 5 --out out"
        " --stall-timeout 8",
        outputs=("out/timeline.csv", "out/losses.csv", "out/run.json", "out/measured.npz"),
        share=0.15,
        inputs=("plan.json",),
    ),
}
SWEEP = """version: 1
name: small
models: [lenet5]
clusters: {cluster: titanx-4, with: {nodes: [1, 2]}}
batch: [8, 16, 32, 64]
strategies: [data, owt]
"""
NAMES = ("data", "model", "owt", "spatial", "layerwise")
"""Strategies that ``compare`` plans by itself."""
STORE, CHECKPOINTS = "out/store.sqlite", "out/kept"


def make_samples(folder: Path) -> None:
    """Write what the commands read."""
    from orrery.cli import app
    from orrery.terminal.exit_codes import run_app

    (folder / "sweep.yaml").write_text(SWEEP)
    plan = f"plan lenet5 --cluster lab-4:nodes=2 --batch 16 --strategy data --out {folder / 'plan.json'}"
    assert run_app(app, plan.split()) == 0


def wrong_outputs(command: str, folder: Path, *, killed: bool) -> list[str]:
    """Return what is wrong with the files that a command has left in ``folder``.

    Args:
        command: Its name.
        folder: Folder in which it ran.
        killed: True after SIGKILL, which leaves what the next command removes.
    """
    out = folder / "out"
    if not out.is_dir():
        return []
    wrong = [
        f"{name} is not whole: {reason}" for name in COMMANDS[command].outputs if (reason := _broken(folder / name))
    ]
    if command == "sweep":
        wrong += _wrong_store(folder / STORE)
    if command == "compare" and not wrong:
        wrong += _wrong_comparison(out)
    if command == "run":
        wrong += _wrong_checkpoints(folder / CHECKPOINTS)
    if not killed:
        wrong += [f"left {path.relative_to(folder)}" for path in _left(command, folder)]
    return wrong


def _left(command: str, folder: Path) -> list[Path]:
    """Return the files below ``out`` that no command writes."""
    known = {*COMMANDS[command].outputs, STORE, "out/log/rank-0.log", "out/log/rank-1.log", "out/filler"}
    files = [path for path in (folder / "out").rglob("*") if not path.is_dir()]
    return [path for path in files if str(path.relative_to(folder)) not in known and "kept" not in path.parts]


def _broken(path: Path) -> str:
    """Return why a file is not whole, empty where it is or where there is none."""
    if not path.is_file():
        return ""
    content = path.read_bytes()
    try:
        if path.suffix == ".json":
            json.loads(content)
        elif path.suffix == ".npz":
            with np.load(io.BytesIO(content)) as arrays:
                assert all(arrays[name] is not None for name in arrays.files)
        elif not content.rstrip().endswith(b"</html>") if path.suffix == ".html" else not content.endswith(b"\n"):
            return f"it ends with {content[-20:]!r}"
    except Exception as error:
        return repr(error)[:200]
    return ""


def _wrong_comparison(out: Path) -> list[str]:
    """Return what is wrong with a comparison, which an interrupt may have cut short: it names every strategy.

    Those that are finished have their numbers, also on the page, and a sentence says which are not.
    """
    if not (out / "comparison.json").is_file() or not (out / "index.html").is_file():
        return []
    found, page = json.loads((out / "comparison.json").read_text()), (out / "index.html").read_text()
    rows = {row["name"]: row["simulated_s"] for row in found["strategies"]}
    cut = " ".join(note for note in found["notes"] if note.startswith("Interrupted before"))
    told = {*rows, *found["refused"], *re.findall(r"[\w-]+", cut)}
    wrong = [f"the comparison says nothing of {name}" for name in NAMES if name not in told]
    wrong += [f"the page lacks {name}" for name in rows if name not in page]
    return wrong + ["the comparison holds no strategy"] * (not all(rows.values()) or not rows)


def _wrong_store(path: Path) -> list[str]:
    """Return what is wrong with a store: SQLite and ``orrery results`` read it, or it says that nothing is in it."""
    if not path.is_file():
        return []
    from orrery.cli import app
    from orrery.terminal.exit_codes import run_app

    connection = sqlite3.connect(path)
    try:
        checked = connection.execute("pragma quick_check").fetchone()[0]
    except sqlite3.DatabaseError as error:
        checked = str(error)
    finally:
        connection.close()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        for descriptor in (1, 2):
            os.dup2(write, descriptor)
        os._exit(run_app(app, ["results", str(path), "--json"]))
    os.close(write)
    with os.fdopen(read) as file:
        said = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    wrong = [] if checked == "ok" else [f"the store is damaged: {checked}"]
    return (
        wrong if code == 0 or "no results yet" in said else [*wrong, f"orrery results ends with {code}: {said[-200:]}"]
    )


def _wrong_checkpoints(folder: Path) -> list[str]:
    """Return why the newest checkpoint cannot be read."""
    if not (folder / "latest").exists():
        return []
    from executor.checkpoints.checkpoint import latest_step
    from groundwork.errors import ConfigError

    try:
        step = latest_step(folder, {})
    except (ConfigError, OSError) as error:
        return [f"the checkpoint cannot be read: {error}"]
    names = (folder / "latest").read_text().split()
    missing = [name for name in names if not (folder / name).is_dir()]
    return [f"latest names {missing}, which are gone"] * bool(missing) + [f"step is {step}"] * (step % 5 != 0)
