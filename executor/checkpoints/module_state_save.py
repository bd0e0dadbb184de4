"""A trained network as the ``state_dict`` of the module that was imported, for plain PyTorch to go on with."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from executor.runtime.boxes import Box
from executor.runtime.module_state import RUNNING, norm_prefix, read_module_state
from executor.training.session import Session
from planner.graph.computation_graph import ComputationGraph

_Slices = list[tuple[str, Box, Tensor]]


def save_module_state(session: Session, path: Path, *, start: str, steps: int) -> None:
    """Gather the parameters and running statistics on rank 0, and write them there; all ranks call it together.

    Args:
        session: What the rank holds.
        path: File that rank 0 writes.
        start: File that training started from, whose other tensors are kept; empty for none.
        steps: Training steps since then, which batch normalisations count.
    """
    graph, rank = session.view.program.graph, session.view.rank
    state = _start(start) if rank == 0 else {}
    for i in range(len(graph.layers)):
        mine = _slices(session, i) if i in session.boxes else []
        rows: list[_Slices] | None = [[]] * dist.get_world_size() if rank == 0 else None
        dist.gather_object(mine, rows)
        if rows is not None:
            _join(state, graph, i, rows)
            key = f"{norm_prefix(graph.layers[i])}num_batches_tracked"
            if graph.layers[i].operation.statistics and "." in key:
                state[key] = state.get(key, torch.tensor(0)) + steps
    if rank == 0:
        torch.save(state, path)


def _start(start: str) -> dict[str, Tensor]:
    """Return copies of the tensors that training started from, those of one storage as one tensor."""
    given = read_module_state(Path(start)) if start else {}
    copies: dict[tuple[object, ...], Tensor] = {}
    state = {}
    for key, each in given.items():
        view = each.data_ptr(), tuple(each.shape), each.stride(), each.dtype  # a square transpose has its shape
        state[key] = copies.setdefault(view, each.clone())
    return state


def _slices(session: Session, layer: int) -> _Slices:
    """Return a layer's slices by name: all shards of parameters that replicas divide, of others the first replica's."""
    held, graph = session.view.parts.held(layer), session.view.program.graph
    row, rows = graph.layers[layer], list(session.slices(layer))
    if any(low for dim, low in zip(row.output.dims, held.low, strict=True) if dim not in row.split):
        divided = session.units.pieces(layer) if session.view.storage.divides_parameters else {}
        return [(each.name, each.box, each.tensor.cpu()) for each in rows if each.name in divided]
    buffers = session.parts[layer].buffers.items()
    return [
        *((each.name, each.box, each.tensor.cpu()) for each in rows),
        *((name, Box((held.low[1],), (held.high[1],)), buffer.cpu()) for name, buffer in buffers),
    ]


def _join(state: dict[str, Tensor], graph: ComputationGraph, index: int, rows: list[_Slices]) -> None:
    """Write the slices of all ranks into the tensors of a layer."""
    layer = graph.layers[index]
    parameters = {each.name: each for each in layer.parameters}
    channels = (layer.output.size("channel"),)
    names = {name: f"{layer.name}.{name}" for name in (*parameters, *RUNNING)} | dict(layer.keys)
    if prefix := norm_prefix(layer):
        names |= {name: prefix + name for name in RUNNING}
    for row in rows:
        for name, box, values in row:
            each = parameters.get(name)
            key, sizes = names[name], each.module_shape if each else channels
            whole = state[key] = state[key] if key in state else torch.empty(sizes, dtype=values.dtype)
            view = whole.view(each.shape) if each else whole
            view[tuple(map(slice, box.low, box.high))] = values.to(whole.dtype)
            state.update({key: whole for other, key in layer.aliases if other == name})
