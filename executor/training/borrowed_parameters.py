"""Shared parameters on a rank: what its layers borrow of other layers' parameters, and the gradients that go back.

Where the rank holds all of what a layer borrows, the layer computes with a view of the parameter.  Else it computes
with a copy that is filled once an iteration, from the rank's own shard and from what other ranks send.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from executor.communication.received_regions import ReceivedRegions
from executor.program.messages import Message
from executor.program.rank_program import RankProgram
from executor.runtime.boxes import Box
from groundwork.array_types import Ints
from planner.graph.computation_graph import Edge
from planner.layouts.shared_regions import equal_gradients, shared_gradient_regions


class BorrowedParameters:
    """Parameters that layers on the rank borrow, and the gradients of parameters that several layers use."""

    def __init__(
        self,
        view: RankProgram,
        parameters: Mapping[int, Mapping[str, Tensor]],
        received: ReceivedRegions,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._view, self._graph, self._parameters, self._received = view, view.program.graph, parameters, received
        self._program, self._held = view.program, view.parts.index
        borrowed_by = self._program.borrowed_by
        self._edges = {edge: by for edge, by in borrowed_by.items() if self._held[edge.consumer] >= 0}
        """Edges to layers of which the rank holds a part, each with the edge that carries the parameter."""
        self.trained = [[p.name for p in layer.parameters if p.elements] for layer in self._graph.layers]
        """Names of the parameters that each layer trains."""
        self._incoming = self._messages()
        self._box: dict[Edge, Box] = {}
        self._own: dict[Edge, Box] = {}
        """Box of what the rank's part of the trainer holds; empty where it holds none."""
        for by in dict.fromkeys(borrowed_by.values()):
            shared = self._graph.shared[by]
            self._box[by] = self._slice(by.consumer, shared.borrowed)
            self._own[by] = self._slice(by.producer, shared.name)
        self._maker = {by: self._makers(by) for by in self._box}
        self._added = {by: self._added_here(by) for by in self._box}
        """Boxes of what the rank's part of the trainer adds of the rank's own gradients."""
        moves, backward = self._program.moves_parameters, self._program.backward
        self._sent = {
            view.edge_of(message.tasks[0])
            for messages in view.messages.outgoing.values()
            for message in messages
            if moves[message.tasks[0]] and backward[message.tasks[0]]
        }
        """Ways whose gradients the rank sends."""
        self._dtype, self._device = dtype, device
        self._values: dict[Edge, Tensor] = {}
        """What layers borrow: copies, or views of parameters that the rank holds."""
        self._ways: dict[int, dict[Edge, Edge]] = defaultdict(dict)
        """Ways of parameters to each layer, with those that carry them."""
        for edge, by in self._edges.items():
            self._ways[edge.consumer][edge] = by
        self._contributors: dict[int, set[int]] = defaultdict(set)
        """Layers on the rank that borrow parameters of a layer, and make gradients of them, by that layer."""
        for edge in self._edges:
            if self._graph.returns_gradient(edge):
                self._contributors[edge.producer].add(edge.consumer)
        self.clear()

    def clear(self) -> None:
        """Begin an iteration."""
        self._filled: set[Edge] = set()
        self._sums: dict[Edge, Tensor] = {}
        self._done: dict[int, set[int]] = defaultdict(set)
        """Layers whose gradients are there that borrow of a layer, by that layer."""
        self._kept: dict[int, dict[str, Tensor]] = {}
        """Gradients of layers whose parameters others borrow, which still compute theirs."""

    def _messages(self) -> dict[tuple[Edge, bool], list[Message]]:
        """Return the messages with regions of parameters or of their gradients, by edge and direction."""
        rows: dict[tuple[Edge, bool], list[Message]] = defaultdict(list)
        moves, backward = self._program.moves_parameters, self._program.backward
        for message in self._view.messages.received:
            task = message.tasks[0]
            if moves[task]:
                rows[self._view.edge_of(task), bool(backward[task])].append(message)
        return rows

    def _slice(self, layer: int, name: str) -> Box:
        """Return the slice of a parameter that the rank's part of a layer uses; empty where it holds no part."""
        shape = next(each.shape for each in self._graph.layers[layer].parameters if each.name == name)
        if not shape:  # a number travels as one element
            return Box((0,), (int(self._held[layer] >= 0),))
        if self._held[layer] < 0:
            return Box((0,) * len(shape), (0,) * len(shape))
        return self._view.parts.parameters(layer)[name]

    def _makers(self, by: Edge) -> Ints:
        """Return the place of each device among those of the borrower that make different gradients; -1 for others."""
        groups = equal_gradients(self._program.spaces[by.consumer], self._graph.shared[by].needed)
        places = np.full(len(self._program.cluster.devices), -1)
        places[groups] = np.arange(len(groups))[:, None]
        return places

    def _added_here(self, by: Edge) -> list[Box]:
        program, shared, rank = self._program, self._graph.shared[by], self._view.rank
        owner, borrower = program.spaces[by.producer], program.spaces[by.consumer]
        regions = shared_gradient_regions(owner, borrower, shared, len(program.cluster.devices))
        rows = np.flatnonzero((regions.device == rank) & (owner.devices[regions.part] == rank)).tolist()
        return [Box(tuple(regions.low[k].tolist()), tuple(regions.high[k].tolist())) for k in rows]

    def _tensor(self, by: Edge) -> Tensor:
        """Return what a layer borrows: a view of what the rank holds where that is all, else a copy to be filled.

        A view is made when it is first used: only then is there memory behind a parameter that replicas divide.
        """
        if by not in self._values:
            box, own = self._box[by], self._own[by]
            if self._held[by.producer] >= 0 and box & own == box and not self._incoming[by, False]:
                self._values[by] = self._trained_slice(by)[box.within(own)]
            else:
                self._values[by] = torch.empty(box.shape, dtype=self._dtype, device=self._device)
        return self._values[by]

    def _trained_slice(self, by: Edge) -> Tensor:
        return _with_axes(self._parameters[by.producer][self._graph.shared[by].name])

    def parameters(self, layer: int) -> Mapping[str, Tensor]:
        """Return the slices that the rank's part of a layer computes with, once borrowed ones are there."""
        own = self._parameters.get(layer, {})
        if layer not in self._ways:
            return own
        shapes = {p.name: p.shape for p in self._graph.layers[layer].parameters}
        borrowed = dict[str, Tensor]()
        for edge, by in self._ways[layer].items():
            if by not in self._filled:
                self._fill(by)
            name = self._graph.shared[edge].borrowed
            borrowed[name] = self._tensor(by) if shapes[name] else self._tensor(by).view(())
        return {**own, **borrowed}

    def owners(self, layer: int) -> list[int]:
        """Return the layers to which the gradients of what a layer borrows go back."""
        return [edge.producer for edge in self._ways.get(layer, ()) if self._graph.returns_gradient(edge)]

    def _fill(self, by: Edge) -> None:
        """Fill the copy of a parameter from the rank's own shard and from other ranks' messages."""
        self._filled.add(by)
        messages, box, own = self._incoming[by, False], self._box[by], self._own[by]
        values, here = self._tensor(by), box & own
        if not messages:
            return
        if self._held[by.producer] >= 0 and here.elements:
            values[here.within(box)] = self._trained_slice(by)[here.within(own)]
        for task, region, at in self._arrived(messages):
            values[at.within(box)] = region
            self._received.release(task)

    def _arrived(self, messages: list[Message]) -> Iterator[tuple[int, Tensor, Box]]:
        """Yield the regions of messages, which it waits for: transfer, elements, box."""
        for message in messages:
            self._received.wait(message)
            for task, box in zip(message.tasks, message.boxes, strict=True):
                yield task, self._received.region(task), box

    def complete(self, layer: int, gradients: dict[str, Tensor]) -> list[tuple[int, dict[str, Tensor]]]:
        """Take the gradients of a layer, of all micro-batches or of one of several.

        Returns:
            Layers whose gradients on this rank are complete, with these: the layer itself, unless others that borrow
            its parameters still compute theirs, and layers whose parameters it borrowed.
        """
        for edge, by in self._ways.get(layer, {}).items():
            if self._graph.returns_gradient(edge):
                gradient = _with_axes(gradients[self._graph.shared[edge].borrowed])
                self._sums[by] = self._sums[by] + gradient if by in self._sums else gradient
                self._done[edge.producer].add(layer)
        self._kept[layer] = {name: gradients[name] for name in self.trained[layer]}
        ready = [
            owner
            for owner in dict.fromkeys((layer, *self.owners(layer)))
            if self._kept.get(owner) and self._contributors.get(owner, set()) <= self._done[owner]
        ]
        for owner in ready:
            self._done[owner].clear()
        return [(owner, self._with_others(owner, self._kept.pop(owner))) for owner in ready]

    def _with_others(self, owner: int, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the gradients of a layer with those of the layers that borrow its parameters, here and elsewhere."""
        for by in dict.fromkeys(by for edge, by in self._program.borrowed_by.items() if edge.producer == owner):
            name, own = self._graph.shared[by].name, self._own[by]
            messages = self._incoming[by, True]
            if not self._graph.returns_gradient(by) or (by not in self._sums and not messages):
                continue
            if self._has_views(owner, name, gradients):
                gradients[name] = gradients[name].clone()
            total = _with_axes(gradients[name])
            box, rank = self._box[by], self._view.rank
            regions = [(rank, here, self._sums[by][here.within(box)]) for here in self._added[by]]
            arrived = list(self._arrived(messages))
            regions += [(int(self._program.device[task]), at, region) for task, region, at in arrived]
            maker = self._maker[by]
            for _, at, region in sorted(regions, key=lambda each: int(maker[each[0]])):  # on all ranks in one order
                total[at.within(own)] += region
            for task, *_ in arrived:
                self._received.release(task)
            if by not in self._sent:  # the next micro-batch begins anew
                self._sums.pop(by, None)
        return gradients

    def _has_views(self, layer: int, name: str, gradients: Mapping[str, Tensor]) -> bool:
        """Return whether other tensors may be views of a gradient: those of its layer, or the gradient of the output.

        Only a sum hands the gradient of its output on, which has as many elements, or a part of them by micro-batch.
        """
        gradient = gradients[name]
        storage = gradient.untyped_storage().data_ptr()
        others = (each.untyped_storage().data_ptr() for key, each in gradients.items() if key != name)
        return storage in others or self._view.parts.held(layer).elements % gradient.numel() == 0

    def region(self, transfer: int, box: Box) -> Tensor:
        """Return the region that a transfer sends: of a parameter, or of its gradient."""
        edge = self._view.edge_of(transfer)
        if self._program.backward[transfer]:
            return self._sums[edge][box.within(self._box[edge])]
        region = self._trained_slice(edge)[box.within(self._own[edge])]
        # the memory of a parameter that replicas divide may be freed before a message has left
        return region.clone() if self._view.storage.divides_parameters else region

    def was_sent(self, message: Message) -> None:
        """Nothing is released before the end of the iteration."""


def _with_axes(tensor: Tensor) -> Tensor:
    """Return a tensor, one without axes as one of one element."""
    return tensor if tensor.ndim else tensor.view(1)
