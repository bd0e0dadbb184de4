"""Links as cluster files: the times that were measured come back from the device graph that is read."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from test_probe import FACTS

from executor.probe.link_probe import MESSAGE_BYTES, MeasuredLinks, MessageRow, OverheadRow
from executor.probe.measured_rows import TimeSamples
from executor.probe.probe_run import probe
from executor.probe.probe_settings import ProbeSettings
from executor.probe.probed_cluster import cluster_content, fitted_link, topology_content, write_cluster
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.profile_file import load_profile
from hwprofiles.machines.topology_graph import read_topo
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.plan.make_plan import make_plan
from planner.simulation.program_replay import replay

TOPOLOGIES = sorted((Path(__file__).parents[2] / "hwprofiles" / "data" / "topo").glob("*.txt"))


def rows(latency_s, bytes_per_s, between=False):
    """Messages of a link with a constant latency."""
    return tuple(
        MessageRow(between=between, size_bytes=size, samples=TimeSamples((latency_s + size / bytes_per_s,)))
        for size in MESSAGE_BYTES
    )


def travel_s(cluster, source, target, size):
    """Of a message that nobody meets."""
    slowest = min(cluster.links[i].bandwidth_bytes_per_s for i in cluster.route(source, target))
    return cluster.latency_s(source, target, size) + size / slowest


def written(tmp_path, content):
    path = tmp_path / "cluster.yaml"
    write_cluster(path, content)
    return load_cluster(str(path))


@given(latency_s=st.floats(1e-6, 1e-2), bytes_per_s=st.floats(1e7, 1e11))
def test_a_link_of_constant_latency_is_found(latency_s, bytes_per_s):
    fit = fitted_link(rows(latency_s, bytes_per_s))

    assert fit.bandwidth_bytes_per_s == pytest.approx(bytes_per_s, rel=1e-3)
    for row in rows(latency_s, bytes_per_s):
        assert fit.time_s(row.size_bytes) == pytest.approx(row.samples.median_s, rel=1e-3)


@given(st.lists(st.floats(1e-6, 1.0), min_size=len(MESSAGE_BYTES), max_size=len(MESSAGE_BYTES)))
def test_any_times_make_a_link_that_is_no_faster_than_measured(times):
    measured = [
        MessageRow(between=False, size_bytes=size, samples=TimeSamples((time,)))
        for size, time in zip(MESSAGE_BYTES, times, strict=True)
    ]
    fit = fitted_link(measured)

    assert fit.bandwidth_bytes_per_s > 0
    assert all(fit.time_s(row.size_bytes) >= row.samples.median_s * (1 - 1e-9) for row in measured)


def test_messages_of_one_machine_take_the_measured_times(tmp_path):
    measured = rows(80e-6, 2e9)
    content = cluster_content(MeasuredLinks(machines=("a",) * 3, messages=measured), "p100", FACTS, "here")
    cluster = written(tmp_path, content)

    assert [device.name for device in cluster.devices] == ["rank0", "rank1", "rank2"]
    assert (cluster.node_count, cluster.devices[0].memory_bytes) == (1, FACTS.memory_bytes)
    for row in measured:
        assert travel_s(cluster, 0, 2, row.size_bytes) == pytest.approx(row.samples.median_s, rel=1e-6)


@pytest.mark.parametrize("ranks", [2, 4])
def test_overheads_of_messages_and_sums(tmp_path, ranks):
    """Made of known costs: 2 ends of each message, and of a ring's 2 (n - 1) steps, (n - 1) of which add."""
    message_s, byte_s, add_s, size = 4e-5, 3e-10, 7e-10, 4 * 2**20
    steps = ranks - 1
    summed_s = 4 * steps * (message_s + byte_s * size / ranks) + add_s * steps / ranks * size
    sizes = [(False, 1024, 2 * message_s + 2 * 1024 * byte_s), (False, size, 2 * message_s + 2 * size * byte_s)]
    overheads = tuple(
        OverheadRow(adds=adds, ranks=ranks, size_bytes=count, samples=TimeSamples((seconds,) * 3))
        for adds, count, seconds in [*sizes, (True, size, summed_s)]
    )
    links = MeasuredLinks(machines=("a",) * ranks, messages=rows(80e-6, 2e9), overheads=overheads)
    cluster = written(tmp_path, cluster_content(links, "p100", FACTS, "here"))
    for device in cluster.devices:
        found = device.message_overhead
        assert (found.message_s, found.byte_s, found.add_byte_s) == pytest.approx((message_s, byte_s, add_s))


