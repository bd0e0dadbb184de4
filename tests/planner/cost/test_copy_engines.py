"""Copy engines of devices: what uses them, closed forms of what they cost, and that Eq. 1 knows nothing of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import lowering_of, program_of, questions

from hwprofiles.devices.device import CopyEngines, Device
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.link import Link
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.plan.analysis import analyse
from planner.simulation.additive_cost import additive_s
from planner.simulation.execution_models import build_program_graph
from planner.simulation.program_replay import replay
from simulator.engines.engine import simulate
from simulator.formats.graph_file import read_graph, write_graph

ENGINES = ["compiled", "simpy"]
GBYTE = 1e9


def cluster(pairs, switches=(), *, hosts=(), nodes=(0, 0, 0), **engines):
    """Three devices with equal copy engines, joined by links (source, target, GB/s) in both directions, no latency."""
    names = ["gpu0", "gpu1", "gpu2", *switches]
    devices = [
        Device(name=name, node=node, profile="titanx", memory_bytes=1e12, copy_engines=CopyEngines(**engines))
        for name, node in zip(names, nodes, strict=False)
    ]
    links = [
        Link(
            name=f"{a} to {b}",
            source=names.index(a),
            target=names.index(b),
            both_ways=False,
            bandwidth_bytes_per_s=speed * GBYTE,
            latency=Latency.constant(0.0),
            exclusive=False,
            link_class="wire",
        )
        for one, other, speed in pairs
        for a, b in ((one, other), (other, one))
    ]
    return DeviceGraph("three", devices, switches, links, hosts=dict.fromkeys(hosts, 0))


WIRES = [("gpu0", "gpu1", 2), ("gpu0", "gpu2", 1), ("gpu1", "gpu2", 1)]
HOSTS = [("gpu0", "host0", 1), ("gpu0", "host1", 1), ("gpu1", "host0", 1), ("gpu2", "host1", 1), ("host0", "host1", 8)]
"""Each pair of devices that talk has a way of its own; what the wires above do directly, over two hosts' memories."""


def scattered(machines, first=(0,), then=(1, 2)):
    """The program of two layers on different devices, and what moves: {(source, target, backward): task}."""
    net = ModelBuilder("pair", batch=8, image=(4, 64))
    net.conv(8, 3, pad=1, name="conv")
    net.linear(4, name="fc")
    net.loss()
    graph = net.build()
    devices = {"conv": first, "fc": then}
    strategy = {
        layer.name: Configuration(
            dict.fromkeys(layer.parallel_dims, 1) | {"sample": len(devices.get(layer.name, then))},
            devices.get(layer.name, then),
        )
        for layer in graph.layers
    }
    program = program_of(CostModel(graph, machines), strategy)
    sends = np.flatnonzero(program.kind == KINDS.index("transfer")).tolist()
    return program, {(program.device[t], program.peer[t], program.backward[t]): t for t in sends}


def last_s(program, tasks, engine="compiled"):
    """From the first start to the last end of some tasks."""
    schedule = simulate(build_program_graph(program).graph, engine=engine)
    return schedule.end_s[tasks].max() - schedule.start_s[tasks].min()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["peer", "total"])
def test_two_messages_of_one_device_over_disjoint_links(kind, engine):
    """One engine takes the sum, two engines, or none declared, the maximum; answers come from two devices' engines."""
    for count in (1, 2, None):
        program, moved = scattered(cluster(WIRES, **{kind: count}))
        near, far = moved[0, 1, False], moved[0, 2, False]
        alone_s = [program.size_bytes[near] / (2 * GBYTE), program.size_bytes[far] / GBYTE]
        together = sum if count == 1 else max
        assert last_s(program, [near, far], engine) == pytest.approx(together(alone_s))
        back = [moved[1, 0, True], moved[2, 0, True]]
        schedule = simulate(build_program_graph(program).graph, engine=engine)
        assert (schedule.end_s - schedule.start_s)[back] == pytest.approx(alone_s)


