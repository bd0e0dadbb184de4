"""Plans and programs of all variants of a validation, and the files in which the ranks find them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from executor.probe.codec_probe import CodecRow
from executor.probe.measured_rows import ProbeRow
from executor.probe.probed_profile import write_with_codecs
from executor.runtime.run_options import RunOptions
from executor.validation.validation_job import PlanSamples
from groundwork.errors import ConfigError, InfeasiblePlanError
from groundwork.progress import Progress
from hwprofiles.devices.device_graph import DeviceGraph
from planner.compression.data_types import compression
from planner.compression.settings import UNCOMPRESSED, CompressionSettings, can_synchronise, compressed_of
from planner.graph.computation_graph import ComputationGraph
from planner.layouts.parameter_shards import storage_shards
from planner.layouts.regions import held_regions
from planner.lowering.program import KINDS, Program
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.plan.plan import Plan
from planner.search.gradient_order import check_gradient_sync_order
from planner.strategies.named_strategies import is_searched
from simulator.collectives.schemes import ALL_REDUCES

_COMPRESSED_SYNC = "ps-spread"
"""Gradient synchronisation where the requested scheme cannot carry compressed messages: it moves as many bytes through
each host as a ring does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Strategy with its gradient synchronisation and the compression of its messages."""

    name: str
    strategy: str
    gradient_sync: str
    """Scheme of gradient synchronisation, one of ``simulator.collectives.schemes.ALL_REDUCES``."""
    compressed: CompressionSettings = UNCOMPRESSED
    order: str = "end"
    """Order of gradient synchronisation, as for ``planner.search.gradient_order.ordered``."""
    plain: str = ""
    """Name of the strategy as it is; empty where this is it."""


def variants_of(
    graph: ComputationGraph,
    strategies: Sequence[str],
    gradient_sync: str,
    *,
    gradients: Sequence[str] = (),
    activations: Sequence[str] = (),
    orders: Sequence[str] = (),
) -> list[Variant]:
    """Return every strategy as it is, then with each order of synchronisation, then with each data type.

    Args:
        graph: The network.
        strategies: Names or files; repeated ones count once.
        gradient_sync: Scheme of gradient synchronisation; ``ps-spread`` replaces it where it cannot carry compressed
            messages.
        gradients: Data types that gradients are compressed to; one that is also in ``activations`` compresses both.
        activations: Data types that tensors between layers, and their gradients, are compressed to.
        orders: Orders of gradient synchronisation, of ``planner.search.gradient_order.GRADIENT_SYNC_ORDERS``.

    Raises:
        ConfigError: A type or order is unknown, a type cannot compress activations, or the scheme is none that can
            be run.
    """
    for order in orders:
        check_gradient_sync_order(order)
    if gradient_sync not in ALL_REDUCES:
        raise ConfigError(f"gradient_sync must be one of {', '.join(ALL_REDUCES)}, got {gradient_sync!r}")
    types = list(dict.fromkeys(compression(text).text for text in (*gradients, *activations)))
    chosen = [{compression(text).text for text in texts} for texts in (gradients, activations)]
    variants = []
    for strategy in dict.fromkeys(strategies):
        variants.append(Variant(name=strategy, strategy=strategy, gradient_sync=gradient_sync))
        variants += [
            Variant(
                name=f"{strategy}, {order}", strategy=strategy, gradient_sync=gradient_sync, order=order, plain=strategy
            )
            for order in dict.fromkeys(orders)
            if order != "end"
        ]
        for text in types:
            gradient_type, activation_type = (text if text in texts else "" for texts in chosen)
            takes_it = not gradient_type or can_synchronise(compression(text), gradient_sync)
            scheme = gradient_sync if takes_it else _COMPRESSED_SYNC
            compressed = compressed_of(graph, scheme, gradients=gradient_type, activations=activation_type)
            name = f"{strategy}, {text}"
            variants.append(
                Variant(name=name, strategy=strategy, gradient_sync=scheme, compressed=compressed, plain=strategy)
            )
    return variants


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedVariants:
    """Plans of the variants that fit, by the name of the variant, and reasons of those that do not."""

    graph: ComputationGraph
    cluster: DeviceGraph
    plans: dict[str, Plan]
    programs: dict[str, Program]
    refused: dict[str, str]

    def compressed_types(self, options: RunOptions) -> dict[str, tuple[str, ...]]:
        """Return the data types that the ranks of each plan really compress to; plans without any are left out."""
        if options.stand_in_compression:
            return {}
        pairs = {name: program.compressed for name, program in self.programs.items()}
        used = {name: (pair.gradients, pair.activations) for name, pair in pairs.items()}
        types = {name: tuple(dict.fromkeys(kind for kind in pair if kind)) for name, pair in used.items()}
        return {name: kinds for name, kinds in types.items() if kinds}

    def priced_by(self, samples: dict[str, PlanSamples], folder: Path, device: str) -> "PlannedVariants":
        """Return the same plans, lowered with the times that were sampled between their turns."""
        programs = dict(self.programs)
        for number, (name, plan) in enumerate(self.plans.items()):
            if rows := samples[name].codecs:
                cluster = with_codec_times(self.cluster, rows, folder / f"codecs-{number}", device)
                programs[name] = lower_plan(plan, self.graph, cluster)
            programs[name] = with_samples(programs[name], samples[name].parts)
        return replace(self, programs=programs)


def plan_variants(
    graph: ComputationGraph, cluster: DeviceGraph, variants: Sequence[Variant], progress: Progress | None
) -> PlannedVariants:
    """Plan and lower every variant; those that cannot be planned are kept with the reason.

    Raises:
        InfeasiblePlanError: No variant can be planned.
    """
    plans: dict[str, Plan] = {}
    refused: dict[str, str] = {}
    for done, variant in enumerate(variants):
        if progress:
            progress(f"planning {variant.name}", done, len(variants))
        if reason := _not_searched(variant):
            refused[variant.name] = reason
            continue
        try:
            plans[variant.name] = make_plan(
                graph,
                cluster,
                strategy=variant.strategy,
                gradient_sync=variant.gradient_sync,
                gradient_sync_order=variant.order,
                compress_gradients=variant.compressed.gradients,
                compress_activations=variant.compressed.activations,
            )
        except InfeasiblePlanError as error:
            refused[variant.name] = str(error)
    if not plans:
        raise InfeasiblePlanError("; ".join(f"{name}: {reason}" for name, reason in refused.items()) or "no strategy")
    programs = {name: lower_plan(plan, graph, cluster) for name, plan in plans.items()}
    return PlannedVariants(graph=graph, cluster=cluster, plans=plans, programs=programs, refused=refused)


def _not_searched(variant: Variant) -> str:
    """Return why the search behind a strategy cannot plan a variant; empty if it can."""
    if variant.order != "end" and is_searched(variant.strategy):
        return "its search does not consider orders of gradient synchronisation"
    if variant.compressed and variant.strategy == "layerwise":
        return "its search does not consider compression"
    return ""


def with_codec_times(cluster: DeviceGraph, rows: Sequence[CodecRow], folder: Path, device: str) -> DeviceGraph:
    """Return the cluster with measured times of compression and decompression on all devices."""
    names = list(dict.fromkeys(row.profile for row in cluster.devices))
    paths = {name: folder / f"{number}-{Path(name).stem}.yaml" for number, name in enumerate(names)}
    for name, path in paths.items():
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        write_with_codecs(name, rows, path, device=device, measured=now, software=f"torch {torch.__version__}")
    return cluster.with_profiles({name: str(path) for name, path in paths.items()})


def with_samples(program: Program, rows: Sequence[ProbeRow]) -> Program:
    """Return the program with the median sample of every part as the length of its tasks.

    Args:
        program: Program lowered on any compute profile.
        rows: Samples of every part of its layers, by one rank or several, of one micro-batch where a layer has
            several; without rows the program stays as it is.  Tasks of compression stay as they are in any case.
    """
    if not rows:
        return program
    samples: dict[tuple[str, tuple[int, ...], str], list[float]] = defaultdict(list)
    for row in rows:
        for layer in row.layers:
            samples[layer, row.sizes, row.phase] += row.samples.seconds
    known = {key: float(np.median(seconds)) for key, seconds in samples.items()}
    layers = program.graph.layers
    spaces = [program.spaces_at(i)[i] for i in range(len(layers))]
    regions = [held_regions(space) for space in spaces]
    work_s = program.work_s.copy()
    for task in np.flatnonzero(program.is_compute & ~program.is_codec).tolist():
        i, part = int(program.layer[task]), int(program.part[task])
        sizes = tuple((regions[i].high[part] - regions[i].low[part]).tolist())
        phase = KINDS[program.kind[task]]
        # replicas that divide the optimizer's state each update a share of the parameters that were sampled
        shards = storage_shards(program.conditions.storage, layers[i], spaces[i]) if phase == "update" else 1
        work_s[task] = known[layers[i].name, sizes, phase] / shards
    return replace(program, work_s=work_s)
