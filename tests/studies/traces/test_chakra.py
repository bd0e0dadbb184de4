"""Chakra traces: decoded by protobuf itself, read back, and replayed to the time of the program."""

from collections import Counter

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.framework import framework_of
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.plan.make_plan import make_plan
from planner.simulation.execution_models import build_program_graph
from planner.strategies.named_strategies import named_strategy
from simulator.engines.engine import simulate
from simulator.formats.chakra import CHAKRA_COLLECTIVES, ChakraNode, read_chakra, write_chakra
from studies.traces.chakra_graph import chakra_graph
from studies.traces.chakra_program import chakra_traces

TYPES = ("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL")
OURS = {"compute": "COMP", "send": "COMM_SEND", "receive": "COMM_RECV", "collective": "COMM_COLL"}
VALUES = {
    3: ("double_val", 1),
    5: ("float_val", 2),
    7: ("int32_val", 5),
    9: ("int64_val", 3),
    11: ("uint32_val", 13),
    13: ("uint64_val", 4),
    15: ("sint32_val", 17),
    17: ("sint64_val", 18),
    19: ("fixed32_val", 7),
    21: ("fixed64_val", 6),
    23: ("sfixed32_val", 15),
    25: ("sfixed64_val", 16),
    27: ("bool_val", 8),
    29: ("string_val", 9),
}
"""Single values of an attribute: name, and number of the type in protobuf."""


def schema():
    """The messages of et_def.proto, version 0.0.4: numbers and types of the fields that have one value."""
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    kinds = file.enum_type.add(name="NodeType")
    for number, name in enumerate(TYPES):
        kinds.value.add(name=f"{name}_NODE", number=number)
    attribute = file.message_type.add(name="AttributeProto")
    attribute.field.add(name="name", number=1, label=1, type=9)
    attribute.field.add(name="doc_string", number=2, label=1, type=9)
    attribute.oneof_decl.add(name="value")
    for number, (name, kind) in VALUES.items():
        attribute.field.add(name=name, number=number, label=1, type=kind, oneof_index=0)
    node = file.message_type.add(name="Node")
    node.field.add(name="id", number=1, label=1, type=4)
    node.field.add(name="name", number=2, label=1, type=9)
    node.field.add(name="type", number=3, label=1, type=14, type_name=".ChakraProtoMsg.NodeType")
    node.field.add(name="ctrl_deps", number=4, label=3, type=4)
    node.field.add(name="data_deps", number=5, label=3, type=4)
    node.field.add(name="start_time_micros", number=6, label=1, type=4)
    node.field.add(name="duration_micros", number=7, label=1, type=4)
    node.field.add(name="attr", number=10, label=3, type=11, type_name=".ChakraProtoMsg.AttributeProto")
    whole = file.message_type.add(name="GlobalMetadata")
    whole.field.add(name="version", number=1, label=1, type=9)
    whole.field.add(name="attr", number=2, label=3, type=11, type_name=".ChakraProtoMsg.AttributeProto")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in ("Node", "GlobalMetadata")
    }


MESSAGES = schema()


def split(content):
    """The messages of a file, by protobuf's own reader of lengths."""
    from google.protobuf.internal.decoder import _DecodeVarint32

    at, messages = 0, []
    while at < len(content):
        size, at = _DecodeVarint32(content, at)
        messages.append(content[at : at + size])
        at += size
    return messages


def program_of(cluster="titanx-4", strategy="layerwise", sync="ring", framework="ideal", **options):
    graph, machines = load_model("lenet5", batch=64), load_cluster(cluster)
    plan = make_plan(graph, machines, strategy=strategy)
    model = CostModel(graph, machines, sync, conditions=Conditions(framework=framework_of(framework)))
    return lowered(model, plan.configurations, **options)


def read_back(tmp_path, traces):
    for rank, nodes in enumerate(traces):
        write_chakra(tmp_path / f"{rank}.et", nodes)
    return [read_chakra(tmp_path / f"{rank}.et") for rank in range(len(traces))]


