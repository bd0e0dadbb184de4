"""Task graphs as Parquet, for millions of tasks: one row a task, the resources in the file's metadata.

The metadata is that of ``pandas.DataFrame.attrs``, so that pandas alone can read and write these files.
pyarrow is an extra, so it is imported where it is needed.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats, Ints
from groundwork.errors import ConfigError
from simulator.formats.graph_columns import (
    TEXT,
    GraphColumns,
    ResourceRow,
    Texts,
    check_version,
    number_resources,
    resource_rows,
    task_label,
    unknown_resource,
)
from simulator.graph.memory_need import check_free_memory, graph_bytes
from simulator.graph.task_graph import TaskGraph

if TYPE_CHECKING:
    import pyarrow as pa


_VERSION = 1
_ATTRIBUTES = b"PANDAS_ATTRS"
"""Key of the metadata under which pandas keeps ``DataFrame.attrs``."""
_COPIES = 4
"""Copies of the arrays that exist while columns become a task graph."""
_STRING_BYTES = 150
"""Memory of a name and a kind, twice."""

_COLUMNS = (
    "id",
    "name",
    "kind",
    "after",
    "start_s",
    "latency_s",
    "work",
    "uses",
    "weights",
    "rate_limit",
    "priority",
    "stream",
)


class _Attributes(msgspec.Struct, forbid_unknown_fields=True):
    """The metadata of a file."""

    version: int
    resources: list[ResourceRow]


def read_parquet(path: Path) -> GraphColumns:
    """Read a task graph.

    Raises:
        ConfigError: pyarrow is not installed; or the file is cut off, of another version, or breaks a rule.
        InfeasiblePlanError: It does not fit in memory.
    """
    arrow = _arrow()
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            attributes = _attributes(file.schema_arrow.metadata or {})
            _check_columns(file.schema_arrow.names)
            check_free_memory(_needed_bytes(file.metadata), f"reading task graph {path}")
            # One group after the other, because arrow cannot read lists of strings across groups.
            groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
            table = arrow.concat_tables(groups) if groups else file.schema_arrow.empty_table()
            return _columns(table, attributes.resources)
    except arrow.ArrowException as error:
        raise ConfigError(str(error)) from error


def _arrow() -> Any:
    """Return pyarrow.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigError(
            "Parquet needs pyarrow, which is not installed: pip install 'orrery-training[parquet]'"
        ) from error
    return pyarrow


def _attributes(metadata: dict[bytes, bytes]) -> _Attributes:
    """Read the metadata and check the version."""
    if _ATTRIBUTES not in metadata:
        raise ConfigError(f"metadata must hold version and resources as JSON under {_ATTRIBUTES.decode()}, got none")
    version = msgspec.json.decode(metadata[_ATTRIBUTES], type=dict[str, Any]).get("version")
    if isinstance(version, int):
        check_version(version, _VERSION)
    return msgspec.json.decode(metadata[_ATTRIBUTES], type=_Attributes)


def _check_columns(got: Sequence[str]) -> None:
    """Raise where a column is unknown, occurs twice or is missing."""
    for name in got:
        if name not in _COLUMNS or list(got).count(name) > 1:
            raise ConfigError(f"columns must be of {', '.join(_COLUMNS)}, each once, got {name!r}")
    for name in ("id", "work"):
        if name not in got:
            raise ConfigError(f"columns must hold {name!r}, got {', '.join(got)}")


def _needed_bytes(metadata: Any) -> int:
    """Estimate the memory for a task graph from the counts in the footer, without reading a column."""
    values = Counter[str]()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            values[column.path_in_schema.split(".")[0]] += column.num_values
    arrays = graph_bytes(tasks=metadata.num_rows, uses=values["uses"], dependencies=values["after"])
    return int(_COPIES * arrays + _STRING_BYTES * metadata.num_rows)


def _columns(table: "pa.Table", resources: Sequence[ResourceRow]) -> GraphColumns:
    """Return the tasks of a table as columns, with defaults for those that the table does not have."""
    import pyarrow as pa

    identity, names = _filled(table, "id", pa.int64(), None), _texts(table, "name")
    use_count, uses = _packed(table, "uses", pa.large_string())
    after_count, after = _packed(table, "after", pa.int64())

    def label(task: int) -> str:
        """Return the name of a task for messages."""
        return task_label(int(identity[task]), names[task])

    return GraphColumns(
        resources=resources,
        id=identity,
        name=names,
        kind=_texts(table, "kind"),
        work=_filled(table, "work", pa.float64(), None),
        start_s=_filled(table, "start_s", pa.float64(), 0.0),
        latency_s=_filled(table, "latency_s", pa.float64(), 0.0),
        rate_limit=_filled(table, "rate_limit", pa.float64(), np.inf),
        priority=_filled(table, "priority", pa.int64(), 0),
        stream=_streams(table),
        after_count=after_count,
        after=after.to_numpy(),
        use_count=use_count,
        use_resource=_resources(uses, use_count, number_resources(resources), label),
        use_weight=_weights(table, use_count, label),
    )


