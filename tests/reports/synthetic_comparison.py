"""A made-up comparison with known numbers, of any size; no planner and no simulator needed."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from planner.expected.likely_times import TimeParts
from planner.graph.computation_graph import LAYER_PHASES
from planner.plan.comparison import Comparison, LayerResult, StrategyResult
from planner.plan.lowered_plan import PlannedStrategy
from planner.plan.training_rates import TrainingRates
from planner.simulation.link_use import LinkUse

GIB = 2.0**30
NAMES = ("data", "model", "owt", "spatial", "layerwise")
SLOWNESS = {"data": 2.31, "model": 3.9, "owt": 1.45, "spatial": 1.82, "layerwise": 1.0}


def make_comparison(
    *,
    names: tuple[str, ...] = NAMES,
    devices: int = 16,
    layers: int = 24,
    tasks: int = 3000,
    links: int = 40,
    refused: dict[str, str] | None = None,
    seed: int = 1,
) -> Comparison:
    rng = np.random.default_rng(seed)
    labels = tuple(f"node{i // 4}/gpu{i % 4}" for i in range(devices))
    strategies = tuple(_strategy(name, rng, labels, layers=layers, tasks=tasks, links=links) for name in names)
    base_s = np.exp(rng.normal(-1.2, 0.6, 60))
    tried = pd.DataFrame(
        {
            "name": [*names, *(f"random {i}" for i in range(60))],
            "additive_s": [*(s.additive_s for s in strategies), *base_s],
            "simulated_s": [*(s.simulated_s for s in strategies), *(base_s * rng.uniform(0.7, 0.95, 60))],
        }
    )
    return Comparison(
        model="vgg16",
        cluster="p100-4x4",
        batch=512,
        devices=labels,
        device_memory_bytes=(16 * GIB,) * devices,
        one_device_s=1.9,
        strategies=strategies,
        refused=refused or {},
        winner=min(strategies, key=lambda s: s.expected_s).name if strategies else "",
        rank_correlation=0.9731,
        tried=tried if strategies else pd.DataFrame(),
        notes=("compute times are a calibrated roofline, not measured",),
    )


def _strategy(
    name: str, rng: np.random.Generator, devices: tuple[str, ...], *, layers: int, tasks: int, links: int
) -> StrategyResult:
    simulated_s = 0.1234567 * SLOWNESS.get(name, 2.0)
    compute_s, exposed_s = 0.1 * SLOWNESS.get(name, 2.0) ** 0.3, 0.0
    exposed_s = 0.8 * (simulated_s - compute_s)
    ladder_s = {"additive": 1.31 * simulated_s, "overlap": 0.86 * simulated_s, "contention": simulated_s}
    result = StrategyResult(
        name=name,
        ladder_s=ladder_s,
        additive_s=ladder_s["additive"],
        simulated_s=simulated_s,
        speedup=math.nan,
        rates=_rates(math.nan),
        moved_bytes=3.21e9 * SLOWNESS.get(name, 2.0),
        compute_s=compute_s,
        exposed_communication_s=exposed_s,
        idle_s=simulated_s - compute_s - exposed_s,
        peak_memory_bytes=tuple(rng.uniform(6, 13, len(devices)) * GIB),
        memory_by_kind_bytes={"parameters": 1.0 * GIB, "activations": 4.0 * GIB},
        lower_bound_s=0.81 * simulated_s,
        bound_reason="busiest resource: node0/gpu0",
        engine_s=0.42,
        tasks=tasks,
        layers=tuple(_layer(i, rng, len(devices)) for i in range(layers)),
        timeline=make_timeline(rng, devices, tasks=tasks, end_s=simulated_s),
        link_use=_link_use(rng, simulated_s, links),
        planned=PlannedStrategy(strategy={}),
        time_parts=TimeParts(total_s=simulated_s, exposed_s=exposed_s, devices=len(devices), message_bytes=0.0),
    )
    return replace(result, rates=_rates(512 / result.expected_s), speedup=1.9 / result.expected_s)


def _rates(samples_per_s: float) -> TrainingRates:
    return TrainingRates(
        samples_per_s=samples_per_s,
        tokens_per_s=None,
        mfu=1e-4 * samples_per_s,
        hfu=None,
        device_hours_per_million_samples=16e6 / 3600 / samples_per_s,
    )


def _layer(i: int, rng: np.random.Generator, devices: int) -> LayerResult:
    degrees = [{"sample": devices, "channel": 1}, {"sample": devices // 4, "height": 4}, {"channel": 4}, {"sample": 1}]
    chosen = degrees[i * 4 // 24 % 4]
    parts = int(np.prod(list(chosen.values())))
    return LayerResult(
        name=f"conv{i // 3 + 1}_{i % 3 + 1}",
        kind="conv2d" if i < 20 else "dense",
        output=f"512 x {64 * (1 + i // 6)} x {224 >> (i // 6)} x {224 >> (i // 6)}",
        degrees=chosen,
        devices=tuple(range(parts)),
        compute_s=float(rng.uniform(1e-3, 9e-3)),
        gradient_sync_s=float(rng.uniform(0, 4e-3)),
        transfer_s=float(rng.uniform(0, 2e-3)),
        moved_bytes=float(rng.uniform(1e6, 4e8)),
        gradient_sync=("ring, 2.13 ms; tree 3.11 ms", "hierarchical", "")[i % 3],
    )


def _link_use(rng: np.random.Generator, end_s: float, links: int) -> LinkUse:
    time = np.linspace(0, 1, 200)
    share = np.clip(np.sin(12 * time[None] + rng.uniform(0, 6, (links, 1))) * rng.uniform(0.1, 1, (links, 1)), 0, 1)
    names = tuple(f"node{i // 10}/plx{i % 10} > node{i // 10}/gpu{i % 4}" for i in range(links))
    edges_s = np.linspace(0, end_s, 201)
    share[links // 2 :] = share[links // 2]  # half of them are used alike
    classes = tuple(("switch-port", "fdr")[i * 2 // links] for i in range(links))
    return LinkUse(
        links=names,
        edges_s=edges_s,
        share=share,
        moved_bytes=share.sum(axis=1) * 1e7,
        like=np.arange(len(names)),
        classes=classes,
    )


def make_timeline(rng: np.random.Generator, devices: tuple[str, ...], *, tasks: int, end_s: float) -> pd.DataFrame:
    """Streams without overlap on every device, and transfers that overlap on rows of their own."""
    per_row = tasks // (2 * len(devices) + 2)
    frames = []
    for i in range(len(devices)):
        frames.append(_row(rng, i, "compute", per_row, end_s, LAYER_PHASES, busy=0.9))
        frames.append(_row(rng, i, "gradients", per_row, end_s, ("collective",), busy=0.5))
    rest = tasks - sum(map(len, frames))
    transfers = _row(rng, -1, "transfers", rest, end_s, ("transfer",), busy=0.5)
    transfers["end_s"] = np.minimum(transfers["end_s"] + end_s / 80, end_s)
    timeline = pd.concat([*frames, transfers], ignore_index=True)
    timeline.insert(0, "id", np.arange(len(timeline)))
    return timeline


def _row(
    rng: np.random.Generator, device: int, stream: str, count: int, end_s: float, kinds: tuple[str, ...], *, busy: float
) -> pd.DataFrame:
    edges_s = np.r_[0.0, np.sort(rng.uniform(0, end_s, count - 1)), end_s]
    kind = [kinds[min(i * len(kinds) // count, len(kinds) - 1)] for i in range(count)]
    layer = [f"conv{i % 24}" for i in range(count)]
    return pd.DataFrame(
        {
            "name": [f"{which} {word} part {device}" for which, word in zip(layer, kind, strict=True)],
            "kind": kind,
            "device": device,
            "stream": stream,
            "layer": layer,
            "phase": ["forward" if i < count / 3 else "backward" for i in range(count)],
            "iteration": 0,
            "start_s": edges_s[:-1],
            "end_s": edges_s[:-1] + np.diff(edges_s) * busy,
            "bytes": 0.0 if stream == "compute" else 1e6,
            "origin": "simulated",
        }
    )