def test_protobuf_decodes_what_is_written(tmp_path):
    nodes = chakra_traces(program_of())[1]
    write_chakra(tmp_path / "1.et", nodes)
    head, *rest = split((tmp_path / "1.et").read_bytes())

    assert MESSAGES["GlobalMetadata"].FromString(head).version == "0.0.4"
    assert len(rest) == len(nodes)
    assert {node.type for node in nodes} >= {"compute", "send", "receive"}
    for node, message in zip(nodes, map(MESSAGES["Node"].FromString, rest), strict=True):
        assert (message.id, message.name, TYPES[message.type]) == (node.id, node.name, OURS[node.type])
        assert (tuple(message.data_deps), message.duration_micros) == (node.after, node.duration_us)
        attributes = {each.name: getattr(each, each.WhichOneof("value")) for each in message.attr}
        assert attributes == dict(node.attributes)


@pytest.mark.parametrize(
    ("number", "value"),
    [
        (3, -0.1),
        (5, 0.5),
        (7, -7),
        (9, -(2**62)),
        (11, 2**31),
        (13, 2**63),
        (15, -8),
        (17, -(2**40)),
        (19, 9),
        (21, 2**40),
        (23, -9),
        (25, -(2**40)),
        (27, True),
        (29, "ä"),
    ],
)
def test_every_type_of_value_that_protobuf_writes_is_read(tmp_path, number, value):
    message = MESSAGES["Node"](id=3, name="x", type=4, ctrl_deps=[1], data_deps=[2, 1], duration_micros=5)
    attribute = message.attr.add(name="a")
    setattr(attribute, VALUES[number][0], value)
    parts = [MESSAGES["GlobalMetadata"](version="0.0.4").SerializeToString(), message.SerializeToString()]
    (tmp_path / "x.et").write_bytes(b"".join(bytes([len(part)]) + part for part in parts))
    expected = ChakraNode(id=3, name="x", type="compute", after=(1, 2), duration_us=5, attributes={"a": value})
    assert read_chakra(tmp_path / "x.et") == [expected]


@pytest.mark.parametrize(
    ("cluster", "strategy"),
    [
        ("titanx-4", "data"),
        ("titanx-4", "model"),
        ("titanx-4", "layerwise"),
        ("p100-4x4", "data"),
        ("p100-4x4:nodes=2", "spatial"),
    ],
)
def test_programs_come_back_and_take_as_long(tmp_path, cluster, strategy):
    """Rings over the same devices: the replay of what was read is the replay of the program."""
    program = program_of(cluster, strategy)
    traces = chakra_traces(program)
    back = read_back(tmp_path, traces)
    assert back == traces
    found = chakra_graph(back, program.cluster)
    own = simulate(build_program_graph(program).graph)
    assert simulate(found.graph).makespan_s == pytest.approx(own.makespan_s, rel=1e-9)


@pytest.mark.parametrize(
    ("cluster", "sync"),
    [("p100-4x4:nodes=2", "hierarchical"), ("titanx-4", "tree"), ("titanx-4", "direct"), ("dgx-a100", "library")],
)
def test_programs_with_any_all_reduce_come_back_message_by_message(tmp_path, cluster, sync):
    """Expanded, trees and what a library does are sends and receives, which take as long as in the program."""
    program = program_of(cluster, "data", sync, collectives="steps")
    back = read_back(tmp_path, chakra_traces(program))
    own = simulate(build_program_graph(program).graph)

    assert {node.type for nodes in back for node in nodes} == {"compute", "send", "receive"}
    assert simulate(chakra_graph(back, program.cluster).graph).makespan_s == pytest.approx(own.makespan_s, rel=1e-9)


def test_rounds_of_one_all_reduce_are_one_node():
    program = program_of("p100-4x4:nodes=2", "data", "halving")
    traces = chakra_traces(program)
    sums = [node for node in traces[0] if node.type == "collective"]
    rounds = len(program.collectives)
    assert len(sums) == len({node.id for node in sums}) == 4  # layers with parameters
    assert rounds > len(sums)
    assert {node.attributes["comm_type"] for node in sums} == {CHAKRA_COLLECTIVES.index("all-reduce")}


