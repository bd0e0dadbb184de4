"""Calibration of one device: its data sheet, the rows that were measured on it, and a profile file made of both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from groundwork.errors import ConfigError
from groundwork.units import MICRO
from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.fused_kernels import FUSED_PHASES
from hwprofiles.compute.profile_file import ProfileFile
from studies.calibrate.cross_validation import HeldOutErrors, cross_validated, summary
from studies.calibrate.fitted_parameters import Fitted, fit_convolutions, fit_products
from studies.calibrate.fused_tables import MeasuredFused, fit_fused, held_out_fused
from studies.calibrate.measured_kernels import KernelGroup, MeasuredKernel, grouped
from studies.calibrate.network_tables import MeasuredNetwork, fit_networks, held_out_networks
from studies.calibrate.profile_content import (
    convolution_section,
    efficiency_section,
    error_section,
    fused_section,
    kernel_section,
    tile_section,
)
from studies.calibrate.smooth_corrections import with_table

_LEAST_ROWS = {"product": 8, "convolution": 12}
_LEAST_FAMILIES = 3
_DOUBLE = "float64"
_METHOD = (
    "least squares on logarithms of times with a soft absolute loss and log-normal priors; then measured kernels as"
    " smooth corrections of the formula; then the sustained clock and the host's time a layer from whole networks"
)
_HELD_OUT = (
    "kernels: one sixth of the families at a time (products of one weight, layers of one window and number of"
    " channels, heads, widths); networks: one model at a time"
)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A profile file's content, with the errors on rows that were held out."""

    content: dict[str, Any]
    errors: dict[str, HeldOutErrors]
    """By kind of row; kinds of another arithmetic than the profile's have its name in front."""
    at_prior: tuple[str, ...]
    """Parameters that the rows do not identify."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What rows of one arithmetic determine."""

    sections: dict[str, Any]
    errors: dict[str, HeldOutErrors]
    at_prior: tuple[str, ...]
    launch_overhead_us: float | None


def calibrated(
    kernels: Sequence[MeasuredKernel],
    networks: Sequence[MeasuredNetwork],
    base: Mapping[str, Any],
    *,
    fused: Sequence[MeasuredFused] = (),
    sources: Sequence[str] = (),
) -> Calibrated:
    """Return the content of a profile file that fits measurements of one device, with cross-validated errors.

    Args:
        kernels: Measured kernels of the device.
        networks: Measured training of whole networks on one device.
        base: Content of a profile file of the device: its data sheet, and sections for what no row determines.
        fused: Measured attention, normalisation and experts.
        sources: Where the rows are from.

    Raises:
        ConfigError: There are too few rows, or rows of an arithmetic whose peak the data sheet does not have.
    """
    content, errors, at_prior = dict(base), dict[str, HeldOutErrors](), list[str]()
    arithmetic = str(base["arithmetic"])
    measured = [row.precision for row in kernels] + [row.precision for row in networks]
    launches = "bfloat16" if "bfloat16" in base.get("precisions", {}) else arithmetic  # a file has one overhead for all
    # the file's own arithmetic first: its kernels bound the times of the others
    for precision in sorted(dict.fromkeys(measured), key=lambda each: each != arithmetic):
        own = precision == arithmetic
        _check_known(precision, arithmetic, base)
        _check_products(precision, kernels, networks)
        profile = ProfileFile.model_validate(content).profile("calibrated", "" if own else precision)
        part = _fitted(
            profile,
            grouped(row for row in kernels if row.precision == precision),
            [row for row in networks if row.precision == precision],
            launch=precision == launches,
        )
        prefix = "" if own else f"{precision} "
        errors |= {prefix + kind: value for kind, value in part.errors.items()}
        at_prior += [prefix + name for name in part.at_prior]
        if own:
            content |= part.sections
        elif precision == _DOUBLE:
            content[_DOUBLE] = dict(content[_DOUBLE]) | part.sections
        else:
            entry = dict(content["precisions"][precision]) | part.sections
            entry.pop("dispatch_overhead_us", None)  # the host is the same
            content["precisions"] = dict(content["precisions"]) | {precision: entry}
        if part.launch_overhead_us is not None and precision == launches:
            content["launch_overhead_us"] = part.launch_overhead_us
    errors |= _add_fused(content, base, fused)
    content["sources"] = [*base["sources"], *(source for source in sources if source not in base["sources"])]
    fit = {"method": _METHOD, "held_out": _HELD_OUT, "errors": error_section(errors), "at_prior": at_prior}
    before = base.get("fit", {}).get("transferred_from")
    if before and not any(row.window for row in kernels):
        fit["transferred_from"] = before
    content["fit"] = fit
    return Calibrated(content, errors, tuple(at_prior))


