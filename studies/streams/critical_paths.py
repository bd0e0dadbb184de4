"""Critical paths of a decomposed program: the paths of its blocks, and a priority and a stream for every sub-task.

Source: "TurboDL", Secs. 2.3 and 2.4, and Algorithm 1.
"""

from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Bools, Ints
from groundwork.errors import ConfigError
from planner.graph.layer_paths import Block, dependency_distances, layer_blocks
from planner.lowering.program import KINDS, Program
from studies.streams.stream_plan import pairs_of
from studies.streams.stream_request import PathOptions

_FARTHEST = 1_000_000_000
"""Largest distance of priorities, so that they fit in 64 bits."""

_CRITICAL = [KINDS.index(kind) for kind in ("forward", "epilogue_gradient", "activation_gradient")]
SUB_TASK_TYPES = ("activation", "weight", "bias")
"""Types of sub-tasks; the forward pass counts as activation."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Paths:
    """Algorithm 1 for one program; arrays have shape (T,) unless said otherwise."""

    blocks: tuple[Block, ...]
    rank: Ints
    """Position of each layer's path in its block, 0 for the critical one, shape (G,) over the layers."""
    type: Ints
    """Index into ``SUB_TASK_TYPES``; -1 for tasks that no stream runs."""
    priority: Ints
    critical: Bools
    """Tasks whose results are used in the very next step."""

    @property
    def layer_paths(self) -> int:
        """Most paths of a block."""
        return int(self.rank.max()) + 1


def paths_of(program: Program, options: PathOptions | None = None) -> Paths:
    """Return paths and priorities of the sub-tasks of a decomposed program.

    Activation gradients, and the sub-tasks that they start from, have the priority of their layer path: 0 for the
    longest path of a block, -1 for the next.  Weight gradients stand alpha below, bias gradients beta.  A sub-task
    whose result is used in the very next step is critical, whatever its kind.

    Raises:
        ConfigError: Alpha or beta would put a weight or bias gradient before an activation gradient.

    Source: "TurboDL", Algorithm 1.
    """
    options = options or PathOptions()
    graph, kind = program.graph, program.kind
    gradient = np.isin(kind, [KINDS.index("epilogue_gradient"), KINDS.index("activation_gradient")])
    seconds = np.bincount(program.layer[gradient], program.work_s[gradient], minlength=len(graph.layers))
    gradient_s = seconds.astype(np.float64)
    blocks = layer_blocks(graph, gradient_s)
    rank_of = np.zeros(len(graph.layers), dtype=np.int64)
    for block in blocks:
        for number, path in enumerate(block.paths):
            rank_of[list(path.layers)] = number
    below = _below(int(rank_of.max()) + 1, options)
    soon = np.array(dependency_distances(graph)) == 1
    types = np.full(program.size, -1)
    types[np.isin(kind, _CRITICAL)] = 0
    types[kind == KINDS.index("weight_gradient")] = 1
    types[kind == KINDS.index("bias_gradient")] = 2
    critical = (types == 0) | ((types > 0) & soon[program.layer])
    shift = np.where(types == 2, below["beta"], np.where(types == 1, below["alpha"], 0))
    shift = np.where(kind == KINDS.index("update"), np.where(soon[program.layer], 0, below["alpha"]), shift)
    priority = np.where(critical & (types > 0), 0, -rank_of[program.layer] - shift)
    priority[~program.is_compute] = 0
    return Paths(blocks=blocks, rank=rank_of, type=types, priority=priority, critical=critical)


def _below(layer_paths: int, options: PathOptions) -> dict[str, int]:
    """Return alpha and beta, checked, with their defaults."""
    given = {"alpha": options.alpha, "beta": options.beta}
    for name, value in given.items():
        if value is not None and value > _FARTHEST:
            raise ConfigError(f"{name} must be at most {_FARTHEST:,}, got {value}")
        if value is not None and value < layer_paths:
            raise ConfigError(
                f"{name} must be >= {layer_paths}, the layer paths of a block, or a parameter's gradient would go "
                f"before an activation gradient, got {value}"
            )
    return {name: layer_paths if value is None else value for name, value in given.items()}


def path_streams(program: Program, paths: Paths) -> tuple[Ints, tuple[str, ...]]:
    """Return the stream of each task, shape (T,), and the labels of the streams.

    There is a stream for every rank of layer path and type of sub-task, and every block uses the same ones.

    Source: "TurboDL", Sec. 3.1, critical path identification module.
    """
    rank, types = paths.rank[program.layer], paths.type
    types = np.where(paths.critical & (types > 0), 0, types)
    rank = np.where(paths.critical & (paths.type > 0), 0, rank)
    keys = np.where(types >= 0, rank * len(SUB_TASK_TYPES) + types, -1)
    names = tuple(f"path {r + 1}, {kind}" for r in range(paths.layer_paths) for kind in SUB_TASK_TYPES)
    return numbered_streams(keys, names)


def numbered_streams(keys: Ints, labels: tuple[str, ...]) -> tuple[Ints, tuple[str, ...]]:
    """Return streams counted from 0 without gaps, and the labels of those that are used.

    Keys 4, -1, 0, 4 become streams 1, -1, 0, 1.

    Args:
        keys: Stream of each task with gaps; negative for none.
        labels: Label of each key.
    """
    used = np.unique(keys[keys >= 0])
    stream = np.where(keys >= 0, np.searchsorted(used, keys), -1)
    return stream, tuple(labels[key] for key in used.tolist())


def update_waits(program: Program) -> Ints:
    """Return pairs of an update and the activation gradient of the same part, shape (N, 2).

    An update overwrites the parameters that the activation gradient reads, so it waits for that too.
    """
    back, update = (KINDS.index(kind) for kind in ("activation_gradient", "update"))
    unit = np.column_stack([program.layer, program.part, program.device])
    rows = {tuple(unit[task].tolist()): task for task in np.flatnonzero(program.kind == update).tolist()}
    gradients = [(rows.get(tuple(unit[task].tolist())), task) for task in np.flatnonzero(program.kind == back).tolist()]
    return pairs_of([(late, early) for late, early in gradients if late is not None])
