"""A cluster on one machine: what it refuses, what it leaves behind (nothing), and that its times are the engine's."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from lab_cases import MB, Message, measured_s, predicted_s, ring

from executor.lab.commands import down, status, up
from executor.lab.inside import is_inside, lab_hosts, run_inside
from executor.lab.tools import require_lab
from executor.lab.wiring import lab_cluster, wiring_of
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device import Device
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.link import Link

LAB = "lab-2x2"
HOLD = Path(__file__).parents[1].joinpath("lab_hold.py")


def obstacle():
    try:
        require_lab()
    except ConfigError as error:
        return str(error)
    return ""


in_lab = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "a lab can be made")


def cluster(ends, hosts=2, switches=1, **changes):
    """Hosts, switches, and a link of 100 Mbit/s each way for every pair of ends."""
    usual = {"both_ways": False, "bandwidth_bytes_per_s": 12.5e6, "exclusive": False, "link_class": "cable"}
    links = [
        Link(name=f"{a}-{b}", source=a, target=b, latency=Latency.constant(0.0), **(usual | changes))
        for pair in ends
        for a, b in (pair, pair[::-1])
    ]
    devices = [Device(name=f"host{i}", node=i, profile="cpu-core", memory_bytes=1e9) for i in range(hosts)]
    return DeviceGraph("mine", devices, [f"switch{i}" for i in range(switches)], links)


def wait_until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def machine():
    """What a lab could leave in the machine's own network: links, and namespaces but those of labs beside this."""
    names = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout.splitlines()
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    return [name for name in names if not name.startswith("orrery-")], links


def namespaces_of(prefix):
    return [path.name for path in Path("/run/netns").glob(f"{prefix}*")]


def commands_with(word):
    """Processes of the machine whose command line has the word."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in text:
                found.append(int(entry.name))
    return found


# What it makes of a cluster.


def test_ports_carry_exactly_the_pairs_whose_route_leaves_by_them():
    """Two racks of two: an uplink is crossed by the pairs of different racks, a host's port by its own."""
    graph = load_cluster(LAB)
    ports = {
        (graph.vertices[a.vertex], graph.vertices[b.vertex]): a
        for cable in wiring_of(graph).cables
        for a, b in (cable, cable[::-1])
    }

    assert ports["rack0/leaf", "core"].pairs == ((0, 2), (0, 3), (1, 2), (1, 3))
    assert ports["rack0/host0/cpu", "rack0/leaf"].pairs == ((0, 1), (0, 2), (0, 3))
    assert ports["rack0/leaf", "rack0/host0/cpu"].pairs == ((1, 0), (2, 0), (3, 0))
    assert ports["rack0/leaf", "core"].bandwidth_bytes_per_s == 12.5e6
    assert len({(port.vertex, port.interface) for port in ports.values()}) == len(ports) == 12


def test_payload_rates_are_those_of_full_packets():
    """1514 bytes on the wire are 20 of IPv4, 32 of TCP with time stamps, 14 of Ethernet, and payload."""
    graph = load_cluster(LAB)

    found = lab_cluster(graph)

    assert found.bandwidth / graph.bandwidth == pytest.approx(1 - (20 + 32 + 14) / 1514)
    assert (found.spec, found.devices, found.vertices) == (graph.spec, graph.devices, graph.vertices)


@pytest.mark.parametrize(
    ("graph", "rule"),
    [
        (lambda: load_cluster("dgx-a100"), "a host has one device.*8 devices in 1 nodes"),
        (lambda: load_cluster("p100-4x4:nodes=5"), "at most 16 hosts, got 20"),
        (lambda: cluster([(0, 2), (1, 2)], exclusive=True), "fair and full duplex, got '0-2', which is exclusive"),
        (lambda: cluster([(0, 2), (1, 2)], both_ways=True), "which is half duplex"),
        (lambda: cluster([(0, 2), (1, 2)], bandwidth_bytes_per_s=2e9 / 8), "at most 1 Gbit/s, got 2 Gbit/s of '0-2'"),
        (lambda: cluster([(0, 2), (1, 2), (1, 2)]), "must not be parallel"),
        (lambda: cluster([(0, 2), (1, 2), (0, 1)]), "a host has one link, got 2 of 'host0'"),
        (lambda: cluster([(0, 2), (1, 2), (2, 3), (3, 4), (4, 2)], switches=3), "no loop, got switch"),
    ],
)
def test_clusters_that_cannot_be_made_are_refused(graph, rule):
    with pytest.raises(ConfigError, match=rule) as caught:
        wiring_of(graph())

    assert "\n" not in str(caught.value)


