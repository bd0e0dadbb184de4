"""What viewers demand of Chrome traces."""

from itertools import pairwise

import msgspec

from groundwork.errors import ConfigError


def check_trace(path):
    """Check a trace and return its number of tasks, start-up latencies not counted.

    Raises ConfigError where two tasks overlap on one thread, or a time is no whole number of nanoseconds.
    """
    threads = {}
    for event in msgspec.json.decode(path.read_bytes())["traceEvents"]:
        times_us = [event[key] for key in ("ts", "dur") if key in event]
        times_ns = [round(time_us * 1000.0) for time_us in times_us]
        if any(time_ns / 1000.0 != time_us for time_ns, time_us in zip(times_ns, times_us, strict=True)):
            raise ConfigError(f"times of {event['name']!r} must be whole nanoseconds, got {times_us} us")
        if event["ph"] == "X":
            row = (times_ns[0], times_ns[0] + times_ns[1], event["name"], event.get("cat"))
            threads.setdefault((event["pid"], event["tid"]), []).append(row)
    for thread, rows in threads.items():
        rows.sort()
        for before, after in pairwise(rows):
            if after[0] < before[1]:
                raise ConfigError(f"tasks on one thread must not overlap, got {before} and {after} on {thread}")
    return sum(row[3] != "latency" for rows in threads.values() for row in rows)
