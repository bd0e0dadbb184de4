"""Tables of whole networks on one device, and the two numbers of a profile that they determine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from groundwork.units import MICRO
from hwprofiles.compute.compute_profile import ComputeProfile
from planner.cost.compute_time import kernel_s, stored_kernels
from planner.graph.computation_graph import LAYER_PHASES, ComputationGraph
from planner.models.registry import load_model
from studies.calibrate.kernel_tables import precisions
from studies.calibrate.robust_fit import fitted_logs

if TYPE_CHECKING:
    import pandas as pd


_MODELS = {
    "alexnet": "alexnet",
    "inceptionv3": "inception-v3",
    "inception3": "inception-v3",
    "resnet50": "resnet50",
    "resnet101": "resnet101",
    "resnet152": "resnet152",
    "vgg16": "vgg16",
}
_MOST_SAMPLES = 10**7
_BATCHES, _DEVICES = ("batch", "batch_per_gpu", "global_batch"), ("gpu", "config")
_ERROR = 0.1
_LEAST_ROWS = 3


_MOST_TRANSFERRED = 3.0
"""Most that a device may exceed its relative's shares of the peak: those of T4 were measured at its limit of 70 W."""
_FITTED, _TRANSFERRED = (0.9, 0.15), (0.8, 0.6)
"""Median of the sustained clock, and the standard deviation of its logarithm, of a profile fitted to kernels and of
another."""
_DISPATCH_US, _DISPATCH_WIDTH = 30, 1.0
"""The same of the host's time for a layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNetwork:
    """The measured time of one training iteration on one device."""

    model: str
    batch: int
    time_s: float
    precision: str
    source: str


def table_networks(table: "pd.DataFrame", name: str) -> list[MeasuredNetwork]:
    """Return the rows of one device that train a network of the catalogue; others are left out.

    Tables have ``model``, ``images_per_sec`` and one of ``batch``, ``batch_per_gpu``, ``global_batch``.

    Raises:
        ConfigError: A column is missing, or a value is no number.
    """
    import pandas as pd

    batch = next((column for column in _BATCHES if column in table), None)
    if batch is None or "images_per_sec" not in table:
        raise ConfigError(
            f"table {name} of networks needs the columns model, images_per_sec and one of {', '.join(_BATCHES)};"
            f" got {', '.join(map(str, table.columns))}"
        )
    known: list[MeasuredNetwork] = []
    for row, precision in zip(table.to_dict("records"), precisions(table, name), strict=True):
        model = _MODELS.get("".join(letter for letter in str(row["model"]).lower() if letter.isalnum()))
        rate = pd.to_numeric(row["images_per_sec"], errors="coerce")
        if model is None or row.get("n_gpus", 1) != 1:
            continue
        if rate == rate and rate > 0:  # others did not fit in memory
            size = pd.to_numeric(row[batch], errors="coerce")
            if not (1 <= size <= _MOST_SAMPLES and size % 1 == 0):
                raise ConfigError(
                    f"table {name}: {batch} must be a whole number in 1 .. {_MOST_SAMPLES}, got {row[batch]!r}"
                )
            size = int(size)
            known.append(
                MeasuredNetwork(model=model, batch=size, time_s=size / float(rate), precision=precision, source=name)
            )
    return known


def iteration_s(profile: ComputeProfile, model: str, batch: int) -> float:
    """Return the seconds of one training iteration on one device: the sum over layers and phases."""
    graph = _graph(model, batch)
    total = 0.0
    for index, layer in enumerate(graph.layers):
        sizes = zip(layer.output.dims, layer.output.sizes, strict=True)
        part = {dim: np.array([float(size)]) for dim, size in sizes}
        for phase in LAYER_PHASES:
            if graph.has_phase(index, phase):
                inner = graph.has_phase(index, "activation_gradient")
                total += float(kernel_s(profile, graph.name, layer, phase, part, inner=inner)[0])
    return total


@cache
def _graph(model: str, batch: int) -> ComputationGraph:
    return load_model(model, batch=batch)


class _Terms:
    """The terms of all phases of networks, from which a time follows for every clock and host."""

    def __init__(self, profile: ComputeProfile, rows: Sequence[MeasuredNetwork]) -> None:
        boost = profile.for_single_kernels()
        self._measured_s = np.array([row.time_s for row in rows])
        terms = [_phase_terms(boost, row, profile.in_float32) for row in rows]
        self._row = np.repeat(np.arange(len(rows)), [len(some) for some in terms])
        every = np.concatenate(terms)
        self._arithmetic_s, self._traffic_s, self._rest_s, self._most_s, self._hosted = every.T

    def logs(self, share: float, dispatch_s: float) -> Floats:
        """Return the logarithms of predicted over measured times."""
        seconds = np.maximum(self._arithmetic_s / share, self._traffic_s) + self._rest_s
        seconds = np.minimum(seconds, self._most_s)
        seconds = np.maximum(seconds, dispatch_s * self._hosted)
        return np.asarray(np.log(np.bincount(self._row, seconds, minlength=len(self._measured_s)) / self._measured_s))


def _phase_terms(boost: ComputeProfile, row: MeasuredNetwork, wide: ComputeProfile | None) -> Floats:
    """Return the terms of all phases of a network.

    Args:
        boost: Profile at its boost clock.
        row: Network.
        wide: The device in float32 at its sustained clock, whose kernels bound those of another arithmetic.

    Returns:
        Arithmetic, traffic, rest, bound, and whether the host counts: shape (phases, 5).
    """
    graph, found = _graph(row.model, row.batch), []
    for index, layer in enumerate(graph.layers):
        part = {d: np.array([float(s)]) for d, s in zip(layer.output.dims, layer.output.sizes, strict=True)}
        for phase in LAYER_PHASES:
            if graph.has_phase(index, phase):
                work = stored_kernels(boost, layer.kernels(phase, part), phase)
                if work.flop[0] + work.memory_bytes[0] > 0:
                    terms = [float(term[0]) for term in boost.terms_s(work, phase)]
                    most_s = float(replace(boost, in_float32=wide).most_s(work, phase)[0])
                    found.append([*terms, most_s, float(phase != "update")])
    return np.array(found)


def fit_networks(profile: ComputeProfile, rows: Sequence[MeasuredNetwork], *, kernels: bool) -> ComputeProfile:
    """Return a profile with the sustained clock and the host's time for a layer that fit networks best.

    Args:
        profile: Profile at its boost clock, fitted to kernels or transferred from a relative.
        rows: Measured networks.
        kernels: Whether the profile was fitted to kernels of its device: then the clock is near the boost clock, else
            it stands for everything in which the device differs from its relative.
    """
    median, share_width = _FITTED if kernels else _TRANSFERRED
    start, width = np.log([median, _DISPATCH_US]), np.array([share_width, _DISPATCH_WIDTH])
    terms = _Terms(profile, rows)

    def errors(logs: Floats) -> Floats:
        share, dispatch_us = np.exp(logs).tolist()
        return terms.logs(share, dispatch_us * MICRO)

    high = np.log([1.0 if kernels else _MOST_TRANSFERRED, 2000.0])
    logs, known = fitted_logs(errors, start, width, ([-4.0, -2.0], high), ordinary=_ERROR)
    share, dispatch_us = np.exp(logs).tolist()
    return replace(
        profile,
        peak_flop_per_s=profile.peak_flop_per_s * share / profile.sustained_clock,
        sustained_clock=share,
        dispatch_s=dispatch_us * MICRO if known[1] else 0.0,  # large batches hide the host: then it is not counted
    )


def held_out_networks(
    rows: Sequence[MeasuredNetwork], fit: Callable[[Sequence[MeasuredNetwork]], ComputeProfile]
) -> Floats:
    """Return the logarithms of predicted over measured times, each model held out once.

    Raises:
        ConfigError: There are fewer than three rows.
    """
    if len(rows) < _LEAST_ROWS:
        raise ConfigError(f"a fit of networks needs at least {_LEAST_ROWS} rows of known models; got {len(rows)}")
    errors = []
    for model in sorted({row.model for row in rows}):
        profile = fit([row for row in rows if row.model != model])
        held_out = [row for row in rows if row.model == model]
        errors += [np.log(iteration_s(profile, row.model, row.batch) / row.time_s) for row in held_out]
    return np.array(errors)
