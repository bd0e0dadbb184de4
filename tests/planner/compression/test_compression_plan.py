"""Compression in plans: Eq. 1, sizes and amounts counted by hand, order of tasks, memory."""

import numpy as np
import pytest
from coded_plans import lowered, pair
from hypothesis import given, settings, strategies as st
from plans import ALPHA_S, BYTES_PER_S, SMALL_MODELS, cluster_of, device_count, random_strategy, star

from hwprofiles.catalogue.cluster_catalogue import cluster_names
from planner.compression.data_types import compression
from planner.compression.settings import UNCOMPRESSED, CompressionSettings, can_synchronise
from planner.cost.codec_time import GRADIENTS, CodecWork, codec_s
from planner.cost.compressed_sync import compressed_all_reduce
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration, all_configurations
from planner.lowering.program import KINDS
from planner.memory.buffers import BUFFERS
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.simulation.additive_cost import additive_s
from planner.simulation.memory_over_time import buffers
from planner.simulation.program_replay import replay
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.named_strategies import named_strategy
from simulator.collectives.schemes import ALL_REDUCES

SAME = 1e-9
FORWARD, UPDATE, COMPRESS, DECOMPRESS, TRANSFER, COLLECTIVE = (
    KINDS.index(kind) for kind in ("forward", "update", "compress", "decompress", "transfer", "collective")
)
TYPES = ("dynamic-tree", "mantissa", "linear:block=64", "float16")
GRADIENT_TYPES = (*TYPES, "one-bit", "one-bit:block=128", "threshold:every=7")


def waits(program, task):
    return program.after[program.after_start[task] : program.after_start[task + 1]].tolist()


def sample_degrees(graph, strategy, first):
    """Degrees in samples of the layers that layers from ``first`` on read; micro-batches need one."""
    read = {edge.producer for edge in graph.edges if edge.producer < first <= edge.consumer}
    return {strategy[graph.layers[i].name].degrees["sample"] for i in read}


