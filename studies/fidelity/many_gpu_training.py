"""Training on several GPUs: the time of an iteration relative to one GPU, measured and predicted."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.conditions import Conditions, declared_sync
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy
from studies.fidelity.device_names import rows_of_table
from studies.fidelity.judged_row import JudgedRow
from studies.fidelity.one_gpu_training import MODELS_MEASURED

_ROCE_SHARE = 0.248
"""25 Gbit/s less 4 % for headers, as a share of the 12.1 GB/s of an EDR card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machines:
    """The cluster of a table, of which the first devices take part."""

    spec: str
    table: str
    profile: str
    fitted: int = 0
    """Number of GPUs of the rows that determined a number of the cluster."""


_K80 = _Machines(spec="k80-16:cards=2", table="tf_benchmarks_2017, K80", profile="k80", fitted=2)
"""Eight GPUs of Google's machine are four cards: two a socket, assumed."""
_PASCAL = _Machines(
    spec=f"p100-4x4:nodes=4,link.edr.bandwidth_factor={_ROCE_SHARE}", table="horovod_scaling", profile="p100"
)


DEFAULT, IDEAL = "default options", "ideal machines"
"""Variants of a prediction beside that with the framework that measured: what the planner takes unless it is told, and
neither library nor framework, interference or spread."""


def many_gpu_rows() -> Iterator[JudgedRow]:
    """Yield every row of more than one GPU whose throughput on one GPU is in the same table, too.

    Each is predicted three times: with the framework that measured, by default options, and for ideal machines.
    """
    google = [row for row in rows_of_table("tf_benchmarks_2017") if "K80" in row.gpu]
    for variant in ("", DEFAULT, IDEAL):
        yield from _scaled(google, _K80, ("model", "batch_per_gpu"), lambda _: "ps", variant)
        yield from _scaled(
            rows_of_table("horovod_scaling"), _PASCAL, ("version", "model", "batch_per_gpu"), _horovod, variant
        )


def _horovod(row: Any) -> str:
    """Return Horovod of 2017, which looked for gradients every 5 ms, with or without fusion."""
    return "horovod:cycle_ms=5,fusion_mib=0" if "before Tensor Fusion" in row.version else "horovod:cycle_ms=5"


def _scaled(
    rows: Sequence[Any], machines: _Machines, alike: tuple[str, ...], framework: Callable[[Any], str], variant: str
) -> Iterator[JudgedRow]:
    """Yield the rows of a table relative to the rows of one GPU that are equal in the columns ``alike``."""
    key_of = attrgetter(*alike)
    alone = {key_of(row): row.images_per_sec for row in rows if row.n_gpus == 1}
    for row in rows:
        if row.n_gpus > 1 and key_of(row) in alone:
            rate_alone = alone[key_of(row)]
            conditions = variant or framework(row)
            suffix = f", {variant}" if variant else ""
            model, batch = MODELS_MEASURED[row.model.lower()], int(row.batch_per_gpu)
            several_s, communication = _iteration(machines.spec, model, batch, int(row.n_gpus), conditions)
            alone_s, _ = _iteration(machines.spec, model, batch, 1, conditions)
            measured, predicted = row.n_gpus * rate_alone / row.images_per_sec, several_s / alone_s
            speedups = f"measured {row.n_gpus / measured:.2f} times as fast, predicted {row.n_gpus / predicted:.2f}"
            yield JudgedRow(
                measure=f"several GPUs relative to one{suffix}",
                comparison=f"{machines.table}{suffix}",
                label=f"{model}, batch {batch} a GPU, {row.n_gpus} GPUs: {speedups}",
                group=machines.table,
                subject=model,
                size=batch * row.n_gpus,
                nodes=int(row.n_nodes),
                measured=measured,
                predicted=predicted,
                fitted=variant != IDEAL and row.n_gpus == machines.fitted,
                communication=communication,
                profile=machines.profile,
                alone=math.log(alone_s * rate_alone / batch),
            )


@lru_cache(maxsize=256)
def _iteration(spec: str, model: str, batch: int, devices: int, conditions: str) -> tuple[float, float]:
    """Return the simulated time of a data-parallel iteration, and the share of it in which communication is exposed."""
    graph, cluster = load_model(model, batch=batch * devices), _first(spec, devices)
    strategy = named_strategy("data", graph, devices)
    if conditions == IDEAL:
        cost = CostModel(graph, cluster)
    else:
        used = Conditions.of(cluster, None if conditions == DEFAULT else conditions)
        cost = CostModel(graph, cluster, declared_sync(cluster), conditions=used)
    played = replay(lowered(cost, strategy))
    return played.iteration_s, played.shares().exposed_communication_s / played.iteration_s


@lru_cache
def _first(spec: str, devices: int) -> DeviceGraph:
    return load_cluster(spec).take(devices)
