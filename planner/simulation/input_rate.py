"""The input of samples: storage and decoding bring so many a second, and an iteration begins once its own are there.

Samples are fetched ahead, one batch after another, as loaders with workers of their own do::

    input     |batch 1    |batch 2    |batch 3    |
    device                |1  |        2  |        3  |

The slower of the two sets the pace.
"""

from dataclasses import replace

import numpy as np

from planner.lowering.program import KINDS, Program
from planner.simulation.execution_models import ProgramGraph


def input_s(program: Program) -> float:
    """Return the time in which the samples of an iteration come; 0 where their rate is no bound."""
    rate = program.conditions.input_images_per_s
    samples = program.graph.batch if program.classes is None else program.classes.in_all(program.graph.batch)
    return samples / rate if rate else 0.0


def with_input(program: Program, program_graph: ProgramGraph) -> ProgramGraph:
    """Return a task graph in which each iteration waits for its samples; the same where their rate is no bound.

    Args:
        program: The program.
        program_graph: Its task graph, launches included.
    """
    if not program.conditions.input_images_per_s:
        return program_graph
    graph, iterations = program_graph.graph, len(program_graph.task_of)
    reads = np.array([layer.reads_data for layer in program.graph.layers])
    readers = np.flatnonzero((program.kind == KINDS.index("forward")) & reads[program.layer])
    # the last task of each iteration brings its samples
    size = graph.size // iterations
    moved = np.arange(graph.size) + np.arange(graph.size) // size
    brings = (np.arange(iterations) + 1) * (size + 1) - 1
    waiting = moved[program_graph.task_of[:, readers]]
    late = np.concatenate([moved[graph.waiting], waiting.ravel()])
    early = np.concatenate([moved[graph.after], np.repeat(brings, len(readers))])
    order, total = np.lexsort((early, late)), graph.size + iterations

    def column(values: np.ndarray, own: float) -> np.ndarray:
        """Return a column of all tasks from that of the others."""
        found = np.full(total, own).astype(np.result_type(values.dtype, type(own)))
        found[moved] = values
        return found

    uses = column(np.diff(graph.use_start), 0)
    fed = replace(
        graph,
        work=column(graph.work, input_s(program)),
        latency_s=column(graph.latency_s, 0.0),
        start_s=column(graph.start_s, 0.0),
        rate_limit=column(graph.rate_limit, np.inf),
        priority=column(graph.priority, 0),
        stream=column(graph.stream, int(graph.stream.max(initial=-1)) + 1),
        use_start=np.concatenate([[0], np.cumsum(uses)]),
        after_start=np.concatenate([[0], np.cumsum(np.bincount(late, minlength=total))]),
        after=early[order],
    )
    launches = program_graph.launches
    return replace(
        program_graph,
        graph=fed,
        task_of=moved[program_graph.task_of],
        launches=None if launches is None else column(launches, -1),
        inputs=brings,
    )