def test_messages_between_machines_take_theirs(tmp_path):
    measured = rows(80e-6, 2e9), rows(300e-6, 25e6, between=True)
    links = MeasuredLinks(machines=("a", "a", "b", "b"), messages=sum(measured, ()))
    cluster = written(tmp_path, cluster_content(links, "p100", FACTS, "here"))

    assert [device.node for device in cluster.devices] == [0, 0, 1, 1]
    for pair, same in (((2, 3), measured[0]), ((1, 2), measured[1]), ((3, 0), measured[1])):
        for row in same:
            assert travel_s(cluster, *pair, row.size_bytes) == pytest.approx(row.samples.median_s, rel=1e-6)


def test_ranks_alone_on_their_machines_meet_over_the_network(tmp_path):
    measured = rows(300e-6, 25e6, between=True)
    links = MeasuredLinks(machines=("a", "b", "c"), messages=measured)
    cluster = written(tmp_path, cluster_content(links, "p100", FACTS, "here"))

    assert cluster.node_count == 3
    for row in measured:
        assert travel_s(cluster, 0, 2, row.size_bytes) == pytest.approx(row.samples.median_s, rel=1e-6)


def test_one_rank_needs_no_links(tmp_path):
    cluster = written(tmp_path, cluster_content(MeasuredLinks(machines=("a",)), "p100", FACTS, "here"))
    assert (len(cluster.devices), cluster.links) == (1, ())


@pytest.mark.parametrize("bytes_per_s", [4e9, 40e9])
@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_topologies_survive_the_file_and_take_the_measured_rate(tmp_path, path, bytes_per_s):
    graph = read_topo(path.read_text(), profile="p100", memory_bytes=16e9)
    measured = rows(20e-6, bytes_per_s)
    links = MeasuredLinks(machines=("a",) * len(graph.devices), messages=measured)
    same = written(tmp_path, topology_content(graph, MeasuredLinks(machines=links.machines), FACTS, "here"))
    cluster = written(tmp_path, topology_content(graph, links, FACTS, "here"))
    pairs = [(a, b) for a in range(len(graph.devices)) for b in range(len(graph.devices)) if a != b]

    assert same.vertices == graph.vertices
    for a, b in pairs:
        assert travel_s(same, a, b, 1e7) == pytest.approx(travel_s(graph, a, b, 1e7))
    if len(graph.devices) > 1:
        assert travel_s(cluster, 0, 1, 32 * 2**20) == pytest.approx(measured[-1].samples.median_s, rel=1e-3)


def settings(**changes):
    """Settings of a small probe."""
    return ProbeSettings(**{"batch": 4, "processes": 2, "strategies": ("data",)} | changes)


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("warm_ranks")
def test_two_processes_probe_and_a_plan_is_made_and_replayed_from_it(tmp_path):
    found = probe(["lenet5"], settings(repetitions=3), out=tmp_path / "here")
    cluster = load_cluster(str(found.cluster_file))
    profile, answer = load_profile(cluster.devices[0].profile), found.summary
    graph = load_model("lenet5", batch=4)
    plan = make_plan(graph, cluster, strategy="data")

    assert (len(cluster.devices), cluster.node_count) == (2, 1)
    assert {row.sizes[0] for row in answer.rows} == {2}
    assert {name for row in answer.rows for name in row.layers} == {layer.name for layer in graph.layers}
    assert all(len(row.samples.seconds) == 3 for row in answer.rows)
    assert {row.size_bytes for row in answer.links.messages} == set(MESSAGE_BYTES)
    assert profile.memory_bytes * 2 > 2**28
    assert "gloo" in profile.sources[0]
    arithmetic_s = sum(row.samples.median_s * len(row.layers) for row in answer.rows)
    program = lowered(CostModel(graph, cluster), plan.configurations)
    assert program.work_s.sum() / 2 == pytest.approx(arithmetic_s, rel=1e-6)
    assert replay(program).iteration_s >= arithmetic_s


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"processes": 0}, "processes must be >= 1, got 0"),
        ({"batch": 3}, "batch must be a multiple of the 2 devices"),
        ({"strategies": ("dta",)}, "strategy must be one of .*'dta'"),
        ({"models": ["lenet"]}, "model must be one of .*'lenet'"),
        ({"models": []}, "models and strategies must each name at least one"),
        ({"max_parts": 3}, "max_parts must be at least the"),
        ({"repetitions": 0}, "repetitions must be >= 1, got 0"),
        ({"device": "tpu"}, "device must be auto, cpu or cuda, got 'tpu'"),
    ],
)
def test_bad_questions_are_refused_before_anything_starts(tmp_path, changes, message):
    models = changes.pop("models", ["lenet5"])
    with pytest.raises(ConfigError, match=message):
        probe(models, settings(**changes), out=tmp_path / "here")
    assert not (tmp_path / "here").exists()
