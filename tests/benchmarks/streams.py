"""Sub-tasks on threads: gain over the plain backward, and how near the prediction is, on the cores of this machine.

    python tests/benchmarks/streams.py [--rounds 7] [--batch 8] [MODEL ...]

Schedules run in turns, so that what else the machine does falls on all alike; before that, every schedule's gradients
are checked against those of one stream, from the same parameters and data.
"""

import argparse
import os

import torch

from executor.streams.measure import CPU_SCHEDULES, UNLIMITED, measure_streams
from executor.streams.network import SubTaskNetwork
from executor.streams.threads import Crew
from planner.models import load_model
from planner.streams.compare import whole_program
from planner.streams.decompose import with_measured
from planner.streams.schedules import schedule


def gradients(graph, name, cores):
    """Of one step, by layer and parameter."""
    work = with_measured(whole_program(graph, "cpu-core")[0], {})
    network = SubTaskNetwork(work.program)
    plan = schedule(work, name, UNLIMITED)
    with Crew(work.program, plan, network.run, cores=[1] * work.program.size, total=cores) as crew:
        crew.step()
    return {(layer, key): value for layer, row in network.gradients.items() for key, value in row.items()}


def check_same(graph, cores):
    """All schedules end in the same gradients, to float32."""
    plain = gradients(graph, "one-stream", cores)
    for name in CPU_SCHEDULES[1:]:
        found = gradients(graph, name, cores)
        assert found.keys() == plain.keys()
        for key, value in found.items():
            assert torch.allclose(value, plain[key], rtol=1e-3, atol=1e-4 * float(plain[key].abs().max())), (name, key)


def main():
    """Print a table a model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=["googlenet", "resnet18"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--cores", type=int, default=torch.get_num_threads())
    words = parser.parse_args()
    for model in words.models:
        graph = load_model(model, batch=words.batch)
        check_same(graph, words.cores)
        found = measure_streams(graph, cores=words.cores, rounds=words.rounds)
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"{model}, batch {words.batch}, {words.cores} cores, {words.rounds} rounds, load {load}")
        print("schedule        step ms   quartiles        gain   predicted  error  held MiB")
        for row in found.results:
            low, high = (value * 1e3 for value in row.quartiles_s)
            print(
                f"{row.name:14} {row.step_s * 1e3:8.1f}  {low:7.1f}..{high:<7.1f} {row.gain:6.3f}  "
                f"{row.predicted_s * 1e3:8.1f}  {row.error:+6.1%}  {row.held_bytes / 2**20:8.1f}"
            )


if __name__ == "__main__":
    main()
