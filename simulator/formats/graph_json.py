"""Task graphs as JSON, which people can write and other programs can read with any JSON parser.

The tasks are columns, of the names that Parquet files have: one list for each key.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Annotated, Any, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from groundwork.array_types import Floats, Ints
from groundwork.errors import ConfigError
from simulator.formats.graph_columns import (
    TEXT,
    GraphColumns,
    ResourceRow,
    check_version,
    number_resources,
    resource_rows,
    task_label,
    unknown_resource,
)
from simulator.graph.memory_need import check_free_memory
from simulator.graph.task_graph import TaskGraph

_VERSION = 2
_INFLATION = 8
"""Bytes of memory while reading a byte of JSON: measured 3 for transfers with names, 14 for tasks without uses."""
_CHUNK = 100_000
"""Tasks of which a column is encoded at once."""

_Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Positive = Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0})]
_NotNegative = Annotated[float, Meta(extra_json_schema={"minimum": 0})]


class TaskColumns(msgspec.Struct, forbid_unknown_fields=True):
    """Activities, with one entry of each list for each.

    A task is ready when all tasks of `after` and all earlier tasks of its stream have ended.
    """

    id: Annotated[list[_Whole], Meta(description="Any whole numbers; ties go to the smaller one.")]
    work: Annotated[list[_NotNegative], Meta(description="Bytes of a transfer, seconds of a kernel, ...")]
    name: list[str] = []
    kind: list[str] = []
    after: Annotated[list[list[_Whole]], Meta(description="Ids of tasks that must end first.")] = []
    start_s: Annotated[list[_NotNegative], Meta(description="Earliest start.")] = []
    latency_s: Annotated[list[_NotNegative], Meta(description="Time between readiness and work, using nothing.")] = []
    uses: Annotated[list[list[str]], Meta(description="Names of the resources that the task takes from.")] = []
    weights: Annotated[
        list[list[_Positive]],
        Meta(description="What it takes of each of its resources per unit of its rate; 1 if left out."),
    ] = []
    rate_limit: Annotated[
        list[_Positive | None],
        Meta(description="Most work a second; null for none, which is 1 for a task that uses nothing."),
    ] = []
    priority: Annotated[list[_Whole], Meta(description="Higher is served first.")] = []
    stream: Annotated[
        list[str | int | None],
        Meta(description="Tasks of one stream run one after the other, in the order of their ids; null for none."),
    ] = []


class TaskGraphFile(msgspec.Struct, forbid_unknown_fields=True):
    """A task graph."""

    version: Annotated[int, Meta(extra_json_schema={"const": _VERSION})]
    resources: list[ResourceRow]
    tasks: TaskColumns


_COLUMN_TYPES = get_type_hints(TaskColumns, include_extras=True)
# The file as it is read: columns stay text until their turn comes, as Python's numbers take five times the memory.
_TextColumns = msgspec.defstruct(
    "_TextColumns",
    [
        (each.name, msgspec.Raw) if each.required else (each.name, msgspec.Raw, msgspec.Raw(b"[]"))
        for each in msgspec.structs.fields(TaskColumns)
    ],
    kw_only=True,
    forbid_unknown_fields=True,
)
_File = msgspec.defstruct(
    "_File", [("version", int), ("resources", list[ResourceRow]), ("tasks", _TextColumns)], forbid_unknown_fields=True
)


class _Version(msgspec.Struct):
    """The only key of a file that is read before its version is known."""

    version: int


def read_json(path: Path) -> GraphColumns:
    """Read a task graph.

    Raises:
        ConfigError: The file is not complete JSON, of another version, or breaks a rule.
        InfeasiblePlanError: It does not fit in memory.
    """
    check_free_memory(_INFLATION * path.stat().st_size, f"reading task graph {path}")
    with _without_collector():
        return _columns(_decode(path.read_bytes()))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector, which would walk all lists repeatedly and take half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _decode(text: bytes) -> Any:
    """Decode a file but for its columns, and check its version."""
    try:
        file = msgspec.json.decode(text, type=_File)
    except msgspec.ValidationError:
        # Another version may hold keys that this one does not know: then the version is the error, not the key.
        _check_version(msgspec.json.decode(text, type=_Version).version)
        raise
    _check_version(file.version)  # type: ignore[attr-defined]
    return file


def _check_version(version: int) -> None:
    """Refuse a file of another version."""
    if version == 1:
        raise ConfigError(
            f"version must be {_VERSION}, got 1, whose tasks are objects: write the file again, with one list for each "
            "key of the tasks"
        )
    check_version(version, _VERSION)


def _columns(file: Any) -> GraphColumns:
    """Return the tasks of a file as arrays; what takes most memory comes first, while there is little beside it."""
    tasks, resources = file.tasks, number_resources(file.resources)
    identity = _array(tasks, "id", None, np.int64)
    size = len(identity)

    def label(task: int) -> str:
        """Return the name of a task for messages."""
        return task_label(int(identity[task]), _array(tasks, "name", size, TEXT, "")[task])

    use_count, use_resource = _used(tasks, size, resources, label)
    use_weight = _weights(tasks, use_count, label)
    after_count, rows = _rows(tasks, "after", size)
    after = np.fromiter(chain.from_iterable(rows), dtype=np.int64)
    del rows
    limits = _array(tasks, "rate_limit", size, np.float64, np.nan)  # which null becomes, too
    return GraphColumns(
        resources=file.resources,
        id=identity,
        name=_array(tasks, "name", size, TEXT, ""),
        kind=_array(tasks, "kind", size, TEXT, ""),
        work=_array(tasks, "work", size, np.float64),
        start_s=_array(tasks, "start_s", size, np.float64, 0.0),
        latency_s=_array(tasks, "latency_s", size, np.float64, 0.0),
        rate_limit=np.where(np.isnan(limits), np.inf, limits),
        priority=_array(tasks, "priority", size, np.int64, 0),
        stream=_streams(tasks, size),
        after_count=after_count,
        after=after,
        use_count=use_count,
        use_resource=use_resource,
        use_weight=use_weight,
    )


def _filled(tasks: Any, name: str, size: int | None) -> list[Any]:
    """Return a column of a file; empty where it is left out."""
    try:
        values: list[Any] = msgspec.json.decode(getattr(tasks, name), type=_COLUMN_TYPES[name])
    except msgspec.ValidationError as error:
        said, _, place = str(error).partition(" - at `$")
        raise msgspec.ValidationError(f"{said} - at `$.tasks.{name}{place or '`'}") from None
    if size is not None and len(values) not in ((size,) if name == "work" else (0, size)):
        raise ConfigError(f"{name} must have one entry for each of {size} tasks, got {len(values)}")
    return values


def _array(tasks: Any, name: str, size: int | None, kind: Any, default: float | str | None = None) -> Any:
    """Return a column of numbers or texts; of its default where it is left out."""
    values = _filled(tasks, name, size)
    return np.array(values, dtype=kind) if values or not size else np.full(size, default, dtype=kind)


def _streams(tasks: Any, size: int) -> Ints:
    """Return the streams of the tasks, numbered from 0; -1 for none."""
    streams = _filled(tasks, "stream", size)
    numbers: dict[str | int | None, int] = {each: i for i, each in enumerate(dict.fromkeys(streams, 0))} | {None: -1}
    return np.fromiter(map(numbers.__getitem__, streams), np.int64) if streams else np.full(size, -1)


def _rows(tasks: Any, name: str, size: int) -> tuple[Ints, list[list[Any]]]:
    """Return the number of entries of each list of a column, and the lists."""
    rows = _filled(tasks, name, size)
    return (np.fromiter(map(len, rows), np.int64) if rows else np.zeros(size, dtype=np.int64)), rows


def _used(tasks: Any, size: int, numbers: Mapping[str, int], label: Callable[[int], str]) -> tuple[Ints, Ints]:
    """Return how many resources each task uses, and the numbers of these, task after task."""
    count, rows = _rows(tasks, "uses", size)
    try:
        return count, np.fromiter(map(numbers.__getitem__, chain.from_iterable(rows)), np.int64)
    except KeyError as error:
        task = next(task for task, used in enumerate(rows) if error.args[0] in used)
        raise unknown_resource(label(task), error.args[0], list(numbers)) from None


def _weights(tasks: Any, use_count: Ints, label: Callable[[int], str]) -> Floats:
    """Return the weight of each use; 1 where the file has no weights."""
    count, rows = _rows(tasks, "weights", len(use_count))
    if not rows:
        return np.ones(int(use_count.sum()))
    if len(differ := np.flatnonzero(count != use_count)):
        task = int(differ[0])
        got = f"{count[task]} for {use_count[task]}"
        raise ConfigError(f"weights of task {label(task)} must be as many as its uses, got {got}")
    return np.fromiter(chain.from_iterable(rows), np.float64)


def write_json(file: IO[bytes], graph: TaskGraph, *, names: Sequence[str], kinds: Sequence[str]) -> None:
    """Write a task graph, one column a line, without those of which all entries have the default value."""
    resources = np.array(graph.resource_names, dtype=object)[graph.use_resource]
    # Of each column, whether it says anything beside its default, and its entries.
    columns: dict[str, tuple[Any, Callable[[slice], Sequence[Any]]]] = {
        "id": (True, lambda part: list(range(graph.size)[part])),
        "name": (any(names), lambda part: names[part]),
        "kind": (any(kinds), lambda part: kinds[part]),
        "work": (True, lambda part: graph.work[part].tolist()),
        "after": (len(graph.after), lambda part: _split(graph.after, graph.after_start, part)),
        "start_s": (np.any(graph.start_s), lambda part: graph.start_s[part].tolist()),
        "latency_s": (np.any(graph.latency_s), lambda part: graph.latency_s[part].tolist()),
        "uses": (len(resources), lambda part: _split(resources, graph.use_start, part)),
        "weights": (
            np.any(graph.use_weight != 1),
            lambda part: _split(graph.use_weight, graph.use_start, part),
        ),
        "rate_limit": (
            np.any(graph.rate_limit != np.inf),
            lambda part: [None if each == np.inf else each for each in graph.rate_limit[part].tolist()],
        ),
        "priority": (np.any(graph.priority), lambda part: graph.priority[part].tolist()),
        "stream": (
            np.any(graph.stream >= 0),
            lambda part: [None if each < 0 else each for each in graph.stream[part].tolist()],
        ),
    }
    encode = msgspec.json.encode
    file.write(b'{"version":%d,\n"resources":%s,\n"tasks":{' % (_VERSION, encode(resource_rows(graph))))
    for name, (said, column) in columns.items():
        if said:
            file.write(b"," * (name != "id") + b'\n"%s":[' % name.encode())
            for first in range(0, graph.size, _CHUNK):
                file.write(b"," * (first > 0) + encode(column(slice(first, first + _CHUNK)))[1:-1])
            file.write(b"]")
    file.write(b"\n}}\n")


def _split(values: NDArray[Any], start: Ints, part: slice) -> list[list[Any]]:
    """Return the compressed sparse rows of a part of the tasks as lists."""
    bounds = start[part.start : part.stop + 1]
    listed, offsets = values[bounds[0] : bounds[-1]].tolist(), (bounds - bounds[0]).tolist()
    return [listed[low:high] for low, high in pairwise(offsets)]