def test_missing_tools_are_named(monkeypatch):
    monkeypatch.setattr("executor.lab.tools.shutil.which", lambda name, path: None)
    require_lab.cache_clear()
    with pytest.raises(ConfigError, match="needs the tool 'ip', which is not installed; install the package iproute2"):
        require_lab()
    require_lab.cache_clear()


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    require_lab.cache_clear()
    with pytest.raises(ConfigError, match="needs Linux, got darwin"):
        require_lab()
    require_lab.cache_clear()


def test_a_lack_of_rights_is_said(monkeypatch):
    """Where the system refuses new namespaces, its reason is passed on."""
    monkeypatch.setattr("executor.lab.tools.UNSHARE", ("--fork", "--pid", "--setgid=0", "--root=/nowhere"))
    require_lab.cache_clear()
    with pytest.raises(ConfigError, match="was refused: unshare: ") as caught:
        require_lab()
    require_lab.cache_clear()
    assert "\n" not in str(caught.value)


def test_hosts_are_only_made_inside():
    assert not is_inside()
    with pytest.raises(ConfigError, match="this process is outside"), lab_hosts(load_cluster(LAB)):
        pass


# Inside.


@pytest.mark.lab
@in_lab
def test_a_command_inside_gives_its_code_and_leaves_nothing(tmp_path):
    """The command sees four hosts with their processes, none of which is there afterwards."""
    before, report = machine(), tmp_path / "report"

    code = run_inside([sys.executable, str(HOLD), LAB, str(report), "leave"])

    assert code == 7
    assert report.read_text() == "4 hosts, 10.77.0.1/24 10.77.0.2/24 10.77.0.3/24 10.77.0.4/24, then 0"
    assert machine() == before
    assert wait_until(lambda: not commands_with(str(report)))


