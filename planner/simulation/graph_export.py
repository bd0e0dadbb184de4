"""Export of a replay's task graph to a file that any engine can read."""

from pathlib import Path

from planner.lowering.program import KINDS
from planner.simulation.program_replay import Replay
from simulator.formats.graph_file import write_graph


def write_replayed_graph(replay: Replay, path: Path) -> None:
    """Write the task graph that an engine replayed, every iteration of it.

    Tasks have the names and kinds of the program's tasks; a task that represents a group of transfers has those of the
    group's first, and barriers are named ``barrier``.

    Args:
        replay: Replay of a program.
        path: Parquet file by its suffix, else a JSON file.

    Raises:
        ConfigError: The file cannot be written.
    """
    program, graph = replay.program, replay.program_graph.graph
    names, kinds = ["barrier"] * graph.size, ["barrier"] * graph.size
    own = [program.name(task) for task in range(program.size)]
    kind = [KINDS[number] for number in program.kind.tolist()]
    for iteration, row in enumerate(replay.program_graph.task_of.tolist()):
        for task in reversed(range(program.size)):
            names[row[task]], kinds[row[task]] = f"{own[task]}, iteration {iteration}", kind[task]
    write_graph(path, graph, names=names, kinds=kinds)