def _resources(uses: "pa.Array", count: Ints, numbers: dict[str, int], label: Callable[[int], str]) -> Ints:
    """Return the number of the resource of each use."""
    encoded = uses.dictionary_encode()  # every name is looked up once
    known = np.array([numbers.get(name, -1) for name in encoded.dictionary.to_pylist()], dtype=np.int64)
    resource = known[encoded.indices.fill_null(0).to_numpy()] if len(known) else np.zeros(len(uses), dtype=np.int64) - 1
    if np.any(resource < 0):
        use = int(np.argmin(resource))
        task = int(np.searchsorted(np.cumsum(count), use, side="right"))
        raise unknown_resource(label(task), str(uses[use].as_py()), list(numbers))
    return resource


def _weights(table: "pa.Table", use_count: Ints, label: Callable[[int], str]) -> Floats:
    """Return the weight of each use; 1 where the file has no weights."""
    import pyarrow as pa

    if "weights" not in table.column_names:
        return np.ones(int(use_count.sum()))
    count, weights = _packed(table, "weights", pa.float64())
    differ = np.flatnonzero(count != use_count)
    if len(differ):
        task = int(differ[0])
        got = f"{count[task]} for {use_count[task]}"
        raise ConfigError(f"weights of task {label(task)} must be as many as its uses, got {got}")
    return np.asarray(weights.to_numpy(zero_copy_only=False))  # null becomes NaN, which no weight may be


def _packed(table: "pa.Table", name: str, kind: "pa.DataType") -> tuple[Ints, "pa.Array"]:
    """Return the lengths and entries of a column of lists; a list that is null is empty."""
    import pyarrow as pa
    from pyarrow import compute

    if name not in table.column_names:
        return np.zeros(len(table), dtype=np.int64), pa.array([], kind)
    column = table[name].cast(pa.large_list(kind)).combine_chunks()
    count = compute.list_value_length(column).fill_null(0).to_numpy()
    return count.astype(np.int64), compute.list_flatten(column)


def _filled(table: "pa.Table", name: str, kind: "pa.DataType", default: float | None) -> Any:
    """Return a column of numbers with null replaced by a default; without a default null is an error."""
    if name not in table.column_names:
        return np.full(len(table), default, dtype=kind.to_pandas_dtype())
    column = table[name].cast(kind)
    if column.null_count:
        if default is None:
            raise ConfigError(f"{name} must be there for every task, got {column.null_count} without")
        column = column.fill_null(default)
    return column.to_numpy().copy()  # arrow's own memory cannot be written


def _texts(table: "pa.Table", name: str) -> Texts:
    """Return a column of strings; empty ones where there is none."""
    import pyarrow as pa

    if name not in table.column_names:
        return np.full(len(table), "", dtype=TEXT)
    return np.array(table[name].cast(pa.string()).fill_null("").to_pylist(), dtype=TEXT)


def _streams(table: "pa.Table") -> Ints:
    """Return the streams, which are whole numbers or strings in the file, numbered from 0; -1 for none."""
    import pyarrow as pa

    if "stream" not in table.column_names:
        return np.full(len(table), -1, dtype=np.int64)
    column = table["stream"]
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        whole = pa.types.is_floating(column.type)  # how pandas keeps whole numbers beside null
        column = column.cast(pa.int64() if whole else pa.string())
    encoded = column.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.fill_null(-1).to_numpy(), dtype=np.int64)


def write_parquet(file: IO[bytes], graph: TaskGraph, *, names: Sequence[str], kinds: Sequence[str]) -> None:
    """Write a task graph.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    pa = _arrow()
    from pyarrow import parquet

    resources = pa.array(graph.resource_names, pa.large_string()).take(pa.array(graph.use_resource))
    table = pa.table(
        {
            "id": np.arange(graph.size),
            "name": pa.array(names, pa.string()),
            "kind": pa.array(kinds, pa.string()),
            "after": pa.LargeListArray.from_arrays(graph.after_start, graph.after),
            "start_s": graph.start_s,
            "latency_s": graph.latency_s,
            "work": graph.work,
            "uses": pa.LargeListArray.from_arrays(graph.use_start, resources),
            "weights": pa.LargeListArray.from_arrays(graph.use_start, graph.use_weight),
            "rate_limit": pa.array(graph.rate_limit, mask=graph.rate_limit == np.inf),
            "priority": graph.priority,
            "stream": pa.array(graph.stream, mask=graph.stream < 0),
        }
    )
    attributes = msgspec.json.encode(_Attributes(_VERSION, resource_rows(graph)))
    parquet.write_table(table.replace_schema_metadata({_ATTRIBUTES: attributes}), file)


def write_columns(file: IO[bytes], columns: Mapping[str, NDArray[Any]]) -> None:
    """Write a table of numbers.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    arrow = _arrow()
    from pyarrow import parquet

    parquet.write_table(arrow.table(dict(columns)), file)
