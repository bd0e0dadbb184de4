"""Parameters of a profile that kernels determine: priors, robust least squares, and which ones the data identify."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from groundwork.array_types import Floats
from groundwork.units import MICRO
from hwprofiles.compute.compute_profile import PROFILE_PHASES, ComputeProfile
from hwprofiles.compute.convolution_efficiency import ConvolutionEfficiency, HalfSizes
from studies.calibrate.measured_kernels import KernelGroup, log_errors
from studies.calibrate.robust_fit import fitted_logs

_ERROR = 0.15
"""Size of an ordinary residual, in logarithms: beyond it rows count less, as libraries now and then choose badly."""
_SHARES = ("ceiling", "memory", "window_reuse")
"""Parameters that are at most 1."""

_LAUNCH = "launch_overhead_us"
_TILE_PRIOR = {
    "ceiling": (0.85, 0.15),
    **{f"overhead_us.{phase}": (9, 0.7) for phase in PROFILE_PHASES[:3]},
    **{f"plain_overhead_us.{phase}": (5, 0.7) for phase in PROFILE_PHASES[:3]},
    **{f"load.{phase}": (70, 0.4) for phase in PROFILE_PHASES[:3]},
    **{f"strided.{phase}": (1.3, 0.3) for phase in PROFILE_PHASES[:3]},
    "unaligned": (3, 0.5),
    "unaligned.weight_gradient": (4, 0.5),
    "prologue": (50, 0.7),
    "memory": (0.75, 0.3),
    "partial_accesses": (2, 0.7),
}
"""As below, of convolutions in tensor cores."""
_PRODUCT_PRIOR = {
    "ceiling.forward": (0.85, 0.25),
    "ceiling.activation_gradient": (0.85, 0.25),
    "ceiling.weight_gradient": (0.85, 0.25),
    "half_sizes.rows": (20, 1.0),
    "half_sizes.columns": (20, 1.0),
    "half_sizes.depth": (20, 1.0),
    "half_sizes.output_elements": (100, 1.2),
    _LAUNCH: (6, 0.8),
}
_CONVOLUTION_PRIOR = {
    "ceiling.forward": (0.8, 0.25),
    "ceiling.activation_gradient": (0.8, 0.25),
    "ceiling.weight_gradient": (0.8, 0.25),
    **{
        f"half_sizes.{phase}.{name}": (value, 1.0)
        for phase, sizes in (
            ("forward", (8, 30, 20, 60)),
            ("activation_gradient", (8, 30, 40, 60)),
            ("weight_gradient", (150, 150, 1000, 60)),
        )
        for name, value in zip(("rows", "columns", "depth", "output_elements"), sizes, strict=True)
    },
    "half_sizes.samples": (15, 0.7),
    "half_sizes.positions": (20, 0.7),
    "memory": (0.7, 0.25),
    "overhead_us": (15, 0.7),
    "winograd.speedup": (3.2, 0.3),
    "winograd.half_out": (15, 0.7),
    "winograd.half_in": (10, 0.7),
    "winograd.weight_gradient": (1.0, 0.6),
    "fourier.positions": (4, 0.4),
    "fourier.half_out": (60, 0.7),
    "fourier.half_in": (60, 0.7),
    "strided_half_depth": (120, 0.7),
    "window_reuse": (0.5, 0.3),
}
"""Medians of the parameters before any measurement, and the standard deviations of their logarithms.  Half sizes of
output elements are multiples of the multiprocessors."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A profile with fitted parameters."""

    profile: ComputeProfile
    at_prior: tuple[str, ...]
    """Parameters that the rows do not identify, which stay at their prior."""


def fit_products(profile: ComputeProfile, groups: Sequence[KernelGroup], *, launch: bool = True) -> Fitted:
    """Return a profile with the efficiency and, if ``launch``, the launch overhead that fit measured products best."""
    plain = [group for group in groups if group.kernels.window is None]
    priors = {name: prior for name, prior in _PRODUCT_PRIOR.items() if launch or name != _LAUNCH}
    return _fit(profile, plain, priors, _with_products, "efficiency")


def fit_convolutions(profile: ComputeProfile, groups: Sequence[KernelGroup]) -> Fitted:
    """Return a profile with the section ``convolution``, or ``tiles``, that fits measured convolutions best."""
    convolutions = [group for group in groups if group.kernels.window is not None]
    if profile.tiles:
        return _fit(profile, convolutions, _TILE_PRIOR, _with_tiles, "tiles")
    return _fit(profile, convolutions, _CONVOLUTION_PRIOR, _with_convolutions, "convolution")


