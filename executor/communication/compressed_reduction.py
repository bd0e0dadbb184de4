"""Sums of gradients that travel as codes, as ``planner.cost.compressed_sync`` lowers them.

Whoever sums decodes and adds float32, in the order of the ranks; sums go back as codes, which their maker decodes
too, so that all replicas get the same to the last bit.  Plain floats that any other scheme exchanges are summed in
their own type.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from executor.communication.compressed_messages import coder_of
from executor.communication.reduction import Reducer, total
from executor.program import Chain, RankProgram, Recorder
from planner.compression import Compression
from planner.lowering import KINDS

__all__ = ["CompressedReduction"]

_COMPRESS = KINDS.index("compress")


class CompressedReduction:
    """The sums of one buffer, and what their codes left out, which goes into the next.

    Args:
        view: What this rank takes part in.
        reducer: Passes codes on.
        recorder: Told when tasks begin and end.
        kind: The data type.
        content: The buffer, flat.
        stand_in: Encode nothing, and let every task last as long as the program says.
    """

    def __init__(
        self, view: RankProgram, reducer: Reducer, recorder: Recorder, kind: Compression, content: Tensor, *,
        stand_in: bool,
    ) -> None:  # fmt: skip
        self._program, self._rank, self._reducer, self._recorder = view.program, view.rank, reducer, recorder
        self._coder, self._content, self._stand_in = coder_of(kind, stand_in=stand_in), content, stand_in
        self._residual = torch.zeros_like(content, dtype=torch.float32) if kind.feedback else None

    @property
    def residual(self) -> Tensor | None:
        """What the codes so far have left out, flat, as this rank knows it; None where the type keeps nothing.

        Over all replicas these add up to what the sums so far lack.
        """
        return self._residual

    def passes_codes(self, chain: Chain) -> bool:
        """Whether codes go to whoever sums them decoded; else they are plain floats, summed on the way."""
        stages = self._stages(chain)
        return "middle" in stages or bool(self._program.taken_bytes[stages["after"]] > 0)

    def run(self, chain: Chain) -> None:
        """Sum the buffer in place, by the tasks of a chain."""
        if self.passes_codes(chain):
            self._sum_decoded(chain, self._stages(chain))
        else:
            self._sum_codes(chain, self._stages(chain))

    def _stages(self, chain: Chain) -> dict[str, int]:
        """The tasks of this rank that encode before the rounds, between them, and decode after them."""
        program, stages = self._program, dict[str, int]()
        for task in chain.codings:
            if program.kind[task] != _COMPRESS:
                stages["after"] = task
            else:
                stages["before" if program.part[task] < 0 else "middle"] = task
        return stages

    def _timed(self, task: int, work: Callable[[], None]) -> None:
        self._recorder.timed(task, work, least_s=float(self._program.work_s[task]) if self._stand_in else 0.0)

    def _sum_codes(self, chain: Chain, stages: Mapping[str, int]) -> None:
        """Sum plain floats of another width."""
        codes: list[Tensor] = []
        dtype: torch.dtype = getattr(torch, self._coder.name)
        self._timed(stages["before"], lambda: codes.append(self._coder.encode(self._content).message))
        if chain.native:
            self._recorder.start(chain.tasks[0])
        self._reducer.sum(chain, codes[0].view(dtype))
        if chain.native:
            self._recorder.end(chain.tasks[0])

        def decode() -> None:
            self._content.copy_(self._coder.decode(codes[0], self._content.shape))

        self._timed(stages["after"], decode)

    def _sum_decoded(self, chain: Chain, stages: Mapping[str, int]) -> None:
        """Send codes to whoever sums; where that is a server, it sends the codes of the sums back."""
        program, values = self._program, self._content.to(torch.float32)
        steps = program.collectives[chain.tasks[0]].round
        self._pieces = steps.pieces
        codes: dict[int, Tensor] = {}

        def encode() -> None:
            for piece in set(steps.first_piece(0)[steps.source == self._rank].tolist()):
                codes[piece] = self._encoded(values[self._slice(piece)], piece)

        if "before" in stages:
            self._timed(stages["before"], encode)
        arrived = self._reducer.pass_codes(chain.tasks[0], codes)
        if len(chain.tasks) > 1:
            codes.clear()
            if "middle" in stages:
                piece = int(program.part[stages["middle"]])

                def serve() -> None:
                    own = self._rank, values[self._slice(piece)]
                    terms = [own, *((source, self._decoded(code, piece)) for source, code in arrived[piece])]
                    codes[piece] = self._encoded(total(terms), piece)

                self._timed(stages["middle"], serve)
            arrived = self._reducer.pass_codes(chain.tasks[1], codes)

        def decode() -> None:
            for piece, code in codes.items():
                arrived.setdefault(piece, []).append((self._rank, code))
            for piece, rows in arrived.items():
                terms = [(source, self._decoded(code, piece)) for source, code in rows]
                self._content[self._slice(piece)] = total(terms)

        self._timed(stages["after"], decode)

    def _slice(self, piece: int) -> slice:
        """Numbers of a piece: all pieces have as many, but for the last ones."""
        most = -(-len(self._content) // self._pieces)
        return slice(min(piece * most, len(self._content)), min((piece + 1) * most, len(self._content)))

    def _encoded(self, numbers: Tensor, piece: int) -> Tensor:
        """The message of a piece, as large as that of a whole one."""
        message = torch.zeros(
            self._coder.encoded_bytes(-(-len(self._content) // self._pieces)), dtype=torch.uint8, device=numbers.device
        )
        if len(numbers):
            residual = None if self._residual is None else self._residual[self._slice(piece)]
            self._coder.encode(numbers, residual, out=message[: self._coder.encoded_bytes(len(numbers))])
        return message

    def _decoded(self, message: Tensor, piece: int) -> Tensor:
        place = self._slice(piece)
        count = place.stop - place.start
        if not count:
            return self._content.new_empty(0, dtype=torch.float32)
        return self._coder.decode(message[: self._coder.encoded_bytes(count)], (count,))