@pytest.mark.parametrize("engine", ENGINES)
def test_two_messages_to_one_device_over_two_hosts(engine):
    """Gathered by device 0: its engines from the host take the sum or the maximum; each sender has its own."""
    for engines, together in [
        ({"host_to_device": 1}, sum),
        ({"host_to_device": 2}, max),
        ({"device_to_host": 1}, max),
        ({"peer": 1}, max),
        ({"total": 1}, sum),
    ]:
        machines = cluster(HOSTS, ("host0", "host1"), hosts=("host0", "host1"), **engines)
        program, moved = scattered(machines, first=(1, 2), then=(0,))
        arriving = [moved[1, 0, False], moved[2, 0, False]]
        alone_s = program.size_bytes[arriving] / GBYTE
        assert last_s(program, arriving, engine) == pytest.approx(together(alone_s))


def test_a_copy_keeps_its_engine_busy_only_as_long_as_its_own_links_take():
    """Behind a wire of half the speed between two hosts, two staged copies fit on one engine."""
    slow = [
        ("gpu0", "host0", 4),
        ("gpu1", "host1", 4),
        ("gpu2", "host2", 4),
        ("host0", "host1", 2),
        ("host0", "host2", 2),
    ]
    hosts = ("host0", "host1", "host2")
    program, moved = scattered(cluster(slow, hosts, hosts=hosts, device_to_host=1, host_to_device=1))
    both = [moved[0, 1, False], moved[0, 2, False]]
    assert last_s(program, both) == pytest.approx(program.size_bytes[both[0]] / (2 * GBYTE))


def test_network_cards_fetch_for_themselves():
    """Between machines, and over no host's memory, no engine of the devices is used."""
    program, moved = scattered(cluster(WIRES, nodes=(0, 1, 2), peer=1, total=1))
    graph = build_program_graph(program).graph
    first = len(program.cluster.links) + len(program.cluster.devices)
    assert graph.resource_names[first:] == tuple(
        f"gpu{i} copies, {kind}" for i in range(3) for kind in ("total", "peer")
    )
    assert graph.use_resource.max() < first
    assert last_s(program, [moved[0, 1, False], moved[0, 2, False]]) == pytest.approx(
        program.size_bytes[moved[0, 2, False]] / GBYTE
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_kernels_and_copies_overlap(engine):
    """Device 0 computes one branch at full speed while its only engine sends the other branch's input."""
    net = ModelBuilder("fork", batch=8, image=(4, 64))
    stem = net.conv(8, 3, pad=1, name="stem")
    here = net.conv(512, 3, stem, pad=1, name="here")
    there = net.conv(512, 3, stem, pad=1, name="there")
    net.concat([here, there], name="concat")
    net.linear(4, name="fc")
    net.loss()
    graph = net.build()
    places = {"stem": 0, "here": 0, "there": 1}
    strategy = {
        layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (places.get(layer.name, 2),))
        for layer in graph.layers
    }
    program = program_of(CostModel(graph, cluster(WIRES, total=1)), strategy)
    schedule = simulate(build_program_graph(program).graph, engine=engine)
    tasks = {program.name(task): task for task in range(program.size)}
    kernel, copy = tasks["here forward [0]"], tasks["stem to there (0 to 1)"]
    lasts_s = schedule.end_s - schedule.start_s
    assert schedule.start_s[kernel] == pytest.approx(schedule.start_s[copy])
    assert lasts_s[kernel] == pytest.approx(program.work_s[kernel])
    assert lasts_s[copy] == pytest.approx(program.size_bytes[copy] / (2 * GBYTE))


def with_engines(machines, draw):
    """The cluster with drawn engines on every device, and some of its switches made hosts."""
    counts = st.none() | st.integers(1, 2)
    switches = machines.vertices[len(machines.devices) :]
    devices = [
        replace(device, copy_engines=draw(st.builds(CopyEngines, total=counts, device_to_host=counts, peer=counts)))
        for device in machines.devices
    ]
    hosts = {name: 0 for name in switches if draw(st.booleans())}
    return DeviceGraph(machines.name, devices, switches, machines.links, hosts=hosts)


