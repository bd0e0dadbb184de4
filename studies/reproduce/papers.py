"""Set what five papers print beside what this project computes."""

from collections.abc import Callable

from hwprofiles import ConfigError
from studies.reproduce.deepa import deepa_rows
from studies.reproduce.eight_bit_claims import eight_bit_rows
from studies.reproduce.layerwise_paper import layerwise_rows
from studies.reproduce.paradl import paradl_rows
from studies.reproduce.rows import PaperRow
from studies.reproduce.turbodl import turbodl_rows

__all__ = ["PaperRow", "reproduce"]

PAPERS = {
    "deepa": deepa_rows, "layerwise": layerwise_rows, "eight-bit": eight_bit_rows, "paradl": paradl_rows,
    "turbodl": turbodl_rows,
}  # fmt: skip


def reproduce(paper: str, progress: Callable[[str, int, int], None] | None = None) -> list[PaperRow]:
    """Recompute every printed value of a paper that needs no real device.

    Left out is what needs one: Table 4 of the layer-wise paper, the error of Eq. 1 against measured iterations;
    and ParaDL's accuracies but that of data parallelism.

    Args:
        paper: ``deepa``, ``layerwise``, ``eight-bit``, ``paradl`` or ``turbodl``.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: No such paper.
    """
    if paper not in PAPERS:
        raise ConfigError(f"paper must be one of {', '.join(PAPERS)}, got {paper!r}")
    return list(PAPERS[paper](progress))
