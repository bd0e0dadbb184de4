"""Closed forms against the replay of plans without overlap and contention, and the time of a sweep.

Prints, for four CNNs on 4 to 64 V100 of ABCI and on a switch, how far the forms, read as programs send, are from the
replayed iteration, and how far the printed Table 1 is.  Run: ``python tests/benchmarks/oracle_against_replay.py``.
"""

import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1] / "planner"))

from plans import cluster_of, star

from hwprofiles.catalogue import load_cluster
from hwprofiles.errors import ConfigError
from planner.costs import CostModel
from planner.lowering import lower
from planner.models import load_model
from planner.oracle import OracleOptions, device_counts, oracle
from planner.replay import replay
from planner.strategies import applied, named_strategy

MODELS = ("alexnet", "vgg16", "resnet50", "inception-v3")
STRATEGIES = {"data": "data", "filter": "filter", "channel": "channel", "spatial": "spatial"}
BATCH = 64
LIKE_PROGRAMS = OracleOptions(gradients="layers", activations="direct")


def differences() -> None:
    """A row a cluster, model, strategy and number of devices."""
    print(f"{'cluster':8} {'model':13} {'strategy':8} {'p':>3} {'replay':>10} {'form':>8} {'table 1':>8}")
    for place in ("abci", "switch"):
        for name in MODELS:
            graph = load_model(name, batch=BATCH)
            for plan, strategy in STRATEGIES.items():
                for p in (4, 8, 16, 32, 64):
                    cluster = star(p) if place == "switch" else cluster_of("abci-v100:nodes=16", p)
                    model, spaces, _ = applied(CostModel(graph, cluster), named_strategy(plan, graph, p))
                    program = lower(model, spaces)
                    seconds = replay(program, overlap=False, contention=False, iterations=1).iteration_s
                    cells = []
                    for options in (LIKE_PROGRAMS, OracleOptions()):
                        try:
                            table = oracle(
                                graph, cluster, dataset="imagenet", devices=[p], strategies=[strategy], options=options
                            )
                            cells.append(f"{table.rows[0].iteration_s / seconds - 1:+8.1%}")
                        except ConfigError:
                            cells.append(f"{'limit':>8}")
                    print(
                        f"{place:8} {name:13} {strategy:8} {p:3} {1e3 * seconds:8.1f} ms {' '.join(cells)}", flush=True
                    )


def sweeps() -> None:
    """Time of all strategies on 1 to 1,024 devices."""
    cluster = load_cluster("abci-v100:nodes=256")
    for name in (*MODELS, MODELS[0]):
        graph, began = load_model(name, batch=BATCH), perf_counter()
        table = oracle(graph, cluster, dataset="imagenet", devices=device_counts("1..1024"), batch_per_device=32)
        print(f"{name}: {len(table.rows)} rows in {perf_counter() - began:.2f} s")


if __name__ == "__main__":
    sweeps()
    differences()
