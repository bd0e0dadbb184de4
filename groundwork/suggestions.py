"""Suggestions of the known name that somebody meant, for messages about unknown names."""

import difflib
from collections.abc import Iterable

_SYNONYMS = {
    "adamw": "adam",  # AdamW keeps the same state for each parameter
    "all-reduce": "ring",
    "allreduce": "ring",
    "bf16": "bfloat16",
    "deepa": "layerwise",
    "csv": "out",
    "data-parallel": "data",
    "double": "float64",
    "dp": "data",
    "e4m3": "float8",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8": "float8",
    "global-batch-size": "batch",
    "gpus": "cluster",
    "half": "float16",
    "html": "out",
    "nccl": "library",
    "one-weird-trick": "owt",
    "optcnn": "layerwise",
    "output": "out",
    "parameter-server": "ps",
    "parameter-servers": "ps",
    "parquet": "out",
    "pp": "pipeline",
    "precision": "dtype",
    "single": "float32",
    "zb-h1": "zero-bubble",
    "zb": "zero-bubble",
}
"""Names used here of what papers, frameworks and people also call otherwise."""


def did_you_mean(name: object, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return ``; did you mean 'NAME'?`` with the known name that is meant, or an empty string where none is near.

    A synonym in wide use comes first, then the same name in other letters, then the nearest by its spelling.  Options
    are compared without their dashes.
    """
    by_plain = {_plain(each): each for each in known}
    word = _plain(str(name))
    synonym = _SYNONYMS.get(word, "")
    near = [synonym] if synonym in by_plain else difflib.get_close_matches(word, by_plain, 1, cutoff)
    return f"; did you mean {by_plain[near[0]]!r}?" if near and by_plain[near[0]] != name else ""


def _plain(name: str) -> str:
    """Return a name in small letters, with hyphens inside and none before it."""
    return name.lower().replace("_", "-").lstrip("-")
