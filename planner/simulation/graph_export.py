"""The task graph of a replay as a file that any engine can read."""

from pathlib import Path

from planner.lowering import KINDS
from planner.simulation.program_replay import Replay
from simulator.formats import write_graph

__all__ = ["write_replayed_graph"]


def write_replayed_graph(replay: Replay, path: Path) -> None:
    """Write the task graph that an engine replayed, every iteration of it.

    Tasks carry the names and kinds of the program's tasks; a task that stands for a group of them carries
    those of its first, and a barrier is called so.

    Args:
        replay: What was replayed.
        path: Parquet by its suffix, else JSON.

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
