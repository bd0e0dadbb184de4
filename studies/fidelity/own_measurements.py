"""Our own measurements of one H200 beside predictions: single kernels, networks and language models."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from groundwork.input_files import yaml_input
from groundwork.units import MILLI
from hwprofiles.compute.fused_times import fused_s
from hwprofiles.compute.profile_file import catalogue, load_profile
from hwprofiles.measured.measured_tables import measured_table
from planner.models.registry import load_model
from planner.plan.make_plan import simulated_plan
from planner.plan.plan_options import DTYPE_BYTES
from studies.calibrate.fused_tables import table_fused
from studies.calibrate.kernel_tables import layout_priced
from studies.fidelity.device_names import rows_of_table
from studies.fidelity.judged_row import JudgedRow, OwnMeasure
from studies.fidelity.one_gpu_training import unlimited_device
from studies.fidelity.single_kernels import convolution_rows, product_row

_DEVICE, _RELEASE = "h200", "PyTorch 2.11"
_SOFTWARE = {"eager": "pytorch:update=0", "compile": "torch-compile:loss=1,update=0", "graph": "cuda-graph:update=0"}
"""Software by how steps of language models were launched; those of networks were eager.  The loss was never compiled,
and AdamW was one kernel."""
_IN_PLANES = {"channels-first": 1, "channels-last": 0}

_ORDERS = {"channels-first": "NCHW", "channels-last": "NHWC"}
"""Orders in memory, as the comparisons name them."""


def own_kernel_rows() -> Iterator[JudgedRow]:
    """Yield every product, phase of a convolution, copy and sum."""
    for row in rows_of_table("h200_products"):
        one = product_row(row, _DEVICE, _profile(row.precision), fitted=_is_fitted(row.precision, "product"))
        yield _named(one, OwnMeasure.PRODUCTS, f"products, {_DEVICE}, {row.precision}")
    for row in rows_of_table("h200_convolutions"):
        priced = row.layout == layout_priced(row.precision)
        measure = OwnMeasure.CONVOLUTIONS if priced else OwnMeasure.COPIED_CONVOLUTIONS
        fitted = priced and _is_fitted(row.precision, "convolution forward")
        copied = row.layout == "channels-first"
        for one in convolution_rows(row, _DEVICE, _profile(row.precision), fitted=fitted, copied=copied):
            yield _named(one, measure, f"{one.subject}, {_DEVICE}, {row.precision}, {_ORDERS[row.layout]}")
    # Copies and sums as the kernels of one pass that they are.
    table = measured_table("h200_elementwise")
    for names, rows in table.groupby(["precision", "operation"], sort=False):
        precision, operation = map(str, names)
        (group,) = table_fused(rows, "h200_elementwise")
        profile = load_profile(_profile(precision)).for_single_kernels()
        predicted_s = fused_s(profile, group.kernels, group.phase)
        for elements, measured_s, price_s in zip(rows.elements, group.time_s, predicted_s, strict=True):
            yield JudgedRow(
                measure=OwnMeasure.ELEMENTWISE,
                comparison=f"{operation}, {_DEVICE}, {precision}",
                label=f"{elements:,} elements",
                group=_DEVICE,
                subject=operation,
                arithmetic=precision,
                software=_RELEASE,
                measured=float(measured_s),
                predicted=float(price_s),
                fitted=_is_fitted(precision, f"elementwise {group.phase}"),
            )


def _is_fitted(precision: str, kind: str) -> bool:
    """Return whether the device's profile was fitted to its own rows of a kind in an arithmetic."""
    return (kind if precision == "float32" else f"{precision} {kind}") in _fitted_kinds()


@cache
def _fitted_kinds() -> frozenset[str]:
    """Return the kinds of rows that the device's profile was fitted to."""
    content: dict[str, Any] = dict(yaml_input(catalogue()[_DEVICE], "compute profile"))
    return frozenset(content["fit"]["errors"])


def own_training_rows() -> Iterator[JudgedRow]:
    """Yield every step of a network or language model, as ``orrery plan`` prices it on one device."""
    for row in rows_of_table("h200_networks"):
        priced = row.layout == layout_priced(row.precision)
        yield _step(
            row,
            measure=OwnMeasure.NETWORKS if priced else OwnMeasure.COPIED_NETWORKS,
            comparison=f"networks, {_DEVICE}, {row.precision}, {_ORDERS[row.layout]}",
            predicted_s=_planned_s(
                row,
                row.model,
                optimizer="momentum",
                software=f"pytorch:channels_first={_IN_PLANES[row.layout]}",
                parameter_dtype="float32" if DTYPE_BYTES[row.precision] < DTYPE_BYTES["float32"] else None,  # autocast
            ),
        )
    for row in rows_of_table("h200_language_models"):
        yield _step(
            row,
            measure=OwnMeasure.LANGUAGE_MODELS,
            comparison=f"{row.model}, {_DEVICE}, {row.precision}, {row.mode}",
            predicted_s=_planned_s(
                row,
                f"{row.model}:sequence={row.seq_len}",
                optimizer="adam",
                software=_SOFTWARE[row.mode],
                master_dtype="none",
            ),
        )


def _step(row: Any, *, measure: str, comparison: str, predicted_s: float) -> JudgedRow:
    """Return the row of one training step."""
    tokens = f" x {row.seq_len:,} tokens" if hasattr(row, "seq_len") else ""
    return JudgedRow(
        measure=measure,
        comparison=comparison,
        label=f"{row.model}, batch {row.batch}{tokens}",
        group=_DEVICE,
        subject=row.model,
        arithmetic=row.precision,
        software=_RELEASE,
        size=row.batch,
        measured=row.step_ms * MILLI,
        predicted=predicted_s,
    )


def _planned_s(row: Any, model: str, **options: Any) -> float:
    """Return the simulated time of the plan of a step of a model that a command would make with these options."""
    planned = simulated_plan(
        load_model(model, batch=row.batch, element_bytes=DTYPE_BYTES[row.precision]),
        unlimited_device(_DEVICE),
        dtype=row.precision,
        strategy="data",
        **options,
    )
    return planned.replayed.iteration_s


def _profile(precision: str) -> str:
    """Return the device's profile in an arithmetic."""
    return f"{_DEVICE}@{precision}"


def _named(row: JudgedRow, measure: str, comparison: str) -> JudgedRow:
    """Return a row under the names of our own measurements."""
    return replace(row, measure=measure, comparison=comparison, group=_DEVICE, software=_RELEASE)
