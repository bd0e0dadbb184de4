"""Tables of measured attention, norms, elementwise chains and experts, and the efficiencies that they determine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from groundwork.array_types import Bools, Floats
from groundwork.errors import ConfigError
from groundwork.units import MICRO
from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.fused_kernels import (
    FusedEfficiency,
    FusedKernels,
    attention_kernels,
    elementwise_kernels,
    expert_kernels,
    norm_kernels,
)
from hwprofiles.compute.fused_times import fused_s
from studies.calibrate.kernel_tables import OPERAND_BYTES, precisions
from studies.calibrate.robust_fit import fitted_logs

if TYPE_CHECKING:
    import pandas as pd


_COLUMNS = {
    "attention": ("pass", "causal", "batch", "seq", "q_heads", "kv_heads", "head_dim", "time_us"),
    "norm": ("pass", "rows", "columns", "time_us"),
    "elementwise": ("pass", "elements", "accesses", "time_us"),
    "moe": ("pass", "tokens", "hidden", "expert_ffn", "experts", "topk", "gated", "time_us"),
}
"""Columns of each kind of table."""
_FAMILY = {
    "attention": (("q_heads", "head_dim"), ("seq",)),
    "norm": (("columns",),),
    "elementwise": (("accesses",), ("elements",)),
    "moe": (("hidden", "expert_ffn", "experts"),),
}
"""Columns whose values are held out together; others where a table has one value of the first."""
_FLAGS = {"attention": "causal", "moe": "gated"}
"""Columns of 0 and 1."""
_PASSES = {"fwd": "forward", "bwd": "backward"}
_MOST = 10**12
_ERROR, _FOLDS, _LEAST_ROWS = 0.1, 4, 8
_PRIOR = {
    "ceiling": (0.6, 0.3),
    "half_blocks": (1.0, 1.0),
    "head_exponent": (0.3, 0.7),
    "memory": (0.6, 0.4),
    "overhead_us": (10.0, 0.7),
}
"""Medians of parameters before any measurement, and the standard deviations of their logarithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFused:
    """Measured kernels of one kind, pass and arithmetic."""

    phase: str
    precision: str
    kernels: FusedKernels
    time_s: Floats
    families: tuple[str, ...]

    def only(self, mine: Bools) -> "MeasuredFused":
        """Return some of the kernels."""
        k = self.kernels
        arrays = {name: getattr(k, name)[mine] for name in ("flop", "memory_bytes", "blocks", "head_size")}
        families = tuple(family for family, keep in zip(self.families, mine, strict=True) if keep)
        return replace(self, kernels=replace(k, **arrays), time_s=self.time_s[mine], families=families)


def fused_columns(table: "pd.DataFrame") -> str | None:
    """Return the kind of fused kernels that a table has the columns of, or None."""
    return next((kind for kind, columns in _COLUMNS.items() if set(columns) <= set(table)), None)


def table_fused(table: "pd.DataFrame", name: str) -> list[MeasuredFused]:
    """Return the measured kernels of a table of attention, normalisation, elementwise chains or experts.

    Raises:
        ConfigError: A value is no positive number, or a pass neither ``fwd`` nor ``bwd``.
    """
    kind = fused_columns(table)
    assert kind is not None
    unknown = sorted(set(table["pass"].astype(str)) - set(_PASSES))
    if unknown:
        raise ConfigError(f"table {name}: pass must be fwd or bwd, got {unknown[0][:40]!r}")
    sizes = {column: _numbers(table, column, name) for column in _COLUMNS[kind] if column != "pass"}
    arithmetic, passes = np.array(precisions(table, name)), table["pass"].to_numpy()
    flags = sizes[_FLAGS[kind]] if kind in _FLAGS else np.zeros(len(table))
    found = []
    for key in dict.fromkeys(zip(passes, arithmetic, flags, strict=True)):
        mine = (passes == key[0]) & (arithmetic == key[1]) & (flags == key[2])
        group = {column: values[mine] for column, values in sizes.items()}
        phase, precision = _PASSES[key[0]], str(key[1])
        found.append(
            MeasuredFused(
                phase=phase,
                precision=precision,
                kernels=_kernels(kind, group, phase, precision),
                time_s=group["time_us"] * MICRO,
                families=_families(kind, group),
            )
        )
    return found


def _families(kind: str, sizes: dict[str, Floats]) -> tuple[str, ...]:
    """Return the family of each row, by the first columns that have several values."""
    families: list[str] = []
    for columns in _FAMILY[kind]:
        families = [
            "x".join(f"{value:g}" for value in row) for row in zip(*(sizes[name] for name in columns), strict=True)
        ]
        if len(set(families)) > 1:
            break
    return tuple(families)


