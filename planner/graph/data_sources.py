"""Names by which layers read a model's inputs: ``input``, and ``input:2`` and so on where a model has several."""

from collections.abc import Collection, Iterable

DATA = "input"
"""Name of the first input, and of the only one."""


def is_data(source: str) -> bool:
    """Return whether a source of a layer is an input of the model rather than another layer."""
    return source == DATA or source.startswith(f"{DATA}:")


def data_names(keys: Iterable[str], read: Collection[str]) -> dict[str, str]:
    """Return the names of a model's inputs: numbers, in order, of those that some layer reads.

    Args:
        keys: Keys of all inputs in the order in which the model takes them.
        read: Sources of all layers, among them ``input:KEY`` for every input that is read.

    Returns:
        The names by ``input:KEY``.
    """
    sources = [source for key in keys if (source := f"{DATA}:{key}") in read]
    return {source: f"{DATA}:{number}" if number > 1 else DATA for number, source in enumerate(sources, 1)}
