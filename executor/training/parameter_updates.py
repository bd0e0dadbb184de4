"""Parameter updates: optimizer steps once the gradients of all replicas are summed."""

from torch import Tensor

from executor.program.rank_parts import LayerUnit
from executor.supervision.status_board import RankState
from executor.training.rank_resources import RankLayers, RankResources, TaskTimer


class ParameterUpdates:
    """Hands gradients to their synchronisation, and runs the update tasks of a rank."""

    def __init__(self, resources: RankResources, layers: RankLayers, timer: TaskTimer) -> None:
        self._gradient_sync, self._status = resources.gradient_sync, resources.status
        self._layers, self._timer, self._graph = layers, timer, resources.view.program.graph
        program = resources.view.program
        self._waits_for_all = program.framework.is_synchronous or program.conditions.storage.divides
        """True if the first update of an iteration waits for the gradients of all layers."""
        self._all_summed = False
        self._without_replicas: dict[int, dict[str, Tensor]] = {}
        """Gradients of layers without replicas that wait for their updates."""
        self._due: set[int] = set()
        """Layers with gradients that wait for their updates."""

    def submit(self, layer: int, gradients: dict[str, Tensor]) -> None:
        """Begin to sum a layer's gradients over its replicas; a layer without replicas can be updated at once."""
        self._due.add(layer)
        self._all_summed = False
        if not self._gradient_sync.submit(layer, gradients):
            self._without_replicas[layer] = gradients

    def run(self, task: int, unit: LayerUnit) -> None:
        """Update a layer's parameters, after a wait for its gradients; do nothing where it has none.

        Where gradients are synchronised in a prescribed order, updates come with the next step's forward pass.  There
        are then no gradients in the first step, nor after all updates were run at once.
        """
        layer = unit[0]
        if layer not in self._due:
            return
        if self._waits_for_all and not self._all_summed:
            self._wait_for_all(task)
        self._due.remove(layer)
        gradients = self._without_replicas.pop(layer, None)
        if gradients is None:
            self._status.at(task, RankState.WAITING)
            gradients = self._gradient_sync.wait(layer)
        trained = [each.name for each in self._graph.layers[layer].parameters if each.elements]

        def work() -> None:
            if not self._timer.options.stand_in:
                self._layers.optimizers[layer].step([gradients[name] for name in trained])

        self._timer.arithmetic(task, work)
        self._gradient_sync.release(layer)

    def _wait_for_all(self, task: int) -> None:
        """Wait until the gradients of all layers that are to be updated are summed."""
        self._status.at(task, RankState.WAITING)
        for layer in self._due - self._without_replicas.keys():
            self._gradient_sync.wait(layer)
        self._all_summed = True
