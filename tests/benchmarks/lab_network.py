"""The network of the lab against the engine: four hosts in two racks, uplinks of 200 and 100 Mbit/s.

Run as ``python tests/benchmarks/lab_network.py [REPEATS]`` (Linux; about two minutes); prints a table for each uplink.
The machine should have nothing else to do.
"""

import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "executor"))

from lab_cases import MB, Message, measured_s, predicted_s, ring

HOSTS = 4
SIZES_MB = (1, 8, 32)


def cases():
    """Name, what is measured, and the messages that predict it."""
    named = []
    for size in SIZES_MB:
        for name, target in (("in the rack", 1), ("across", 2)):
            messages = [Message(0, target, size * MB)]
            named.append((f"point to point {name}, {size} MB", messages, messages))
    for kind, title in (("all_reduce", "all-reduce"), ("all_gather", "all-gather")):
        for size in SIZES_MB:
            messages = ring(kind, size * MB, HOSTS)
            named.append((f"ring {title} by messages, {size} MB", messages, messages))
            named.append((f"{title} of gloo, {size} MB", {"collective": kind, "bytes": size * MB}, messages))
    scenarios = {
        "A two equal across": [Message(0, 2, 8 * MB), Message(1, 3, 8 * MB)],
        "B 4 MB and 12 MB across": [Message(0, 2, 4 * MB), Message(1, 3, 12 * MB)],
        "C 16 MB in the rack, 4 MB across, one source": [Message(0, 1, 16 * MB), Message(0, 2, 4 * MB)],
        "D three across, two sources": [Message(0, 2, 4 * MB), Message(0, 3, 8 * MB), Message(1, 3, 8 * MB)],
        "E 12 MB, and 6 MB 0.3 s later, across": [Message(0, 2, 12 * MB), Message(1, 3, 6 * MB, 0.3)],
        "F both ways across": [Message(0, 2, 8 * MB), Message(2, 0, 8 * MB)],
    }
    return named + [(name, messages, messages) for name, messages in scenarios.items()]


def table(uplink_gbit_per_s, repeats):
    """Measured median, prediction and errors of every case; returns the errors of what has a bar."""
    spec = f"lab-2x2:uplink_gbit_per_s={uplink_gbit_per_s}"
    named = cases()
    results = measured_s([what for _, what, _ in named], spec, repeats)
    print(f"\nuplink {uplink_gbit_per_s * 1000:g} Mbit/s, load average {os.getloadavg()[0]:.1f}, {repeats} repeats")
    print(f"{'':48}{'measured ms':>12}{'simulated ms':>13}{'error':>8}{'worst flow':>11}{'spread':>8}")
    errors = []
    for (name, what, messages), rows in zip(named, results, strict=True):
        ends_s = predicted_s(messages, spec)
        whole_s, model_s = np.median(rows.max(axis=1)), ends_s.max()
        starts_s = np.array([m.start_s for m in messages])
        flows = not isinstance(what, dict) and not any(m.waits for m in messages)
        flow = (
            (ends_s - starts_s) / (np.median(rows, axis=0) - starts_s) - 1
            if flows
            else np.array([model_s / whole_s - 1])
        )
        spread = np.ptp(rows.max(axis=1)) / whole_s
        print(
            f"{name:48}{whole_s * 1e3:12.1f}{model_s * 1e3:13.1f}{model_s / whole_s - 1:+8.1%}"
            f"{flow[np.abs(flow).argmax()]:+11.1%}{spread:8.1%}",
            flush=True,
        )
        errors.append(flow)
    flat = np.abs(np.concatenate(errors))
    print(f"absolute error of {len(flat)} times: median {np.median(flat):.1%}, worst {flat.max():.1%}")


if __name__ == "__main__":
    for uplink in (0.2, 0.1):
        table(uplink, int(sys.argv[1]) if len(sys.argv) > 1 else 3)
