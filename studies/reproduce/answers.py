"""A printed value as it is asked for, and what one way of ours answers."""

from dataclasses import dataclass

from studies.reproduce.rows import PaperRow, row

__all__ = ["Claim", "ComputedValue"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One printed value."""

    source: str
    text: str
    key: tuple[str, ...]
    """What is asked; then by kind the sub-batch, the bits, the kernels, or the item."""
    printed: str
    unit: str


@dataclass(frozen=True, slots=True)
class ComputedValue:
    """What one way says of a claim."""

    claim: Claim
    way: str
    ours: float
    """In the unit of the claim."""
    why: str
    """What is to be said about it."""

    @property
    def row(self) -> PaperRow:
        """The printed value beside ours."""
        source = f"8-bit, {self.claim.source}: {self.claim.text}, {self.way}"
        return row(source, self.claim.printed, self.ours, self.claim.unit, self.why)
