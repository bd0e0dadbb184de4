"""Commands of one machine, while they work: no process of theirs listens to other machines."""

import ipaddress
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from listening import listened_at, listening

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import save_plan

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="reads the kernel's list of sockets"),
]
CLUSTER, WAIT_S = "lab-4:nodes=2", 200
SWEEP = """
version: 1
name: little
models: lenet5
clusters: {cluster: p100-4x4, with: {nodes: 1}}
batch: [8, 16]
strategies: [data, model]
"""
SMALL = ["lenet5", "--batch", "8", "--processes", "2", "--strategies", "data", "--device", "cpu"]
COMMANDS = {
    "run": ["run", "plan.json", "--steps", "40", "--device", "cpu"],
    "validate": ["validate", *SMALL, "--cluster", CLUSTER, "--stand-in-compute", "--rounds", "3"],
    "sweep": ["sweep", "sweep.yaml", "--store", "processes.sqlite", "--processes", "2"],
    "dask": ["sweep", "sweep.yaml", "--store", "dask.sqlite", "--dask", "local:2"],
}
SILENT = {"sweep"}
"""Commands whose processes speak by pipes."""


def processes_of(pid):
    """A process, all that it has started, and what works for these in their groups: children of the warm server."""
    above = {}
    for about in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            _, parent, group, *_ = about.read_text().rpartition(")")[2].split()
            above[int(about.parent.name)] = {int(parent), int(group)}
    family, before = {pid}, set()
    while family != before:
        before = set(family)
        family |= {each for each, leaders in above.items() if leaders & before}
    return family


def listened_by(process):
    """Where a command, which leads a group, and all that works for it listen, from its start to its end."""
    found, deadline_s = set(), time.monotonic() + WAIT_S
    while process.poll() is None:
        assert time.monotonic() < deadline_s
        sockets = listening(process.pid)
        for pid in processes_of(process.pid):
            found |= listened_at(pid, own=True, sockets=sockets)
        time.sleep(0.2)  # each command has sockets open for longer
    return found


@pytest.fixture(scope="module")
def listened(tmp_path_factory, warm_programs):
    """Addresses of every command, two commands at a time."""
    folder = tmp_path_factory.mktemp("commands")
    plan = make_plan(load_model("lenet5", batch=16), load_cluster(CLUSTER), strategy="data")
    save_plan(replace(plan, request=replace(plan.request, cluster=CLUSTER)), folder / "plan.json")
    (folder / "sweep.yaml").write_text(SWEEP)

    def observed(name):
        with (folder / f"{name}.txt").open("w") as errors:
            words = [warm_programs / "orrery", *COMMANDS[name], "--json"]
            process = subprocess.Popen(
                words, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True, process_group=0
            )
        with ThreadPoolExecutor(1) as reader:
            out = reader.submit(process.stdout.read)
            found = listened_by(process)
            printed = out.result()
        assert process.wait() == 0, (folder / f"{name}.txt").read_text()
        assert json.loads(printed)
        return found

    names = [name for name in COMMANDS if name != "dask" or find_spec("distributed")]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(observed, names), strict=True))


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_of_one_machine_listen_at_loopback_alone(listened, name):
    if name not in listened:
        pytest.skip("distributed is not installed")
    beyond = {(address, port) for address, port in listened[name] if not ipaddress.ip_address(address).is_loopback}

    assert beyond == set()
    assert bool(listened[name]) is (name not in SILENT)


def test_a_socket_that_listens_everywhere_is_seen():
    """The list has every way to listen, and the sockets of one process apart from others."""
    script = """
import socket, time
sockets = [socket.create_server(("127.0.0.1", 0)), socket.create_server(("", 0))]
if socket.has_dualstack_ipv6():
    sockets.append(socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True))
print(*[s.getsockname()[1] for s in sockets], flush=True)
time.sleep(100)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        ports = list(map(int, process.stdout.readline().split()))
        expected = set(zip(["127.0.0.1", "0.0.0.0", "::"], ports, strict=False))
        assert listened_at(process.pid, own=True) == expected
        assert listened_at(process.pid, own=False) >= expected
        assert not listened_at(process.pid, own=True) & set(zip(["0.0.0.0"] * 3, ports[2:], strict=False))
    finally:
        process.kill()
        process.wait()
