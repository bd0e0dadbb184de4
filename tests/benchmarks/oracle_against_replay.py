"""Closed forms against the replay of plans without overlap and contention, every strategy, with the reasons.

Prints, for four CNNs on 1 to 64 V100 of ABCI and on a switch, how far the forms, read as programs send, and the printed
Table 1 are from the replayed iteration; what in the plan is otherwise than in the form; and a summary of how many rows
are within 5 %.  A pipeline is replayed with overlap, without which it would be none.
Run: ``python tests/benchmarks/oracle_against_replay.py [MODEL ...]``.
"""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "planner"))

import numpy as np
from plans import star

from groundwork.errors import ConfigError, OrreryError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.simulation.program_replay import replay
from studies.oracle.cases import HYBRIDS, case_of, inputs_of
from studies.oracle.oracle_request import STRATEGIES, OracleRequest
from studies.oracle.projection import oracle
from studies.oracle.simulated_cases import program_of_case

MODELS = ("alexnet", "vgg16", "resnet50", "inception-v3")
COUNTS = (4, 8, 16, 32, 64)
BATCH = 64
NEAR = 0.05
LIKE_PROGRAMS = {"gradients": "layers", "activations": "direct", "pipeline": "stages"}


def reason_of(program, case):
    """What the plan does otherwise than the form, from the plan itself; empty where nothing."""
    graph, found = program.graph, []
    kind = HYBRIDS.get(case.strategy, case.strategy)
    positions = [
        (layer, int(space.degrees[0, 2:].prod()))
        for layer, space in zip(graph.layers, program.spaces, strict=True)
        if kind == "spatial" and np.prod(layer.output.positions) > 1
    ]
    less = [(layer, parts) for layer, parts in positions if parts < case.p2]
    if less:
        layer, parts = min(less, key=lambda row: row[1])
        sizes = " x ".join(map(str, layer.output.positions))
        found.append(
            f"equal parts: {len(less)} of {len(positions)} layers in fewer, as {layer.name} of {sizes} in {parts}, "
            "and moved"
        )
    if kind in ("filter", "channel") and any(layer.operation.kind == "concat" for layer in graph.layers):
        found.append("parts of concatenations lie elsewhere than their inputs' and are moved")
    if case.strategy == "layer" and len(graph.layers) < 4 * case.p:
        found.append(f"stages of {len(graph.layers) / case.p:.1f} layers: tensors skip stages")
    return "; ".join(found)


def difference(graph, cluster, case, seconds, options):
    """A form's iteration over the replayed one, less 1; None beyond the form's limit."""
    try:
        table = oracle(
            graph,
            cluster,
            OracleRequest(dataset="imagenet", devices=(case.p,), strategies=(case.strategy,), **options),
        )
    except ConfigError:
        return None
    return table.rows[0].iteration_s / seconds - 1


def compared(place, graph, strategy, p, near):
    """Print one row and count it."""
    cluster = star(p) if place == "switch" else load_cluster("abci-v100:nodes=16")
    case = case_of(inputs_of(graph, cluster, OracleRequest(dataset="imagenet", **LIKE_PROGRAMS)), strategy, p)
    if isinstance(case, str):
        return
    where = f"{place:6} {graph.name:12} {strategy:12} {p:3}"
    try:
        program = program_of_case(graph, cluster, case)
    except OrreryError as error:
        print(f"{where} no plan: {error}", flush=True)
        return
    seconds = replay(program, overlap=strategy == "layer", contention=False, iterations=1).iteration_s
    form, table = (difference(graph, cluster, case, seconds, o) for o in (LIKE_PROGRAMS, {}))
    near[strategy, "all"] += 1
    near[strategy, "near"] += abs(form) <= NEAR
    why = reason_of(program, case)
    near[strategy, "without reason"] += abs(form) > NEAR and not why
    print(f"{where} {1e3 * seconds:8.1f} ms {form:+7.1%} {table:+7.1%}  {why if abs(form) > 0.005 else ''}", flush=True)


def main(models):
    """All rows, then the summary."""
    near = Counter()
    print(f"{'':6} {'model':12} {'strategy':12} {'p':>3} {'replay':>11} {'form':>7} {'table 1':>7}  what the plan does")
    for place in ("abci", "switch"):
        for name in models:
            graph = load_model(name, batch=BATCH)
            for strategy in STRATEGIES:
                for p in (1,) if strategy == "serial" else COUNTS:
                    compared(place, graph, strategy, p, near)
    for strategy in STRATEGIES:
        rows, within, odd = (near[strategy, what] for what in ("all", "near", "without reason"))
        print(f"{strategy:12} {within} of {rows} within {NEAR:.0%}, {odd} of the rest without a reason")


if __name__ == "__main__":
    main(sys.argv[1:] or MODELS)
