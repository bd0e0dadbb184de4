"""Task graphs as JSON, which people can write and other programs can read with any JSON parser."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from groundwork.array_types import Floats, Ints
from simulator.formats.graph_columns import (
    GRAPH_VERSION,
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

_INFLATION = 12
"""Bytes of memory while reading a byte of JSON: measured 9 for transfers, 19 for tasks without dependencies."""
_CHUNK = 10_000
"""Tasks that are encoded at once."""

_COLUMNS = ("work", "start_s", "latency_s", "rate_limit", "priority", "stream")

_Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Positive = {"exclusiveMinimum": 0}
_NotNegative = {"minimum": 0}


class TaskRow(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """An activity.  It is ready when all tasks of `after` and all earlier tasks of its stream have ended."""

    id: Annotated[_Whole, Meta(description="Any whole number; ties go to the smaller one.")]
    work: Annotated[
        float,
        Meta(description="Bytes of a transfer, seconds of a kernel, ...", extra_json_schema=_NotNegative),
    ]
    name: str = ""
    kind: str = ""
    after: Annotated[list[_Whole], Meta(description="Ids of tasks that must end first.")] = []
    start_s: Annotated[float, Meta(description="Earliest start.", extra_json_schema=_NotNegative)] = 0.0
    latency_s: Annotated[
        float, Meta(description="Time between readiness and work, using nothing.", extra_json_schema=_NotNegative)
    ] = 0.0
    uses: Annotated[
        dict[str, Annotated[float, Meta(extra_json_schema=_Positive)]],
        Meta(description="By name of a resource, what the task takes of it per unit of its rate."),
    ] = {}
    rate_limit: Annotated[
        Annotated[float, Meta(extra_json_schema=_Positive)] | None,
        Meta(description="Most work a second; null for none, which is 1 for a task that uses nothing."),
    ] = None
    priority: Annotated[_Whole, Meta(description="Higher is served first.")] = 0
    stream: Annotated[
        str | int | None, Meta(description="Tasks of one stream run one after the other, in the order of their ids.")
    ] = None


class TaskGraphFile(msgspec.Struct, forbid_unknown_fields=True):
    """A task graph."""

    version: Annotated[int, Meta(extra_json_schema={"const": GRAPH_VERSION})]
    resources: list[ResourceRow]
    tasks: list[TaskRow]


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
    text = path.read_bytes()
    with _without_collector():
        return _columns(_decode(text))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector, which would walk all rows repeatedly and take half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _decode(text: bytes) -> TaskGraphFile:
    """Decode a file and check its version."""
    try:
        file = msgspec.json.decode(text, type=TaskGraphFile)
    except msgspec.ValidationError:
        # A later version may hold keys that this one does not know: then the version is the error, not the key.
        check_version(msgspec.json.decode(text, type=_Version).version)
        raise
    check_version(file.version)
    return file


def _columns(file: TaskGraphFile) -> GraphColumns:
    """Return the tasks of a file as columns."""
    tasks, numbers = file.tasks, number_resources(file.resources)
    streams: dict[str | int, int] = {}
    uses, after = [task.uses for task in tasks], [task.after for task in tasks]
    limits = (np.inf if task.rate_limit is None else task.rate_limit for task in tasks)
    try:
        use_resource = [numbers[name] for name in chain.from_iterable(uses)]
    except KeyError as error:
        task = next(task for task in tasks if error.args[0] in task.uses)
        raise unknown_resource(task_label(task.id, task.name), error.args[0], list(numbers)) from None
    return GraphColumns(
        resources=file.resources,
        id=_whole(task.id for task in tasks),
        name=[task.name for task in tasks],
        kind=[task.kind for task in tasks],
        work=_real(task.work for task in tasks),
        start_s=_real(task.start_s for task in tasks),
        latency_s=_real(task.latency_s for task in tasks),
        rate_limit=_real(limits),
        priority=_whole(task.priority for task in tasks),
        stream=_whole(-1 if task.stream is None else streams.setdefault(task.stream, len(streams)) for task in tasks),
        after_count=_whole(map(len, after)),
        after=_whole(chain.from_iterable(after)),
        use_count=_whole(map(len, uses)),
        use_resource=_whole(use_resource),
        use_weight=_real(chain.from_iterable(row.values() for row in uses)),
    )


def _whole(values: Any) -> Ints:
    """Return an array of whole numbers."""
    return np.fromiter(values, dtype=np.int64)


def _real(values: Any) -> Floats:
    """Return an array of floating-point numbers."""
    return np.fromiter(values, dtype=np.float64)


def write_json(file: IO[bytes], graph: TaskGraph, *, names: Sequence[str], kinds: Sequence[str]) -> None:
    """Write a task graph, one task a line, without the keys that have their default value."""
    encode: Callable[[object], bytes] = msgspec.json.encode
    file.write(b'{"version":%d,\n"resources":%s,\n"tasks":[' % (GRAPH_VERSION, encode(resource_rows(graph))))
    for first in range(0, graph.size, _CHUNK):
        rows = _rows(graph, slice(first, first + _CHUNK), names, kinds)
        file.write(b"," * (first > 0) + b"\n" + b",\n".join(map(encode, rows)))
    file.write(b"\n]}\n")


def _rows(graph: TaskGraph, part: slice, names: Sequence[str], kinds: Sequence[str]) -> Iterator[TaskRow]:
    """Yield rows of a part of the tasks, from plain lists, which are read faster than arrays."""
    task = range(graph.size)[part]
    after = _split(graph.after, graph.after_start, part)
    resources = _split(graph.use_resource, graph.use_start, part)
    weights = _split(graph.use_weight, graph.use_start, part)
    columns = (getattr(graph, name)[part].tolist() for name in _COLUMNS)
    for i, before, used, weight, work, start_s, latency_s, limit, priority, stream in zip(
        task, after, resources, weights, *columns, strict=True
    ):
        yield TaskRow(
            id=i,
            work=work,
            name=names[i],
            kind=kinds[i],
            after=before,
            start_s=start_s,
            latency_s=latency_s,
            uses={graph.resource_names[r]: w for r, w in zip(used, weight, strict=True)},
            rate_limit=None if limit == np.inf else limit,
            priority=priority,
            stream=None if stream < 0 else stream,
        )


def _split(values: NDArray[Any], start: Ints, part: slice) -> Iterator[list[Any]]:
    """Return the compressed sparse rows of a part of the tasks as lists."""
    bounds = start[part.start : part.stop + 1]
    listed, offsets = values[bounds[0] : bounds[-1]].tolist(), (bounds - bounds[0]).tolist()
    return (listed[low:high] for low, high in pairwise(offsets))