@pytest.mark.lab
@in_lab
@pytest.mark.parametrize(
    ("whom", "how"),
    [
        ("supervisor", signal.SIGKILL),
        ("command", signal.SIGKILL),
        ("everybody", signal.SIGINT),  # as Ctrl-C does
    ],
)
def test_whoever_is_killed_nothing_is_left(tmp_path, whom, how):
    """Processes in the hosts go too, and with them the network."""
    before, report = machine(), tmp_path / "report"
    script = "import sys; from executor.lab.inside import run_inside; sys.exit(run_inside(sys.argv[1:]))"
    supervisor = subprocess.Popen(
        [sys.executable, "-c", script, sys.executable, str(HOLD), LAB, str(report), "stay"],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert wait_until(report.exists, 60)
        assert len(commands_with(f"asleep-{report}")) == 4
        if whom == "everybody":
            os.killpg(supervisor.pid, how)
        else:
            os.kill(supervisor.pid if whom == "supervisor" else newest(report), how)
        assert supervisor.wait(30) != 0
    finally:
        supervisor.kill()
        supervisor.wait()
    assert wait_until(lambda: not commands_with(str(report)))
    assert machine() == before


LISTENS = """
import signal, sys, time
from pathlib import Path
def end(number, frame):
    print("ended by", number, flush=True)
    sys.exit(20 + number)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
Path(sys.argv[1]).touch()
time.sleep(60)
"""


@pytest.mark.lab
@in_lab
@pytest.mark.parametrize(
    ("whom", "how"),
    [
        ("supervisor", signal.SIGTERM),
        ("everybody", signal.SIGINT),
        ("everybody", signal.SIGHUP),
    ],
)
def test_the_command_hears_each_signal_once_and_ends_both(tmp_path, whom, how):
    """Whether a signal is sent to the process outside or to all of its group; the code is the command's own."""
    script = "import sys; from executor.lab.inside import run_inside; sys.exit(run_inside(sys.argv[1:]))"
    command = [sys.executable, "-c", script, sys.executable, "-c", LISTENS, str(tmp_path / "begun")]
    supervisor = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert wait_until((tmp_path / "begun").exists)
    (os.killpg if whom == "everybody" else os.kill)(supervisor.pid, how)

    assert supervisor.communicate(timeout=30)[0] == f"ended by {how}\n"
    assert supervisor.returncode == 20 + how


@pytest.mark.lab
@in_lab
def test_a_command_in_a_lab_says_once_that_it_was_interrupted():
    """Not inside and outside, though the code of both is that of Ctrl-C."""
    words = ["validate", "lenet5", "--lab", "lab-4:nodes=2", "--batch", "8"]
    process = subprocess.Popen(
        [sys.executable, "-m", "orrery", *words], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert wait_until(lambda: len(commands_with("\0".join(["orrery", *words]))) > 2)  # outside, unshare, the first, ...
    os.killpg(process.pid, signal.SIGINT)

    said = process.communicate(timeout=60)[1]
    assert said.count("interrupted") == 1, said
    assert process.returncode == 130


def newest(report):
    """The command itself: all whose command lines have it in their own are older, but for the sleepers."""
    return max(set(commands_with(f"\0{report}")) - set(commands_with("asleep-")))


# In the machine itself.

KILLED_UP = """
import os, signal, sys
from pathlib import Path
from executor.lab import namespaces; from executor.lab.commands import up
from hwprofiles.catalogue.cluster_catalogue import load_cluster
namespaces._set_system = lambda name: os.kill(os.getpid(), signal.SIGKILL)
up(load_cluster(sys.argv[1]), state_path=Path(sys.argv[2]))
"""


@pytest.mark.lab
@in_lab
@pytest.mark.skipif(os.geteuid() != 0, reason="a lab in the machine itself needs root")
def test_a_lab_in_the_machine_comes_and_goes(tmp_path):
    path, before = tmp_path / "lab.json", machine()
    assert (status(state_path=path), down(state_path=path)) == (None, False)
    made = up(load_cluster(LAB), state_path=path)
    try:
        assert (made.cluster, made.complete, made.processes) == (LAB, True, (0, 0, 0, 0))
        asleep = subprocess.Popen(made.hosts.command(2, ["sleep", "60"]))
        assert wait_until(lambda: status(state_path=path).processes == (0, 0, 1, 0))
        with pytest.raises(ConfigError, match="a lab is up already"):
            up(load_cluster(LAB), state_path=path)
        assert len(namespaces_of(made.hosts.prefix)) == 7
    finally:
        assert down(state_path=path)
    assert asleep.wait(30) == -signal.SIGKILL
    assert status(state_path=path) is None
    assert (namespaces_of(made.hosts.prefix), machine(), list(tmp_path.iterdir())) == ([], before, [])


@pytest.mark.lab
@in_lab
@pytest.mark.skipif(os.geteuid() != 0, reason="a lab in the machine itself needs root")
def test_what_a_killed_up_left_can_be_taken_down(tmp_path):
    """A killed ``up`` gets no chance to clear up; what it wrote down first is enough to do so later."""
    path, before = tmp_path / "lab.json", machine()
    killed = subprocess.run([sys.executable, "-c", KILLED_UP, LAB, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    prefix = status(state_path=path).hosts.prefix
    assert len(namespaces_of(prefix)) == 7

    assert down(state_path=path)

    assert (namespaces_of(prefix), machine()) == ([], before)


@pytest.mark.skipif(os.geteuid() != 0, reason="a lab in the machine itself needs root")
def test_a_damaged_state_is_named(tmp_path):
    path = tmp_path / "lab.json"
    path.write_text('{"cluster": "lab-4"')
    with pytest.raises(ConfigError, match=r"the state of the lab in .* cannot be read"):
        status(state_path=path)


# The network against the engine.

FLOWS = {
    "one across": [Message(0, 2, 4 * MB)],
    "two that share the uplink": [Message(0, 2, 4 * MB), Message(1, 3, 2 * MB)],
    "one in the rack, one across, one source": [Message(0, 1, 6 * MB), Message(0, 2, 2 * MB)],
    "ring all-reduce": ring("all_reduce", 4 * MB, 4),
}


@pytest.mark.lab
@in_lab
@pytest.mark.timeout(120)
def test_times_are_those_of_the_engine():
    """Each flow within 5 %, of the ring its end; a machine busy with other things has no say."""
    predictions = [predicted_s(messages, LAB) for messages in FLOWS.values()]
    measured = measured_s(FLOWS.values(), LAB, 3)
    errors = [error_of(*case) for case in zip(predictions, measured, FLOWS.values(), strict=True)]
    worst = max(np.abs(error).max() for error in errors)
    if worst > 0.05 and os.getloadavg()[0] > os.cpu_count():
        pytest.skip(f"the machine is too busy for times: load average {os.getloadavg()[0]:.1f}, errors {errors}")
    assert worst <= 0.05, dict(zip(FLOWS, errors, strict=True))


def error_of(prediction_s, rows_s, messages):
    """Relative errors of the flows, or, where messages wait for others, of the last to end."""
    measured_s = np.median(rows_s, axis=0)
    if any(message.waits for message in messages):
        return prediction_s.max() / measured_s.max() - 1
    return prediction_s / measured_s - 1
