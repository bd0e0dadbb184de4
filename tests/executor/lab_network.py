"""Runs over two hosts of a lab, each with a second network: what is listened at, and how ranks with two secrets end.

Run as ``lab_network.py CLUSTER FOLDER`` in a lab; the folder has ``plan.json``, and gets ``report.json``.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from listening import listened_at

from executor.lab.inside import lab_hosts
from executor.lab.tools import call
from hwprofiles.catalogue.cluster_catalogue import load_cluster

sys.path.append(str(Path(__file__).parents[1]))
import warm_python

SECOND = "second0"
"""Interface of the second network of each host."""
WAIT_S = 100
TRAINS, REFUSES = "trains", "refuses"


def second_address(rank):
    return f"10.78.{rank}.1"


def add_second_network(hosts, rank):
    where = f"/run/netns/{hosts.namespaces[rank]}"
    for line in (
        f"link add {SECOND} type veth peer name far0",
        f"addr add {second_address(rank)}/24 dev {SECOND}",
        f"link set {SECOND} up",
        "link set far0 up",
    ):
        call("nsenter", f"--net={where}", "--", "ip", *line.split())


def command_of(folder, rank, port, words, *, torchrun):
    """The command that starts a rank, and its variables."""
    run = ["-m", "orrery", "run", str(folder / "plan.json"), "--device", "cpu", "--threads", "1", *words]
    run += ["--stall-timeout", "15"]
    if torchrun:
        start = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(rank)]
        return [sys.executable, *start, "--master-addr", "10.77.0.1", "--master-port", str(port), *run], {}
    values = {
        "RANK": rank,
        "WORLD_SIZE": 2,
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 1,
        "MASTER_ADDR": "10.77.0.1",
        "MASTER_PORT": port,
    }
    return [sys.executable, *run], {name: str(value) for name, value in values.items()}


def run(hosts, folder, port, *, secrets, interface, torchrun=False):
    """Two ranks, one on each host: their ends, what they printed, the time, and the sockets that listened."""
    begun_s, processes = time.monotonic(), []
    for rank in range(2):
        words = ["--steps", "12"]
        words += ["--secret-file", str(secrets[rank])] if secrets[rank] else ["--no-secret"]
        words += ["--interface", interface] if interface else []
        command, values = command_of(folder, rank, port, words, torchrun=torchrun)
        processes.append(
            subprocess.Popen(
                hosts.command(rank, command),
                env={**os.environ, **values},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    listened = [set(), set()]
    with ThreadPoolExecutor(2) as pool:
        told = [pool.submit(process.communicate, timeout=WAIT_S) for process in processes]
        while not all(one.done() for one in told):
            for rank, process in enumerate(processes):
                listened[rank] |= listened_at(process.pid, own=False)
            time.sleep(0.25)  # sockets are open for seconds
    return {
        "codes": [process.returncode for process in processes],
        "lines": [[line for line in one.result()[1].splitlines() if line.startswith("orrery: ")] for one in told],
        "errors": [one.result()[1] for one in told],
        "out": [one.result()[0] for one in told],
        "listened": [sorted(rows) for rows in listened],
        "took_s": time.monotonic() - begun_s,
        "port": port,
    }


def secret_file(folder, name):
    path = folder / name
    path.touch(mode=0o600)
    path.write_text(f"{name} of at least 16 bytes\n")
    return path


def main(spec, folder):
    folder = Path(folder)
    ours, other = secret_file(folder, "ours"), secret_file(folder, "another")
    report = {}
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(lab_hosts(load_cluster(spec)))
        warm = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(warm_python.started(Path(warm), loaded="rank"))
        sys.executable = f"{warm}/python"  # importing torch eighteen times is spared
        for rank in range(2):
            add_second_network(hosts, rank)
        for part, secrets in ((TRAINS, [ours, ours]), (REFUSES, [ours, other])):
            report[f"direct {part}"] = run(hosts, folder, 29501, secrets=secrets, interface="eth0")
            report[f"torchrun {part}"] = run(hosts, folder, 29502, secrets=secrets, interface="", torchrun=True)
        report["wrong interface"] = run(hosts, folder, 29503, secrets=[ours, ours], interface=SECOND)
        report["one secret"] = run(hosts, folder, 29504, secrets=[ours, None], interface="", torchrun=True)
    (folder / "report.json").write_text(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
