"""Training that is interrupted and goes on, under the same plan or another, is the training without interruption."""

import numpy as np
import pytest
import torch
from plans import cluster_of, program_of, random_strategy
from ranks import options, pool_of, slices_of, train, whole

from executor.checkpoints.resume import Checkpoints
from executor.runtime.devices import CpuDevice
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.run_options import RunOptions
from executor.supervision.status_board import own_status
from executor.training.session import open_session
from groundwork.errors import ConfigError
from planner.cost.cost_model import CostModel
from planner.models.builder import ModelBuilder

pytestmark = pytest.mark.timeout(200)
RANKS, STEPS, BREAK = 3, 6, 3


ranks = pool_of(RANKS)


def network(channels=6, batch=12):
    """Everything that a step leaves for the next: running statistics, masks of dropout, state of the optimizer."""
    net = ModelBuilder("small", batch=batch, image=(3, 8, 8))
    net.conv(channels, 3, pad=1, batch_norm=True)
    net.pool("max", 2)
    net.linear(12, activation="relu", dropout=0.5)
    net.linear(4)
    net.loss()
    graph = net.build()
    graph.element_bytes = 8
    return graph


def program(graph, seed, count=RANKS):
    model = CostModel(graph, cluster_of("titanx-4", count), "ring", "reduced")
    return program_of(model, random_strategy(graph, count, np.random.default_rng(seed)))


def part(rank, program, options, first, last):
    """Steps ``first`` to ``last`` as one rank, from a checkpoint and to another; losses, parameters and statistics."""
    session = open_session(
        program, rank, options, reduced=True, device=CpuDevice(), status=own_status(rank), steps=last - first
    )
    checkpoints = Checkpoints(options, program.graph)
    if first:
        assert checkpoints.latest_step() == first
        checkpoints.load(session)
    losses = [session.worker.step(number).loss for number in range(first, last)]
    checkpoints.save(session, last)
    session.worker.close()
    names = [layer.name for layer in program.graph.layers]
    slices = slices_of(session)
    statistics = {
        (names[i], name): (session.view.parts.held(i).low[1], buffer.numpy())
        for i, layer in session.parts.items()
        for name, buffer in layer.buffers.items()
    }
    return losses, slices, statistics


def joined(statistics, channels):
    """Running statistics of all channels, from the parts of all ranks."""
    found = {}
    for row in statistics:
        for key, (low, values) in row.items():
            found.setdefault(key, np.full(channels, np.nan))[low : low + len(values)] = values
    return found


SPECS = [
    OptimizerSpec(learning_rate=0.05, momentum=0.9, weight_decay=1e-3),
    OptimizerSpec(name="adam", learning_rate=1e-2),
]


@pytest.mark.parametrize("optimizer", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("after", [1, 2], ids=["same plan", "another plan"])
def test_goes_on_as_if_nothing_had_happened(ranks, tmp_path, optimizer, after):
    """Losses, parameters and running statistics of six steps, with a break and a new partition after three."""
    graph = network()
    inputs = np.random.default_rng(0).normal(size=(48, 3, 8, 8))
    np.savez(tmp_path / "data.npz", inputs=inputs, targets=np.arange(48) % 4)  # epochs of four steps
    common = {"optimizer": optimizer, "seed": 5, "data": str(tmp_path / "data.npz")}
    through, broken = (options(checkpoint=str(tmp_path / name), **common) for name in ("through", "broken"))
    first, second = program(graph, 1), program(graph, after)

    expected = ranks.run(part, first, through, 0, STEPS)
    begun = ranks.run(part, first, broken, 0, BREAK)
    ended = ranks.run(part, second, broken, BREAK, STEPS)

    losses = [sum(step) for step in zip(*(row[0] for row in expected), strict=True)]
    halves = [sum(step) for run in (begun, ended) for step in zip(*(row[0] for row in run), strict=True)]
    np.testing.assert_allclose(halves, losses, rtol=1e-12)
    assert len(set(losses)) == STEPS
    found, wanted = whole(second, [row[1] for row in ended]), whole(first, [row[1] for row in expected])
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-10, atol=1e-13, err_msg=str(key))
    statistics = joined([row[2] for row in ended], 6)
    assert statistics
    for key, value in joined([row[2] for row in expected], 6).items():
        np.testing.assert_allclose(statistics[key], value, rtol=1e-12, err_msg=str(key))


def test_the_state_of_the_optimizer_matters(ranks, tmp_path):
    """What the test above could not see if it were lost: without its momentum the training is another."""
    graph, spec = network(), SPECS[0]
    common = {"optimizer": spec, "seed": 5}
    only, plain = (
        options(steps=STEPS, **common),
        options(steps=STEPS, seed=5, optimizer=OptimizerSpec(learning_rate=0.05, momentum=0.0, weight_decay=1e-3)),
    )
    with_state, without = (
        sum(row[0][-1] for row in ranks.run(train, program(graph, 1), chosen, True)) for chosen in (only, plain)
    )
    assert abs(with_state - without) > 1e-6


def alone(rank, program, options):
    """A session of one step, saved."""
    session = open_session(program, rank, options, reduced=True, device=CpuDevice(), status=own_status(rank), steps=1)
    session.worker.step(0)
    for row in session.parameters.values():
        for tensor in row.values():
            tensor.fill_(torch.inf)
    try:
        Checkpoints(options, program.graph).save(session, 1)
    except FloatingPointError as error:
        return str(error)
    finally:
        session.worker.close()
    return ""


def test_numbers_that_are_not_finite_are_not_saved(ranks, tmp_path):
    """A checkpoint that nobody could go on from would drive out one that serves."""
    words = ranks.run(alone, program(network(), 1), options(checkpoint=str(tmp_path / "checkpoint")))

    assert all("is not finite after 1 steps, which is not saved" in text for text in words)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    ("graph", "changes", "field"),
    [
        (network(channels=8), {}, "model"),
        (network(), {"optimizer": SPECS[1]}, "optimizer"),
        (network(batch=24), {}, None),
    ],
    ids=["another model", "another optimizer", "another batch"],
)
def test_says_what_a_checkpoint_was_saved_with(ranks, tmp_path, graph, changes, field):
    """Another model or optimizer is refused; another batch is none of the checkpoint's business."""
    saved = {"optimizer": SPECS[0], "checkpoint": str(tmp_path)}
    ranks.run(part, program(network(), 1), options(**saved), 0, 1)
    checkpoints = Checkpoints(RunOptions(plan="", **{**saved, **changes}), graph)

    if field is None:
        assert checkpoints.latest_step() == 1
        return
    with pytest.raises(ConfigError, match=rf"was saved with {field} .*, this run has "):
        checkpoints.latest_step()
