"""Divided storage run for real: ZeRO, FSDP and hybrid sharding train what the undivided network trains."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import torch.distributed as dist
from counted_memory import storage_bytes
from plans import star
from ranks import options, pool_of, session_of
from small_experts import ExpertNetwork, graph as experts
from small_transformer import Transformer, graph as transformer
from torch import nn
from undivided import graph_of, wide

from executor.checkpoints.module_state_save import save_module_state
from executor.checkpoints.resume import Checkpoints
from executor.checks.program_check import check_program
from executor.communication.group_exchange import GroupExchange
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.predicted_memory import memory_policy_of
from groundwork.errors import ConfigError
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.graph.type_roles import DataTypes
from planner.importing.graph_of import imported_graph
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.operations.convolution import Convolution
from planner.operations.joining import Add
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.normalisation import BatchNorm
from planner.operations.pooling import GlobalPooling
from planner.search.pipeline_strategy import Pipeline, strategy_and_micro_batching
from planner.strategies.degrees import storage_of
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.named_strategies import spaces_of
from planner.strategies.recomputation import recompute_of
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

pytestmark = pytest.mark.timeout(120)
RANKS, STEPS = 4, 2
SGD = OptimizerSpec(learning_rate=0.1, momentum=0.9)
ADAM = OptimizerSpec(name="adam", learning_rate=1e-4)
"""Its steps are small: of a gradient that is zero but for rounding Adam makes some 1e-8 of one."""
STORAGES = ("zero=1", "zero=2", "fsdp", "fsdp,gathered", "hsdp=2")
GATHER = KINDS.index("gather")

ranks = pool_of(RANKS)


def convolutional(seed, *, multiple=1):
    """A random residual network of convolutions, with numbers of channels that are multiples of a number."""
    rng = np.random.default_rng(seed)
    width, classes = (multiple * int(n) for n in rng.integers(2, 8, size=2))

    def convolution(**changes):
        return Convolution(channels=width, kernel=(3, 3), stride=(1, 1), pad=(1, 1), dilation=(1, 1), **changes)

    return wide(
        graph_of(
            (12, multiple * int(rng.integers(1, 4)), 6, 6),
            (convolution(batch_norm=bool(rng.integers(2)), activation="relu"), "input"),
            (convolution(activation="tanh"), "0"),
            (Add(activation="relu"), "0", "1"),
            (BatchNorm(activation="relu"), "2"),
            (GlobalPooling(mode="average"), "3"),
            (Linear(channels=multiple * int(rng.integers(2, 9)), activation="tanh"), "4"),
            (Linear(channels=classes), "5"),
            (Loss(function="softmax"), "6"),
        )
    )


@cache
def lowered(graph, words, devices=RANKS, micro_batches=1, schedule="gpipe", recompute="none", gradient=None):
    """The plan of a text."""
    types = DataTypes.of("float64", gradient=gradient) if gradient else None
    conditions = Conditions(storage=storage_of(words), types=types and replace(types, product=""))
    model = CostModel(graph, star(RANKS).take(devices), "ring", "reduced", conditions=conditions)
    micro_batching = MicroBatching(parts=micro_batches, first=0) if micro_batches > 1 else WHOLE_BATCH
    strategy, micro = strategy_and_micro_batching(
        model, words, micro_batching=micro_batching, pipeline=Pipeline(schedule=schedule)
    )
    spaces = spaces_of(graph, strategy, devices)
    return lower(model, spaces, micro_batching=micro, recompute=recompute_of(graph, recompute, micro))


def undivided(graph):
    return lowered(graph, "data=1", 1)


def held_by(session):
    """What a rank keeps of parameters and optimizer state: layer, parameter or state, box, values."""
    layers = session.view.program.graph.layers
    return [
        (layers[i].name, each.label, each.box, each.tensor.numpy().copy())
        for i in session.boxes
        for each in (*session.slices(i), *session.state_slices(i))
    ]


def train_all(rank, programs, optimizer, changes):
    """Train by each program; losses, what the rank keeps, and what it sent for each task in each step."""
    rows, steps = [], changes.pop("steps", STEPS)
    for program in programs:
        session = session_of(program, rank, steps, optimizer=optimizer, **changes)
        results = [session.worker.step(number) for number in range(steps)]
        session.worker.close()
        rows.append(([each.loss for each in results], held_by(session), [each.measured for each in results]))
    return rows


def trained(ranks, programs, optimizer=SGD, run=train_all, **changes):
    """By program the losses, what every rank keeps, and its measurements of each step, shape (ranks, steps)."""
    for program in programs:
        check_program(program, RANKS)
    for rows in zip(*ranks.run(run, programs, optimizer, changes), strict=True):
        losses, held, measured = zip(*rows, strict=True)
        yield np.sum(losses, axis=0), held, measured


def check_equal(ranks, graph, programs, optimizer=SGD, **changes):
    """Losses, parameters and optimizer state are those of the undivided network; returns measurements by program."""
    (losses, held, _), *rows = trained(ranks, [undivided(graph), *programs.values()], optimizer, **changes)
    expected = {(layer, label): values for layer, label, _, values in held[0]}
    found = {}
    for name, (these, kept, measured) in zip(programs, rows, strict=True):
        np.testing.assert_allclose(these, losses, rtol=1e-12, err_msg=name)
        check_held(kept, expected, name)
        found[name] = measured
    return found


def check_held(kept, expected, name):
    """Boxes of all ranks cover each tensor, and hold what the undivided network has there."""
    seen = {key: np.zeros(values.shape, dtype=bool) for key, values in expected.items()}
    for layer, label, box, values in (row for rows in kept for row in rows):
        place = tuple(map(slice, box.low, box.high))
        seen[layer, label][place] = True
        np.testing.assert_allclose(
            values, expected[layer, label][place], rtol=1e-12, atol=1e-12, err_msg=f"{name} {layer} {label}"
        )
    assert all(each.all() for each in seen.values()), name


def test_transformer(ranks):
    check_equal(ranks, transformer(), {words: lowered(transformer(), words) for words in STORAGES}, ADAM)


def test_convolutions(ranks):
    """Three devices divide nothing evenly."""
    graph = convolutional(3)
    check_equal(ranks, graph, {each: lowered(graph, each, 3) for each in ("zero=2", "fsdp,gathered")}, ADAM)


def test_beside_tensor_sequence_and_context_parallelism(ranks):
    words = [f"tensor=2,{each}" for each in ("zero=1", "fsdp", "sequence,zero=2")] + ["context=2,fsdp"]
    check_equal(ranks, transformer(), {each: lowered(transformer(), each) for each in words})


def test_slices_of_experts(ranks):
    """Halves of experts, which two replicas divide, or which lie on different devices; held bytes are predicted."""
    words = [f"data=2,tensor=2,slicing,{each}" for each in ("zero=1", "zero=2", "fsdp")]
    programs = {each: lowered(experts(), each) for each in (*words, "expert=2,tensor=2,slicing,zero=1")}
    check_equal(ranks, experts(), programs)
    for name in (words[1], "expert=2,tensor=2,slicing,zero=1"):
        held, _ = zip(*ranks.run(memory_of, programs[name], ADAM), strict=True)
        predicted = storage_bytes(programs[name], memory_policy_of(ADAM, host=True))
        np.testing.assert_allclose(held, predicted, err_msg=name)


@pytest.mark.parametrize(
    ("schedule", "storages"),
    [
        ("gpipe", ["zero=1"]),
        ("1f1b", ["fsdp"]),
        ("zero-bubble", ["zero=2", "fsdp,gathered"]),
    ],
)
def test_in_pipelines(ranks, schedule, storages):
    """The table of words and the scores that borrow it lie in different stages."""
    words = [f"pipeline=2,data=2,{each}" for each in storages]
    check_equal(ranks, transformer(), {each: lowered(transformer(), each, schedule=schedule) for each in words})


def test_micro_batches(ranks):
    """Where gradients are divided, those of each micro-batch are summed, with those of layers that borrow."""
    programs = {words: lowered(transformer(), words, 2, micro_batches=2) for words in ("zero=1", "zero=2", "fsdp")}
    sums = {words: np.count_nonzero(program.syncs_gradients) for words, program in programs.items()}
    assert sums["fsdp"] > sums["zero=2"] == 2 * sums["zero=1"]
    check_equal(ranks, transformer(), programs)


def test_recomputation(ranks):
    """Parameters that are gathered for the backward pass serve the forward pass that is run again before."""
    words = ("zero=1", "fsdp", "fsdp,gathered")
    check_equal(ranks, transformer(), {each: lowered(transformer(), each, 2, recompute="segments") for each in words})


def train_once(rank, program):
    """What a rank keeps before and after a step down the gradients themselves, and what it sends for each task."""
    session = session_of(program, rank, 1, optimizer=OptimizerSpec(learning_rate=1.0, momentum=0.0))
    before = held_by(session)
    sent = session.worker.step(0).measured.sent_bytes
    session.worker.close()
    return before, held_by(session), np.nan_to_num(sent)


def test_gradients_are_summed_in_their_own_type(ranks):
    """Of a network in float64 as float32: rounded to it and to nothing less, by half of the bytes."""
    graph = convolutional(7)
    for words in ("data", "zero=1", "fsdp"):
        steps, sent = [], []
        for gradient in ("float64", "float32"):
            program = lowered(graph, words, 3, gradient=gradient)
            check_program(program, RANKS)
            rows = list(zip(*ranks.run(train_once, program), strict=True))
            before, after = ([values for row in held for *_, values in row] for held in rows[:2])
            steps.append(np.concatenate([(a - b).ravel() for a, b in zip(before, after, strict=True)]))
            sent.append(np.sum(rows[2], axis=0)[program.syncs_gradients])
        exact, rounded = steps
        np.testing.assert_allclose(rounded, exact, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rounded, rounded.astype(np.float32), rtol=0, atol=1e-15)
        assert np.abs(rounded - exact).max() > 1e-12, words
        if words != "data":  # whole gradients may be summed by the back end, which counts no bytes
            np.testing.assert_array_equal(sent[0], 2 * sent[1])


@pytest.mark.parametrize(
    ("words", "message"),
    [("data=2,filter=2,zero=1", "zero must be 0 to run layer 1, whose channels are split, but not all")],
)
def test_what_is_not_run(words, message):
    """Shards of weights that parts with different channels hold alike."""
    module = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Linear(6, 5), nn.Flatten(), nn.Linear(120, 3))
    graph = imported_graph(trace_of(module, input_specs(["8x4x6x6"])), name="along", loss="softmax").graph
    with pytest.raises(ConfigError, match=message):
        check_program(lowered(wide(graph), words), RANKS)


def test_one_after_the_other(ranks):
    """Without overlap the same is computed."""
    check_equal(ranks, transformer(), {"fsdp": lowered(transformer(), "fsdp")}, overlap=False)


def bytes_of(program, rank):
    """Bytes that a rank sends for each of the program's collectives of gradients and of divided parameters."""
    sent = np.zeros(program.size)
    for task, each in program.collectives.items():
        traffic = each.round.traffic
        sent[task] = each.buffer_bytes * traffic.sent[traffic.source == rank].sum()
    return sent


