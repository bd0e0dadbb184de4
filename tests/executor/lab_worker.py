"""One rank of a measurement in the lab: runs every case, and rank 0 writes when each message had arrived.

Run as ``lab_worker.py CASES RESULT REPEATS``.  A case is a list of messages, each with its source, target, bytes,
earliest start and the messages that its source must have received before; or a collective of gloo's own.
All ranks read one clock, the machine's.
"""

import json
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

LEAD_S = 0.03
"""All ranks are ready so long before a case starts."""


def start_time():
    """The same moment on every rank, shortly after all have come here."""
    dist.barrier()
    moment = torch.tensor([time.perf_counter() + LEAD_S], dtype=torch.float64)
    dist.broadcast(moment, 0)
    return moment.item()


def sleep_until(moment_s):
    """Sleep for most of the time; the rest is waited out, for sleeping is not exact."""
    while (left_s := moment_s - time.perf_counter()) > 0:
        time.sleep(left_s - 0.001 if left_s > 0.002 else 0)


def run_messages(messages):
    """Seconds from the start of the case to the arrival of each message at this rank; 0 for those of others."""
    rank = dist.get_rank()
    arrived_s = torch.zeros(len(messages), dtype=torch.float64)
    # Every receive is posted before any send: a late one would queue its notice behind bulk data.
    receives = {
        i: dist.irecv(torch.empty(message["bytes"], dtype=torch.uint8), message["source"], tag=i)
        for i, message in enumerate(messages)
        if message["target"] == rank
    }
    buffers = {i: torch.zeros(m["bytes"], dtype=torch.uint8) for i, m in enumerate(messages) if m["source"] == rank}
    here = {i: threading.Event() for i in receives}
    start_s = start_time()

    def receive(i):
        receives[i].wait()
        arrived_s[i] = time.perf_counter() - start_s
        here[i].set()

    threads = [threading.Thread(target=receive, args=(i,)) for i in receives]
    for thread in threads:
        thread.start()
    sends = []
    for i, buffer in buffers.items():
        for earlier in messages[i]["waits"]:
            here[earlier].wait()
        sleep_until(start_s + messages[i]["start_s"])
        sends.append(dist.isend(buffer, messages[i]["target"], tag=i))
    for work in sends:
        work.wait()
    for thread in threads:
        thread.join()
    return arrived_s


def run_collective(kind, size_bytes):
    """Seconds until this rank has the result; the size is that of the result."""
    count = dist.get_world_size()
    whole = torch.zeros(size_bytes // 4)
    part = torch.zeros(size_bytes // 4 // count)
    sleep_until(start_s := start_time())
    if kind == "all_reduce":
        dist.all_reduce(whole)
    else:
        dist.all_gather(list(whole[: len(part) * count].chunk(count)), part)
    return torch.tensor([time.perf_counter() - start_s], dtype=torch.float64)


def run(case):
    """Arrival of each message of the case, or the end of the collective, at the last rank."""
    messages = isinstance(case, list)
    arrived_s = run_messages(case) if messages else run_collective(case["collective"], case["bytes"])
    dist.all_reduce(arrived_s, dist.ReduceOp.MAX)
    return arrived_s.tolist()


def main(cases_path, result_path, repeats):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cases = json.loads(Path(cases_path).read_text())
    ranks = range(dist.get_world_size())
    pairs = [(a, b) for a in ranks for b in ranks if a != b]
    run([{"source": a, "target": b, "bytes": 50_000, "start_s": 0, "waits": []} for a, b in pairs])  # connections
    run({"collective": "all_reduce", "bytes": 400_000})
    result = [[run(case) for _ in range(repeats)] for case in cases]
    if dist.get_rank() == 0:
        Path(result_path).write_text(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