def fit_fused(profile: ComputeProfile, rows: Sequence[MeasuredFused]) -> FusedEfficiency:
    """Return the efficiency of one kind and phase that fits measured kernels best."""
    kind, phase = rows[0].kernels.kind, rows[0].phase
    names = [name for name in _PRIOR if kind == "attention" or name != "head_exponent"]
    if not any(row.kernels.flop.any() for row in rows):
        names = ["memory", "overhead_us"]
    start, width = (np.array([_PRIOR[name][at] for name in names]) for at in (0, 1))
    start = np.log(start)

    def changed(logs: Floats) -> ComputeProfile:
        values = dict(zip(names, np.exp(logs).tolist(), strict=True))
        overhead_s = values.pop("overhead_us") * MICRO
        return replace(profile, fused={(kind, phase): FusedEfficiency(**values, overhead_s=overhead_s)})

    def errors(logs: Floats) -> Floats:
        return np.concatenate([_logs(changed(logs), row) for row in rows])

    most = np.array([0.0 if name in ("ceiling", "memory") else np.log(2e3) for name in names])
    logs, _ = fitted_logs(errors, start, width, (-np.inf, most), ordinary=_ERROR, steps=60)
    return changed(logs).fused[kind, phase]


def held_out_fused(profile: ComputeProfile, rows: Sequence[MeasuredFused]) -> Floats:
    """Return the logarithms of predicted over measured times, one fourth of the families held out at a time.

    Raises:
        ConfigError: There are too few rows.
    """
    families = sorted({family for row in rows for family in row.families})
    if sum(len(row.time_s) for row in rows) < _LEAST_ROWS or len(families) < 2:
        raise ConfigError(
            f"a fit of {rows[0].kernels.kind} needs at least {_LEAST_ROWS} rows of 2 different"
            f" {' and '.join(_FAMILY[rows[0].kernels.kind][0])}"
        )
    found = []
    for fold in range(min(_FOLDS, len(families))):
        held = set(families[fold::_FOLDS])
        outside = [np.array([family in held for family in row.families]) for row in rows]
        inside = [row.only(~mine) for row, mine in zip(rows, outside, strict=True) if not mine.all()]
        efficiency = fit_fused(profile, inside)
        with_it = replace(profile, fused={(rows[0].kernels.kind, rows[0].phase): efficiency})
        found += [_logs(with_it, row.only(mine)) for row, mine in zip(rows, outside, strict=True) if mine.any()]
    return np.concatenate(found)


def _logs(profile: ComputeProfile, row: MeasuredFused) -> Floats:
    """Return the logarithms of predicted over measured times."""
    return np.asarray(np.log(fused_s(profile, row.kernels, row.phase) / row.time_s))


def _kernels(kind: str, sizes: dict[str, Floats], phase: str, precision: str) -> FusedKernels:
    """Return the kernels of rows of one table."""
    element_bytes = OPERAND_BYTES[precision]
    if kind == "attention":
        return attention_kernels(
            samples=sizes["batch"],
            heads=sizes["q_heads"],
            key_heads=sizes["kv_heads"],
            queries=sizes["seq"],
            keys=sizes["seq"],
            head_size=sizes["head_dim"],
            causal=bool(sizes["causal"][0]),
            element_bytes=element_bytes,
            phase=phase,
        )
    if kind == "norm":
        return norm_kernels(rows=sizes["rows"], columns=sizes["columns"], element_bytes=element_bytes, phase=phase)
    if kind == "elementwise":
        return elementwise_kernels(elements=sizes["elements"], accesses=sizes["accesses"], element_bytes=element_bytes)
    return expert_kernels(
        tokens=sizes["tokens"],
        hidden=sizes["hidden"],
        inner=sizes["expert_ffn"],
        experts=sizes["experts"],
        top_k=sizes["topk"],
        gated=bool(sizes["gated"][0]),
        element_bytes=element_bytes,
    )


def _numbers(table: "pd.DataFrame", column: str, name: str) -> Floats:
    """Return a column of numbers > 0; flags may be 0."""
    import pandas as pd

    values: Any = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=float)
    least = 0.0 if column in _FLAGS.values() else 1e-3
    wrong = ~((values >= least) & (values <= _MOST))
    if wrong.any():
        row = int(wrong.argmax())
        raise ConfigError(f"table {name}: {column} must be a number > 0, got {str(table[column].iloc[row])[:40]!r}")
    return np.asarray(values)
