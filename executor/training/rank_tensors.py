"""Tensors of one iteration on a rank: activations and gradients, and the messages that bring and send them."""

from typing import TYPE_CHECKING

from executor.communication.received_regions import ReceivedRegions
from executor.program.input_consumers import Consumers
from executor.training.activation_store import ActivationStore
from executor.training.borrowed_parameters import BorrowedParameters
from executor.training.gradient_store import GradientStore
from executor.training.phase_sender import PhaseSender
from executor.training.rank_resources import RankLayers, RankResources
from executor.training.task_timer import TaskTimer

if TYPE_CHECKING:
    from executor.communication.compressed_messages import CompressedMessages


class RankTensors:
    """The stores of activations and gradients, received regions, and the sender of a rank's messages."""

    def __init__(self, resources: RankResources, layers: RankLayers, timer: TaskTimer, *, overlap: bool) -> None:
        view, dtype, device = resources.view, resources.dtype, resources.device.torch_device
        self._view, self._timer, self._redistributor = view, timer, resources.redistributor
        compressed = _compressed_messages(resources, stand_in=timer.stand_in.compression)
        consumers = Consumers(view)
        self.received = ReceivedRegions(view, resources.transport, resources.status, compressed)
        self.activations = ActivationStore(
            view, consumers, self.received, self._redistributor, layers.parts, dtype=dtype, device=device
        )
        self.gradients = GradientStore(view, consumers, self.received, self._redistributor, dtype=dtype, device=device)
        self.borrowed = BorrowedParameters(view, layers.parameters, self.received, dtype=dtype, device=device)
        self.sender = PhaseSender(
            resources,
            activations=self.activations,
            gradients=self.gradients,
            borrowed=self.borrowed,
            received=self.received,
            compressed=compressed,
            compress=timer.compression,
            overlap=overlap,
        )

    def clear(self) -> None:
        """Begin an iteration."""
        for store in (self.received, self._redistributor, self.activations, self.gradients, self.borrowed, self.sender):
            store.clear()

    def decompress(self, task: int) -> None:
        """Run a task that decompresses received regions."""
        transfers = self._view.before(task)
        self.received.wait_for(transfers)
        self._timer.compression(task, lambda: self.received.decompress(transfers))


def _compressed_messages(resources: RankResources, *, stand_in: bool) -> "CompressedMessages | None":
    if not resources.view.program.compressed.activations:
        return None
    from executor.communication.compressed_messages import CompressedMessages

    return CompressedMessages(resources.view, dtype=resources.dtype, stand_in=stand_in)
