"""Gradients synchronised as soon as they are computed, those of several layers in one bucket."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor
from typing_extensions import override

from executor.communication.gradient_sync import GradientSync, Residual, views_of
from executor.communication.reduction import Reducer
from executor.program.buckets import Reduction, gradient_buckets
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.runtime.devices import ComputeDevice, Handle
from executor.runtime.run_options import RunOptions
from planner.lowering.program import KINDS

if TYPE_CHECKING:
    from executor.communication.compressed_reduction import CompressedReduction


_COORDINATE = KINDS.index("coordinate")
_COMPRESSED_LANES = 4
"""Compressed reductions that may run at once over gloo, so that the messages of some hide the compression of others."""


@dataclass(slots=True)
class _Bucket:
    """Gradients of one or several layers that are summed in one buffer, the same for all reductions of an iteration."""

    reductions: list[list[Reduction]]
    """Reductions of an iteration, one after another, of each layer."""
    flat: Tensor
    missing: int
    """Number of layers whose gradients of the next reduction are not computed yet."""
    compressed: "CompressedReduction | None" = None
    lane: int = 0
    turn: int = 0
    """Index of the next reduction in this iteration."""
    handle: Handle | None = None


class BucketedSync(GradientSync):
    """Sums a bucket as soon as the gradients of all of its layers are computed; arguments as for ``GradientSync``."""

    def __init__(self, view: RankProgram, device: ComputeDevice, recorder: Recorder, options: RunOptions) -> None:
        super().__init__(view, device, recorder, options)
        self._carrier = self._reducer = Reducer(view, recorder, statistics=False, device=device.torch_device)
        lanes = _COMPRESSED_LANES if device.backend == "gloo" else 1  # NCCL matches messages by their order
        self._lanes += [device.lane(f"gradients {number}") for number in range(lanes)]
        self._bucket: dict[int, _Bucket] = {}
        compressed = 0
        for group in gradient_buckets(view, options.join_bytes):
            bucket = _Bucket(group, self._allocate([rows[0].layer for rows in group]), len(group))
            if (kind := group[0][0].kind) is not None:
                from executor.communication.compressed_reduction import CompressedReduction

                bucket.compressed = CompressedReduction(
                    view, self._reducer, recorder, kind, bucket.flat, stand_in=options.stand_in_compression
                )
                # Each lane runs its reductions in program order, as on all ranks: none waits for one that waits for
                # it.  Reductions by the back end or by rounds must meet in one order: they stay on one lane.
                if all(bucket.compressed.passes_compressed(row) for rows in group for row in rows):
                    bucket.lane = compressed % len(self._lanes)
                    compressed += 1
            self._bucket |= {rows[0].layer: bucket for rows in group}

    @override
    def _begin(self, layer: int) -> Sequence[Handle]:
        bucket = self._bucket[layer]
        bucket.missing -= 1
        if bucket.missing:
            return ()
        bucket.missing = len(bucket.reductions)
        reductions = [rows[bucket.turn] for rows in bucket.reductions]
        bucket.turn = (bucket.turn + 1) % len(bucket.reductions[0])
        bucket.handle = self._lanes[bucket.lane].submit(self._started(reductions, bucket))
        return (bucket.handle,)

    def _started(self, reductions: Sequence[Reduction], bucket: _Bucket) -> Callable[[], None]:
        """Start the reduction of a bucket where the back end needs no thread of ours; return the work of its lane."""
        if (compressed := bucket.compressed) is not None:
            return lambda: compressed.run(reductions[0])
        tasks = list(dict.fromkeys(task for row in reductions for task in row.tasks if row.native))
        # Buckets of a framework follow one another: they begin on their lane.
        in_order = self._view.program.framework.is_synchronous
        started = None if in_order else self._reducer.begin(reductions[0], bucket.flat)
        program, before = self._view.program, self._view.before(reductions[0].tasks[0]) if in_order else ()
        # In these tasks the ranks agree on a buffer, between its gradients and its sum.
        waits = [task for task in before if program.kind[task] == _COORDINATE]
        for task in waits:
            self._recorder.start(task)
        if started is not None:
            for task in tasks:
                self._recorder.start(task)

        def work() -> None:
            """Sum the bucket over the ranks, once they agree, and record it."""
            for task in waits:
                self._recorder.end(task)
            if started is not None:
                started.wait()
            else:
                for task in tasks:
                    self._recorder.start(task)
                self._reducer.sum(reductions[0], bucket.flat)
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
        """Return what compression has left out of the sums so far, by layer."""
        residuals = {}
        for layer, bucket in self._bucket.items():
            flat = bucket.compressed.residual if bucket.compressed else None
            if flat is not None:
                shapes = {
                    rows[0].layer: {name: buffer.shape for name, buffer in self._buffers[rows[0].layer].items()}
                    for rows in bucket.reductions
                }
                devices = bucket.reductions[0][0].devices
                residuals[layer] = Residual(devices.index(self._view.rank), len(devices), views_of(flat, shapes)[layer])
        return residuals
