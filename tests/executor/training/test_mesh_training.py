"""A small transformer on meshes: divided training is that of the undivided network, however layers split their axes."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.distributed as dist
from mesh_runs import RANKS, SGD, STEPS, check_equal, momentum_of, random_mesh_strategy, train_all, trained
from plans import program_of, star
from ranks import check_slices, options, pool_of, session_of, slices_of
from small_transformer import Transformer, graph

from executor.checkpoints.module_state_save import save_module_state
from executor.checkpoints.resume import Checkpoints
from executor.communication.group_exchange import GroupExchange
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.search.pipeline_strategy import strategy_and_micro_batching
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.strategies.recomputation import recompute_of

pytestmark = pytest.mark.timeout(120)

ranks = pool_of(RANKS)


def model():
    return CostModel(graph(), star(RANKS), "ring", "reduced")


def train_in_turn(rank, programs, folder):
    """Train a step by each program from the checkpoint of the one before; also write a ``state_dict``."""
    checkpoints = Checkpoints(options(optimizer=SGD, checkpoint=str(folder)), programs[0].graph)
    for number, program in enumerate(programs):
        session = session_of(program, rank, 1, optimizer=SGD, overlap=False)
        if number:
            checkpoints.load(session)
        session.worker.step(number)
        session.worker.settle()
        checkpoints.save(session, number + 1)
        save_module_state(session, folder / "module.pt", start="", steps=STEPS)
        session.worker.close()
    return slices_of(session), momentum_of(session)


@pytest.fixture(scope="module")
def expected(ranks):
    """Losses, parameters and momentum of the undivided network."""
    losses, (parameters, *_), (momentum, *_), _ = next(
        trained(ranks, [program_of(model(), named_strategy("data", graph(), 1))])
    )
    return losses, parameters, momentum


def test_named_strategies(ranks, expected):
    """Tensor, sequence and context parallelism, alone, beside replicas, and in the stages of a pipeline."""
    names = ("tensor=4", "tensor=2,sequence", "data=2,tensor=2")
    contexts = ("context=3", "data=2,context=2", "context=2,tensor=2,sequence")
    contexts += ("context=2,ulysses", "data=2,context=2,ulysses")
    contexts += ("context=2,tensor=2,sequence,ulysses",)
    programs = {name: program_of(model(), named_strategy(name, graph(), RANKS)) for name in (*names, *contexts)}
    assert all(programs[name].statistics.any() for name in names)  # of the loss, whose words are split
    for name in ("pipeline=2,tensor=2", "pipeline=2,context=2"):
        strategy, micro = strategy_and_micro_batching(model(), name)
        programs[name] = lower(model(), spaces_of(graph(), strategy, RANKS), micro_batching=micro)
    check_equal(ranks, expected, programs)


def test_what_is_gathered_again(ranks, expected):
    """Inputs of columns, of attention and in stages; beside segments that are computed again."""
    programs = {}
    for name, words in (
        ("tensor=4,sequence", "segments,gathers"),
        ("context=2,tensor=2,sequence", "gathers"),
        ("context=2,tensor=2,sequence", "selective,gathers"),
        ("pipeline=2,tensor=2,sequence", "selective,gathers"),
        ("pipeline=2,tensor=2,sequence", "segments,gathers"),
    ):
        strategy, micro = strategy_and_micro_batching(model(), name)
        recompute = recompute_of(graph(), words, micro)
        spaces = spaces_of(graph(), strategy, RANKS)
        programs[f"{name} {words}"] = lower(model(), spaces, micro_batching=micro, recompute=recompute)
    assert all(program.gathered_again for program in programs.values())
    check_equal(ranks, expected, programs)


@pytest.mark.parametrize("names", [("data=2,tensor=2", "data"), ("data", "tensor=4")], ids=" ".join)
def test_checkpoints_are_read_however_layers_were_split(ranks, expected, tmp_path, names):
    """Each step is trained by another strategy; the module's state has all parameters under their keys."""
    programs = [program_of(model(), named_strategy(name, graph(), RANKS)) for name in names]
    parameters, momentum = zip(*ranks.run(train_in_turn, programs, tmp_path), strict=True)
    check_slices(parameters, expected[1], "parameters")
    check_slices(momentum, expected[2], "momentum")
    state = torch.load(tmp_path / "module.pt")
    for layer in graph().layers:
        for name, key in layer.keys:
            if (layer.name, name) in expected[1]:
                np.testing.assert_allclose(state[key], expected[1][layer.name, name][1], rtol=1e-12, atol=1e-14)
    Transformer().load_state_dict(state)


def train_natively(rank, programs):
    """As ``train_all``, by the collectives of the back end, which GPUs run, but of gloo and of equal parts."""

    def groups_of(self, devices):
        return {each: dist.new_group(list(each)) for each in devices}

    with patch.object(GroupExchange, "_groups_of", groups_of):
        return train_all(rank, programs)


def test_collectives_of_the_back_end(ranks, expected):
    """What GPUs call gives what messages give."""
    names = ("tensor=2", "tensor=2,sequence", "data=2,tensor=2,sequence")
    programs = [program_of(model(), named_strategy(name, graph(), RANKS)) for name in names]
    for name, rows in zip(names, zip(*ranks.run(train_natively, programs), strict=True), strict=True):
        losses, parameters, momentum, _ = zip(*rows, strict=True)
        np.testing.assert_allclose(np.sum(losses, axis=0), expected[0], rtol=1e-12, err_msg=name)
        check_slices(parameters, expected[1], name)
        check_slices(momentum, expected[2], name)


def stand_in_step(rank, program):
    """Run a step in which nothing is computed; what was sent for each task."""
    session = session_of(program, rank, 1, optimizer=SGD, stand_in=True)
    measured = session.worker.step(0).measured
    session.worker.close()
    return measured.sent_bytes


def test_messages_of_runs_without_arithmetic(ranks):
    """Collectives and messages are real where waits stand in for arithmetic."""
    program = program_of(model(), named_strategy("tensor=2,sequence", graph(), RANKS))
    sent = np.nansum(ranks.run(stand_in_step, program), axis=0)
    moves = program.moves_activations | program.statistics | (program.kind == KINDS.index("transfer"))
    np.testing.assert_allclose(sent[moves], program.size_bytes[moves], rtol=1e-12)


def test_random_splits(ranks, expected):
    """Any axes may split any indices: parts are repeated, partial sums added, and each gradient counted once."""
    strategies = [random_mesh_strategy(graph(), np.random.default_rng(seed)) for seed in range(4)]
    programs = {f"seed {seed}": program_of(model(), strategy) for seed, strategy in enumerate(strategies)}
    check_equal(ranks, expected, programs)
