"""Two busy ranks that send to each other over gloo: over one connection, and over one for each direction.

Run as ``python tests/benchmarks/exchanges.py [--bytes 65536 1048576] [--times 300]``; prints a table of the time from
when the later rank sends until both have what they were sent.  Before each both compute for 5 ms, as layers do; their
receives are posted before that, as those of regions in a run, or only then (``late``), as those of sums.

Measured on two busy cores, 64 kB: over one connection the mean was 2.3 to 2.6 ms, and every fourth message took over
4.4 ms; over two connections 0.2 to 0.4 ms.  With receives posted late, as those of gradient synchronisation: 1.4 to
1.7 ms over two connections, 2.0 to 2.2 ms over one.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "executor"))

from ranks import Ranks

from executor.communication.connections import Post, connections_for

COMPUTING_S = 5e-3


class OneConnection:
    """As ``Connections``, over the default group."""

    def receive(self, post):
        return dist.irecv(post.content, post.peer, tag=post.tag)

    def send(self, post):
        return dist.isend(post.content, post.peer, tag=post.tag)


def exchanged(rank, size_bytes, times, apart, late):
    """When this rank sent and had all, shape (times, 2), and whether what it got is what the other had."""
    connections = connections_for("messages") if apart else OneConnection()
    out, into = torch.full((size_bytes // 4,), float(rank)), torch.empty(size_bytes // 4)
    left, right = torch.randn(32, 288), torch.randn(288, 256)
    moments = np.zeros((times, 2))
    for row in moments:
        arrival = None if late else connections.receive(Post(into, 1 - rank, 0))
        until = time.perf_counter() + COMPUTING_S
        while time.perf_counter() < until:
            left @ right
        row[0] = time.perf_counter()
        arrival = arrival or connections.receive(Post(into, 1 - rank, 0))
        departure = connections.send(Post(out, 1 - rank, 0))
        arrival.wait()
        departure.wait()
        row[1] = time.perf_counter()
    return moments, bool((into == 1 - rank).all())


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, nargs="+", default=[65536, 2**20])
    parser.add_argument("--times", type=int, default=300)
    chosen = parser.parse_args()
    print(f"{chosen.times} exchanges, load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")
    names = (("bytes", 9), ("connections", 13), ("receives", 10), ("median ms", 11), ("mean ms", 9))
    print("".join(f"{name:>{width}}" for name, width in (*names, *((f"{share} %", 7) for share in (75, 90, 99)))))
    pool = Ranks(2)
    for size in chosen.bytes:
        for apart, late in ((False, False), (True, False), (False, True), (True, True)):
            moments, right = zip(*pool.run(exchanged, size, chosen.times, apart, late), strict=True)
            assert all(right), "what arrived is not what was sent"
            took = 1e3 * (np.max([m[:, 1] for m in moments], axis=0) - np.max([m[:, 0] for m in moments], axis=0))
            values = [np.median(took), took.mean(), *np.quantile(took, [0.75, 0.9, 0.99])]
            row = "".join(f"{value:{width}.2f}" for value, width in zip(values, (11, 9, 7, 7, 7), strict=True))
            print(f"{size:9}{1 + apart:13}{'late' if late else 'ahead':>10}{row}", flush=True)
    pool.close()


if __name__ == "__main__":
    main()