def test_collectives_of_activations_keep_their_kinds():
    graph, cluster = load_model("bert-base", batch=8), load_cluster("dgx-a100")
    program = lowered(
        CostModel(graph, cluster, "library"), named_strategy("data=2,tensor=4,sequence", graph, 8, cluster)
    )
    wanted = Counter(each.kind for each in program.collectives.values() if 0 in each.devices)
    nodes = chakra_traces(program)[0]
    found = Counter(CHAKRA_COLLECTIVES[node.attributes["comm_type"]] for node in nodes if node.type == "collective")
    assert found == wanted
    assert set(found) == {"all-gather", "reduce-scatter", "all-reduce"}


def test_one_node_waits_for_what_any_of_its_rounds_waits_for():
    """Rounds are found again by what makes them one: layer, part, pass, statistics and devices."""
    program = program_of("p100-4x4:nodes=2", "data", "halving")

    def sum_of(task):
        if task not in program.collectives:
            return task
        values = (program.layer, program.micro_batch, program.backward, program.statistics)
        return (*(int(each[task]) for each in values), program.collectives[task].devices)

    for rank, nodes in enumerate(chakra_traces(program)):
        node_of = {sum_of(node.id): node.id for node in nodes}
        expected = {node.id: set() for node in nodes}
        for task in range(program.size):
            if sum_of(task) in node_of and not (program.peer[task] == rank != program.device[task]):
                before = program.after[program.after_start[task] : program.after_start[task + 1]].tolist()
                waits = {node_of[sum_of(each)] for each in before if sum_of(each) in node_of}
                expected[node_of[sum_of(task)]] |= waits - {node_of[sum_of(task)]}
        assert {node.id: set(node.after) for node in nodes} == expected


def test_buckets_and_their_coordination_are_collectives():
    program = program_of("titanx-4", "data", framework="horovod")
    kinds = {node.attributes.get("comm_type") for node in chakra_traces(program)[0]}
    assert CHAKRA_COLLECTIVES.index("all-reduce") in kinds


@pytest.mark.parametrize("kind", [each for each in CHAKRA_COLLECTIVES if each != "barrier"])
def test_collectives_of_other_programs_take_time_that_grows_with_their_size(kind):
    """A ring of p ranks moves (p - 1) / p of the buffer over each link, an all-reduce twice that, a chain all of it."""
    cluster = load_cluster("dgx-a100")

    def seconds(size):
        node = ChakraNode(
            id=1,
            name=kind,
            type="collective",
            attributes={"comm_type": CHAKRA_COLLECTIVES.index(kind), "comm_size": size},
        )
        return simulate(chakra_graph([[node]] * 8, cluster).graph).makespan_s

    slope = (seconds(2 * 10**9) - seconds(10**9)) / 1e9 * 272e9
    expected = {
        "all-reduce": 7 / 4,
        "all-gather": 7 / 8,
        "reduce-scatter": 7 / 8,
        "reduce-scatter-block": 7 / 8,
        "all-to-all": 7 / 8,
        "scatter": 7 / 8,
        "gather": 7 / 8,
        "broadcast": 1,
        "reduce": 1,
    }
    assert slope == pytest.approx(expected[kind], rel=1e-3)


def test_messages_and_waits_of_a_foreign_trace():
    """Rank 0 computes 1 ms and sends 24.3 MB over a card of another node; rank 1 then computes 2 ms."""
    cluster = load_cluster("dgx-a100:nodes=2")
    ends = {"comm_src": 0, "comm_dst": 8, "comm_tag": 5, "comm_size": 24_300_000}
    traces = [
        [
            ChakraNode(id=0, name="a", type="compute", duration_us=1000),
            ChakraNode(id=1, name="s", type="send", after=(0,), attributes=ends),
        ]
    ]
    traces += [[ChakraNode(id=0, name="idle", type="compute")]] * 7
    traces += [
        [
            ChakraNode(id=7, name="r", type="receive", attributes=ends),
            ChakraNode(id=9, name="b", type="compute", after=(7,), duration_us=2000),
        ]
    ]
    makespan_s = simulate(chakra_graph(traces, cluster).graph).makespan_s
    assert makespan_s == pytest.approx(1e-3 + 1e-3 + cluster.latency_s(0, 8, 24.3e6) + 2e-3, rel=1e-6)