@st.composite
def coded_questions(draw, models=SMALL_MODELS, most_devices=6):
    """A cost model, a random strategy, perhaps a cut, and something to compress by a scheme that can."""
    spec = draw(st.sampled_from(cluster_names()))
    count = draw(st.integers(1, min(most_devices, device_count(spec))))
    parts = draw(st.sampled_from([1, 2, 4]))
    graph = load_model(draw(st.sampled_from(models)), batch=parts * draw(st.sampled_from([1, 2, 4])))
    gradients = draw(st.sampled_from(["", *GRADIENT_TYPES]))
    schemes = [
        s for s in (*ALL_REDUCES, "auto") if not gradients or s == "auto" or can_synchronise(compression(gradients), s)
    ]
    norm = draw(st.sampled_from(["local", "reduced"]))
    model = CostModel(graph, cluster_of(spec, count), draw(st.sampled_from(schemes)), norm)
    names = [layer.name for layer in graph.layers]
    layers = st.none() | st.lists(st.sampled_from(names), unique=True).map(tuple)
    compressed = CompressionSettings(
        gradients=gradients,
        activations=draw(st.sampled_from(["", *TYPES])),
        gradient_layers=draw(layers),
        activation_layers=draw(layers),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if parts == 1:
        return model, random_strategy(graph, count, rng), WHOLE_BATCH, compressed
    strategy = {}
    for layer in graph.with_batch(graph.batch // parts).layers:
        space = all_configurations(layer.output, layer.parallel_dims, count)
        chosen = space.configuration(int(rng.integers(space.size)))
        strategy[layer.name] = Configuration(chosen.degrees, tuple(rng.permutation(count)[: chosen.parts].tolist()))
    order = draw(st.sampled_from(["each", "all"]))
    first = draw(st.sampled_from([i for i in range(len(names)) if len(sample_degrees(graph, strategy, i)) <= 1]))
    micro_batching = MicroBatching(
        parts=parts, first=first, order=order, update_each=order == "each" and draw(st.booleans())
    )
    return model, strategy, micro_batching, compressed


@settings(max_examples=10)
@given(coded_questions(), st.sampled_from(["activity", "steps"]))
def test_replay_one_after_another_is_eq_1(question, collectives):
    model, strategy, micro_batching, compressed = question
    program = lowered(model, strategy, compressed, micro_batching, collectives=collectives)
    replayed = replay(program, overlap=False, contention=False, iterations=1)
    assert replayed.iteration_s == pytest.approx(additive_s(model, strategy, micro_batching, compressed), rel=SAME)


@settings(max_examples=8)
@given(coded_questions(most_devices=4), st.booleans(), st.booleans())
def test_both_engines_replay_them_alike(question, overlap, contention):
    model, strategy, micro_batching, compressed = question
    program = lowered(model, strategy, compressed, micro_batching)
    if program.size > 3000:
        return
    clear, fast = (
        replay(program, overlap=overlap, contention=contention, iterations=2, engine=engine).schedule
        for engine in ("simpy", "compiled")
    )
    np.testing.assert_allclose(clear.end_s, fast.end_s, rtol=SAME, atol=SAME * fast.makespan_s)


@settings(max_examples=10)
@given(coded_questions(models=("lenet5", "conv1d"), most_devices=4))
def test_coding_comes_between_tasks_that_stay_as_they_are(question):
    """Without it, it is the plain program; every region that travels is encoded by its source and decoded there."""
    model, strategy, micro_batching, compressed = question
    program, plain = (
        lowered(model, strategy, compressed, micro_batching),
        lowered(model, strategy, UNCOMPRESSED, micro_batching),
    )
    moved = program.is_compute & ~program.is_codec | (program.kind == TRANSFER)
    for column in (
        "kind",
        "layer",
        "consumer",
        "slot",
        "micro_batch",
        "device",
        "peer",
        "part",
        "region_low",
        "region_high",
    ):
        same = plain.is_compute | (plain.kind == TRANSFER)
        np.testing.assert_array_equal(getattr(program, column)[moved], getattr(plain, column)[same])
    late = np.repeat(np.arange(program.size), np.diff(program.after_start))
    assert np.all(program.after < late)
    assert np.all(np.diff(program.group) >= 0)
    for task in np.flatnonzero(program.kind == TRANSFER).tolist():
        kind = compressed.activation(model.graph, int(program.layer[task]))
        elements = int((program.region_high[task] - program.region_low[task]).prod())
        if kind is None:
            assert program.size_bytes[task] == 4 * elements
            continue
        assert program.size_bytes[task] == kind.compressed_bytes(elements)
        (before,), behind = waits(program, task), late[program.after == task]
        assert (program.kind[before], program.device[before]) == (COMPRESS, program.device[task])
        assert (program.kind[behind].tolist(), program.device[behind]) == ([DECOMPRESS], program.peer[task])


@settings(max_examples=15)
@given(coded_questions(models=("lenet5", "conv1d"), most_devices=4))
def test_codes_made_and_taken_are_those_sent(question):
    """What receivers decode is what was sent; senders encode each of their regions once."""
    model, strategy, micro_batching, compressed = question
    program = lowered(model, strategy, compressed, micro_batching)
    tensors = program.consumer >= 0
    coded = np.array([bool(compressed.activation(model.graph, int(i))) for i in program.layer], dtype=bool)
    sends = coded & (program.kind == TRANSFER)
    assert program.decompressed_bytes[tensors].sum() == program.size_bytes[sends].sum()
    distinct = {
        (
            program.device[t],
            program.layer[t],
            program.consumer[t],
            program.slot[t],
            program.micro_batch[t],
            program.backward[t],
            *program.region_low[t],
            *program.region_high[t],
        ): program.size_bytes[t]
        for t in np.flatnonzero(sends).tolist()
    }
    assert program.compressed_bytes[tensors].sum() == sum(distinct.values())


def summed_as_codes(scheme, elements, p):
    """Play the scheme with numbers that count themselves: what each rank encodes, decodes and adds."""
    pieces = [elements] if scheme != "ps-spread" else [-(-elements // p)] * p
    encoded, decoded, added = np.zeros((3, p), dtype=int), np.zeros((3, p), dtype=int), np.zeros((3, p), dtype=int)
    servers = {"ps": {0: 0}, "ps-spread": {r: r for r in range(p)}}.get(scheme, {})
    if scheme == "direct":
        encoded[0] = elements
        for _ in range(p):
            for source in range(p):
                decoded[2, _] += elements
                added[2, _] += elements if source else 0  # the first is written
        return encoded, decoded, added
    for server, piece in servers.items():
        for rank in range(p):
            if rank != server:
                encoded[0, rank] += pieces[piece]
                decoded[1, server] += pieces[piece]
                added[1, server] += pieces[piece]
            decoded[2, rank] += pieces[piece]
        encoded[1, server] += pieces[piece]
    return encoded, decoded, added


@pytest.mark.parametrize("scheme", ["direct", "ps", "ps-spread"])
@pytest.mark.parametrize("p", [2, 3, 5])
@pytest.mark.parametrize("elements", [1, 7, 60])
def test_amounts_of_gradient_schemes(scheme, p, elements):
    kind = compression("linear:block=64")
    total = compressed_all_reduce(kind, scheme, elements, p)
    played = summed_as_codes(scheme, elements, p)
    for stage, work in enumerate((total.before, total.middle, total.after)):
        for name, rows in zip(("compressed_elements", "decompressed_elements", "added_elements"), played, strict=True):
            expected = rows[stage].tolist()
            assert (getattr(work, name).tolist() if work else [0] * p) == expected
    message = kind.compressed_bytes(elements if scheme != "ps-spread" else -(-elements // p))
    assert total.buffer_bytes * (1 / p if scheme == "ps-spread" else 1) == pytest.approx(message)


@pytest.mark.parametrize("collectives", ["activity", "steps"])
@pytest.mark.parametrize("scheme", ["direct", "ps", "ps-spread"])
def test_gradients_go_as_codes_and_come_as_sums(scheme, collectives):
    """Messages, and the order: gradient, encode, round, (sum, round,) decode, update."""
    p, graph, kind = 3, pair(batch=3), compression("dynamic-tree")
    model = CostModel(graph, star(p), scheme)
    compressed = CompressionSettings(gradients="dynamic-tree", gradient_layers=("one",))
    program = lowered(model, named_strategy("data", graph, p), compressed, collectives=collectives)
    elements = (8 + 1) * 6  # weights and biases
    counts = {"direct": (p * (p - 1), elements), "ps": (2 * (p - 1), elements), "ps-spread": (2 * p * (p - 1), 18)}
    number, size = counts[scheme]
    rounds = (program.kind == COLLECTIVE) & (program.layer == 0)
    assert program.size_bytes[rounds].sum() == pytest.approx(number * kind.compressed_bytes(size))
    other = (program.kind == COLLECTIVE) & (program.layer == 1)
    assert program.size_bytes[other].sum() == pytest.approx(
        {"direct": p * (p - 1), "ps": 2 * (p - 1), "ps-spread": 2 * (p - 1)}[scheme] * 4 * 21
    )
    order = {"direct": [COMPRESS, COLLECTIVE, DECOMPRESS]}
    expected = order.get(scheme, [COMPRESS, COLLECTIVE, COMPRESS, COLLECTIVE, DECOMPRESS])
    mine = np.flatnonzero((program.is_codec | (program.kind == COLLECTIVE)) & (program.layer == 0))
    groups = [program.kind[mine[program.group[mine] == g]] for g in np.unique(program.group[mine])]
    assert [set(kinds.tolist()) for kinds in groups] == [{kind} for kind in expected]
    servers = {"direct": 0, "ps": 1, "ps-spread": p}[scheme]
    sums = np.flatnonzero((program.kind == COMPRESS) & (program.part >= 0))
    assert program.part[sums].tolist() == list(range(servers))
    assert all("gradient sums, compress" in program.name(task) for task in sums.tolist())
    for update in np.flatnonzero((program.kind == UPDATE) & (program.layer == 0)).tolist():
        assert DECOMPRESS in program.kind[waits(program, update)]


def test_time_of_a_compressed_delivery_by_hand():
    """One layer's output on one device, read on another: encode, send, decode, and back."""
    graph = pair(batch=4)
    model = CostModel(graph, star(2))
    strategy = {
        name: Configuration({"sample": 1}, (device,)) for name, device in (("one", 0), ("two", 1), ("softmax", 1))
    }
    compressed = CompressionSettings(activations="dynamic-tree")
    numbers, codes, profile = 4 * 6, 4 * 6 + 4, model.profiles[0]
    per_s = profile.memory_bytes_per_s * profile.efficiency.memory
    encode_s = profile.launch_overhead_s + (2 * 4 * numbers + codes) / per_s
    decode_s = profile.launch_overhead_s + (4 * numbers + codes) / per_s
    coding = 2 * (encode_s + decode_s + ALPHA_S + codes / BYTES_PER_S)
    plain = 2 * (ALPHA_S + 4 * numbers / BYTES_PER_S)
    extra = additive_s(model, strategy, WHOLE_BATCH, compressed) - additive_s(model, strategy)
    assert extra == pytest.approx(coding - plain, rel=1e-6)


def test_residuals_are_read_and_written():
    model, count = CostModel(pair(), star(1)), np.array([10**6])
    none, nothing = np.zeros(1, dtype=np.int64), np.zeros(1)
    for name, passes in (("dynamic-tree", 2), ("one-bit", 4)):
        kind = compression(name)
        size = np.array([float(kind.compressed_bytes(10**6))])
        work = CodecWork(
            compressed_messages=np.ones_like(count),
            compressed_elements=count,
            compressed_bytes=size,
            decompressed_messages=none,
            decompressed_elements=none,
            added_elements=none,
            decompressed_bytes=nothing,
            own_bytes=nothing,
        )
        profile = model.profiles[0]
        per_s = profile.memory_bytes_per_s * profile.efficiency.memory
        expected_s = profile.launch_overhead_s + (passes * 4e6 + size[0]) / per_s
        assert codec_s(model, kind, GRADIENTS, np.array([0]), work)[0] == pytest.approx(expected_s)


def test_coding_runs_beside_arithmetic_and_shares_it():
    """It waits for no turn in the device's stream, but two kernels at once take twice as long."""
    graph = load_model("digits", batch=64)
    model = CostModel(graph, star(4), "direct")
    program = lowered(model, named_strategy("data", graph, 4), CompressionSettings(gradients="dynamic-tree"))
    replayed = replay(program)
    task_of = replayed.program_graph.task_of[0]
    coding = np.flatnonzero(program.is_codec)
    assert (replayed.program_graph.graph.stream[task_of[coding]] == -1).all()
    devices = len(program.cluster.links) + program.device[coding]
    used = replayed.program_graph.graph.use_resource[replayed.program_graph.graph.use_start[task_of[coding]]]
    np.testing.assert_array_equal(used, devices)
    assert set(replayed.timeline()["stream"]) == {"compute", "coding", "collective"}


def test_the_first_sub_batch_arrives_first():
    """k equal sub-batches over one link, all ready at once: the s-th is there after s k-ths of the time of all."""
    k, graph = 4, pair(channels=250_000, batch=8)
    model = CostModel(graph, star(2))
    strategy = {
        name: Configuration({"sample": 1}, (device,)) for name, device in (("one", 0), ("two", 1), ("softmax", 1))
    }
    micro_batching = MicroBatching(parts=k, first=1, order="all")
    program = lowered(model, strategy, UNCOMPRESSED, micro_batching)
    replayed = replay(program, iterations=1)
    sends = np.flatnonzero((program.kind == TRANSFER) & ~program.backward)
    arrived = replayed.schedule.end_s[replayed.program_graph.task_of[0][sends]]
    made = replayed.schedule.end_s[replayed.program_graph.task_of[0][np.flatnonzero(program.kind == FORWARD)[0]]]
    each_s = 8 * 250_000 * 4 / k / BYTES_PER_S
    assert arrived - made == pytest.approx(ALPHA_S + each_s * np.arange(1, k + 1), rel=SAME)


def test_memory_counts_codes_and_residuals():
    """By hand, data parallelism on two devices, exchanged directly: a device's own codes and the other's."""
    graph, count = pair(batch=2), 54 + 21
    model = CostModel(graph, star(2), "direct")
    strategy = named_strategy("data", graph, 2)
    plain = lowered(model, strategy)
    for name, residual in (("dynamic-tree", 0), ("one-bit", 1)):
        kind = compression(name)
        program = lowered(model, strategy, CompressionSettings(gradients=name))
        codes = 2 * (kind.compressed_bytes(54) + kind.compressed_bytes(21))
        # as the first layer goes back: data, its output, the gradient of that, and of the second's; or, behind all
        # of these, the first layer's own codes and the other's
        tensors, last = 4 * (8 + 6 + 6 + 3), 2 * kind.compressed_bytes(54)
        extra = peak_memory_bytes(program) - peak_memory_bytes(plain)
        assert extra.tolist() == [residual * 4 * count + max(last - tensors, 0)] * 2
        known = buffers(replay(program, iterations=1))
        sizes = [
            known.size_bytes[(known.kind == BUFFERS.index(what)) & (known.device == 0)].sum()
            for what in ("compressed messages", "residuals")
        ]
        assert sizes == [codes, residual * 4 * count]


def test_codes_live_while_they_travel():
    """A region is there from its decoding on; its codes from the message to the end of decoding."""
    graph = pair(batch=4)
    strategy = {
        name: Configuration({"sample": 1}, (device,)) for name, device in (("one", 0), ("two", 1), ("softmax", 1))
    }
    compressed = CompressionSettings(activations="float16")
    replayed = replay(lowered(CostModel(graph, star(2)), strategy, compressed), iterations=1)
    known, program = buffers(replayed), replayed.program
    begin, end = replayed.schedule.start_s, replayed.schedule.end_s
    encode, send, decode = (np.flatnonzero(program.kind == kind)[0] for kind in (COMPRESS, TRANSFER, DECOMPRESS))
    codes = known.kind == BUFFERS.index("compressed messages")
    lives = sorted(
        zip(known.device[codes], known.allocated_s[codes], known.released_s[codes], strict=True), key=lambda r: r[1]
    )
    assert lives[:2] == [(0, begin[encode], end[send]), (1, begin[send], end[decode])]
    received = known.kind == BUFFERS.index("messages")
    assert known.allocated_s[received].min() == begin[decode]
    assert known.size_bytes[received].tolist() == [4 * 6 * 4] * 2  # and its gradient, back
