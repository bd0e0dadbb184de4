"""Gradients summed as soon as they exist, those of several layers as one buffer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor
from typing_extensions import override

from executor.communication.gradient_sync import GradientSync, Residual, views_of
from executor.program import Chain, RankProgram, Recorder, joined_sums
from executor.runtime import JOIN_BYTES, ComputeDevice, Handle

if TYPE_CHECKING:
    from executor.communication.compressed_reduction import CompressedReduction

__all__ = ["BucketedSync"]

_CODED_LANES = 4
"""Sums of codes that may be under way at once over gloo, so that messages of some hide the coding of others."""


@dataclass(slots=True)
class _Bucket:
    """Gradients of one or several layers that are summed as one buffer, which all sums use."""

    chains: list[list[Chain]]
    """For each layer its sums of an iteration, one after another."""
    flat: Tensor
    missing: int
    """Layers whose gradients of the next sum are not there yet."""
    coded: "CompressedReduction | None" = None
    lane: int = 0
    turn: int = 0
    """The next sum in this iteration."""
    handle: Handle | None = None


class BucketedSync(GradientSync):
    """Sums gradients as soon as those that travel with them exist too; other arguments as for its base.

    Args:
        join_bytes: Sums by the back end's own ring are joined up to this size.
        stand_in: Encode nothing, and let that last as long as the program says.
    """

    def __init__(
        self,
        view: RankProgram,
        device: ComputeDevice,
        recorder: Recorder,
        *,
        overlap: bool = True,
        timeout_s: float,
        join_bytes: float = JOIN_BYTES,
        stand_in: bool = False,
    ) -> None:
        super().__init__(view, device, recorder, overlap=overlap, timeout_s=timeout_s)
        lanes = _CODED_LANES if device.backend == "gloo" else 1  # NCCL matches messages by their order
        self._lanes += [device.lane(f"gradients {number}") for number in range(lanes)]
        self._bucket: dict[int, _Bucket] = {}
        self._coded = 0
        for group in joined_sums(view, join_bytes):
            bucket = _Bucket(group, self._make_places([chains[0].layer for chains in group]), len(group))
            if (kind := group[0][0].kind) is not None:
                from executor.communication.compressed_reduction import CompressedReduction

                bucket.coded = CompressedReduction(view, self._reducer, recorder, kind, bucket.flat, stand_in=stand_in)
                # Each lane takes its sums in program order, as on all ranks: none waits for what waits for it.
                # What the back end itself sums, or rounds do, must meet in one order: that stays on one lane.
                if all(bucket.coded.passes_codes(chain) for chains in group for chain in chains):
                    bucket.lane = self._coded % len(self._lanes)
                    self._coded += 1
            self._bucket |= {chains[0].layer: bucket for chains in group}

    @override
    def _begin(self, layer: int) -> Sequence[Handle]:
        bucket = self._bucket[layer]
        bucket.missing -= 1
        if bucket.missing:
            return ()
        bucket.missing = len(bucket.chains)
        chains = [row[bucket.turn] for row in bucket.chains]
        bucket.turn = (bucket.turn + 1) % len(bucket.chains[0])
        bucket.handle = self._lanes[bucket.lane].submit(self._begun(chains, bucket))
        return (bucket.handle,)

    def _begun(self, chains: Sequence[Chain], bucket: _Bucket) -> Callable[[], None]:
        """Begin a sum, where the back end goes on with it by itself; returns what a lane has to do."""
        if (coded := bucket.coded) is not None:
            return lambda: coded.run(chains[0])
        tasks = [task for chain in chains for task in chain.tasks if chain.native]
        begun = self._reducer.begin(chains[0], bucket.flat)
        if begun is not None:
            for task in tasks:
                self._recorder.start(task)

        def work() -> None:
            if begun is not None:
                begun.wait()
            else:
                for task in tasks:
                    self._recorder.start(task)
                self._reducer.sum(chains[0], bucket.flat)
            for task in tasks:
                self._recorder.end(task)
            self._recorder.joined(tasks, self._view.program.size_bytes[tasks].tolist())

        return work

    @override
    def _last(self, layer: int) -> Handle:
        handle = self._bucket[layer].handle
        assert handle is not None
        return handle

    @override
    def residuals(self) -> dict[int, Residual]:
        found = {}
        for layer, bucket in self._bucket.items():
            flat = bucket.coded.residual if bucket.coded else None
            if flat is not None:
                shapes = {
                    row[0].layer: {name: place.shape for name, place in self._places[row[0].layer].items()}
                    for row in bucket.chains
                }
                devices = bucket.chains[0][0].devices
                found[layer] = Residual(devices.index(self._view.rank), len(devices), views_of(flat, shapes)[layer])
        return found
