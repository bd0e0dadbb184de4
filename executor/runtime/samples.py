"""Which samples of the mini-batch a tensor holds: all in order, or those of one sub-batch."""

from dataclasses import dataclass

from executor.runtime.boxes import Box

__all__ = ["BatchSamples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSamples:
    """The samples of one sub-batch, as ``planner.parallel.micro_batches.interleaved`` lays them out."""

    batch: int
    """Of the whole mini-batch."""
    parts: int = 1
    """Sub-batches; 1: the tensor holds the whole mini-batch."""
    pieces: int = 1
    """Of each of so many pieces of the mini-batch a sub-batch holds its share."""
    sub_batch: int = 0

    def spans(self, low: int, high: int) -> list[tuple[int, int]]:
        """Where rows ``low`` to ``high - 1`` of the tensor lie in the mini-batch: half-open spans, in order."""
        if self.parts == 1:
            return [(low, high)]
        piece, share = self.batch // self.pieces, self.batch // (self.pieces * self.parts)
        found = []
        while low < high:
            index, place = divmod(low, share)
            count = min(share - place, high - low)
            first = index * piece + self.sub_batch * share + place
            found.append((first, first + count))
            low += count
        return found

    def boxes(self, box: Box) -> list[Box]:
        """Where a region of the tensor lies in that of the mini-batch."""
        return [Box((low, *box.low[1:]), (high, *box.high[1:])) for low, high in self.spans(box.low[0], box.high[0])]
