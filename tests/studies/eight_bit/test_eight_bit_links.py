"""The two clusters of the 8-bit paper carry its messages in the paper's times, replayed by the engine."""

import numpy as np
import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.topology.network_routes import routes_of_cluster
from simulator.collectives.schemes import ALL_GATHERS
from simulator.engines.engine import simulate
from simulator.graph.task_graph import TaskGraph, pack_rows
from studies.eight_bit.machine import machine_sync_s
from studies.eight_bit.many_machines import exposed_s, single_pass_s
from studies.eight_bit.paper_tables import BASELINES_S, FEATURES, GRADIENT_S, pass_table, read_table

MIB = 2**20
LINKS_S = 2e-6
"""Latency of the two PCIe links of a GPU beside the card, one at each end."""


def replayed_s(cluster, tasks):
    """Run tasks; each is (source, target, bytes, stream, after), or (None, None, seconds, stream, after)."""
    network = routes_of_cluster(cluster)
    routes = [[] if source is None else network.route(source, target).tolist() for source, target, *_ in tasks]
    latency_s = [
        0.0 if source is None else cluster.latency_s(source, target, size) for source, target, size, *_ in tasks
    ]
    use_start, use = pack_rows(routes)
    after_start, after = pack_rows([after for *_, after in tasks])
    count = len(tasks)
    graph = TaskGraph(
        resource_names=tuple(link.name for link in cluster.links),
        capacity=cluster.bandwidth,
        exclusive=np.array([link.exclusive for link in cluster.links]),
        work=np.array([float(size) for _, _, size, *_ in tasks]),
        latency_s=np.array(latency_s),
        start_s=np.zeros(count),
        rate_limit=np.full(count, np.inf),
        priority=np.zeros(count, dtype=np.int64),
        stream=np.array([stream for *_, stream, _ in tasks]),
        use_start=use_start,
        use_resource=use,
        use_weight=np.ones(len(use)),
        after_start=after_start,
        after=after,
    )
    return simulate(graph).makespan_s


def full_exchange_s(size_bytes, cluster):
    """Everyone's buffer to everyone: the direct all-gather of four buffers."""
    (step,) = ALL_GATHERS["direct"](len(cluster.devices))
    return replayed_s(cluster, [(a, b, size_bytes, -1, []) for a, b in zip(step.source, step.target, strict=True)])


def test_a_full_exchange_of_4_gpus_takes_4_messages():
    """Sec. 2.3.1 and 2.3.2: a switch lets one message out at a time; the GPU's own ports hide behind it."""
    cluster = load_cluster("titanx-4:switch_gbyte_per_s=5.25")
    for size in (0.1 * MIB, 1.5 * MIB, 60 * MIB):
        assert full_exchange_s(size, cluster) == pytest.approx(float(machine_sync_s(size)) + 4e-6, rel=1e-9)


def test_naive_data_parallelism_takes_longer_than_the_network():
    """Sec. 2.3.2: 0.223 "GB" at 7 GB/s, 4 messages, 128 ms; in bytes 137 ms.  One GPU needs 104 ms."""
    found_s = full_exchange_s(4 * 60e6, load_cluster("titanx-4"))

    assert found_s == pytest.approx(0.128 * 2**30 / 1e9, rel=0.005)
    assert found_s > 0.1041


@pytest.mark.parametrize(
    "line", read_table("table3_communication")[1:], ids=lambda line: line["item"].replace(" ", "-")
)
def test_sync_times_of_table_3(line):
    """Gradients are exchanged twice.  Left out is the first gradient, whose size is not a fourth of its layer's."""
    size, times = MIB * float(line["transfer_size_mb"]), 2 if line["item"].endswith("gradient") else 1
    found_s = times * full_exchange_s(size, load_cluster("titanx-4:switch_gbyte_per_s=5.25"))

    assert 1e3 * found_s == pytest.approx(float(line["sync_32bit_ms"]), rel=0.1)


def to_all_others(size_bytes, cluster, machines):
    """Each machine's messages to the others one after another, beginning with the next; by the GPU beside the card."""
    beside = [3 * machine + 2 for machine in range(machines)]
    return [
        (beside[i], beside[(i + step) % machines], size_bytes, i, [])
        for step in range(1, machines)
        for i in range(machines)
    ]


@pytest.mark.parametrize(("row", "bits"), [(0, 0), (1, 1), (2, 0), (3, 1)])
def test_single_passes_by_the_engine(row, bits):
    """All machines at once: 31 x (latency + size / bandwidth), and with what Table 6 implies its printed times."""
    table = pass_table()
    size, printed_s = float(table.message_bytes[row, bits]), float(table.single_pass_s[row, bits])
    for spec, rate in (("fdr-32x3", 6e9), ("fdr-32x3:fdr_gbyte_per_s=4.5", 4.5e9))[bits or row > 0 :]:
        cluster = load_cluster(spec)
        latency_s = cluster.latency_s(2, 5, size)
        found_s = replayed_s(cluster, to_all_others(size, cluster, 32))
        assert latency_s == pytest.approx(float(table.latency_s[row, bits]) + LINKS_S, rel=0.1)  # means of two, 144 KiB
        assert found_s == pytest.approx(float(single_pass_s(size, latency_s, rate, 32)), rel=1e-9)
    assert found_s - 31 * LINKS_S == pytest.approx(printed_s, rel=0.08)


