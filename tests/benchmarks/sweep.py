"""A sweep of 1,000 points: how long it takes, undisturbed and killed three times, and that all ways end alike.

Run:
    python tests/benchmarks/sweep.py [--file docs/examples/sweep-1000.yaml] [--dask]

Checks that the killed and resumed sweep (and, with ``--dask``, one on two Dask workers of which one is killed) hold
the results of the undisturbed one, nothing lost and nothing twice, and that a repeated sweep computes nothing.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from hwprofiles.errors import ConfigError
from planner.sweep import Store, read_sweep
from planner.sweep.on_dask import compute_on_dask

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "sweep-1000.yaml"


def rows_of(path):
    """Results by point, without the time that each took."""
    try:
        with Store.reading(path) as store:
            return {point: replace(result, seconds=0.0) for point, result in store.rows()}
    except ConfigError:
        return {}


def command(file, store):
    """The words that run a sweep on two cores."""
    return [sys.executable, "-m", "orrery", "sweep", str(file), "--store", str(store), "--processes", "2"]


def undisturbed(file, store):
    """Run to the end; returns seconds."""
    begin = time.perf_counter()
    subprocess.run(command(file, store), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def killed(file, store, times, chance, count):
    """Kill at random moments, then run to the end; returns seconds, and how much was stored at each kill."""
    begin, seen = time.perf_counter(), []
    for _ in range(times):
        process = subprocess.Popen(command(file, store), stdout=subprocess.DEVNULL)
        stop = (seen[-1] if seen else 0) + chance.randint(1, count // (times + 1))
        while len(rows_of(store)) < stop and process.poll() is None:
            time.sleep(0.25)
        process.send_signal(signal.SIGKILL)
        process.wait()
        seen.append(len(rows_of(store)))
    undisturbed(file, store)
    return time.perf_counter() - begin, seen


def on_dask(points):
    """Compute on two workers, one of which is killed after a tenth of the points."""
    from distributed import LocalCluster

    begin, found = time.perf_counter(), {}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        for point, result in compute_on_dask(points, address=cluster.scheduler_address):
            assert point not in found
            found[point] = replace(result, seconds=0.0)
            if len(found) == len(points) // 10:
                subprocess.run(["kill", "-9", str(cluster.workers[0].pid)], check=True)
    return time.perf_counter() - begin, found


def main():
    """Print one row a way to run the sweep."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path, default=EXAMPLE)
    parser.add_argument("--dask", action="store_true")
    options = parser.parse_args()
    sweep = read_sweep(options.file)
    with tempfile.TemporaryDirectory() as folder:
        whole, broken = Path(folder) / "whole.sqlite", Path(folder) / "killed.sqlite"
        rows = [("undisturbed", undisturbed(options.file, whole)), ("repeated", undisturbed(options.file, whole))]
        expected = rows_of(whole)
        seconds, seen = killed(options.file, broken, 3, random.Random(7), len(sweep.points))
        rows.append((f"killed at {seen}", seconds))
        assert rows_of(broken) == expected, "a killed sweep ended otherwise"
        if options.dask:
            seconds, found = on_dask(list(sweep.points))
            assert found == expected, "Dask ended otherwise"
            rows.append(("two Dask workers, one killed", seconds))
    statuses = [result.status for result in expected.values()]
    print(f"{len(expected):,} points: {', '.join(f'{statuses.count(s)} {s}' for s in sorted(set(statuses)))}")
    for name, seconds in rows:
        print(f"{name:40} {seconds:8.1f} s")


if __name__ == "__main__":
    main()