def _add_fused(
    content: dict[str, Any], base: Mapping[str, Any], fused: Sequence[MeasuredFused]
) -> dict[str, HeldOutErrors]:
    """Add the efficiencies of fused kernels to the content of a profile file; return their errors by kind.

    Raises:
        ConfigError: Rows are of an arithmetic whose peak the data sheet does not have.
    """
    arithmetic, errors = str(base["arithmetic"]), dict[str, HeldOutErrors]()
    for precision in dict.fromkeys(row.precision for row in fused):
        _check_known(precision, arithmetic, base)
        rows, fused_errors = _fused_rows(content, precision, [row for row in fused if row.precision == precision])
        section = content if precision == arithmetic else dict(content["precisions"][precision])
        fitted = {(row["kind"], row["phase"]) for row in rows}
        # passes over elements are the same kernels in both directions
        fitted |= {("elementwise", phase) for kind, _ in fitted for phase in FUSED_PHASES if kind == "elementwise"}
        lent = [row for row in section.get("fused", []) if (row["kind"], row["phase"]) not in fitted]
        section["fused"] = rows + lent
        if precision != arithmetic:
            content["precisions"] = dict(content["precisions"]) | {precision: section}
        errors |= {(kind if precision == arithmetic else f"{precision} {kind}"): e for kind, e in fused_errors.items()}
    return errors


def _fused_rows(
    content: dict[str, Any], precision: str, measured: Sequence[MeasuredFused]
) -> tuple[list[dict[str, Any]], dict[str, HeldOutErrors]]:
    """Return the section ``fused`` of one arithmetic, and the errors by kind and phase."""
    name = "" if precision == content["arithmetic"] else precision
    profile = ProfileFile.model_validate(content).profile("calibrated", name).for_single_kernels()
    rows, errors = [], {}
    for kind, phase in dict.fromkeys((row.kernels.kind, row.phase) for row in measured):
        some = [row for row in measured if (row.kernels.kind, row.phase) == (kind, phase)]
        errors[f"{kind} {phase}"] = summary(held_out_fused(profile, some))
        rows.append(fused_section(kind, phase, fit_fused(profile, some)))
    return rows, errors


def _check_known(precision: str, arithmetic: str, base: Mapping[str, Any]) -> None:
    """Refuse an arithmetic whose peak is not known."""
    known = [arithmetic, *base.get("precisions", {}), *([_DOUBLE] if _DOUBLE in base else [])]
    if precision not in known:
        raise ConfigError(
            f"rows of {precision} need that arithmetic's peak in the device's data sheet, which has {', '.join(known)}"
        )


def _check_products(precision: str, kernels: Sequence[MeasuredKernel], networks: Sequence[MeasuredNetwork]) -> None:
    """Refuse rows of float64 that are no products: a profile has no convolutions or clock of its own there."""
    found = {row.precision for row in networks} | {kernel.precision for kernel in kernels if kernel.window}
    if precision == _DOUBLE and _DOUBLE in found:
        raise ConfigError(f"rows of {_DOUBLE} must be matrix products, got convolutions or networks")


