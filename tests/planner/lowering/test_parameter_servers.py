"""Parameter servers in the memory of hosts: where copies go, when, and how long they take."""

from itertools import permutations

import numpy as np
import pytest
from plans import star

from executor.checks.program_check import check_program
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.framework import framework_of
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy, spaces_of

PUSH, FETCH, FORWARD = (KINDS.index(kind) for kind in ("push", "fetch", "forward"))
PORT_BYTES_PER_S, CARD_BYTES_PER_S, SOCKETS_BYTES_PER_S = 4.5e9, 10e9, 6e9
"""Of k80-16: what two GPUs share, what each has, and what two sockets share."""


def served(count, model="alexnet", batch=64, strategy="data", text="ps:random=0", spec="k80-16"):
    graph, cluster = load_model(model, batch=batch), load_cluster(spec).take(count)
    spaces = spaces_of(graph, named_strategy(strategy, graph, count), count)
    return lower(CostModel(graph, cluster, conditions=Conditions(framework=framework_of(text))), spaces)


def names_of(program, task):
    return [program.cluster.links[link].name for link in program.host_copies[task].links]


@pytest.mark.parametrize("text", ["ps", "ps:random=0"])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_every_parameter_goes_both_ways_once_a_device(count, text):
    program = served(count, text=text)
    total = program.graph.parameter_count * 4
    for kind in (PUSH, FETCH):
        tasks = np.flatnonzero(program.kind == kind)
        by_device = np.bincount(program.device[tasks], program.size_bytes[tasks])
        np.testing.assert_array_equal(by_device, np.full(count, total))
    assert sorted(program.host_copies) == np.flatnonzero(np.isin(program.kind, [PUSH, FETCH])).tolist()
    assert not program.collectives
    assert "update" not in {KINDS[kind] for kind in program.kind}


@pytest.mark.parametrize("spec", ["dgx1-p100", "p100-4x4:nodes=1", "abci-v100:nodes=1", "titanx-4", "fdr-32x3:nodes=1"])
def test_machines_of_the_catalogue_have_servers_behind_pcie(spec):
    """What leaves a GPU passes its own slot once, and never another GPU: hosts are reached without NVLink."""
    program = served(2, spec=spec)
    total = program.graph.parameter_count * 4
    passed = {}
    for task, copy in program.host_copies.items():
        for link in copy.links:
            passed[link] = passed.get(link, 0) + program.size_bytes[task]
    links = [program.cluster.links[link] for link in passed]
    gpus = [sum("gpu" in end for end in link.name.split(" -> ")) for link in links]
    assert gpus.count(1) == 4
    assert 2 not in gpus
    assert [passed[link] for link, ends in zip(passed, gpus, strict=True) if ends] == [total] * 4


def test_half_of_each_copy_crosses_the_sockets():
    """Parameters lie evenly in the memory of both sockets; the second is reached through the first."""
    program = served(2)
    gpu, plx, root = "node0/socket0/card0/gpu1", "node0/socket0/card0/plx", "node0/socket0/root"
    ways = {
        PUSH: {f"{gpu} -> {plx}": 1, f"{plx} -> {root}": 1, f"{root} -> node0/socket1/root": 0.5},
        FETCH: {f"{plx} -> {gpu}": 1, f"{root} -> {plx}": 1, f"node0/socket1/root -> {root}": 0.5},
    }
    for task, copy in program.host_copies.items():
        if program.device[task] == 1:
            assert dict(zip(names_of(program, task), copy.shares, strict=True)) == ways[program.kind[task]]


def test_machines_without_workers_serve_nothing():
    """Of 16 GPUs of four machines the first four train; then those of two machines, which hold about half each."""
    one, two = served(4, spec="p100-4x4"), served(8, spec="p100-4x4")
    assert not any("fabric" in name for task in one.host_copies for name in names_of(one, task))
    fetched = np.flatnonzero((two.kind == FETCH) & (two.device == 0))
    far = [task for task in fetched if any("fabric" in name for name in names_of(two, task))]
    largest = max(two.size_bytes[fetched])
    assert abs(2 * two.size_bytes[far].sum() - two.size_bytes[fetched].sum()) <= largest


@pytest.mark.parametrize(("count", "slowest"), [(1, 1 / 4.5e9), (2, 2 / 4.5e9), (4, 2 / 4.5e9), (8, 4 / 6e9)])
def test_copies_share_the_port_of_their_card_and_the_link_of_sockets(count, slowest):
    """One GPU is held up by its port, two of one card by the same; half of what eight fetch comes from socket 1."""
    program = served(count)
    assert copied_s(program) == pytest.approx(program.graph.parameter_count * 4 * slowest, rel=1e-2)