def test_messages_of_one_tag_follow_each_other():
    """The n-th send of a tag is the n-th receive of it, whatever other tags and directions come between."""

    def message(number, kind, source, tag, size=0):
        ends = {"comm_src": source, "comm_dst": 1 - source, "comm_tag": tag, "comm_size": size}
        return ChakraNode(id=number, name=f"{kind} {source} {number}", type=kind, attributes=ends)

    count = 500
    sender = [message(3 * each, "send", 0, 7, 10**6 + each) for each in range(count)]
    sender += [message(3 * each + 1, "receive", 1, 7) for each in range(count)]
    receiver = [message(2 * each, "receive", 0, 7) for each in range(count)]
    receiver += [message(2 * each + 1, "send", 1, 7, 2 * 10**6 + each) for each in range(count)]
    some = (0, 8, 499)
    waits = [ChakraNode(id=5000 + each, name=f"after {each}", type="compute", after=(2 * each,)) for each in some]
    found = chakra_graph([sender, receiver + waits], load_cluster("titanx-4"))
    work = dict(zip(found.names, found.graph.work.tolist(), strict=True))
    assert [work[f"send 0 {3 * each}"] for each in range(count)] == [10**6 + each for each in range(count)]
    assert len(found.names) == 2 * count + len(waits)
    graph = found.graph
    for each in some:
        task = found.names.index(f"after {each}")
        before = graph.after[graph.after_start[task] : graph.after_start[task + 1]]
        assert [found.names[wait] for wait in before] == [f"send 0 {3 * each}"]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"type": "send", "attributes": {"comm_src": 0, "comm_dst": 1, "comm_size": 4, "comm_tag": 0}}, "no partner"),
        ({"type": "send", "attributes": {"comm_src": 0, "comm_dst": 9}}, "comm_dst must be in 0 .. 1, got 9"),
        ({"type": "send", "attributes": {"comm_src": 1, "comm_dst": 0, "comm_tag": 1}}, "is not of this rank"),
        ({"type": "collective", "attributes": {"comm_size": 4, "pg_name": "0"}}, "comm_type must be in"),
        ({"type": "collective", "attributes": {"comm_type": 0, "comm_size": 4, "pg_name": "0,1"}}, "missing on some"),
        ({"type": "compute", "after": (8,)}, "waits for node 8, which is not there"),
        ({"type": "compute", "attributes": {"seconds": "long"}}, "seconds must be in"),
    ],
)
def test_traces_that_do_not_fit_together_are_refused(node, message):
    idle = ChakraNode(id=0, name="idle", type="compute")
    with pytest.raises(ConfigError, match=message):
        chakra_graph([[ChakraNode(**({"id": 1, "name": "x"} | node))], [idle]], load_cluster("titanx-4"))


def test_more_ranks_than_devices_are_refused():
    idle = ChakraNode(id=0, name="idle", type="compute")
    with pytest.raises(ConfigError, match="a device for each of 5 ranks, got 4"):
        chakra_graph([[idle]] * 5, load_cluster("titanx-4"))


def test_files_that_are_cut_off_or_none_are_refused(tmp_path):
    write_chakra(tmp_path / "a.et", chakra_traces(program_of())[0])
    whole = (tmp_path / "a.et").read_bytes()
    ends = np.cumsum([len(part) + (1 if len(part) < 128 else 2) for part in split(whole)]).tolist()
    assert ends[-1] == len(whole)
    rng = np.random.default_rng(0)
    for size in [0, 1, 7, len(whole) - 1, *rng.integers(8, len(whole), 40).tolist()]:
        (tmp_path / "a.et").write_bytes(whole[:size])
        if size in ends:
            assert len(read_chakra(tmp_path / "a.et")) == ends.index(size)
        else:
            with pytest.raises(ConfigError, match=r"cut off|has no nodes"):
                read_chakra(tmp_path / "a.et")
    (tmp_path / "a.et").write_bytes(b"\xff" * 100)
    with pytest.raises(ConfigError, match="more than 10 bytes"):
        read_chakra(tmp_path / "a.et")
