"""What codes have left out outlives an interruption: under the same plan bit for bit, under another in sum."""

import numpy as np
import pytest
from plans import star
from ranks import options, pool_of

from executor.checkpoints.resume import Checkpoints
from executor.runtime.devices import CpuDevice
from executor.supervision.status_board import own_status
from executor.training.session import open_session
from planner.compression.settings import UNCOMPRESSED, CompressionSettings
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration
from planner.lowering.lower_strategy import lower
from planner.models.builder import ModelBuilder
from planner.strategies.named_strategies import named_strategy, spaces_of

pytestmark = pytest.mark.timeout(200)
RANKS, STEPS, BREAK = 4, 6, 3
TYPES = ["one-bit", "threshold:threshold=0.01,every=4"]


ranks = pool_of(RANKS)


def perceptron():
    net = ModelBuilder("perceptron", batch=12, image=(3, 4, 4))
    net.linear(20, activation="relu", name="one")
    net.linear(8, activation="relu", name="two")
    net.linear(4, name="three")
    net.loss()
    return net.build()


GRAPH = perceptron()
DATA = named_strategy("data", GRAPH, 4)
HALVES = {name: Configuration({"sample": 2}, (0, 1)) for name in DATA}
SPLIT = {name: Configuration({"sample": 2, "channel": 2}, (0, 1, 2, 3)) for name in DATA} | {
    "softmax": Configuration({"sample": 4}, (0, 1, 2, 3))
}
ALONE = {name: Configuration({"sample": 1}, (0,)) for name in DATA}


def program(strategy, kind, gradient_sync="ps-spread"):
    model = CostModel(GRAPH, star(RANKS), gradient_sync)
    compressed = CompressionSettings(gradients=kind) if kind else UNCOMPRESSED
    return lower(model, spaces_of(GRAPH, strategy, RANKS), compressed=compressed)


def part(rank, program, options, first, last):
    """Steps ``first`` to ``last`` as one rank, from a checkpoint and to another.

    Returns:
        Losses, parameters, residuals as they were loaded with their places, and what the load had to say.
    """
    session = open_session(
        program, rank, options, reduced=True, device=CpuDevice(), status=own_status(rank), steps=max(last - first, 1)
    )
    checkpoints = Checkpoints(options, GRAPH)
    notes = checkpoints.load(session) if first else ()
    residuals = {
        (GRAPH.layers[i].name, name): (session.boxes[i][name], tensor.numpy().copy())
        for i, row in session.gradient_sync.residuals().items()
        for name, tensor in row.tensors.items()
    }
    losses = [session.worker.step(number).loss for number in range(first, last)]
    if last > first:
        checkpoints.save(session, last)
    session.worker.close()
    parameters = {(i, name): tensor.numpy() for i, row in session.parameters.items() for name, tensor in row.items()}
    return losses, parameters, residuals, notes


def summed(answers):
    """Residuals of all replicas added up, by parameter."""
    shapes = {(layer.name, p.name): p.shape for layer in GRAPH.layers for p in layer.parameters}
    found = {key: np.zeros(shape) for key, shape in shapes.items()}
    for _, _, residuals, _ in answers:
        for key, (box, values) in residuals.items():
            place = tuple(slice(low, high) for low, high in zip(box.low, box.high, strict=True))
            found[key][place] += values
    return found


@pytest.mark.parametrize(("kind", "gradient_sync"), [(TYPES[0], "ps-spread"), (TYPES[1], "direct"), (TYPES[0], "ps")])
def test_the_same_plan_goes_on_to_the_last_bit(ranks, tmp_path, kind, gradient_sync):
    through, broken = (options(checkpoint=str(tmp_path / name), seed=5) for name in ("through", "broken"))
    plan = program(DATA, kind, gradient_sync)
    expected = ranks.run(part, plan, through, 0, STEPS)
    begun = ranks.run(part, plan, broken, 0, BREAK)
    ended = ranks.run(part, plan, broken, BREAK, STEPS)
    for whole, first, second in zip(expected, begun, ended, strict=True):
        assert first[0] + second[0] == whole[0]
        assert second[3] == ()
        for key, values in whole[1].items():
            np.testing.assert_array_equal(second[1][key], values, err_msg=str(key))
    sizes = [np.abs(values).max() for row in ended for _, values in row[2].values()]
    assert np.isfinite(sizes).all()
    assert max(sizes) > 1e-4, "there was nothing to lose"


@pytest.mark.parametrize("kind", TYPES[:1])
def test_without_its_residuals_the_training_is_another(ranks, tmp_path, kind):
    """What the test above could not see if residuals did not matter."""
    plan, plain = program(DATA, kind), program(DATA, "")
    through, broken = (options(checkpoint=str(tmp_path / name), seed=5) for name in ("through", "broken"))
    expected = ranks.run(part, plan, through, 0, STEPS)
    ranks.run(part, plan, broken, 0, BREAK)
    ranks.run(part, plain, broken, BREAK, BREAK + 1)  # the same up to here, and saves none
    lost = ranks.run(part, plan, broken, BREAK + 1, STEPS)
    assert [row[0] for row in lost] != [row[0][BREAK + 1 :] for row in expected]


@pytest.mark.parametrize(
    ("strategy", "gradient_sync"),
    [(HALVES, "direct"), (SPLIT, "ps-spread"), (DATA, "ps")],
    ids=["fewer replicas", "fewer replicas of parts", "another exchange"],
)
def test_another_plan_lacks_as_much_of_the_sums(ranks, tmp_path, strategy, gradient_sync):
    chosen = options(checkpoint=str(tmp_path), seed=5)
    ranks.run(part, program(DATA, "one-bit"), chosen, 0, BREAK)
    before = summed(ranks.run(part, program(DATA, "one-bit"), chosen, BREAK, BREAK))
    answers = ranks.run(part, program(strategy, "one-bit", gradient_sync), chosen, BREAK, STEPS)
    after = summed(answers)
    for key, values in before.items():
        assert np.abs(values).max() > 0
        np.testing.assert_allclose(after[key], values, rtol=1e-5, atol=1e-7, err_msg=str(key))
    assert all(row[3] == () for row in answers)
    assert np.isfinite(sum(loss for row in answers for loss in row[0]))


def test_what_does_not_go_on_is_said(ranks, tmp_path):
    chosen = options(checkpoint=str(tmp_path), seed=5)
    ranks.run(part, program(DATA, ""), chosen, 0, 1)
    begun = ranks.run(part, program(DATA, "one-bit"), chosen, 1, 2)
    assert {row[3] for row in begun} == {("residuals of one, three, two begin at zero: the checkpoint holds none",)}
    assert all((values == 0).all() for row in begun for _, values in row[2].values())
    alone = ranks.run(part, program(ALONE, "one-bit"), chosen, 2, 3)
    said = "residuals of one, three, two in the checkpoint are left out: this plan keeps none there"
    assert [row[3] for row in alone] == [(said,), (), (), ()]
