"""Reproduction of the printed values of five papers."""

from groundwork.errors import ConfigError
from groundwork.progress import Progress
from studies.reproduce.deepa import deepa_rows
from studies.reproduce.eight_bit_claims import eight_bit_rows
from studies.reproduce.layerwise_paper import layerwise_rows
from studies.reproduce.paradl import paradl_rows
from studies.reproduce.rows import PaperRow
from studies.reproduce.turbodl import turbodl_rows

PAPERS = {
    "deepa": deepa_rows,
    "layerwise": layerwise_rows,
    "eight-bit": eight_bit_rows,
    "paradl": paradl_rows,
    "turbodl": turbodl_rows,
}


def reproduce(paper: str, progress: Progress | None = None) -> list[PaperRow]:
    """Recompute every printed value of a paper that needs no real device.

    Values that need one are left out: Table 4 of the layer-wise paper, the error of Eq. 1 against measured iterations;
    and ParaDL's accuracies, except that of data parallelism.

    Raises:
        ConfigError: The paper is unknown.
    """
    if paper not in PAPERS:
        raise ConfigError(f"paper must be one of {', '.join(PAPERS)}, got {paper!r}")
    return list(PAPERS[paper](progress))
