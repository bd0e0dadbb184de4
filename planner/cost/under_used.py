"""Layers whose price is far below what their devices can do: usually a kernel that the profile knows too little of."""

from hwprofiles.compute.compute_profile import PROFILE_PHASES, ComputeProfile
from hwprofiles.compute.kernels import Kernels
from planner.cost.compute_time import stored_kernels
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Strategy

_LEAST_SHARE = 0.02
"""Share of the arithmetic of an iteration below which a layer is not worth a line."""


def under_used_layers(model: CostModel, strategy: Strategy) -> tuple[str, ...]:
    """Return the layers and phases that are priced under 5 % of their device's peak and of its bandwidth.

    The largest part of a layer stands for all, on the layer's first device.  Layers of measured times, and those that
    take less than 2 % of the products, are left out.

    Args:
        model: Costs of the network.
        strategy: A configuration for every layer.

    Returns:
        Such as ``conv1 weight gradient``, in the order of the layers.
    """
    times, graph, found, total_s = model.compute_times, model.graph, dict[str, float](), 0.0
    priced: dict[object, tuple[float, bool]] = {}
    for index, (layer, space) in enumerate(zip(graph.layers, model.spaces_of(strategy), strict=True)):
        profile = times.profiles[times.profile_of[space.devices[0]]]
        for phase in (phase for phase in PROFILE_PHASES[:3] if graph.has_phase(index, phase)):
            key = (phase, times.layer_key(index), space)
            if key not in priced:  # equal layers are priced once
                priced[key] = _priced(profile, layer.kernels(phase, space.largest_part()), phase, graph.element_bytes)
            time_s, low = priced[key]
            total_s += time_s
            if low and not times.is_measured(layer):
                found[f"{layer.name} {phase.replace('_', ' ')}"] = time_s
    return tuple(name for name, seconds in found.items() if seconds >= _LEAST_SHARE * total_s)


def _priced(profile: ComputeProfile, work: Kernels, phase: str, element_bytes: int) -> tuple[float, bool]:
    """Return the time of the first of some kernels, and whether it uses too little; 0 s of what is no product."""
    if not work.rows.any():
        return 0.0, False
    stored = stored_kernels(profile, work, phase, element_bytes)
    seconds = profile.time_s(stored, phase=phase)
    return float(seconds[0]), bool(profile.under_used(stored, seconds)[0])
