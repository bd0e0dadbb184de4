"""Training by programs of meshes on several ranks, compared with the undivided network, and random splits of layers."""

import numpy as np
from ranks import check_slices, session_of, slices_of

from executor.checks.imported_layers import check_imported
from executor.checks.program_check import check_program
from executor.runtime.optimizer_spec import OptimizerSpec
from groundwork.errors import ConfigError
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import Configuration, space_of
from planner.layouts.mesh import Mesh
from planner.operations.mapped import Mapped

RANKS, STEPS = 4, 2
SGD = OptimizerSpec(learning_rate=0.1, momentum=0.9)


def momentum_of(session):
    """A rank's slices of the momentum, as ``slices_of`` those of the parameters."""
    state = {}
    for i, optimizer in session.optimizers.items():
        layer = session.view.program.graph.layers[i]
        names = [each.name for each in layer.parameters if each.elements]
        for name, values in zip(names, optimizer.state["momentum"], strict=True):
            state[layer.name, name] = (session.boxes[i][name], values.numpy())
    return state


def train_all(rank, programs):
    """Train by each program; its losses, slices of parameters and of momentum, and what was sent for each task."""
    rows = []
    for program in programs:
        session = session_of(program, rank, STEPS, optimizer=SGD)
        results = [session.worker.step(number) for number in range(STEPS)]
        session.worker.close()
        sent = results[-1].measured.sent_bytes
        rows.append(([each.loss for each in results], slices_of(session), momentum_of(session), sent))
    return rows


def trained(ranks, programs):
    """By program the losses, what every rank has of parameters and of momentum, and bytes sent for each task."""
    for program in programs:
        check_program(program, ranks.count)
    for rows in zip(*ranks.run(train_all, programs), strict=True):
        losses, slices, state, sent = zip(*rows, strict=True)
        yield np.sum(losses, axis=0), slices, state, np.nansum(sent, axis=0)


def check_equal(ranks, expected, programs):
    """Losses, parameters and momentum are those of the undivided network; bytes are the program's."""
    for (name, program), (losses, parameters, momentum, sent) in zip(
        programs.items(), trained(ranks, list(programs.values())), strict=True
    ):
        np.testing.assert_allclose(losses, expected[0], rtol=1e-12, err_msg=name)
        check_slices(parameters, expected[1], name)
        check_slices(momentum, expected[2], name)
        assert program.moves_activations.any(), name
        moves = program.moves_activations | program.statistics
        np.testing.assert_allclose(sent[moves], program.size_bytes[moves], rtol=1e-12, err_msg=name)


def random_mesh_strategy(graph, rng):
    """Each layer on one of three meshes of four devices, each axis of which splits any index that it can, or none."""
    grid = rng.permutation(RANKS)
    meshes = [
        Mesh((("a", 2), ("b", 2)), tuple(grid.tolist())),
        Mesh((("b", 2), ("a", 2)), tuple(grid.reshape(2, 2).T.ravel().tolist())),
        Mesh((("c", 4),), tuple(rng.permutation(RANKS).tolist())),
    ]
    strategy = {}
    for layer in graph.layers:
        mesh = meshes[rng.choice(3, p=(0.8, 0.1, 0.1))]
        indices = [None, *layer.mesh_dims]
        indices += [SUMMED] if layer.operation.summed_size(layer.input_shapes) else []
        strategy[layer.name] = _drawn(graph, layer, mesh, indices, rng)
    return strategy


def _drawn(graph, layer, mesh, indices, rng):
    """The first of random splits that can be run."""
    while True:
        splits = [indices[i] for i in rng.integers(len(indices), size=len(mesh.axes))]
        chosen = Configuration.on(mesh, splits, layer.parallel_dims)
        try:
            space = space_of(layer, chosen, RANKS)
            if isinstance(layer.operation, Mapped):
                check_imported(graph, graph.index[layer.name], space)
        except ConfigError:
            continue
        return chosen