def test_every_rank_sends_the_bytes_of_the_program(ranks):
    """Exactly, where shards are equal; where they are not, all ranks together."""
    for graph, equal in ((convolutional(7, multiple=4), True), (convolutional(7), False)):
        programs = {words: lowered(graph, words) for words in (STORAGES if equal else ("zero=1", "fsdp"))}
        for name, measured in check_equal(ranks, graph, programs).items():
            program = programs[name]
            moves = np.flatnonzero((program.kind == GATHER) | program.syncs_gradients)
            assert len(moves)
            for step in range(STEPS):
                sent = np.array([np.nan_to_num(rank[step].sent_bytes[moves]) for rank in measured])
                expected = np.array([bytes_of(program, rank)[moves] for rank in range(RANKS)])
                if equal:
                    np.testing.assert_array_equal(sent, expected, err_msg=name)
                by_kind = [program.kind[moves] == GATHER, program.kind[moves] != GATHER]
                for mine in by_kind:
                    assert sent[:, mine].sum() == pytest.approx(expected[:, mine].sum(), rel=1e-12)


def memory_of(rank, program, optimizer):
    """Bytes of parameters, gradients and optimizer state that a rank held at most, and of parameters between steps."""
    session = session_of(program, rank, 2, optimizer=optimizer)
    for number in range(2):
        session.worker.step(number)
    session.worker.settle()
    rest = {}
    tensors = [values for row in session.parameters.values() for values in row.values()]
    tensors += [values for each in session.optimizers.values() for values in each.parameters]
    for values in tensors:
        rest[values.untyped_storage().data_ptr()] = values.untyped_storage().nbytes()
    state = sum(t.nbytes for each in session.optimizers.values() for row in each.state.values() for t in row)
    whole = sum(t.nbytes for row in session.parameters.values() for t in row.values())
    divided = sum(t.nbytes for i, row in session.parameters.items() for n, t in row.items() if session.units.pieces(i))
    parameters = session.units.held_bytes + whole - divided
    session.worker.close()
    return [parameters, session.gradient_sync.held_bytes, state], sum(rest.values())


