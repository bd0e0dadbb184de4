"""A sweep of 1,000 points: how long it takes, undisturbed and killed three times, and that all ways end alike.

Run:
    python tests/benchmarks/sweep.py [--file docs/examples/sweep-1000.yaml] [--seed 7] [--dask]

The command is killed with SIGKILL at three random moments of its run and started again; with ``--dask`` it runs on two
Dask workers, one of which is killed at a random moment.  Checks that both stores hold the results of the undisturbed
sweep; that what was stored at a kill is kept as it was, to the time that it took, and only the rest is computed; that
no process outlives a killed sweep; and that a repeated sweep computes nothing.

Measured on two cores: 3 min 24 s undisturbed.  Killed with 92, 197 and 220 points stored and begun again each time, it
took 269.6 s in all and ended with the same results; so did two Dask workers, one of them killed.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from groundwork.errors import ConfigError
from studies.sweep.store import Store
from studies.sweep.sweep_file import read_sweep

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "sweep-1000.yaml"
KILLS = 3
LOCAL, DASK = ("--processes", "2"), ("--dask", "local:2")


def rows_of(path):
    """Results by point; none where there is no store yet."""
    try:
        with Store.reading(path) as store:
            rows = list(store.rows())
    except ConfigError as error:
        if re.search("does not exist|has no results yet", str(error)):
            return {}
        raise
    assert len(dict(rows)) == len(rows), "a point is there twice"
    return dict(rows)


def untimed(rows):
    """Results without the time that each took."""
    return {point: replace(result, seconds=0.0) for point, result in rows.items()}


@contextmanager
def started(file, store, way=LOCAL):
    """A sweep in a session of its own; at the end none of its processes may be left."""
    words = [sys.executable, "-m", "orrery", "sweep", str(file), "--store", str(store), *way, "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()
    deadline = time.monotonic() + 30
    while any(is_of(process.pid, other) for other in psutil.pids()):
        assert time.monotonic() < deadline, "a sweep left processes behind"
        time.sleep(0.1)


def is_of(session, number):
    """Whether a process of a session runs; one that only waits to be collected does not."""
    try:
        return os.getsid(number) == session and psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


def ended(process):
    """Wait for a sweep that nobody kills; returns how many points were stored, and how many it computed."""
    printed, _ = process.communicate()
    assert process.returncode == 0, f"it ended with {process.returncode}"
    said = json.loads(printed)
    return said["stored"], said["computed"]


def undisturbed(file, store):
    """Run to the end; returns seconds, and what was stored and computed."""
    begin = time.perf_counter()
    with started(file, store) as process:
        counts = ended(process)
    return time.perf_counter() - begin, counts


def killed(file, store, chance, count):
    """Kill at random moments, then run to the end; returns seconds, and how much was stored at each kill."""
    begin, kept, seen = time.perf_counter(), {}, []
    for _ in range(KILLS):
        with started(file, store) as process:
            wait_for_a_moment(process, store, len(kept) + chance.randint(0, count // (KILLS + 1)), chance)
            process.kill()
        kept = grown(store, kept)
        seen.append(len(kept))
    _, (stored, computed) = undisturbed(file, store)
    last = grown(store, kept)
    assert (stored, computed) == (len(kept), len(last) - len(kept))
    return time.perf_counter() - begin, seen


def on_dask(file, store, chance, count):
    """Run on two workers, one of which is killed; returns seconds, how much was stored then, and what it computed."""
    begin = time.perf_counter()
    with started(file, store, DASK) as process:
        wait_for_a_moment(process, store, chance.randint(1, count // 2), chance)
        workers, kept = workers_of(process.pid), rows_of(store)
        assert len(workers) == 2, f"{len(workers)} workers"
        chance.choice(workers).kill()
        counts = ended(process)
    grown(store, kept)
    return time.perf_counter() - begin, len(kept), counts


def wait_for_a_moment(process, store, points, chance):
    """Up to a second after so many points are stored; a sweep may be slow to begin, so time alone says little."""
    while len(rows_of(store)) < points and process.poll() is None:
        time.sleep(0.25)
    time.sleep(chance.uniform(0, 1))
    assert process.poll() is None, "it ended before anything was killed"


def grown(store, kept):
    """What is stored now; what was there before must be as it was, to the time that it took."""
    now = rows_of(store)
    assert all(now.get(point) == result for point, result in kept.items()), "a result was lost or computed again"
    return now


def workers_of(number):
    """Processes of Dask's workers below a process."""
    below = psutil.Process(number).children(recursive=True)
    return [process for process in below if "spawn_main" in " ".join(process.cmdline())]


def main():
    """Print one row a way to run the sweep, as soon as it is done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path, default=EXAMPLE)
    parser.add_argument("--seed", type=int, default=7, help="of the moments")
    parser.add_argument("--dask", action="store_true")
    options = parser.parse_args()
    count, chance = len(read_sweep(options.file).points), random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole, broken, shared = (Path(folder) / f"{name}.sqlite" for name in ("whole", "killed", "dask"))
        seconds, counts = undisturbed(options.file, whole)
        assert counts == (0, count)
        expected = untimed(rows_of(whole))
        assert len(expected) == count
        statuses = [result.status for result in expected.values()]
        print(f"{count:,} points: {', '.join(f'{statuses.count(s)} {s}' for s in sorted(set(statuses)))}")
        show("undisturbed", seconds)
        seconds, counts = undisturbed(options.file, whole)
        assert counts == (count, 0)
        show("repeated", seconds)
        seconds, seen = killed(options.file, broken, chance, count)
        assert untimed(rows_of(broken)) == expected, "a killed sweep ended otherwise"
        show(f"killed with {', '.join(map(str, seen))} points stored", seconds)
        if options.dask:
            seconds, at, counts = on_dask(options.file, shared, chance, count)
            assert counts == (0, count)
            assert untimed(rows_of(shared)) == expected, "Dask ended otherwise"
            show(f"two Dask workers, one killed with {at} stored", seconds)


def show(name, seconds):
    """Print a row."""
    print(f"{name:45} {seconds:8.1f} s", flush=True)


if __name__ == "__main__":
    main()
