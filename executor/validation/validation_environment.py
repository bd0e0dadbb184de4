"""The environment of a measurement: machine, software and load, as the page and the JSON show it."""

import os
import platform
from datetime import UTC, datetime

import torch

from executor.program.buckets import largest_bucket_bytes
from executor.runtime.run_options import RunOptions


def load_average() -> str:
    """Return the load of the machine over the last 1, 5 and 15 minutes."""
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def environment_of(options: RunOptions, processes: int, place: dict[str, str]) -> dict[str, str]:
    """Return when, where and with what a validation was measured.

    Args:
        options: How the plans were run.
        processes: Number of ranks.
        place: Device and back end, as the ranks report them.
    """
    sizes = options.join_bytes, RunOptions().join_bytes
    joined = [f"{largest_bucket_bytes(size, max(processes, 2)) / 2**20:g}" for size in sizes]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **place,
        "cores": str(len(os.sched_getaffinity(0))),
        "threads per process": str(options.threads),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "gradients joined up to": f"{joined[0]} MiB (orrery run: {joined[1]} MiB)",
        "seed": str(options.seed),
    }
