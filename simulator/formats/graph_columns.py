"""The columns that every format of a task graph file holds, and the task graph made from them.

Files name tasks by id and may list them in any order; engines number tasks from 0 and break ties by
number.  So tasks are numbered in the order of their ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats, Ints
from groundwork.errors import ConfigError
from groundwork.sparse_rows import row_entries
from groundwork.suggestions import did_you_mean
from simulator.graph.task_graph import TaskGraph

_OF_TASKS = (
    "id",
    "name",
    "kind",
    "work",
    "start_s",
    "latency_s",
    "rate_limit",
    "priority",
    "stream",
    "after_count",
    "use_count",
)
"""Columns with one entry for each task."""
Texts = NDArray[Any]
TEXT = np.dtypes.StringDType()
"""Type of arrays of texts, which take less than half of the memory of a list of them."""


class ResourceRow(msgspec.Struct, forbid_unknown_fields=True):
    """Something that tasks share: a direction of a link, the arithmetic of a device."""

    name: str
    capacity: Annotated[
        float, msgspec.Meta(description="Units of work a second.", extra_json_schema={"exclusiveMinimum": 0})
    ]
    sharing: Annotated[
        Literal["fair", "exclusive"],
        msgspec.Meta(description="Whether tasks share it, or are served one at a time in order of readiness."),
    ] = "fair"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphColumns:
    """The tasks of a file in its own order; arrays have shape (T,) unless stated."""

    resources: Sequence[ResourceRow]
    id: Ints
    name: Texts
    kind: Texts
    work: Floats
    start_s: Floats
    latency_s: Floats
    rate_limit: Floats
    """Largest rate; ``inf`` for none."""
    priority: Ints
    stream: Ints
    """Streams numbered from 0; -1 for none."""
    after_count: Ints
    """Number of entries of each task in ``after``."""
    after: Ints
    """Ids of the tasks that must end first, task after task, shape (dependencies,)."""
    use_count: Ints
    """Number of entries of each task in ``use_resource`` and ``use_weight``."""
    use_resource: Ints
    """Numbers of the resources that the tasks use, task after task, shape (uses,)."""
    use_weight: Floats
    """Use per unit of rate, shape (uses,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFile:
    """A task graph with the names that its file gives the tasks."""

    graph: TaskGraph
    """Tasks in increasing order of their ids."""
    ids: Ints
    """Id of each task of the graph, rising, shape (T,)."""
    order: Ints
    """Tasks of the graph in the order of the file, shape (T,)."""
    names: Texts
    kinds: Texts

    def task_name(self, task: int) -> str:
        """Return the id of a task, and its name where there is one."""
        return task_label(self.ids[task], self.names[task])


def task_label(identity: int, name: str) -> str:
    """Return the name of a task for messages."""
    return f"{identity} ({name})" if name else str(identity)


def check_version(version: int, known: int) -> None:
    """Refuse a file of another version.

    Raises:
        ConfigError: The version is not the known one.
    """
    if version != known:
        raise ConfigError(f"version must be {known}, the only one that this program reads, got {version}")


def resource_rows(graph: TaskGraph) -> list[ResourceRow]:
    """Return the resources of a task graph as files hold them."""
    rows = zip(graph.resource_names, graph.capacity.tolist(), graph.exclusive.tolist(), strict=True)
    return [ResourceRow(name, capacity, "exclusive" if exclusive else "fair") for name, capacity, exclusive in rows]


def number_resources(resources: Sequence[ResourceRow]) -> dict[str, int]:
    """Return the number of each resource by its name.

    Raises:
        ConfigError: A name occurs twice.
    """
    numbers: dict[str, int] = {}
    for number, row in enumerate(resources):
        if numbers.setdefault(row.name, number) != number:
            raise ConfigError(f"names of resources must differ, got {row.name!r} twice")
    return numbers


def unknown_resource(task: str, got: str, known: Sequence[str]) -> ConfigError:
    """Return the error of a task that uses a resource that the file does not have."""
    return ConfigError(f"uses of task {task} must name resources of the file, got {got!r}{did_you_mean(got, known)}")


def number_tasks(columns: GraphColumns) -> GraphFile:
    """Make the task graph from the columns of a file.

    Raises:
        ConfigError: An id occurs twice, or a task waits for an id that the file does not have.
    """
    order = np.arange(len(columns.id))
    if np.any(columns.id[1:] <= columns.id[:-1]):
        by_id = np.argsort(columns.id, kind="stable")
        order[by_id] = np.arange(len(by_id))
        columns = _in_order(columns, by_id)
    repeated = np.flatnonzero(columns.id[1:] == columns.id[:-1])
    if len(repeated):
        raise ConfigError(f"ids of tasks must differ, got {columns.id[repeated[0]]} twice")
    graph = TaskGraph(
        resource_names=tuple(row.name for row in columns.resources),
        capacity=np.array([row.capacity for row in columns.resources], dtype=np.float64),
        exclusive=np.array([row.sharing == "exclusive" for row in columns.resources], dtype=bool),
        work=columns.work,
        latency_s=columns.latency_s,
        start_s=columns.start_s,
        rate_limit=columns.rate_limit,
        priority=columns.priority,
        stream=columns.stream,
        use_start=_offsets(columns.use_count),
        use_resource=columns.use_resource,
        use_weight=columns.use_weight,
        after_start=_offsets(columns.after_count),
        after=_numbers(columns),
    )
    return GraphFile(graph=graph, ids=columns.id, order=order, names=columns.name, kinds=columns.kind)


def _in_order(columns: GraphColumns, order: Ints) -> GraphColumns:
    """Return the columns of the same tasks in another order."""
    uses, after = (
        row_entries(_offsets(count)[order], count[order]) for count in (columns.use_count, columns.after_count)
    )
    return GraphColumns(
        resources=columns.resources,
        after=columns.after[after],
        use_resource=columns.use_resource[uses],
        use_weight=columns.use_weight[uses],
        **{name: getattr(columns, name)[order] for name in _OF_TASKS},
    )


def _numbers(columns: GraphColumns) -> Ints:
    """Return the numbers of the tasks that the tasks of the file wait for, task after task; ids rise."""
    ids = columns.id
    if len(columns.after) == 0:
        return np.zeros(0, dtype=np.int64)
    numbers = np.minimum(np.searchsorted(ids, columns.after), len(ids) - 1)
    unknown = np.flatnonzero(ids[numbers] != columns.after)
    if len(unknown):
        task = int(np.searchsorted(np.cumsum(columns.after_count), unknown[0], side="right"))
        label = task_label(columns.id[task], columns.name[task])
        raise ConfigError(f"after of task {label} must name tasks of the file, got {columns.after[unknown[0]]}")
    return numbers.astype(np.int64, copy=False)


def _offsets(count: Ints) -> Ints:
    """Return where the entries of each row begin, and where the last ends."""
    return np.concatenate([[0], np.cumsum(count)])