@pytest.mark.parametrize(
    ("words", "recompute"),
    [*((each, "none") for each in ("data", "zero=2", "fsdp", "hsdp=2")), ("fsdp", "segments")],
)
def test_memory_is_what_was_predicted(ranks, words, recompute):
    both = words in ("data", "zero=2", "fsdp") and recompute == "none"
    for graph in (*([convolutional(7, multiple=4)] if both else []), transformer()):
        program = lowered(graph, words, recompute=recompute)
        predicted = storage_bytes(program, memory_policy_of(ADAM, host=True))
        held, rest = zip(*ranks.run(memory_of, program, ADAM), strict=True)
        np.testing.assert_allclose(np.mean(held, axis=0), np.mean(predicted, axis=0), rtol=1e-12)
        element, units = graph.element_bytes, len(graph.layers)
        np.testing.assert_allclose(held, predicted, rtol=1e-12, atol=0 if graph.name == "tested" else element * units)
        shards = 1 if "fsdp" not in words and "hsdp" not in words else 2 if "hsdp" in words else RANKS
        assert sum(rest) == pytest.approx(RANKS * graph.parameter_count * element / shards, rel=1e-12)


def train_in_turn(rank, programs, optimizer, folder):
    """Train a step by each program from the checkpoint of the one before; also write a ``state_dict``."""
    checkpoints = Checkpoints(options(optimizer=optimizer, checkpoint=str(folder)), programs[0].graph)
    for number, program in enumerate(programs):
        session = session_of(program, rank, 1, optimizer=optimizer)
        if number:
            checkpoints.load(session)
        session.worker.step(number)
        session.worker.settle()
        checkpoints.save(session, number + 1)
        save_module_state(session, folder / "module.pt", start="", steps=len(programs))
        session.worker.close()
    return held_by(session)


