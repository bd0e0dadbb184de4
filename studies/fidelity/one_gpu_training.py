"""Training on one GPU: public throughputs and times of an iteration, beside simulated iterations."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import pandas as pd

from groundwork.errors import ConfigError, InfeasiblePlanError
from groundwork.units import MILLI
from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.profile_file import ProfileFile, catalogue, load_profile
from hwprofiles.devices.device import Device
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.software import IDEAL_SOFTWARE
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy
from studies.calibrate.device_sheets import base_content, device_labels, device_names
from studies.calibrate.network_tables import iteration_s
from studies.fidelity.device_names import is_fitted_to, profile_named, rows_of_table
from studies.fidelity.judged_row import PYTORCH_MEASURE, RELATIVE_MEASURE, JudgedRow

MODELS_MEASURED = {
    "alexnet": "alexnet",
    "alexnet (one weird trick)": "alexnet",
    "vgg-a": "vgg11",
    "vgg16": "vgg16",
    "vgg-16": "vgg16",
    "resnet50": "resnet50",
    "resnet 50": "resnet50",
    "resnet-50": "resnet50",
    "resnet-101": "resnet101",
    "inception3": "inception-v3",
    "inceptionv3": "inception-v3",
    "inception-v3": "inception-v3",
}
"""Models by the names that tables of measurements give them, in lower case."""
_LIBRARIES = ("CuDNN[R4]-fp32", "TensorFlow", "Nervana-neon-fp32")
"""Rows of convnet-benchmarks that are judged: libraries that were current then, others were known to be slow."""
_NEWER = ("cuDNN 5.1", "Nervana")
"""Beginnings of libraries that have Winograd's algorithm with tiles of 4 x 4 and for weight gradients.  cuDNN has both
since 5.1 (its release notes), Nervana's kernels since the end of 2015 (Lavin and Gray).  cuDNN 5, with which DeepBench
measured some devices, has neither."""
_PYTORCH = "pytorch_resnet50"
_SOFTWARE = {
    "tf_cnn_single_gpu": "TensorFlow 1",
    "tf_benchmarks_2017": "TensorFlow 1",
    "mxnet_single_gpu": "MXNet",
    "cnn_benchmarks": "Torch 7",
    "convnet_benchmarks_models": "libraries of 2016",
    _PYTORCH: "PyTorch",
}
"""Software that measured each table."""
_PLANNED_AS = {_PYTORCH: "pytorch"}
"""Names by which ``--software`` knows it; profiles were fitted to the others."""
_FEW_BYTES = 256 * 2**30
_ARITHMETIC = {"fp16": "float16", "tf32": "tf32"}
"""Arithmetic of rows that are not of float32, by the precision that tables name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One measured iteration."""

    table: str
    device: str
    model: str
    batch: int
    precision: str
    measured_s: float
    detail: str = ""

    @property
    def arithmetic(self) -> str:
        """Arithmetic of the row."""
        return _ARITHMETIC.get(self.precision, "float32")


def one_gpu_rows(part: str = "") -> Iterator[JudgedRow]:
    """Yield every measured iteration on one GPU."""
    for case in _cases():
        if part in ("", case.table):
            yield (row := _judged(case))
            if row.is_predicted and case.table != _PYTORCH:
                yield from _by_relative(case, row)


def _cases() -> Iterator[_Case]:
    """Yield the rows of all tables in one form."""
    for row in rows_of_table("tf_cnn_single_gpu"):
        yield _throughput(
            "tf_cnn_single_gpu", row.config, row.model, row.global_batch, row.precision, row.images_per_sec
        )
    for row in rows_of_table("mxnet_single_gpu"):
        if row.images_per_sec != "OOM":
            yield _throughput("mxnet_single_gpu", row.gpu, row.model, row.batch, row.precision, row.images_per_sec)
    for row in rows_of_table("tf_benchmarks_2017"):
        if row.n_gpus == 1:
            rate = row.images_per_sec
            yield _throughput("tf_benchmarks_2017", row.gpu, row.model, row.batch_per_gpu, row.precision, rate)
    for row in rows_of_table(_PYTORCH):
        yield _throughput(_PYTORCH, row.gpu, row.model, row.batch, row.precision, row.images_per_sec)
    yield from _iterations()


def _throughput(table: str, device: str, model: str, batch: int, precision: str, rate: float | str) -> _Case:
    """Return a case from its images/s."""
    return _Case(
        table=table, device=device, model=model, batch=batch, precision=precision, measured_s=batch / float(rate)
    )


def _iterations() -> Iterator[_Case]:
    """Yield the cases of the two tables that give times, both of passes forward and backward without updates."""
    for row in rows_of_table("cnn_benchmarks"):
        if not pd.isna(row.cudnn):  # without cuDNN another library computed, which nobody uses any more
            yield _Case(
                table="cnn_benchmarks",
                device=row.device,
                model=row.model,
                batch=int(row.batch),
                precision=row.precision,
                measured_s=float(row.total_ms) * MILLI,
                detail=f", cuDNN {row.cudnn}",
            )
    for row in rows_of_table("convnet_benchmarks_models"):
        if row.library.startswith(_LIBRARIES):
            yield _Case(
                table="convnet_benchmarks_models",
                device=row.device,
                model=row.model,
                batch=int(row.batch),
                precision=row.precision,
                measured_s=float(row.total_ms) * MILLI,
                detail=f", {' '.join(row.library.split())}",
            )


def _judged(case: _Case) -> JudgedRow:
    profile, model = profile_named(case.device), MODELS_MEASURED.get(case.model.lower())
    arithmetic = _ARITHMETIC.get(case.precision, "")
    reason, predicted_s = "", float("nan")
    if profile is None:
        reason = f"no profile of {case.device}"
    elif model is None:
        reason = f"no model {case.model}"
    else:
        try:
            name = f"{_with_library(profile, case)}{f'@{arithmetic}' if arithmetic else ''}"
            predicted_s = iteration_on_one(name, model, case.batch, _PLANNED_AS.get(case.table, IDEAL_SOFTWARE.text))
        except (ConfigError, InfeasiblePlanError) as error:
            reason = str(error)
    return JudgedRow(
        measure=PYTORCH_MEASURE if case.table == _PYTORCH else "training on one GPU",
        comparison=f"{case.table}, {profile or case.device}{f', {case.precision}' if arithmetic else ''}",
        label=f"{model or case.model}, batch {case.batch}, {case.precision[:4]}{case.detail}",
        group=profile or case.device,
        subject=model or case.model,
        arithmetic=case.arithmetic,
        software=_SOFTWARE[case.table],
        size=case.batch,
        measured=case.measured_s,
        predicted=predicted_s,
        fitted=bool(profile and is_fitted_to(profile, case.table)),
        reason=reason,
    )


def _by_relative(case: _Case, row: JudgedRow) -> Iterator[JudgedRow]:
    """Yield the row as predicted without any measurement of the device: by its data sheet and its relative's shares.

    Of cards that differ in memory alone one is no relative of the other, as tables know both by one label.
    """
    device = row.group
    if device not in device_names():
        return
    profile = _unmeasured(device, _ARITHMETIC.get(case.precision, ""))
    if not set(device_labels(device)) & set(device_labels(profile.relative)):
        yield replace(
            row,
            measure=RELATIVE_MEASURE,
            comparison=f"{row.comparison}, as {profile.relative}",
            predicted=iteration_s(profile, row.subject, case.batch),  # on one device the simulated time is this sum
            fitted=False,
        )


@cache
def _unmeasured(device: str, arithmetic: str) -> ComputeProfile:
    """Return the profile of a device before any row of it."""
    return ProfileFile.model_validate(base_content(device)).profile(device, arithmetic)


def _with_library(profile: str, case: _Case) -> str:
    """Return the profile of a device with the library of a case: another one where that is newer than the usual."""
    newer = f"{profile}-cudnn6"
    return newer if newer in catalogue() and case.detail.removeprefix(", ").startswith(_NEWER) else profile


@lru_cache(maxsize=1024)
def iteration_on_one(profile: str, model: str, batch: int, software: str = IDEAL_SOFTWARE.text) -> float:
    """Return the simulated time of an iteration on one device of a profile, whose memory is not limited.

    The memory of measured devices sufficed; what frameworks keep there is judged elsewhere.
    """
    graph = load_model(model, batch=batch)
    cluster = unlimited_device(profile)
    cost = CostModel(graph, cluster, conditions=Conditions.of(cluster, software=software))
    return replay(lowered(cost, named_strategy("data", graph, 1))).iteration_s


@lru_cache
def unlimited_device(profile: str) -> DeviceGraph:
    """Return a cluster of one device, whose memory is not limited."""
    memory_bytes = max(_FEW_BYTES, load_profile(profile).memory_bytes)
    device = Device(name="gpu0", node=0, profile=profile, memory_bytes=memory_bytes)
    return DeviceGraph(f"one {profile}", (device,), (), ())
