"""Data types by role, run for real: as a loop in plain PyTorch that keeps, sends and updates in the same types."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from counted_memory import storage_bytes
from plans import star
from ranks import options, pool_of, session_of
from torch.nn import functional
from undivided import graph_of

from executor.checkpoints.resume import Checkpoints
from executor.checks.program_check import check_program
from executor.data.load import load_data
from executor.layers.losses import loss_scale
from executor.runtime.boxes import whole_box
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.parameter_init import initial_parameters
from executor.runtime.predicted_memory import memory_policy_of
from groundwork.errors import ConfigError
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.graph.type_roles import DataTypes
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.search.pipeline_strategy import strategy_and_micro_batching
from planner.strategies.degrees import storage_of
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.named_strategies import spaces_of

pytestmark = pytest.mark.timeout(120)
RANKS, STEPS, BATCH, SEED = 2, 3, 8, 0
ADAM = OptimizerSpec(name="adam", learning_rate=0.01)
SGD = OptimizerSpec(learning_rate=0.1, momentum=0.9)
PURE = DataTypes.of("bfloat16", master="none")
FSDP = {"parameter": "float32", "gradient": "float32"}
"""As torchtitan: shards in float32, gathers in bfloat16, sums in float32."""
CASES = {
    "master weights": ("data", DataTypes.of("bfloat16"), 1),
    "pure": ("data", PURE, 1),
    "pure, shards": ("fsdp", PURE, 1),
    "gradients in float32": ("data", DataTypes.of("bfloat16", gradient="float32"), 2),
    "gradients in float32, no master": ("data", DataTypes.of("bfloat16", gradient="float32", master="none"), 2),
    "Megatron": ("zero=1", DataTypes.of("bfloat16", gradient="float32"), 2),
    "FSDP": ("fsdp", DataTypes.of("bfloat16", **FSDP), 1),
    "FSDP, micro-batches": ("fsdp", DataTypes.of("bfloat16", **FSDP), 2),
    "messages in bfloat16": ("fsdp", DataTypes.of("bfloat16", **FSDP, message="bfloat16"), 2),
    "ZeRO 2, messages in bfloat16": ("zero=2", DataTypes.of("bfloat16", gradient="float32", message="bfloat16"), 2),
    "state in bfloat16": ("data", DataTypes.of("bfloat16", state="bfloat16"), 1),
    "state in bfloat16, divided": ("zero=1", DataTypes.of("float32", state="bfloat16"), 1),
    "autocast": ("data", DataTypes.of("bfloat16", parameter="float32"), 1),
    "float16": ("data", DataTypes.of("float16"), 1),
    "float16, gradients in float32": ("zero=1", DataTypes.of("float16", gradient="float32"), 2),
    "float16, FSDP": ("fsdp", DataTypes.of("float16", **FSDP), 1),
}
"""Words of storage, types and micro-batches."""

ranks = pool_of(RANKS)


@cache
def network():
    """Three layers, whose parameters two ranks divide equally."""
    layers = (Linear(channels=8, activation="tanh"), "input"), (Linear(channels=6, activation="tanh"), "0")
    return graph_of((BATCH, 4), *layers, (Linear(channels=4), "1"), (Loss(function="softmax"), "2"))


@cache
def lowered(words, types, micro_batches):
    graph = network().with_element_bytes({"float32": 4, "bfloat16": 2, "float16": 2}[types.activation])
    conditions = Conditions(storage=storage_of(words), types=replace(types, product=""))
    model = CostModel(graph, star(RANKS), "ring", "reduced", conditions=conditions)
    micro_batching = MicroBatching(parts=micro_batches, first=0) if micro_batches > 1 else WHOLE_BATCH
    strategy, micro = strategy_and_micro_batching(model, words, micro_batching=micro_batching)
    return lower(model, spaces_of(graph, strategy, RANKS), micro_batching=micro)


def torch_type(name):
    return getattr(torch, name)


def summed(made, words, types):
    """Gradients of each rank and micro-batch, shape (ranks, micro-batches), added up as their types say.

    Replicas that divide gradients sum those of each micro-batch, others the sums of all.
    """
    accumulation, message = torch_type(types.accumulation), torch_type(types.message)

    def over_micro_batches(rows):
        total = rows[0].to(accumulation)
        for each in rows[1:]:
            total = total + each
        return total

    if storage_of(words).zero > 1:
        return over_micro_batches([sum(each.to(message) for each in pair) for pair in zip(*made, strict=True)])
    first, second = (over_micro_batches(row).to(message) for row in made)
    return (first + second).to(accumulation)


def plain_loop(words, types, micro_batches, spec):
    """Losses, and what is updated, by hand: one process computes the halves of both ranks."""
    graph, activation, updated = network(), torch_type(types.activation), torch_type(types.updated)
    data = load_data("generated", graph, seed=SEED, dtype=torch.float32, device="cpu")
    weights = [
        initial_parameters(
            graph,
            i,
            {each.name: whole_box(each.shape) for each in layer.parameters},
            seed=SEED,
            dtype=torch.float32,
            device="cpu",
        )
        for i, layer in enumerate(graph.layers)
    ]
    kept = [each.to(updated).requires_grad_() for row in weights for each in row.values()]
    if spec.name == "adam":
        optimizer = torch.optim.Adam(kept, lr=spec.learning_rate, fused=True)
    else:
        optimizer = torch.optim.SGD(kept, lr=spec.learning_rate, momentum=spec.momentum, fused=True)
    losses, share, scale = [], BATCH // micro_batches // RANKS, 1024.0 if types.activation == "float16" else 1.0
    for step in range(STEPS):
        samples = data.inputs(step, whole_box((BATCH, 4))).to(activation)
        labels, loss, made = data.targets(step, 0, BATCH).flatten(), 0.0, []
        for rank in range(RANKS):
            made.append([])
            for micro_batch in range(micro_batches):
                mine = slice((micro_batch * RANKS + rank) * share, (micro_batch * RANKS + rank + 1) * share)
                read = [each.detach().to(activation).requires_grad_() for each in kept]
                x = functional.linear(samples[mine], *read[:2]).tanh()
                x = functional.linear(functional.linear(x, *read[2:4]).tanh(), *read[4:])
                part = functional.cross_entropy(x.float(), labels[mine], reduction="sum") / BATCH
                loss += part.item()
                made[rank].append(torch.autograd.grad(part * scale, read))
        losses.append(loss)
        for number, each in enumerate(kept):
            rows = [[gradients[number] for gradients in row] for row in made]
            each.grad = summed(rows, words, types).to(updated) / scale
        optimizer.step()
        for row in optimizer.state.values():
            for name in ("exp_avg", "exp_avg_sq", "momentum_buffer"):
                if row.get(name) is not None:
                    row[name] = row[name].to(torch_type(types.state)).to(updated)
    return losses, [each.detach() for each in kept]


def train(rank, program, spec):
    """Losses, boxes of what is updated, bytes held, and bytes sent for each task."""
    session = session_of(program, rank, STEPS, optimizer=spec, seed=SEED)
    results = [session.worker.step(number) for number in range(STEPS)]
    session.worker.settle()
    _, copied = program.types.at_rest(divided=program.conditions.storage.zero > 2)
    boxes = [
        (i, each.name, each.box, each.tensor.float().clone().numpy())
        for i in session.boxes
        for each in (*session.slices(i), *session.state_slices(i))
        if each.label == (f"{each.name}.master" if copied else each.name)
    ]
    state = sum(t.nbytes for each in session.optimizers.values() for row in each.state.values() for t in row)
    whole = [t for i, row in session.parameters.items() for t in row.values() if not session.units.pieces(i)]
    parameters = session.units.held_bytes + sum(t.nbytes for t in whole)
    held = [parameters, session.gradient_sync.held_bytes, state]
    session.worker.close()
    return [each.loss for each in results], boxes, held, np.nan_to_num(results[-1].measured.sent_bytes)


@pytest.mark.parametrize(
    ("case", "spec"),
    # torch's kernel of SGD in bfloat16 rounds what lies behind the last whole vector otherwise
    [(case, spec) for case in CASES for spec in (ADAM, SGD) if (case, spec) != ("pure, shards", SGD)],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_a_run_is_what_plain_pytorch_computes(ranks, case, spec):
    """The same to the last bit, or, where kernels update shards, to that of what they update.

    Memory of each rank and bytes that it sends are those of the program.
    """
    words, types, micro_batches = CASES[case]
    program = lowered(words, types, micro_batches)
    check_program(program, RANKS)
    losses, boxes, held, sent = zip(*ranks.run(train, program, spec), strict=True)
    expected, kept = plain_loop(words, types, micro_batches, spec)
    np.testing.assert_allclose(np.sum(losses, axis=0), expected, rtol=1e-6)
    whole = iter(kept)
    for i, layer in enumerate(network().layers):
        for parameter in layer.parameters:
            values, found = next(whole).float().numpy(), np.full(parameter.shape, np.nan)
            for row in boxes:
                for _, _, box, tensor in (each for each in row if each[:2] == (i, parameter.name)):
                    found[tuple(map(slice, box.low, box.high))] = tensor
            last = 0.0 if words == "data" else torch.finfo(torch_type(types.updated)).eps
            np.testing.assert_allclose(found, values, rtol=last, atol=last / 8, err_msg=parameter.name)
    predicted = storage_bytes(program, memory_policy_of(spec, host=True))
    np.testing.assert_array_equal(held, predicted)
    for task, each in program.collectives.items():
        if words != "data" and (program.kind[task] == KINDS.index("gather") or program.syncs_gradients[task]):
            traffic = each.round.traffic
            for rank in range(RANKS):
                assert sent[rank][task] == each.buffer_bytes * traffic.sent[traffic.source == rank].sum()


def test_types_change_what_is_computed():
    """Else the cases above would not tell them apart."""
    found = {case: plain_loop(words, types, parts, ADAM) for case, (words, types, parts) in CASES.items()}
    different = (
        "master weights",
        "pure",
        "gradients in float32",
        "state in bfloat16",
        "messages in bfloat16",
        "float16",
    )
    ends = [torch.cat([each.float().flatten() for each in found[case][1]]) for case in different]
    for first in range(len(ends)):
        for second in range(first):
            assert not torch.equal(ends[first], ends[second]), (different[first], different[second])


def test_the_scale_keeps_what_float16_would_lose():
    """Gradients of a mean over 16 million labels: without the scale some are zero, with it they are as in float32."""
    rows = torch.zeros(2, 4)
    exact = (rows.softmax(1) - functional.one_hot(torch.tensor([0, 1]), 4)) / 2**24
    assert (exact.half() == 0).any()
    scaled = (exact * loss_scale(torch.float16)).half().float() / loss_scale(torch.float16)
    torch.testing.assert_close(scaled, exact, rtol=1e-3, atol=0.0)
    assert loss_scale(torch.bfloat16) == loss_scale(torch.float64) == 1.0


def test_float16_alone_is_not_run():
    program = lowered("data", DataTypes.of("float16", master="none"), 1)
    with pytest.raises(ConfigError, match="master_dtype must be float32 to run float16, whose gradients are scaled"):
        check_program(program, RANKS)


@pytest.mark.parametrize("dtype", ["tf32", "float8"])
def test_other_arithmetic_is_not_run(dtype):
    program = lowered("data", PURE, 1)
    named = replace(program, conditions=replace(program.conditions, types=DataTypes.of(dtype)))
    with pytest.raises(
        ConfigError, match=f"dtype must be one of float32, float64, bfloat16, float16 to be run, got '{dtype}'"
    ):
        check_program(named, RANKS)


def train_in_two_runs(rank, before, after, folder):
    """Losses of three steps, of which the last begins from a checkpoint of the second."""
    checkpoints, losses = Checkpoints(options(optimizer=ADAM, checkpoint=str(folder)), before.graph), []
    for program, steps in ((before, (0, 1)), (after, (2,))):
        session = session_of(program, rank, len(steps), optimizer=ADAM, seed=SEED)
        if losses:
            checkpoints.load(session)
        losses += [session.worker.step(number).loss for number in steps]
        session.worker.settle()
        checkpoints.save(session, len(losses))
        session.worker.close()
    return losses


@pytest.mark.parametrize("case", ["master weights", "Megatron", "FSDP", "state in bfloat16"])
def test_a_checkpoint_has_what_is_updated(ranks, tmp_path, case):
    program = lowered(*CASES[case][:2], 1)
    expected, *_ = zip(*ranks.run(train, program, ADAM), strict=True)
    assert ranks.run(train_in_two_runs, program, program, tmp_path) == list(expected)


def test_a_checkpoint_of_less_is_refused(ranks, tmp_path):
    """Of parameters in sixteen bits alone no master weights can be made."""
    programs = (lowered(*CASES[case]) for case in ("pure", "master weights"))
    with pytest.raises(RuntimeError, match="data_types bfloat16, no master weights, state in bfloat16, this run has"):
        ranks.run(train_in_two_runs, *programs, tmp_path)