def _fitted(
    profile: ComputeProfile, groups: list[KernelGroup], networks: Sequence[MeasuredNetwork], *, launch: bool
) -> _Part:
    """Fit a profile to rows of one arithmetic, with the overhead of a launch if ``launch``."""
    errors: dict[str, HeldOutErrors] = {}
    sections: dict[str, Any] = {}
    dropped: tuple[str, ...] = ()
    launch_overhead_us = None
    wide = profile.in_float32
    if groups:
        profile = profile.for_single_kernels()
        products, convolutions = (
            any(bool(group.kernels.window) == windowed for group in groups) for windowed in (0, 1)
        )
        fits = _fits(groups, launch=launch)
        held_out = cross_validated(groups, lambda rows: with_table(_parameters(profile, fits, rows).profile, rows))
        errors = {kind: summary(logs) for kind, logs in held_out.items()}
        fitted, dropped = (result := _parameters(profile, fits, groups)).profile, result.at_prior
        profile = replace(with_table(fitted, groups), in_float32=wide)
        if products:
            sections["efficiency"] = efficiency_section(profile.efficiency)
            launch_overhead_us = round(profile.launch_overhead_s / MICRO, 3)
        if convolutions and profile.tiles:
            sections["tiles"] = tile_section(profile.tiles)
        elif convolutions and profile.convolution:
            sections["convolution"] = convolution_section(profile.convolution)
        if profile.table:
            sections["kernels"] = kernel_section(profile.table)
    if networks:
        known = any(group.kernels.window is not None for group in groups)
        held_out_logs = held_out_networks(networks, lambda rows: fit_networks(profile, rows, kernels=known))
        errors["network"] = summary(held_out_logs)
        profile = fit_networks(profile, networks, kernels=known)
        clock = profile.sustained_clock
        if not known:  # no clock, but all in which the convolutions differ from a relative's
            shares, most = _shares(profile)
            sections |= shares
            clock = max(1.0, clock * most)
        sections["sustained_clock"] = round(clock, 4)
        sections["dispatch_overhead_us"] = round(profile.dispatch_s / MICRO, 1)
        if not profile.dispatch_s:
            dropped = (*dropped, "dispatch_overhead_us")
    return _Part(sections, errors, dropped, launch_overhead_us)


def _shares(profile: ComputeProfile) -> tuple[dict[str, Any], float]:
    """Return the sections of a profile whose clock stands for what the device differs in from its relative.

    A device that is slower has convolutions of a smaller share of its peak.  One that is faster has those of a greater
    share, up to the whole peak, and the rest is a clock above the boost clock; outside tensor cores, whose products
    were measured apart, it runs all products at a greater share.

    Returns:
        The sections, and the largest share of the peak of convolutions before.
    """
    if profile.tiles:
        share = profile.sustained_clock / max(1.0, profile.sustained_clock * profile.tiles.ceiling)
        return {"tiles": tile_section(profile.tiles.at_rate(1.0, share))}, profile.tiles.ceiling
    if profile.convolution is None:
        return {}, 1.0
    factor = profile.sustained_clock / max(1.0, profile.sustained_clock * max(profile.convolution.ceiling))
    first, second, third = (share * factor for share in profile.convolution.ceiling)
    sections = {"convolution": convolution_section(replace(profile.convolution, ceiling=(first, second, third)))}
    if profile.sustained_clock > 1:
        shares = tuple(min(1.0, share * factor) for share in profile.efficiency.ceiling)
        sections["efficiency"] = efficiency_section(replace(profile.efficiency, ceiling=shares))
    return sections, max(profile.convolution.ceiling)


_Fit = Callable[[ComputeProfile, Sequence[KernelGroup]], Fitted]


def _fits(groups: Sequence[KernelGroup], *, launch: bool) -> list[_Fit]:
    """Return the fits for the kinds of rows that are there, of products with the overhead of a launch if ``launch``.

    Raises:
        ConfigError: There are too few rows of a kind.
    """
    plain = [group for group in groups if group.kernels.window is None]
    windowed = [group for group in groups if group.kernels.window is not None]
    fits: list[_Fit] = []
    for kind, some, fit in (
        ("product", plain, partial(fit_products, launch=launch)),
        ("convolution", windowed, fit_convolutions),
    ):
        if some:
            _check_enough(kind, some)
            fits.append(fit)
    return fits


def _parameters(profile: ComputeProfile, fits: Sequence[_Fit], groups: Sequence[KernelGroup]) -> Fitted:
    """Return the result of several fits, one after the other."""
    dropped: tuple[str, ...] = ()
    for fit in fits:
        result = fit(profile, groups)
        profile, dropped = result.profile, dropped + result.at_prior
    return Fitted(profile, dropped)


def _check_enough(kind: str, groups: Sequence[KernelGroup]) -> None:
    """Refuse rows that cannot determine anything."""
    rows, families = sum(map(len, groups)), {family for group in groups for family in group.families}
    if rows < _LEAST_ROWS[kind] or len(families) < _LEAST_FAMILIES:
        different = "weights (rows and depth)" if kind == "product" else "layers (channels and window)"
        raise ConfigError(
            f"a fit of {kind}s needs at least {_LEAST_ROWS[kind]} rows of {_LEAST_FAMILIES} different {different};"
            f" got {rows} rows of {len(families)}"
        )
