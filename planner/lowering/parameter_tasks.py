"""Lowering of shared parameters: their regions go to the devices that lack them, and the gradients of these come back.

A table that a layer on device 0 trains and a layer on device 1 borrows:

    table, 0 to 1          waits for the update of the iteration before
    forward on 1           waits for the table
    weight gradient on 1
    gradient, 1 to 0       waits for the weight gradient
    update on 0            waits for its own weight gradient, and the gradient from 1

With micro-batches the parameter travels once an iteration, and its gradient once those of all micro-batches are there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from groundwork.array_types import Ints
from groundwork.errors import ConfigError
from planner.graph.computation_graph import Edge
from planner.layouts.regions import TransferRegions
from planner.layouts.shared_regions import equal_gradients, shared_gradient_regions
from planner.lowering.batched_model import BatchedModel
from planner.lowering.task_builder import NO_PAIRS, TaskPairs, TaskRows
from planner.lowering.transfer_tasks import TransferTasks


@dataclass
class _Borrowed:
    """A shared parameter in one distribution over the devices that borrow it."""

    way: Edge
    """Way to the first layer that borrows it so."""
    regions: TransferRegions
    sends: Ints
    """Transfers of the regions that are not on their device, in the order of ``regions``."""
    remote: Ints
    """Index of these regions."""
    readers: list[int] = field(default_factory=list)
    """Layers that borrow it so."""


class ParameterTasks:
    """Appends the transfers of shared parameters and of their gradients.

    Args:
        batched: Costs and configurations.
        transfers: Appends the tasks of single sets of transfers.

    Raises:
        ConfigError: Parameters are updated after every micro-batch.
    """

    def __init__(self, batched: BatchedModel, transfers: TransferTasks) -> None:
        self._batched, self._transfers, self._graph = batched, transfers, batched.graph
        self.carried_by: dict[Edge, Edge] = {}
        """Way whose transfers bring a shared parameter, by way: its own, or that of a layer before with equal parts."""
        self._borrowed: dict[int, list[_Borrowed]] = {}
        """By the layer that trains the parameter."""
        self._arrived: dict[int, list[TaskPairs]] = {}
        """Pairs (part, task that brings a region), by the layer that borrows."""
        if self._graph.shared and batched.micro_batching.update_each:
            way, shared = next(iter(self._graph.shared.items()))
            names = [self._graph.layers[layer].name for layer in way[:2]]
            raise ConfigError(
                f"update_each must be off where layers share parameters: {names[1]} borrows {shared.name} of {names[0]}"
            )

    def fetch(self, lend: Callable[[int], TaskPairs]) -> None:
        """Append the transfers of all parameters that devices lack.

        Args:
            lend: Returns pairs (part, task that brings its parameters) of a layer whose parameters are sent.
        """
        for ways in self._graph.outgoing:
            known: dict[tuple[object, ...], _Borrowed] = {}
            for way in ways:
                if way in self._graph.shared:
                    key = self._distribution(way)
                    if key not in known:
                        known[key] = self._sent(way, lend)
                        self._borrowed.setdefault(way.producer, []).append(known[key])
                    self._borrow(way, known[key])

    def _distribution(self, way: Edge) -> tuple[object, ...]:
        """Return what tells apart the layers that borrow a parameter in one distribution, and make its gradients so."""
        borrower = self._batched.spaces[way.consumer]
        equal = equal_gradients(borrower, self._graph.shared[way].needed)
        layout = int(self._batched.model.transfer_times.layouts(way, borrower)[0])
        return layout, equal.shape, tuple(equal.ravel().tolist()) if equal.shape[1] > 1 else ()

    def _sent(self, way: Edge, lend: Callable[[int], TaskPairs]) -> _Borrowed:
        """Send a parameter to the devices of the first layer that borrows it so."""
        owner, borrower = (self._batched.spaces[layer] for layer in way[:2])
        regions = self._batched.model.transfer_times.regions(way, owner, borrower)
        senders = owner.devices[regions.part]
        remote = np.flatnonzero(senders != regions.device)
        ready = TaskRows.of(*(lend(way.producer) if len(remote) else NO_PAIRS), len(owner.devices))
        sends = self._transfers.move(
            way,
            regions.take(remote),
            (senders[remote], regions.device[remote]),
            ready.take(regions.part[remote]),
            backward=False,
        )
        return _Borrowed(way, regions, sends, remote)

    def _borrow(self, way: Edge, borrowed: _Borrowed) -> None:
        borrowed.readers.append(way.consumer)
        self.carried_by[way] = borrowed.way
        part_on = self._batched.spaces[way.consumer].part_on(self._batched.device_count)
        arrived = part_on[borrowed.regions.device[borrowed.remote]], borrowed.sends
        self._arrived.setdefault(way.consumer, []).append(arrived)

    def await_borrowed(self, layer: int, tasks: Ints) -> None:
        """Let the forward tasks of a layer, one a part, wait for the parameters that it borrows."""
        for part, sends in self._arrived.get(layer, []):
            self._transfers.tasks.wait(tasks[part], sends)

    def lent(self, layer: int) -> list[int]:
        """Return the layers that borrow parameters which a layer trains, and send gradients back."""
        ways = [way for way in self.carried_by if way.producer == layer and self._graph.returns_gradient(way)]
        return list(dict.fromkeys(way.consumer for way in ways))

    def owners(self, layer: int) -> list[int]:
        """Return the layers that train parameters which a layer borrows."""
        ways = [way for way in self.carried_by if way.consumer == layer and self._graph.returns_gradient(way)]
        return list(dict.fromkeys(way.producer for way in ways))

    def bring_back(self, layer: int, weight_gradient: Mapping[int, Ints]) -> TaskPairs:
        """Bring the gradients of the parameters that a layer trains back from those that borrow them.

        Args:
            layer: The layer.
            weight_gradient: Weight gradient task of each part, by layer.

        Returns:
            Pairs (part, task after which gradients from other layers are on its device).
        """
        parts, tasks = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        owner, count = self._batched.spaces[layer], self._batched.device_count
        for each in self._borrowed.get(layer, []):
            if not self._graph.returns_gradient(each.way):
                continue
            borrower, shared = self._batched.spaces[each.way.consumer], self._graph.shared[each.way]
            regions = shared_gradient_regions(owner, borrower, shared, count)
            local = np.flatnonzero(owner.devices[regions.part] == regions.device)
            remote = np.flatnonzero(owner.devices[regions.part] != regions.device)
            # of each layer the task that makes the gradient of each region, on the device that used it
            made = [
                weight_gradient[reader][self._batched.spaces[reader].part_on(count)[regions.device]]
                for reader in each.readers
            ]
            sends = self._transfers.move(
                each.way,
                regions.take(remote),
                (regions.device[remote], owner.devices[regions.part[remote]]),
                (np.tile(np.arange(len(remote)), len(made)), np.concatenate([row[remote] for row in made])),
                backward=True,
            )
            parts += [regions.part[remote], *[regions.part[local]] * len(made)]
            tasks += [sends, *(row[local] for row in made)]
        return np.concatenate(parts), np.concatenate(tasks)

    def refreshed(self, layer: int, before: TaskPairs) -> Ints:
        """Return pairs (transfer, task of the iteration before that it waits for), shape (N, 2).

        Args:
            layer: The layer that trains the parameters.
            before: Pairs (part, task after which its parameters are new).
        """
        rows, after = [np.empty((0, 2), dtype=np.int64)], TaskRows.of(*before, len(self._batched.spaces[layer].devices))
        for each in self._borrowed.get(layer, []):
            place, task = after.take(each.regions.part[each.remote])
            rows.append(np.column_stack([each.sends[place], task]))
        return np.concatenate(rows)

    def await_fetched(self, fetched: Mapping[int, Ints]) -> None:
        """Let transfers wait for the tasks that fetch the parameters from servers, by layer and part."""
        for layer, rows in self._borrowed.items():
            for each in rows:
                if layer in fetched:
                    self._transfers.tasks.wait(each.sends, fetched[layer][each.regions.part[each.remote]])
