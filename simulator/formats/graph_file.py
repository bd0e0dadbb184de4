"""Task graphs and their schedules as files: JSON or Parquet in, CSV or Parquet out."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import msgspec

from groundwork.control_characters import check_texts
from groundwork.errors import ConfigError
from groundwork.input_files import check_input
from simulator.formats.graph_columns import GraphFile, number_resources, number_tasks, resource_rows
from simulator.formats.graph_json import read_json, write_json
from simulator.formats.graph_parquet import read_parquet, write_columns, write_parquet
from simulator.formats.whole_files import whole_file
from simulator.graph.task_graph import Schedule, TaskGraph

_PARQUET = ".parquet"
_GRAPH_MIB = 4096
"""Largest file; whether its tasks fit in memory is known before they are read."""
_CHUNK = 100_000
"""Rows that are written at once."""


def read_graph(path: Path) -> GraphFile:
    """Read a task graph: Parquet by its suffix, else JSON.

    The format is checked here; the values are checked where the tasks are replayed
    (``simulator.graph.graph_checks``).

    Raises:
        ConfigError: The file cannot be read, is cut off, of another version, or names an unknown key,
            resource or task, or one twice.
        InfeasiblePlanError: It does not fit in memory.
    """
    check_input(path, "task graph", limit_mib=_GRAPH_MIB)
    try:
        columns = read_parquet(path) if path.suffix == _PARQUET else read_json(path)
        graph = number_tasks(columns)
    except RecursionError:
        raise ConfigError(f"task graph {path} is nested too deeply to be read") from None
    except OSError as error:
        raise ConfigError(f"task graph {path} cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"task graph {path}: {error}") from error
    check_texts(
        chain(columns.name.tolist(), set(columns.kind.tolist()), (row.name for row in columns.resources)),
        f"task graph {path}",
    )
    return graph


def write_graph(
    path: Path, graph: TaskGraph, *, names: Sequence[str] | None = None, kinds: Sequence[str] | None = None
) -> None:
    """Write a task graph, whole or not at all: Parquet by the suffix, else JSON.

    Args:
        path: File to write.
        graph: Task graph; the numbers of its tasks become their ids.
        names: Printed name of each task, shape (T,); none if left out.
        kinds: Kind of each task, such as ``forward`` or ``transfer``, shape (T,); none if left out.

    Raises:
        ConfigError: The file cannot be written, or two resources have one name.
    """
    number_resources(resource_rows(graph))
    blank = [""] * graph.size
    write = write_parquet if path.suffix == _PARQUET else write_json
    with whole_file(path) as file:
        write(file, graph, names=blank if names is None else names, kinds=blank if kinds is None else kinds)


def write_schedule(path: Path, source: GraphFile, schedule: Schedule) -> None:
    """Write the times of each task, whole or not at all: id, ready_s, start_s, end_s, in the order of the graph's file.

    Args:
        path: File to write: Parquet by its suffix, else CSV with numbers that read back to the last bit.
        source: Task graph with the ids of its tasks.
        schedule: Its times.

    Raises:
        ConfigError: The file cannot be written, or pyarrow is missing that Parquet needs.
    """
    columns = {"id": source.ids, "ready_s": schedule.ready_s, "start_s": schedule.start_s, "end_s": schedule.end_s}
    table = {name: values[source.order] for name, values in columns.items()}
    with whole_file(path) as file:
        if path.suffix == _PARQUET:
            return write_columns(file, table)
        file.write(b"id,ready_s,start_s,end_s\n")
        encoder = msgspec.json.Encoder()
        for first in range(0, len(source.ids), _CHUNK):
            part = (values[first : first + _CHUNK].tolist() for values in table.values())
            # JSON rows of numbers without their brackets are CSV rows, written ten times faster than by pandas.
            file.write(encoder.encode_lines(zip(*part, strict=True)).translate(None, b"[]"))
