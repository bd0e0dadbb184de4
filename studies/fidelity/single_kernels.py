"""Single convolutions and matrix products beside the prices of the same kernels: those of DeepBench, and by row."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from groundwork.units import MICRO, MILLI
from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.profile_file import load_profile
from planner.cost.compute_time import kernel_s, transposed_s
from planner.graph.computation_graph import Layer
from planner.graph.shapes import Shape
from planner.operations.convolution import Convolution
from planner.operations.linear import Linear
from studies.fidelity.device_names import is_fitted_to, profile_named, rows_of_table
from studies.fidelity.judged_row import MEASURES, JudgedRow

_PHASES = {"forward": "fwd", "activation_gradient": "bwd_data", "weight_gradient": "bwd_weight"}
_LIBRARIES = "cuDNN, cuBLAS"
_MODEL = "deepbench"
"""Name of no model, so that no measured rows of one are taken."""


def kernel_rows() -> Iterator[JudgedRow]:
    """Yield every kernel of DeepBench; those of devices without a profile have no prediction."""
    for row in rows_of_table("deepbench_conv"):
        profile = _profile_of(row)
        yield from convolution_rows(row, row.gpu, profile, fitted=_is_fitted(profile))
    for row in rows_of_table("deepbench_gemm"):
        profile = _profile_of(row)
        yield product_row(row, row.gpu, profile, fitted=_is_fitted(profile))


def _profile_of(row: Any) -> str | None:
    """Return the profile of a row's device in the row's arithmetic, or None where the catalogue has none."""
    profile = profile_named(row.gpu)
    return f"{profile}@float16" if profile and row.precision == "fp16" else profile


def _is_fitted(profile: str | None) -> bool:
    return bool(profile and is_fitted_to(profile, "deepbench_conv"))


def convolution_layer(row: Any) -> Layer:
    """Return the layer of a row with the columns of DeepBench."""
    operation = Convolution(
        channels=row.out_k,
        kernel=(row.filter_r_h, row.filter_s_w),
        stride=(row.stride_h, row.stride_w),
        pad=(row.pad_h, row.pad_w),
        dilation=(1, 1),
        bias=False,
    )
    image = Shape(("sample", "channel", "height", "width"), (row.batch_n, row.in_c, row.in_h, row.in_w))
    return Layer("conv", operation, ("input",), (image,), operation.output((image,)))


def convolution_rows(
    row: Any, gpu: str, profile: str | None, *, fitted: bool, copied: bool = False
) -> Iterator[JudgedRow]:
    """Yield the three phases of one convolution, as far as they were measured.

    Args:
        row: Row of a table with the columns of DeepBench, its times in ms or us.
        gpu: Device, as the table names it.
        profile: Its profile; None if the catalogue has none.
        fitted: Whether that was fitted to the table.
        copied: Whether channels lie in planes, so that libraries transpose images for tensor cores.
    """
    layer = convolution_layer(row)
    label = (
        f"{row.batch_n} x {row.in_c} x {row.in_h} x {row.in_w} -> {row.out_k}, "
        f"{row.filter_r_h} x {row.filter_s_w}, stride {row.stride_h}"
    )
    for phase, column in _PHASES.items():
        measured_s = _seconds(row, column)
        if measured_s > 0:
            what = f"convolution, {phase.replace('_', ' ')}"
            yield _judged(gpu, profile, layer, phase, what, label, measured_s, fitted=fitted, copied=copied)


def product_row(row: Any, gpu: str, profile: str | None, *, fitted: bool) -> JudgedRow:
    """Return one matrix product, as the phase of a fully connected layer whose operands are transposed alike.

    Arguments as for ``convolution_rows``; without operands' order the row is y[m, n] = x[m, k] W^T.
    """
    if not hasattr(row, "b_trans"):
        phase, out, samples, into = "forward", row.n, row.m, row.k
    elif row.b_trans == "T":
        phase, out, samples, into = "weight_gradient", row.m, row.k, row.n
    elif row.a_trans == "T":
        phase, out, samples, into = "forward", row.m, row.n, row.k
    else:
        phase, out, samples, into = "activation_gradient", row.k, row.n, row.m
    operation = Linear(channels=out, bias=False)
    batch = Shape(("sample", "channel"), (samples, into))
    layer = Layer("fc", operation, ("input",), (batch,), operation.output((batch,)))
    order = f", {row.a_trans}{row.b_trans}" if hasattr(row, "b_trans") else ""
    label = f"{row.m} x {row.k} times {row.k} x {row.n}{order}"
    return _judged(gpu, profile, layer, phase, "matrix product", label, _seconds(row, "time"), fitted=fitted)


def _seconds(row: Any, stem: str) -> float:
    """Return a time of a row, whose column is in ms or us."""
    milliseconds = getattr(row, f"{stem}_ms", None)
    return float(getattr(row, f"{stem}_us") * MICRO if milliseconds is None else milliseconds * MILLI)


def _judged(
    gpu: str,
    profile: str | None,
    layer: Layer,
    phase: str,
    what: str,
    label: str,
    measured_s: float,
    *,
    fitted: bool,
    copied: bool = False,
) -> JudgedRow:
    predicted_s = float("nan")
    if profile:
        part = {dim: np.array([float(n)]) for dim, n in zip(layer.output.dims, layer.output.sizes, strict=True)}
        device = _in_short_runs(profile)
        predicted_s = float(kernel_s(device, _MODEL, layer, phase, part)[0])
        if copied:
            predicted_s += float(transposed_s(device, layer, phase, part)[0])
    return JudgedRow(
        measure=MEASURES[0].name,
        comparison=f"{what}, {profile or gpu}",
        label=label,
        group=profile or gpu,
        subject=what,
        arithmetic=(profile or "").partition("@")[2] or "float32",
        software=_LIBRARIES,
        measured=measured_s,
        fitted=fitted,
        predicted=predicted_s,
        reason="" if profile else f"no profile of {gpu}",
    )


@lru_cache
def _in_short_runs(profile: str) -> ComputeProfile:
    """Return a profile as it is in a loop over one kernel: at its boost clock, without the host's time for a layer."""
    return replace(load_profile(profile).for_single_kernels(), dispatch_s=0.0)