def test_infiniband_sets_the_pace_between_machines():
    """A.2.1: messages go at 6 GB/s; the PCIe port of the card is wider, that of a switch is not (A.1.1)."""
    cluster = load_cluster("fdr-32x3")
    beside, across = (cluster.bandwidth[list(cluster.route(*ends))].min() for ends in ((2, 5), (0, 5)))

    assert (beside, across) == (6e9, 5.25e9)
    assert [cluster.links[i].exclusive for i in cluster.route(0, 5)].count(True) == 2


@pytest.mark.parametrize("line", read_table("table5_infiniband"), ids=lambda line: f"{line['size_32bit_kb']}kB")
def test_latencies_of_table_5(line):
    """Both columns by size, but for means of neighbours that do not rise and the eighth-size value read as 0.6 ms."""
    cluster = load_cluster("fdr-32x3")
    for bits in (32, 8):
        size, printed_ms = (
            float(line[f"{name}_{bits}bit_{unit}"]) for name, unit in (("size", "kb"), ("latency", "ms_per_msg"))
        )
        found_ms = 1e3 * (cluster.latency_s(2, 5, 1024 * size) - LINKS_S)
        expected = 0.6 if size == 1734 else printed_ms
        assert found_ms == pytest.approx(expected, rel=0.08)


def in_turn(size_bytes, passes, cluster):
    """The schedule whose time is that of Table 6: machines distribute their parts one after the other.

    Each machine's messages wait for the machine before; beside the second to the last machine's messages goes a
    product of 1.3 ms; then what is left of the linear layers' time of all passes.
    """
    tasks, before = [], []
    machines = compute = 32
    for machine in range(machines):
        sends = []
        for step in range(1, machines):
            target = 3 * ((machine + step) % machines) + 2
            tasks.append((3 * machine + 2, target, size_bytes, machine, before))
            sends.append(len(tasks) - 1)
        if machine:
            tasks.append((None, None, 1.3e-3, compute, before))
            sends.append(len(tasks) - 1)
        before = sends
    tasks.append((None, None, passes * 6.5e-3 - 31 * 1.3e-3, compute, before))
    return tasks


def speedup(linear_s):
    """96 GPUs over one, with a time of the linear layers and their transfers."""
    whole_s = BASELINES_S["nervana"]
    return 96 * whole_s / (whole_s - 6.5e-3 + GRADIENT_S + linear_s)


def test_table_7_from_a_schedule_on_the_links_that_the_text_names():
    """6 GB/s, Table 5 by size, Table 4: within 15 % up to sub-batches of 1024, the same best one in each column."""
    cluster, table = load_cluster("fdr-32x3"), pass_table()
    lines, found = read_table("table6_and_7")[:4], np.empty((4, 2))
    for row, column in np.ndindex(4, 2):
        size, passes = float(table.message_bytes[row, column]), int(table.passes[row])
        linear_s = replayed_s(cluster, in_turn(size, passes, cluster))
        pass_s = single_pass_s(size, cluster.latency_s(2, 5, size), 6e9, 32)
        exposed = pass_s + 31 * max(0.0, pass_s - 1.3e-3)
        assert linear_s == pytest.approx(passes * 6.5e-3 + exposed, rel=1e-9)
        found[row, column] = speedup(linear_s)
    printed = np.array([[float(line[f"speedup_nervana_{bits}bit"]) for bits in (32, 8)] for line in lines])

    np.testing.assert_allclose(found, printed, rtol=0.15)
    assert found.argmax(axis=0).tolist() == printed.argmax(axis=0).tolist()


def test_the_closed_form_on_the_clusters_own_links():
    """6 GB/s and the latencies of the file, half a byte a number in 8 bits: as near as the schedule."""
    cluster = load_cluster("fdr-32x3")
    hop = next(link.latency for link in cluster.links if link.link_class == "fdr")
    table, lines = pass_table(), read_table("table6_and_7")[:4]
    for bits, element_bytes in ((32, 4), (8, 0.5)):
        size = table.sub_batch[:4] * FEATURES * element_bytes / 32
        pass_s = single_pass_s(size, 2 * hop.at(size), 6e9, 32)
        ours = speedup(table.passes[:4] * 6.5e-3 + exposed_s(pass_s, 1.3e-3, 32))
        printed = [float(line[f"speedup_nervana_{bits}bit"]) for line in lines]
        np.testing.assert_allclose(ours, printed, rtol=0.15)
        assert ours.argmax() == np.argmax(printed)
