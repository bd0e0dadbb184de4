"""Compressed gradient synchronisation, as ``planner.cost.compressed_sync`` lowers it.

The rank that sums decompresses and adds float32, in the order of the ranks.  Sums are sent back compressed, and the
rank that compressed them decompresses them too, so that all replicas get the same elements to the last bit.  Under
other schemes plain floats are summed in their own type.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from executor.communication.compressed_messages import codec_of
from executor.communication.reduction import Reducer, sum_in_rank_order
from executor.program.buckets import Reduction
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from planner.compression.data_types import Compression
from planner.lowering.program import KINDS

_COMPRESS = KINDS.index("compress")


class CompressedReduction:
    """The reductions of one buffer, and the residual that its compression leaves for the next one.

    Source:
        Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed
        Training of Speech DNNs", Interspeech 2014, for the residual.
    """

    def __init__(
        self,
        view: RankProgram,
        reducer: Reducer,
        recorder: Recorder,
        kind: Compression,
        content: Tensor,
        *,
        stand_in: bool,
    ) -> None:
        self._program, self._rank, self._reducer, self._recorder = view.program, view.rank, reducer, recorder
        self._codec, self._content, self._stand_in = codec_of(kind, stand_in=stand_in), content, stand_in
        self._residual = torch.zeros_like(content, dtype=torch.float32) if kind.feedback else None

    @property
    def residual(self) -> Tensor | None:
        """The flat residual of this rank; None where the compression keeps none.

        The residuals of all replicas add up to what the sums so far lack.
        """
        return self._residual

    def passes_compressed(self, reduction: Reduction) -> bool:
        """Return whether compressed chunks go to the rank that sums them; else plain floats are summed on the way."""
        stages = self._stages(reduction)
        return "middle" in stages or bool(self._program.decompressed_bytes[stages["after"]] > 0)

    def run(self, reduction: Reduction) -> None:
        """Sum the buffer in place, by the tasks of a reduction."""
        if self.passes_compressed(reduction):
            self._sum_decompressed(reduction, self._stages(reduction))
        else:
            self._sum_floats(reduction, self._stages(reduction))

    def _stages(self, reduction: Reduction) -> dict[str, int]:
        """Return this rank's tasks that compress before the rounds and between them, and decompress after them."""
        program, stages = self._program, dict[str, int]()
        for task in reduction.codec_tasks:
            if program.kind[task] != _COMPRESS:
                stages["after"] = task
            else:
                stages["before" if program.part[task] < 0 else "middle"] = task
        return stages

    def _timed(self, task: int, work: Callable[[], None]) -> None:
        self._recorder.timed(task, work, least_s=float(self._program.work_s[task]) if self._stand_in else 0.0)

    def _sum_floats(self, reduction: Reduction, stages: Mapping[str, int]) -> None:
        """Sum plain floats of another width in their own type."""
        messages: list[Tensor] = []
        dtype: torch.dtype = getattr(torch, self._codec.name)
        self._timed(stages["before"], lambda: messages.append(self._codec.compress(self._content).message))
        if reduction.native:
            self._recorder.start(reduction.tasks[0])
        self._reducer.sum(reduction, messages[0].view(dtype))
        if reduction.native:
            self._recorder.end(reduction.tasks[0])

        def decompress() -> None:
            self._content.copy_(self._codec.decompress(messages[0], self._content.shape))

        self._timed(stages["after"], decompress)

    def _sum_decompressed(self, reduction: Reduction, stages: Mapping[str, int]) -> None:
        """Send compressed chunks to the ranks that sum them; parameter servers send the sums back compressed.

        ::

            task             replicas                servers
            "before"         compress chunks
            first round      send them       ---->   receive them
            "middle"                                 decompress, sum, compress
            second round     receive sums    <----   send sums
            "after"          decompress

        With one round only, every replica receives the chunks of all others and sums them itself.
        """
        program, values = self._program, self._content.to(torch.float32)
        steps = program.collectives[reduction.tasks[0]].round
        self._chunks = steps.chunks
        chunks: dict[int, Tensor] = {}

        def compress() -> None:
            for chunk in set(steps.first_chunk(0)[steps.source == self._rank].tolist()):
                chunks[chunk] = self._compressed(values[self._slice(chunk)], chunk)

        if "before" in stages:
            self._timed(stages["before"], compress)
        arrived = self._reducer.pass_compressed(reduction.tasks[0], chunks)
        if len(reduction.tasks) > 1:
            chunks.clear()
            if "middle" in stages:
                chunk = int(program.part[stages["middle"]])

                def serve() -> None:
                    own = self._rank, values[self._slice(chunk)]
                    terms = [own, *((source, self._decompressed(row, chunk)) for source, row in arrived[chunk])]
                    chunks[chunk] = self._compressed(sum_in_rank_order(terms), chunk)

                self._timed(stages["middle"], serve)
            arrived = self._reducer.pass_compressed(reduction.tasks[1], chunks)

        def decompress() -> None:
            for chunk, message in chunks.items():
                arrived.setdefault(chunk, []).append((self._rank, message))
            for chunk, rows in arrived.items():
                terms = [(source, self._decompressed(message, chunk)) for source, message in rows]
                self._content[self._slice(chunk)] = sum_in_rank_order(terms)

        self._timed(stages["after"], decompress)

    @property
    def _chunk_elements(self) -> int:
        """Number of elements in a chunk; the last chunks may have fewer."""
        return -(-len(self._content) // self._chunks)

    def _slice(self, chunk: int) -> slice:
        most = self._chunk_elements
        return slice(min(chunk * most, len(self._content)), min((chunk + 1) * most, len(self._content)))

    def _compressed(self, values: Tensor, chunk: int) -> Tensor:
        """Return the message of a chunk, as long as that of a full one."""
        message = torch.zeros(
            self._codec.compressed_bytes(self._chunk_elements), dtype=torch.uint8, device=values.device
        )
        if len(values):
            residual = None if self._residual is None else self._residual[self._slice(chunk)]
            self._codec.compress(values, residual, out=message[: self._codec.compressed_bytes(len(values))])
        return message

    def _decompressed(self, message: Tensor, chunk: int) -> Tensor:
        elements = self._slice(chunk)
        count = elements.stop - elements.start
        if not count:
            return self._content.new_empty(0, dtype=torch.float32)
        return self._codec.decompress(message[: self._codec.compressed_bytes(count)], (count,))