def copied_s(program):
    """The time that fetching all parameters takes."""
    schedule = replay(program, iterations=1).schedule
    return float(schedule.end_s[program.kind == FETCH].max())


def test_without_overlap_the_terms_add_up():
    program, count = served(4), 4
    model = CostModel(program.graph, program.cluster)
    compute = sum(model.node_costs(i, space).compute_s[0] for i, space in enumerate(program.spaces))
    copies = 0.0
    for layer, latency in {(int(program.layer[t]), c.latency_s) for t, c in program.host_copies.items()}:
        size = sum(parameter.elements for parameter in program.graph.layers[layer].parameters) * 4.0
        slowest = max(2 * size / PORT_BYTES_PER_S, count * size / 2 / SOCKETS_BYTES_PER_S, size / CARD_BYTES_PER_S)
        copies += 2 * (slowest + latency)
    found = replay(program, overlap=False, contention=False).iteration_s
    assert found == pytest.approx(compute + copies, rel=1e-9)


def test_workers_fetch_what_all_of_them_have_sent():
    program = served(4)
    replayed = replay(program, iterations=3)
    schedule, task_of = replayed.schedule, replayed.program_graph.task_of
    pushes, fetches = np.flatnonzero(program.kind == PUSH), np.flatnonzero(program.kind == FETCH)
    for k in (1, 2):
        assert schedule.start_s[task_of[k, fetches]].min() >= schedule.end_s[task_of[k - 1, pushes]].max()
    for task in fetches.tolist():
        reader = (program.kind == FORWARD) & (program.layer == program.layer[task])
        reader &= program.device == program.device[task]
        assert (schedule.start_s[task_of[1, reader]] >= schedule.end_s[task_of[1, task]]).all()


def test_all_parameters_may_come_before_any_layer():
    """Nothing hides the copies at the beginning of the step then."""
    program, plain = (served(2, batch=2048, text=f"ps:random=0,first={first}") for first in (1, 0))
    schedule = replay(program, iterations=1).schedule
    assert schedule.start_s[program.kind == FORWARD].min() >= schedule.end_s[program.kind == FETCH].max()
    shared = replay(program).iteration_s - replay(plain).iteration_s
    assert shared == pytest.approx(copied_s(plain), rel=0.05)


def test_layers_wait_for_the_mean_over_all_random_orders():
    """By all 40,320 orders of eight layers' copies: the bytes that have come when those of the first r are there."""
    program = served(1, text="ps")
    fetches = np.flatnonzero(program.kind == FETCH)
    own = np.array([sum(p.elements for p in program.graph.layers[i].parameters) * 4 for i in program.layer[fetches]])
    orders = np.array(list(permutations(range(len(own)))))
    arrived = np.zeros(len(own))
    for order in orders:
        there = own[order].cumsum()[np.argsort(order)]  # bytes until each layer's copy has come
        arrived += np.maximum.accumulate(there)
    np.testing.assert_allclose(program.size_bytes[fetches].cumsum(), arrived / len(orders), atol=len(own))


def test_a_random_order_keeps_the_first_layer_waiting_for_half_of_the_copies():
    programs = [served(2, batch=2048, text=text) for text in ("ps:random=0", "ps")]
    ordered_s, random_s = (
        float(replay(program, iterations=1).schedule.start_s[program.kind == FORWARD].min()) for program in programs
    )
    assert random_s == pytest.approx(copied_s(programs[0]) / 2, rel=1e-2)
    assert ordered_s < random_s / 100
    assert copied_s(programs[1]) == pytest.approx(copied_s(programs[0]), rel=1e-3)


def test_copies_by_engines_leave_arithmetic_alone():
    """Of a single GPU: two of a board would share its power."""
    program = served(1)
    assert replay(program, interference=True).iteration_s == pytest.approx(replay(program).iteration_s, rel=1e-9)


def test_names_say_what_is_copied():
    program = served(2)
    first = {kind: int(np.flatnonzero(program.kind == kind)[0]) for kind in (PUSH, FETCH)}
    assert program.name(first[FETCH]) == "conv1 parameters from their server [0]"
    assert program.name(first[PUSH]).endswith("gradient to its server [0]")


def test_clusters_and_strategies_without_servers_are_refused():
    graph = load_model("alexnet", batch=64)
    with pytest.raises(ConfigError, match="framework must not be ps on cluster star: none of its switches is a host"):
        make_plan(graph, star(2), strategy="data", framework="ps")
    with pytest.raises(ConfigError, match="framework must not be ps where parameters are split: those of"):
        served(4, strategy="owt")
    with pytest.raises(ConfigError, match="framework must not be ps to be run: no rank serves parameters, got 'ps:r"):
        check_program(served(2), 2)
