"""ParaDL's claims that closed forms, or the model of its cluster, can reproduce.

The accuracies of other strategies than data parallelism, and those over all strategies, are left out: they compare
with runs on ABCI that nobody has published.  Data parallelism is compared with other runs: eight K80 of one machine by
TensorFlow's benchmarks of 2017 (``paradl_measured``: tensorflow/tensorflow, docs_src/performance/benchmarks.md).

Source: Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of Convolutional Neural
Networks", Sec. 3.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from statistics import mean

import numpy as np

from groundwork.progress import Progress
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device_graph import DeviceGraph
from planner.models.registry import load_model
from planner.topology.network_routes import routes_of_cluster
from studies.oracle.oracle_request import OracleRequest
from studies.oracle.oracle_table import OracleTable
from studies.oracle.projection import oracle
from studies.reproduce.rows import ClaimResult, PaperRow, claim_row, claims_of, stored

_MODELS = ("resnet50", "vgg16")
_SAMPLES = 32
"""Samples a GPU in weak scaling; the paper prints the mini-batches in Figure 1 only."""


def paradl_rows(progress: Progress | None = None) -> Iterator[PaperRow]:
    """Yield every row, in the paper's order."""
    for claim in claims_of("paradl", progress):
        yield claim_row("ParaDL", claim, PARADL_CLAIMS)


def _accuracy() -> ClaimResult:
    """Return the mean of 1 - |projected - measured| / measured of an iteration on 2, 4 and 8 K80.

    Source: Kahira et al., "An Oracle ...", Sec. 3, accuracy.
    """
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
        f"{len(alone)} other runs, Inception-v3 and AlexNet on 2 to 8 K80 of one machine; computation as measured on "
        f"one GPU, like the paper's FW and BW; with our profile's computation {100 * mean(profile):.1f}"
    )


def _agreement(projected_s: float, measured_s: float) -> float:
    return 1 - abs(projected_s - measured_s) / measured_s


@cache
def _cluster() -> DeviceGraph:
    return load_cluster("abci-v100:nodes=34")


def _nodes_of_a_rack() -> float:
    network = routes_of_cluster(_cluster())
    return float(len(np.unique(network.node[network.rack == 0])))


def _rates(link_class: str) -> list[float]:
    links = _cluster().links
    return [link.bandwidth_bytes_per_s for link in links if link.link_class.startswith(link_class)]


def _link(link_class: str) -> ClaimResult:
    notes = {
        "nvlink2": "payload of the two links of a pair together; the paper prints one link's",
        "pcie3-x16": "payload as NCCL measures it; the paper prints the signalling rate",
        "edr": "payload measured between host buffers; GPU buffers reach 10.2 GB/s behind the PCIe switch",
    }
    return max(_rates(link_class)), notes[link_class]


def _bisection(level: str) -> ClaimResult:
    """Return the bandwidth out of a node, or of a rack, against the bandwidth below it."""
    cards_bytes_per_s = 2 * max(_rates("edr"))
    if level == "node":
        ports = sum(_rates("edr")) / 2 / _cluster().node_count  # each cable is two links, one each way
        return f"1:{cards_bytes_per_s / ports:.0f}", "every card has a port of its own on the rack's switch"
    return (
        f"1:{_nodes_of_a_rack() * cards_bytes_per_s / max(_rates('rack-uplink')):.0f}",
        "uplink of a rack against the cards of its nodes",
    )


@cache
def _tables() -> Sequence[OracleTable]:
    """Return the oracle's table of each network on ABCI."""
    cluster = load_cluster("abci-v100:nodes=256")
    counts = tuple(1 << k for k in range(2, 11))
    request = OracleRequest(dataset="imagenet", devices=counts, batch_per_device=_SAMPLES)
    return [oracle(load_model(name, batch=_SAMPLES), cluster, request) for name in _MODELS]


def _range(*strategies: str) -> ClaimResult:
    """Return the range of device counts that both networks can use, among the paper's powers of two."""
    rows = [[row.devices for row in table.rows if row.strategy == name] for table in _tables() for name in strategies]
    least = 16 if "data" in strategies else 4
    counts = sorted(set.intersection(*map(set, rows)) & set(range(least, 1025)))
    limits = {
        f"{name} {limit.reason}"
        for table in _tables()
        for limit in table.limits
        for name in strategies
        if limit.strategy == name and limit.devices <= 1024
    }
    shares = [
        f"{name} {table.model} {100 * row.communication_s / row.iteration_s:.0f} % on {row.devices}"
        for table in _tables()
        for name in strategies
        if (row := table.row(name, counts[-1]))
    ]
    note = "; ".join(sorted(limits)) or f"up to D/b = {_tables()[0].limits[1].devices:,} with {_SAMPLES} samples a GPU"
    return f"{counts[0]}-{counts[-1]}", f"{note}; communication's share of an iteration: {', '.join(shares)}"


def _most(strategy: str) -> ClaimResult:
    """Return the most devices that a strategy can use with both networks."""
    limits = [limit for table in _tables() for limit in table.limits if limit.strategy == strategy]
    best = [
        min((row for row in table.rows if row.strategy == strategy), key=lambda row: row.iteration_s)
        for table in _tables()
    ]
    fastest = ", ".join(f"{table.model} {row.devices}" for table, row in zip(_tables(), best, strict=True))
    reasons = "; ".join(limit.reason for limit in limits)
    return float(min(limit.devices for limit in limits)), (
        f"{reasons}; the paper stops at the GPUs of a node; of 4, 8, ... GPUs with {_SAMPLES} samples each, "
        f"the shortest iteration is that of {fastest}"
    )


PARADL_CLAIMS: dict[str, Callable[..., ClaimResult]] = {
    "accuracy": _accuracy,
    "node_devices": lambda: (float(np.bincount(routes_of_cluster(_cluster()).node)[0]), "cluster abci-v100"),
    "rack_nodes": lambda: (_nodes_of_a_rack(), "cluster abci-v100"),
    "link": _link,
    "bisection": _bisection,
    "range": _range,
    "most": _most,
}
"""Function that recomputes a claim, by the first word of its key."""