@pytest.mark.parametrize(
    "words",
    [
        ("zero=1", "tensor=2,fsdp", "hsdp=2"),
        ("data=2,tensor=2,slicing,fsdp", "expert=2,tensor=2,slicing", "tensor=4,slicing"),
    ],
    ids=" ".join,
)
def test_checkpoints_are_read_whatever_replicas_divide(ranks, tmp_path, words):
    network = experts() if "slicing" in words[0] else transformer()
    (_, held, _), *_ = trained(ranks, [undivided(network)], ADAM, steps=len(words))
    expected = {(layer, label): values for layer, label, _, values in held[0]}
    programs = [lowered(network, each) for each in words]
    check_held(ranks.run(train_in_turn, programs, ADAM, tmp_path), expected, " ".join(words))
    state = torch.load(tmp_path / "module.pt")
    for layer in network.layers:
        for name, key in layer.keys:
            if (layer.name, name) in expected:
                np.testing.assert_allclose(state[key], expected[layer.name, name], rtol=1e-12, atol=1e-12)
    (ExpertNetwork if network is experts() else Transformer)().load_state_dict(state)


def train_natively(rank, programs, optimizer, changes):
    """As ``train_all``, by the collectives of the back end, which GPUs run, but of gloo."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupExchange, "_groups_of", lambda self, groups: {g: dist.new_group(list(g)) for g in groups})
        return train_all(rank, programs, optimizer, changes)


def test_collectives_of_the_back_end(ranks):
    """What GPUs call gives what messages give, where shards are equal, as gloo wants them."""
    graph = convolutional(7, multiple=4)
    storages = ("zero=1", "fsdp,gathered", "hsdp=2")
    programs = [undivided(graph), *(lowered(graph, words) for words in storages)]
    (losses, *_), *rows = trained(ranks, programs, run=train_natively)
    for words, (found, *_) in zip(storages, rows, strict=True):
        np.testing.assert_allclose(found, losses, rtol=1e-12, err_msg=words)


def test_waits_stand_in_for_arithmetic(ranks):
    """Gathers and sums are real where nothing is computed."""
    program = lowered(transformer(), "fsdp")
    ((_, _, measured),) = trained(ranks, [program], stand_in=True)
    moves = (program.kind == GATHER) | program.syncs_gradients
    sent = np.nansum([rank[-1].sent_bytes[moves] for rank in measured], axis=0)
    np.testing.assert_allclose(sent, program.size_bytes[moves], rtol=1e-12)