def expected_uses(machines, source, target):
    """Names of the engines that a message uses, with the seconds per byte, walked link by link."""
    spans, at, seen = {source: 0.0, target: 0.0}, source, False
    for index in machines.route(source, target):
        link = machines.links[index]
        if not seen:
            spans[source] = max(spans[source], 1 / link.bandwidth_bytes_per_s)
        spans[target] = max(spans[target], 1 / link.bandwidth_bytes_per_s)
        at = link.target if at == link.source else link.source
        if machines.vertices[at] in machines.hosts:
            seen, spans[target] = True, 0.0
    kinds = {(source, "device_to_host"), (target, "host_to_device")} if seen else {(source, "peer")}
    if not seen and machines.devices[source].node != machines.devices[target].node:
        return {}
    kinds |= {(device, "total") for device, _ in kinds}
    return {
        f"{machines.devices[device].name} copies, {kind.replace('_', ' ')}": spans[device]
        for device, kind in kinds
        if kind in machines.devices[device].copy_engines.declared
    }


@settings(max_examples=9)
@given(questions(models=("lenet5", "conv1d")), st.data())
def test_engines_are_used_as_the_routes_say_and_leave_the_additive_cost(question, data):
    """Message by message and round by round against a walk; Eq. 1 stays; both engines agree."""
    model, strategy = question
    machines = with_engines(model.cluster, data.draw)
    model = CostModel(model.graph, machines, model.gradient_sync)
    program = program_of(model, strategy)
    graph, first = build_program_graph(program).graph, len(machines.links) + len(machines.devices)
    for task in np.flatnonzero(~program.is_compute).tolist():
        used = slice(graph.use_start[task], graph.use_start[task + 1])
        rows = zip(graph.use_resource[used].tolist(), graph.use_weight[used].tolist(), strict=True)
        busy_s = {graph.resource_names[r]: weight * graph.work[task] for r, weight in rows if r >= first}
        messages = [(program.device[task], program.peer[task], program.size_bytes[task])]
        if task in program.collectives:
            collective = program.collectives[task]
            step, size = collective.round, collective.buffer_bytes * collective.round.share * collective.round.repeats
            messages = [(a, b, size) for a, b in zip(step.source.tolist(), step.target.tolist(), strict=True)]
        expected = {}
        for source, target, size in messages:
            for name, seconds in expected_uses(machines, int(source), int(target)).items():
                expected[name] = expected.get(name, 0.0) + size * seconds
        assert busy_s == pytest.approx(expected)
    alone = replay(program, overlap=False, contention=False).iteration_s
    assert alone == pytest.approx(additive_s(model, strategy), rel=1e-9)
    schedules = [simulate(graph, engine=engine) for engine in ENGINES]
    np.testing.assert_allclose(schedules[0].end_s, schedules[1].end_s, rtol=1e-9)


def test_task_graph_files_name_the_engines(tmp_path):
    """Written, read and replayed: the same engines, the same end."""
    program, _ = scattered(cluster(WIRES, peer=1))
    graph = build_program_graph(program).graph
    write_graph(tmp_path / "graph.json", graph)
    again = read_graph(tmp_path / "graph.json").graph
    assert "gpu0 copies, peer" in again.resource_names
    assert simulate(again).makespan_s == simulate(graph).makespan_s


def test_analysis_names_engines_and_finds_no_new_routes():
    """The sender's engine is among the resources; waits for it are told; faster wires lead nobody elsewhere."""
    program, _ = scattered(cluster(WIRES, peer=1))
    found = analyse(program, lowering_of(program))
    engines = {row.name: row for row in found.resources if row.of == "peer"}
    assert set(engines) == {"gpu0 copies, peer", "gpu1 copies, peer", "gpu2 copies, peer"}
    assert not any(row.is_link or row.moved_bytes for row in engines.values())
    assert "gpu0 copies, peer" in {step.resource for step in found.path.steps}
    assert {step.link_class for step in found.path.steps} <= {"", "wire"}
    faster = next(row for row in found.sensitivities if row.quantity == "bandwidth")
    assert not faster.reroutes
    assert faster.effect < 0


@pytest.mark.parametrize("kind", ["total", "host_to_device", "device_to_host", "peer"])
def test_numbers_of_engines_are_checked(kind):
    with pytest.raises(ValueError, match=rf"CopyEngines.{kind} must be >= 1, got 0"):
        CopyEngines(**{kind: 0})
