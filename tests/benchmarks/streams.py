"""Sub-tasks on threads: gain over the plain backward, and how near the prediction is, on the cores of this machine.

    python tests/benchmarks/streams.py [--rounds 9] [--batch 8] [MODEL ...]

Schedules, and the single sub-tasks that predictions are made from, run in turns, so that what else the machine does
falls on all alike; gains and errors are those of one round each, as medians with quartiles.  Before that, every
schedule's gradients are checked against those of one stream, from the same parameters and data.

Measured beside the table in ``docs/streams.md``: in a run of five rounds just before, the errors of GoogLeNet were
within 4.4 %, and those of ResNet-18 -3.4, -10.4, -12.2 and -15.1 %.  With a load of 7 to 20, steps of one schedule
spread by a factor of two.
"""

import argparse
import os

import numpy as np
import torch

from executor.streams.measure import UNLIMITED, measure_streams
from executor.streams.measure_request import MEASURED_SCHEDULES, CoreStreamsRequest
from executor.streams.network import SubTaskNetwork
from executor.streams.threads import ThreadRunner
from planner.models.registry import load_model
from studies.streams.decomposition import with_measured
from studies.streams.schedule_comparison import whole_program
from studies.streams.stream_schedules import schedule


def gradients(graph, name, cores):
    """Of one step, by layer and parameter."""
    work = with_measured(whole_program(graph, "cpu-core")[0], {})
    network = SubTaskNetwork(work.program)
    plan = schedule(work, name, UNLIMITED)
    with ThreadRunner(work.program, plan, network.run, cores=[1] * work.program.size, total=cores) as crew:
        crew.step()
    return {(layer, key): value for layer, row in network.gradients.items() for key, value in row.items()}


def check_same(graph, cores):
    """All schedules end in the same gradients, to float32."""
    plain = gradients(graph, "one-stream", cores)
    for name in MEASURED_SCHEDULES[1:]:
        found = gradients(graph, name, cores)
        assert found.keys() == plain.keys()
        for key, value in found.items():
            assert torch.allclose(value, plain[key], rtol=1e-3, atol=1e-4 * float(plain[key].abs().max())), (name, key)


def main():
    """Print one table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=["googlenet", "resnet18"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--cores", type=int, default=torch.get_num_threads())
    words = parser.parse_args()
    print(f"batch {words.batch}, {words.cores} cores, {words.rounds} rounds, load {load()}; times in ms")
    print(
        f"{'model':12}{'schedule':15}{'measured, quartiles':>26}{'predicted':>11}{'gain, quartiles':>24}"
        f"{'error, quartiles':>27}{'held MiB':>10}"
    )
    for model in words.models:
        graph = load_model(model, batch=words.batch)
        check_same(graph, words.cores)
        found = measure_streams(graph, CoreStreamsRequest(cores=words.cores, rounds=words.rounds))
        for row in found.results:
            low, high = (value * 1e3 for value in row.quartiles_s)
            gains, errors = (np.quantile(values, [0.5, 0.25, 0.75]) for values in (row.gains, row.errors))
            print(
                f"{model:12}{row.name:15}{row.step_s * 1e3:9.1f} ({low:6.1f}-{high:6.1f}){row.predicted_s * 1e3:11.1f}"
                f"{gains[0]:10.3f} ({gains[1]:.3f}-{gains[2]:.3f})"
                f"{errors[0]:+10.1%} ({errors[1]:+.1%} {errors[2]:+.1%})"
                f"{row.held_bytes / 2**20:10.1f}",
                flush=True,
            )
    print(f"load {load()}")


def load():
    """Of the last minutes."""
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


if __name__ == "__main__":
    main()
