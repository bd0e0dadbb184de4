"""A printed value, and our value for it by one method."""

from dataclasses import dataclass

from studies.reproduce.rows import PaperRow, row


@dataclass(frozen=True, slots=True)
class Claim:
    """One printed value."""

    source: str
    text: str
    key: tuple[str, ...]
    """Kind of the value; then, by kind, the sub-batch, the bits, the kernels, or the item."""
    printed: str
    unit: str


@dataclass(frozen=True, slots=True)
class ComputedValue:
    """Our value for a claim by one method."""

    claim: Claim
    method: str
    """Such as ``closed form`` or ``simulation``."""
    ours: float
    """Value in the unit of the claim."""
    note: str

    @property
    def row(self) -> PaperRow:
        """Row with the printed value and ours."""
        source = f"8-bit, {self.claim.source}: {self.claim.text}, {self.method}"
        return row(source, self.claim.printed, self.ours, self.claim.unit, self.note)