def _fit(
    profile: ComputeProfile,
    groups: Sequence[KernelGroup],
    priors: dict[str, tuple[float, float]],
    changed: Callable[[ComputeProfile, dict[str, float]], ComputeProfile],
    section: str,
) -> Fitted:
    """Minimise the soft absolute error of logarithms of times plus the priors, and drop what is not identified."""
    names = tuple(priors)
    middle, width = (np.array(column) for column in zip(*priors.values(), strict=True))
    start = np.log(middle)

    def changed_by(logs: Floats) -> ComputeProfile:
        return changed(profile, dict(zip(names, np.exp(logs).tolist(), strict=True)))

    def errors(logs: Floats) -> Floats:
        return log_errors(changed_by(logs), groups)

    most = np.array([0.0 if name.startswith(_SHARES) else np.inf for name in names])
    logs, known = fitted_logs(errors, start, width, (-np.inf, most), ordinary=_ERROR, steps=60)
    dropped = tuple(f"{section}.{name}" for name, has in zip(names, known, strict=True) if not has)
    return Fitted(changed_by(np.where(known, logs, start)), dropped)


def _with_products(profile: ComputeProfile, values: dict[str, float]) -> ComputeProfile:
    phases = ("forward", "activation_gradient", "weight_gradient")
    efficiency = replace(
        profile.efficiency,
        ceiling=(*(min(values[f"ceiling.{phase}"], 1.0) for phase in phases), 1.0, 1.0),
        half_rows=values["half_sizes.rows"],
        half_columns=values["half_sizes.columns"],
        half_depth=values["half_sizes.depth"],
        half_output=values["half_sizes.output_elements"] * profile.multiprocessors,
        half_samples=1e-3,  # a plain product has no samples: its columns say it all
        half_positions=1.0,
    )
    launch_s, wide = values.get(_LAUNCH, profile.launch_overhead_s / MICRO) * MICRO, profile.in_float32
    return replace(
        profile,
        efficiency=efficiency,
        launch_overhead_s=launch_s,
        in_float32=wide and replace(wide, launch_overhead_s=launch_s),  # a file has one launch overhead
    )


def _with_convolutions(profile: ComputeProfile, values: dict[str, float]) -> ComputeProfile:
    phases = ("forward", "activation_gradient", "weight_gradient")
    forward, activation, weight = (
        HalfSizes(
            rows=values[f"half_sizes.{phase}.rows"],
            columns=values[f"half_sizes.{phase}.columns"],
            depth=values[f"half_sizes.{phase}.depth"],
            output_elements=values[f"half_sizes.{phase}.output_elements"] * profile.multiprocessors,
        )
        for phase in phases
    )
    ceilings = [min(values[f"ceiling.{phase}"], 1.0) for phase in phases]
    return replace(
        profile,
        convolution=ConvolutionEfficiency(
            ceiling=(ceilings[0], ceilings[1], ceilings[2]),
            half_sizes=(forward, activation, weight),
            half_samples=values["half_sizes.samples"],
            half_positions=values["half_sizes.positions"],
            memory=min(values["memory"], 1.0),
            overhead_s=values["overhead_us"] * MICRO,
            winograd_speedup=max(values["winograd.speedup"], 1.0),
            winograd_half_out=values["winograd.half_out"],
            winograd_half_in=values["winograd.half_in"],
            winograd_weight_gradient=values["winograd.weight_gradient"],
            fourier_positions=values["fourier.positions"],
            fourier_half_out=values["fourier.half_out"],
            fourier_half_in=values["fourier.half_in"],
            strided_half_depth=values["strided_half_depth"],
            window_reuse=min(values["window_reuse"], 1.0),
        ),
    )


def _with_tiles(profile: ComputeProfile, values: dict[str, float]) -> ComputeProfile:
    """Return a profile with the parameters of convolutions in tensor cores; narrow windows and padding stay."""
    assert profile.tiles is not None

    def by_phase(name: str, unit: float = 1.0) -> tuple[float, float, float]:
        first, second, third = (values[f"{name}.{phase}"] * unit for phase in PROFILE_PHASES[:3])
        return first, second, third

    return replace(
        profile,
        tiles=replace(
            profile.tiles,
            ceiling=min(values["ceiling"], 1.0),
            overhead_s=by_phase("overhead_us", MICRO),
            plain_overhead_s=by_phase("plain_overhead_us", MICRO),
            load=by_phase("load"),
            strided=by_phase("strided"),
            unaligned=(values["unaligned"], values["unaligned"], values["unaligned.weight_gradient"]),
            prologue=values["prologue"],
            memory=min(values["memory"], 1.0),
            partial_accesses=values["partial_accesses"],
        ),
    )
