"""ParaDL's claims that closed forms, or the model of its cluster, can answer.

Left out are the accuracies of the strategies but data parallelism, and those over all: they compare with runs on ABCI
that nobody has published.  Data parallelism is compared with other runs: eight K80 of one machine by TensorFlow's
benchmarks of 2017 (``paradl_measured``: tensorflow/tensorflow, docs_src/performance/benchmarks.md).

Source: Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of Convolutional Neural
Networks", Sec. 3.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from statistics import mean

import numpy as np

from hwprofiles import Progress
from hwprofiles.catalogue import load_cluster
from hwprofiles.devices import DeviceGraph
from planner.models import load_model
from planner.topology import routes_of_cluster
from studies.oracle import OracleRequest, OracleTable, oracle
from studies.reproduce.rows import PaperRow, Value, row, stored

__all__ = ["CLAIMS", "paradl_rows"]

_MODELS = ("resnet50", "vgg16")
_SAMPLES = 32
"""A GPU, in weak scaling; the paper prints the mini-batches in Figure 1 only."""
_Answer = tuple[Value, str]


def paradl_rows(progress: Progress | None = None) -> Iterator[PaperRow]:
    """Every row, in the paper's order."""
    claims = stored("paradl_claims")
    for done, claim in enumerate(claims):
        if progress:
            progress(claim["claim"], done, len(claims))
        yield _claim_row(claim)


def _claim_row(claim: dict[str, str]) -> PaperRow:
    """Recompute one claim of ``paradl_claims``."""
    name, *words = claim["key"].split()
    ours, why = CLAIMS[name](*words)
    return row(f"ParaDL, {claim['source']}: {claim['claim']}", claim["value"], ours, claim["unit"], why)


def _accuracy() -> _Answer:
    """1 - |projected - measured| / measured of an iteration on 2, 4 and 8 K80, the mean."""
    measured = {
        (line["model"], int(line["batch_per_gpu"]), int(line["gpus"])): float(line["images_per_s"])
        for line in stored("paradl_measured")
    }
    profile, alone = [], []
    for (model, batch, gpus), rate in measured.items():
        if gpus == 1:
            continue
        table = oracle(
            load_model(model, batch=batch),
            load_cluster("k80-16"),
            OracleRequest(dataset="imagenet", devices=(gpus,), strategies=("data",), batch_per_device=batch),
        )
        projected, measured_s = table.rows[0], batch * gpus / rate
        one_s = batch / measured[model, batch, 1]
        profile.append(_agreement(projected.iteration_s, measured_s))
        alone.append(_agreement(one_s + projected.communication_s, measured_s))
    return 100 * mean(alone), (
        f"{len(alone)} other runs, Inception-v3 and AlexNet on 2 to 8 K80 of one machine; arithmetic as measured on "
        f"one GPU like the paper's FW and BW; with our profile's arithmetic {100 * mean(profile):.1f}"
    )


def _agreement(projected_s: float, measured_s: float) -> float:
    return 1 - abs(projected_s - measured_s) / measured_s


@cache
def _cluster() -> DeviceGraph:
    return load_cluster("abci-v100:nodes=34")


def _node_devices() -> _Answer:
    return float(np.bincount(routes_of_cluster(_cluster()).node)[0]), "cluster abci-v100"


def _rack_nodes() -> _Answer:
    return _nodes_of_a_rack(), "cluster abci-v100"


def _nodes_of_a_rack() -> float:
    network = routes_of_cluster(_cluster())
    return float(len(np.unique(network.node[network.rack == 0])))


def _rates(link_class: str) -> list[float]:
    links = _cluster().links
    return [link.bandwidth_bytes_per_s for link in links if link.link_class.startswith(link_class)]


def _link(link_class: str) -> _Answer:
    whys = {
        "nvlink2": "payload of the two links of a pair together; the paper prints one link's",
        "pcie3-x16": "payload as NCCL takes it; the paper prints the signalling rate",
        "edr": "payload measured between host buffers; GPU buffers reach 10.2 GB/s behind the PCIe switch",
    }
    return max(_rates(link_class)), whys[link_class]


def _bisection(level: str) -> _Answer:
    """What leaves a node, or a rack, against what is below."""
    cards_bytes_per_s = 2 * max(_rates("edr"))
    if level == "node":
        ports = sum(_rates("edr")) / 2 / _cluster().node_count  # both ways
        return f"1:{cards_bytes_per_s / ports:.0f}", "every card has a port of its own on the rack's switch"
    return (
        f"1:{_nodes_of_a_rack() * cards_bytes_per_s / max(_rates('rack-uplink')):.0f}",
        "uplink of a rack against its cards",
    )


@cache
def _tables() -> Sequence[OracleTable]:
    cluster = load_cluster("abci-v100:nodes=256")
    counts = tuple(1 << k for k in range(2, 11))
    request = OracleRequest(dataset="imagenet", devices=counts, batch_per_device=_SAMPLES)
    return [oracle(load_model(name, batch=_SAMPLES), cluster, request) for name in _MODELS]


def _range(*strategies: str) -> _Answer:
    """Powers of two that both networks can have, of those that the paper asks for."""
    rows = [[row.devices for row in table.rows if row.strategy == name] for table in _tables() for name in strategies]
    least = 16 if "data" in strategies else 4
    found = sorted(set.intersection(*map(set, rows)) & set(range(least, 1025)))
    limits = {
        f"{name} {limit.reason}" for table in _tables() for limit in table.limits for name in strategies
        if limit.strategy == name and limit.devices <= 1024
    }  # fmt: skip
    shares = [
        f"{name} {table.model} {100 * row.communication_s / row.iteration_s:.0f} % on {row.devices}"
        for table in _tables() for name in strategies if (row := table.row(name, found[-1]))
    ]  # fmt: skip
    why = "; ".join(sorted(limits)) or f"up to D/b = {_tables()[0].limits[1].devices:,} with {_SAMPLES} samples a GPU"
    return f"{found[0]}-{found[-1]}", f"{why}; communication's share of an iteration: {', '.join(shares)}"


def _most(strategy: str) -> _Answer:
    limits = [limit for table in _tables() for limit in table.limits if limit.strategy == strategy]
    best = [
        min((row for row in table.rows if row.strategy == strategy), key=lambda row: row.iteration_s)
        for table in _tables()
    ]
    fastest = ", ".join(f"{table.model} {row.devices}" for table, row in zip(_tables(), best, strict=True))
    reasons = "; ".join(limit.reason for limit in limits)
    return float(min(limit.devices for limit in limits)), (
        f"{reasons}; the paper stops at the GPUs of a node; of 4, 8, ... the shortest iteration with {_SAMPLES} "
        f"samples has {fastest}"
    )


CLAIMS: dict[str, Callable[..., _Answer]] = {
    "accuracy": _accuracy,
    "node_devices": _node_devices,
    "rack_nodes": _rack_nodes,
    "link": _link,
    "bisection": _bisection,
    "range": _range,
    "most": _most,
}
"""How a claim is recomputed, by the first word of its key."""
