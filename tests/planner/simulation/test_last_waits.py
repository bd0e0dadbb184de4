"""What a task waited for last, against a search of every dependency, task by task."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from plans import cluster_of, program_of, questions

from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.simulation.program_replay import iteration_rows, last_waited_for, replay, stream_before
from planner.strategies.named_strategies import named_strategy


def waits_by_search(replayed, iteration):
    """By task, the ends of all that it waits for, by (iteration, task), in the replay of several iterations."""
    program, end_s = replayed.program, replayed.schedule.end_s[replayed.program_graph.task_of]
    computes = program.is_compute & ~program.is_codec
    found = []
    for task in range(program.size):
        before = [(iteration, t) for t in program.after[program.after_start[task] : program.after_start[task + 1]]]
        before += [(iteration - 1, t) for late, t in program.carried if late == task and iteration]
        if computes[task]:
            queue = [
                (k, t)
                for k in range(iteration + 1)
                for t in np.flatnonzero(computes)
                if program.device[t] == program.device[task] and (k, t) < (iteration, task)
            ]
            before += queue[-1:]
        found.append({(k, int(t)): float(end_s[k, t]) for k, t in before})
    return found


@settings(max_examples=10)
@given(questions(models=("lenet5", "conv1d")))
def test_the_last_of_all_that_a_task_waits_for_is_found(question):
    replayed = replay(program_of(*question))
    iteration = replayed.shown[0]
    causes = replayed.timeline()["waited_for"]
    for cause, ends_s in zip(causes.tolist(), waits_by_search(replayed, iteration), strict=True):
        last_s = max(ends_s.values(), default=0.0)
        latest = [task for (k, task), end_s in ends_s.items() if end_s == last_s and k == iteration]
        earlier = any(end_s == last_s for (k, _), end_s in ends_s.items() if k < iteration)
        assert cause in latest or (cause == -1 and (earlier or not ends_s))


@settings(max_examples=5)
@given(questions(models=("lenet5",)))
def test_times_from_elsewhere_give_the_same_causes(question):
    """Given the ends of a replay as if they were measured, causes end when those of the replay do."""
    replayed = replay(program_of(*question), iterations=4)
    iteration = replayed.shown[0]
    end_s = replayed.schedule.end_s[replayed.program_graph.task_of]
    ours = last_waited_for(replayed.program, end_s[iteration], end_s[iteration - 1])
    theirs = replayed.timeline()["waited_for"].to_numpy()
    both = (ours >= 0) & (theirs >= 0)
    assert both.any()
    np.testing.assert_array_equal(end_s[iteration, ours[both]], end_s[iteration, theirs[both]])


def test_ready_latency_and_start_follow_each_other():
    model = CostModel(load_model("lenet5", batch=16), cluster_of("p100-4x4", 8), "ring")
    program = program_of(model, named_strategy("owt", model.graph, 8))
    rows = replay(program).timeline()
    assert (rows["latency_s"] > 0).any()
    assert (rows["ready_s"] + rows["latency_s"] <= rows["start_s"] + 1e-12).all()
    known = rows[rows["waited_for"] >= 0]
    ends_s = rows["end_s"].to_numpy()[known["waited_for"]]
    assert known["ready_s"].to_numpy() == pytest.approx(ends_s, abs=1e-12)
    computes = rows["stream"] == "compute"
    first = rows[computes].groupby("device").head(1)
    assert (stream_before(program)[first["id"]] == -1).all()
    assert (stream_before(program)[rows[computes]["id"]] >= -1).all()


def test_measured_times_make_the_timeline_of_a_replay_but_for_what_only_a_replay_knows():
    """Given the times of a replay as if they were measured; what let a task begin is unknown, so no task's number."""
    model = CostModel(load_model("lenet5", batch=8), cluster_of("titanx-4", 4))
    replayed = replay(program_of(model, named_strategy("data", model.graph, 4)))
    iteration = replayed.shown[0]
    simulated = replayed.timeline()
    rows = iteration_rows(
        replayed.program,
        simulated["start_s"].to_numpy(),
        simulated["end_s"].to_numpy(),
        iteration=iteration,
        origin="simulated",
    )

    known = rows.columns.drop(["waited_for", "ready_s", "latency_s"])
    pd.testing.assert_frame_equal(rows[known], simulated[known], check_dtype=False)
    assert rows["waited_for"].isin(simulated["waited_for"][simulated["waited_for"] < 0]).all()
    assert rows[["ready_s", "latency_s"]].isna().all(axis=None)
