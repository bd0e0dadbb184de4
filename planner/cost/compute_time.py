"""Time of a layer's arithmetic, from the compute profiles of the devices: t_c of Eq. 1.

Source: Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.1.
"""

import hashlib
from dataclasses import replace
from functools import cached_property

import numpy as np

from groundwork.array_types import Bools, Floats
from hwprofiles.compute.attention_versions import with_attention
from hwprofiles.compute.compute_profile import PROFILE_PHASES, ComputeProfile
from hwprofiles.compute.fused_kernels import elementwise_kernels
from hwprofiles.compute.fused_times import fused_s
from hwprofiles.compute.kernels import Kernels
from hwprofiles.compute.profile_file import profile_in
from hwprofiles.compute.tile_convolution import VECTOR_BYTES, are_aligned
from hwprofiles.devices.device_graph import DeviceGraph
from planner.compression.data_types import check_codec_times
from planner.cost.software import IDEAL_SOFTWARE, Software
from planner.cost.update_traffic import gradient_pass_bytes, update_bytes
from planner.derivatives.eager_kernels import eager_bytes, gradient_accesses, gradients_added_in
from planner.graph.computation_graph import LAYER_PHASES, ComputationGraph, Layer
from planner.graph.shapes import SUMMED
from planner.graph.type_roles import TYPE_BYTES, DataTypes, types_of
from planner.layouts.configurations import ConfigSpace
from planner.layouts.regions import part_sizes
from planner.operations.base import ELEMENT_BYTES, UPDATE_ACCESSES, Part, trained_elements
from planner.operations.products import Attention

_TRANSPOSED = 2.0
"""Time of a transposed copy over that of a plain one: 228 convolutions on an H200, measured in both orders of channels,
differ by 1.9 to 2.1 times the plain copies of their images in the median of each phase."""
_BIAS_ACCESSES = {"forward": 2.0, "weight_gradient": 1.0}
"""Accesses of each output where a bias is added, and its gradient summed, by kernels of their own."""
_SHAPE_WEIGHT = 1e-6
"""Weight of the distance between shapes beside that between amounts of work, both in logarithms: it breaks ties."""


class ComputeTimes:
    """Compute times of a network's layers on a cluster's devices.

    Args:
        graph: The network with its batch.
        cluster: The devices.
        types: Data types by role; None: those of the network's elements, in the arithmetic of the profiles.
        software: The kernels that software makes of the network.
        optimizer: Optimizer that updates parameters: ``sgd``, ``momentum`` or ``adam``.
        casts: Times that an iteration makes a copy of each updated parameter in the type in which products read it.

    Raises:
        ConfigError: A profile has codec times of an unknown data type, or does not know the arithmetic.
    """

    def __init__(
        self,
        graph: ComputationGraph,
        cluster: DeviceGraph,
        types: DataTypes | None = None,
        *,
        software: Software = IDEAL_SOFTWARE,
        optimizer: str = "momentum",
        casts: int = 1,
    ) -> None:
        self.graph, self.software = graph, software
        self._types = types = types or types_of(graph.element_bytes)
        self._update_bytes = update_bytes(software, optimizer, types, casts=casts)
        index_of: dict[tuple[str, float], int] = {}
        self.profile_of = cluster.devices.of_each(
            lambda device: index_of.setdefault((device.profile, device.speed), len(index_of))
        )
        """Shape (devices,): index into ``profiles`` for every device."""
        self.profiles = tuple(
            with_attention(profile_in(name, types.product), software.flash).faster(speed) for name, speed in index_of
        )
        """Different profiles of the cluster; devices of another speed have profiles of their own."""
        for profile in self.profiles:
            check_codec_times(profile)
        self._keys: dict[int, tuple[object, ...]] = {}
        self._parts: dict[tuple[object, ...], dict[str, Floats]] = {}
        self._slowest: dict[tuple[object, ...], dict[str, Floats]] = {}
        self._later: dict[tuple[object, ...], Floats] = {}

    @property
    def relatives(self) -> tuple[str, ...]:
        """Sentences on the profiles that hold what was measured on a relative, in this arithmetic."""
        return tuple(
            f"nothing was measured in {each.arithmetic} on {each.name}: it reaches the shares of its peak that "
            f"{each.relative} reaches{' in float32' if each.arithmetic == 'float64' else ''}, and likely times are as "
            "wide as where another device stands in"
            for each in self.profiles
            if each.relative
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the times rest on beside measurements of the devices in this arithmetic."""
        unknown = [each.name for each in self.profiles if each.element_bytes < self.graph.element_bytes]
        return self.relatives + tuple(
            f"compute profile {name!r} knows no peak in float64 (section float64): arithmetic takes as long here as in"
            " float32"
            for name in unknown
        )

    @cached_property
    def digest(self) -> str:
        """Hash of what determines the times: the profiles with all their measured rows, without their descriptions."""
        numbers = [replace(profile, description="", sources=()) for profile in self.profiles]
        # repr of a profile leaves its rows out.  Without measured parts the text, and so the hash, is that of plans
        # written before profiles could hold any.
        text = repr([(profile, sorted(profile.rows.items())) for profile in numbers])
        parts = [sorted(profile.parts.items()) for profile in numbers]
        text += repr(parts) if any(parts) else ""
        codecs = [sorted(profile.codecs.items()) for profile in numbers]
        text += repr(codecs) if any(codecs) else ""
        extensions = [profile.extensions for profile in numbers]
        text += repr(extensions) if any(extensions) else ""
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def slowest_part_s(self, index: int, space: ConfigSpace) -> dict[str, Floats]:
        """Compute the time of a layer's slowest part, under every configuration of a space.

        Returns:
            For each of ``LAYER_PHASES``, seconds, shape (C,); zero for a phase that the layer does not have.
            Read-only, for equal layers share them.
        """
        key = (self.layer_key(index), space)
        if key not in self._slowest:
            self._slowest[key] = self._slowest_part_s(index, space)
        return self._slowest[key]

    def _slowest_part_s(self, index: int, space: ConfigSpace) -> dict[str, Floats]:
        """Compute what ``slowest_part_s`` returns."""
        used, phase_s = self._profiles_used(space), {}
        for phase in LAYER_PHASES:
            if self.graph.has_phase(index, phase):
                rows = self._seconds(index, phase, space.largest_part())
                phase_s[phase] = np.where(used, rows, 0.0).max(axis=1)
            else:
                phase_s[phase] = np.zeros(space.size)
            phase_s[phase].setflags(write=False)
        return phase_s

    def part_s(self, index: int, space: ConfigSpace) -> dict[str, Floats]:
        """Compute the time of every part of a layer on its own device, for a space of one configuration.

        Returns:
            For each of ``LAYER_PHASES`` that the layer has, seconds, shape (parts,); read-only, for equal layers share
            them.
        """
        key = (self.layer_key(index), space)
        if key not in self._parts:
            self._parts[key] = self._part_s(index, space)
        return self._parts[key]

    def later_s(self, index: int, space: ConfigSpace) -> Floats:
        """Compute the time by which gradients of a later micro-batch take longer, as they are added to those before.

        Args:
            index: The layer.
            space: A space of one configuration.

        Returns:
            Seconds, shape (parts,); read-only, for equal layers share them.
        """
        key = (self.layer_key(index), space)
        if key not in self._later:
            self._later[key] = self._later_s(index, space)
            self._later[key].setflags(write=False)
        return self._later[key]

    def _later_s(self, index: int, space: ConfigSpace) -> Floats:
        """Compute what ``later_s`` returns."""
        profile_of, later_s = self.profile_of[space.devices], np.zeros(len(space.devices))
        if self.software.sums > 1 or not self.graph.has_phase(index, "update"):
            return later_s
        part = part_sizes(space)
        for number, profile in enumerate(self.profiles):
            added_s = self._added_s(profile, index, part) if self.software.sums else self._read_s(profile, index, part)
            later_s = np.where(profile_of == number, added_s, later_s)
        return later_s

    def each_s(self, index: int, space: ConfigSpace) -> Floats:
        """Compute the time in which gradients of every micro-batch are added to a buffer, a share of ``part_s``.

        Arguments and result as of ``later_s``.
        """
        profile_of, added_s = self.profile_of[space.devices], np.zeros(len(space.devices))
        if self.software.sums > 1 and self.graph.has_phase(index, "update"):
            for number, profile in enumerate(self.profiles):
                added_s = np.where(profile_of == number, self._added_s(profile, index, part_sizes(space)), added_s)
        return added_s

    def gradient_passes_s(self, index: int, space: ConfigSpace) -> Floats:
        """Compute the share of an update's time in which software passes over all gradients, to clip them and the like.

        Arguments and result as of ``later_s``.
        """
        profile_of, part = self.profile_of[space.devices], part_sizes(space)
        rows = np.column_stack([self._passes_s(profile, index, part) for profile in self.profiles])
        return np.asarray(rows[np.arange(len(profile_of)), profile_of])

    def _passes_s(self, profile: ComputeProfile, index: int, part: dict[str, Floats]) -> Floats:
        """Return the time of the passes over the gradients of parts once an iteration."""
        _, summed = self._gradient_sizes(profile, index, part)
        size = TYPE_BYTES[self._types.accumulation]
        moved = summed * (gradient_pass_bytes(self.software, size) / size)
        return np.where(moved > 0, _streamed_s(profile, moved), 0.0)

    def before_sums_s(self, index: int, space: ConfigSpace) -> Floats:
        """Compute the time of the kernels that convert and divide gradients before replicas sum them into shards.

        Arguments and result as of ``later_s``.

        Source:
            pytorch/pytorch, torch/distributed/fsdp/_runtime_utils.py, ``_reduce_grad``: gradients are converted to the
            type of their sum, and divided by about the root of the number of replicas.
        """
        profile_of, part = self.profile_of[space.devices], part_sizes(space)
        found = np.zeros(len(profile_of))
        if self.software.sums != 1 or not self.graph.has_phase(index, "update"):
            return found
        for number, profile in enumerate(self.profiles):
            made, _ = self._gradient_sizes(profile, index, part)
            sent = made * (TYPE_BYTES[self._types.message] / self.graph.element_bytes)
            converted = 0.0 if self._types.message == self._types.activation else made + sent
            found = np.where(profile_of == number, _streamed_s(profile, converted + 2.0 * sent), found)
        return found

    def _added_s(self, profile: ComputeProfile, index: int, part: dict[str, Floats]) -> Floats:
        """Return the time of kernels that read gradients of parts and their sums, and write these."""
        made, summed = self._gradient_sizes(profile, index, part)
        return _streamed_s(profile, made + 2.0 * summed)

    def _read_s(self, profile: ComputeProfile, index: int, part: dict[str, Floats]) -> Floats:
        """Return the time by which products take longer if they read the sums that they add to; tables add by rows."""
        alone = stored_kernels(
            profile,
            self.graph.layers[index].kernels("weight_gradient", part),
            "weight_gradient",
            self.graph.element_bytes,
        )
        _, summed = self._gradient_sizes(profile, index, part)
        both = replace(alone, memory_bytes=alone.memory_bytes + summed * (alone.rows > 0))
        return np.asarray(
            profile.time_s(both, phase="weight_gradient") - profile.time_s(alone, phase="weight_gradient")
        )

    def _gradient_sizes(self, profile: ComputeProfile, index: int, part: dict[str, Floats]) -> tuple[Floats, Floats]:
        """Return the bytes of the gradients that parts make, and of their sums over micro-batches."""
        layer, graph = self.graph.layers[index], self.graph
        parts, completes_sums = Part(layer.input_shapes, layer.output, part), layer.operation.completes_sums
        held = trained_elements(layer.parameters, parts, completes_sums=completes_sums)
        made = held * _stored_bytes(profile, graph.element_bytes)
        return made, made * (TYPE_BYTES[self._types.accumulation] / graph.element_bytes)

    def layer_key(self, index: int) -> tuple[object, ...]:
        """Return what determines the times of a layer by configuration; measured layers have times of their own."""
        if index not in self._keys:
            layer = self.graph.layers[index]
            name = layer.name if self.is_measured(layer) else ""
            inner = self.graph.has_phase(index, "activation_gradient")
            self._keys[index] = layer.operation, layer.input_shapes, inner, name, layer.frozen, self._sums(index)
        return self._keys[index]

    def _part_s(self, index: int, space: ConfigSpace) -> dict[str, Floats]:
        """Compute what ``part_s`` returns."""
        profile, phase_s = self.profile_of[space.devices], {}
        for phase in LAYER_PHASES:
            if self.graph.has_phase(index, phase):
                rows = self._seconds(index, phase, part_sizes(space))
                phase_s[phase] = rows[np.arange(len(profile)), profile]
                phase_s[phase].setflags(write=False)
        return phase_s

    def _seconds(self, index: int, phase: str, part: dict[str, Floats]) -> Floats:
        """Return the seconds of parts of a layer in one phase, shape (parts, profiles)."""
        graph, layer = self.graph, self.graph.layers[index]
        sums = self._sums(index) if phase == gradients_added_in(graph, index) else ()
        rows = []
        for p in self.profiles:
            seconds = self._kernel_s(p, index, phase, part)
            if self.software.pads and phase in PROFILE_PHASES[:3] and max(p.efficiency.unaligned) > 1:
                aligned = replace(p, efficiency=replace(p.efficiency, unaligned=(1.0, 1.0, 1.0)))
                copies_s = padding_s(p, layer, phase, part, graph.element_bytes)
                seconds = np.minimum(seconds, self._kernel_s(aligned, index, phase, part) + copies_s)
            for accesses in sums:
                seconds = seconds + _passed_s(p, layer, part, accesses, graph.element_bytes)
            rows.append(seconds + self._around_s(p, index, phase, part))
        return np.column_stack(rows)

    def _kernel_s(self, profile: ComputeProfile, index: int, phase: str, part: dict[str, Floats]) -> Floats:
        """Return the seconds of the kernels of parts of a layer in one phase."""
        graph = self.graph
        traffic = self._update_bytes / (UPDATE_ACCESSES * max(graph.element_bytes, ELEMENT_BYTES))
        return kernel_s(
            profile,
            graph.name,
            graph.layers[index],
            phase,
            part,
            graph.element_bytes,
            inner=graph.has_phase(index, "activation_gradient"),
            fused=self.software.fused,
            traffic=traffic if phase == "update" else 1.0,
        )

    def _around_s(self, profile: ComputeProfile, index: int, phase: str, part: dict[str, Floats]) -> Floats | float:
        """Return the time of what software runs beside the parts of a layer.

        These are sums of gradients in a buffer, a convolution's bias, and its transposed images.
        """
        layer, element_bytes, seconds = self.graph.layers[index], self.graph.element_bytes, 0.0 * part["sample"]
        operation = layer.operation
        if phase == "update":
            seconds = seconds + self._passes_s(profile, index, part)
        if phase == "weight_gradient" and self.software.sums > 1 and self.graph.has_phase(index, "update"):
            seconds = seconds + self._added_s(profile, index, part)
        if isinstance(operation, Attention) and phase in PROFILE_PHASES[:2]:
            copied = operation.repeated_elements(Part(layer.input_shapes, layer.output, part))
            moved = copied * _stored_bytes(profile, element_bytes)  # backward, sums of gradients
            seconds = seconds + np.where(copied > 0, 2.0 * _streamed_s(profile, moved), 0.0)
        if getattr(operation, "window", None) is None or phase not in PROFILE_PHASES[:3]:
            return seconds
        if self.software.channels_first:
            seconds = seconds + transposed_s(profile, layer, phase, part, element_bytes)
        biased = any(each.name == "bias" for each in layer.parameters)
        if biased and not self.software.fused and phase in _BIAS_ACCESSES:
            moved = _BIAS_ACCESSES[phase] * _stored_bytes(profile, element_bytes) * _outputs(layer, part)
            seconds = seconds + _streamed_s(profile, moved)
        return np.asarray(seconds)

    def _sums(self, index: int) -> tuple[float, ...]:
        """Return the accesses by each kernel that makes one gradient of several of a layer's output."""
        return () if self.software.fused else gradient_accesses(self.graph, index)

    def is_measured(self, layer: Layer) -> bool:
        """Return whether a profile holds measured times of the layer."""
        sizes = layer.output.sizes
        return any(
            p.measured_parts(self.graph.name, layer.name, phase, sizes) for p in self.profiles for phase in LAYER_PHASES
        )

    def _profiles_used(self, space: ConfigSpace) -> Bools:
        """Return whether a device of each profile holds a part, shape (C, profiles)."""
        if len(self.profiles) == 1:
            return np.ones((space.size, 1), dtype=bool)
        used = np.zeros((space.size, len(self.profiles)), dtype=bool)
        used[space.part_owners, self.profile_of[space.devices]] = True
        return used


def kernel_s(
    profile: ComputeProfile,
    model: str,
    layer: Layer,
    phase: str,
    part: dict[str, Floats],
    element_bytes: int = 4,
    *,
    inner: bool = True,
    fused: bool = True,
    traffic: float = 1.0,
) -> Floats:
    """Compute the time of parts of a layer in one phase.

    A kernel of transformers whose efficiency the profile knows takes its time (``fused_s``).
    A part that the profile holds takes its measured time.  Others of a measured layer are scaled from the measured
    part of the same phase that is nearest, by the roofline's ratio between the two: the one closest in the logarithm
    of FLOP (of bytes, for kernels without arithmetic), among equals the one of the closest shape.  Profiles are
    measured with 4-byte elements; larger ones add memory traffic.  Slices of a sum are scaled from whole sums.

    Args:
        profile: The device's compute profile.
        model: Name of the model with its parameters.
        layer: The layer.
        phase: One of ``LAYER_PHASES``.
        part: Sizes of the parts by dimension, shape (C,) each.
        element_bytes: Bytes of one element.
        inner: Whether the layer has an activation gradient, too; a kernel that computes all gradients counts there.
        fused: Whether a chain of elementwise calls is one kernel.
        traffic: Memory traffic relative to that of the layer's kernels.

    Returns:
        Seconds, shape (C,).
    """
    work = layer.kernels(phase, part)
    work = work if traffic == 1.0 else replace(work, memory_bytes=work.memory_bytes * traffic)
    seconds = profile.time_s(stored_kernels(profile, work, phase, element_bytes), phase=phase)
    parts = profile.measured_parts(model, layer.name, phase, layer.output.sizes)
    if parts is None:
        return _unmeasured_s(profile, layer, phase, part, element_bytes, seconds, inner=inner, fused=fused)
    dims, sizes = layer.output.dims, np.array(parts.sizes, dtype=np.float64)
    known = layer.kernels(phase, dict(zip(dims, sizes.T, strict=True)))
    distance = np.abs(np.subtract.outer(_log_amount(work), _log_amount(known)))
    for dim, row in zip(dims, sizes.T, strict=True):
        distance += _SHAPE_WEIGHT * np.abs(np.subtract.outer(np.log(part[dim]), np.log(row)))
    nearest = distance.argmin(axis=1)
    roofline = profile.time_s(known, phase=phase)[nearest]
    ratio = np.divide(seconds, roofline, out=np.ones_like(seconds), where=roofline > 0)
    return np.asarray(np.array(parts.time_s)[nearest] * ratio)


def _unmeasured_s(
    profile: ComputeProfile,
    layer: Layer,
    phase: str,
    part: dict[str, Floats],
    element_bytes: int,
    seconds: Floats,
    *,
    inner: bool,
    fused: bool,
) -> Floats:
    """Return the time of parts that a profile has not measured: by their own kernel's efficiency, and with dispatch.

    Args:
        profile: The device.
        layer: The layer.
        phase: One of ``LAYER_PHASES``.
        part: Sizes of the parts.
        element_bytes: Bytes of one element.
        seconds: Time by the roofline.
        inner: Whether the layer has an activation gradient, too.
        fused: Whether a chain of elementwise calls is one kernel.
    """
    own = _eager_s(profile, layer, phase, part, element_bytes, fused=fused)
    own = _fused_s(profile, layer, phase, part, element_bytes, inner=inner) if own is None else own
    seconds = seconds if own is None else np.where(np.isnan(own), seconds, own)
    if profile.dispatch_s and phase != "update":
        seconds = np.where(seconds > 0, np.maximum(seconds, profile.dispatch_s), 0.0)
    return seconds


def _fused_s(
    profile: ComputeProfile, layer: Layer, phase: str, part: dict[str, Floats], element_bytes: int, *, inner: bool
) -> Floats | None:
    """Return the time of parts whose kernel the profile has an efficiency of its own for, NaN for others; else None."""
    if not profile.fused:
        return None
    stored_bytes = _stored_bytes(profile, element_bytes)
    work = layer.operation.fused_kernels(phase, layer.input_shapes, layer.output, part, stored_bytes)
    if work is not None and phase == "weight_gradient" and not inner:  # the kernel of all gradients counts here
        work = layer.operation.fused_kernels(
            "activation_gradient", layer.input_shapes, layer.output, part, stored_bytes
        )
    if work is None or not any(kind == work.kind for kind, _ in profile.fused):
        return None
    seconds = fused_s(profile, work, "forward" if phase == "forward" else "backward")
    return np.where(work.flop + work.memory_bytes == 0, 0.0, seconds)  # some compute all gradients in one kernel


def _eager_s(
    profile: ComputeProfile, layer: Layer, phase: str, part: dict[str, Floats], element_bytes: int, *, fused: bool
) -> Floats | None:
    """Return the time of parts of a layer that is several kernels where nothing joins them; else None."""
    if phase not in ("forward", "activation_gradient"):
        return None
    stored_bytes = _stored_bytes(profile, element_bytes)
    first = {dim: size[:1] for dim, size in part.items()}
    if eager_bytes(layer, phase, first, stored_bytes, fused=fused) is None:
        return None
    # which kernels there are depends on the sizes: each different part is computed by itself
    sizes, of = np.unique(np.column_stack(list(part.values())), axis=0, return_inverse=True)
    seconds = np.zeros(len(sizes))
    for row, each in enumerate(sizes):
        one = {dim: size[None] for dim, size in zip(part, each, strict=True)}
        kernels = eager_bytes(layer, phase, one, stored_bytes, fused=fused) or []
        seconds[row] = sum(float(_streamed_s(profile, moved)[0]) for moved in kernels)
    return np.asarray(seconds[of.ravel()])


def _passed_s(
    profile: ComputeProfile, layer: Layer, part: dict[str, Floats], accesses: float, element_bytes: int
) -> Floats:
    """Return the time of a kernel that accesses each element of the parts of an output, or its gradients, so often."""
    return _streamed_s(profile, accesses * _outputs(layer, part) * _stored_bytes(profile, element_bytes))


def _outputs(layer: Layer, part: dict[str, Floats]) -> Floats:
    """Return the elements that parts have of an output, once sums that the layer completes are complete."""
    product = np.prod([part[dim] for dim in layer.output.dims], axis=0)
    return np.asarray(product / part.get(SUMMED, 1.0) if layer.operation.completes_sums else product)


def transposed_s(
    profile: ComputeProfile, layer: Layer, phase: str, part: dict[str, Floats], element_bytes: int = ELEMENT_BYTES
) -> Floats:
    """Return the time to transpose the images of parts of a convolution in one phase, whose channels lie in planes.

    Tensor cores read channels side by side.  Libraries transpose what a kernel reads and writes, except for windows of
    1 x 1 without strides, which are plain products in either order, and for channels that they pad anyway.

    Arguments as for ``kernel_s``; the layer is a convolution.
    """
    work = stored_kernels(profile, layer.kernels(phase, part), phase, element_bytes)
    window, nothing = work.window, np.zeros_like(work.flop)
    if profile.tiles is None or window is None or window.positions * window.stride == 1:
        return nothing
    aligned = are_aligned(work, PROFILE_PHASES.index(phase), profile.tiles.channel_multiple)
    # two kernels, each of which reads and writes half of the data
    return np.where(aligned, 2.0 * _TRANSPOSED * _streamed_s(profile, work.memory_bytes), nothing)


def padding_s(
    profile: ComputeProfile, layer: Layer, phase: str, part: dict[str, Floats], element_bytes: int = ELEMENT_BYTES
) -> Floats:
    """Return the time to copy the operands of a plain product whose features fill no vector of tensor cores.

    Arguments as for ``kernel_s``.
    """
    work, number = layer.kernels(phase, part), PROFILE_PHASES.index(phase)
    if work.window:
        return np.zeros_like(work.flop)
    multiple = VECTOR_BYTES // profile.element_bytes
    rows, columns, depth = (np.mod(size, multiple) > 0 for size in (work.rows, work.columns, work.depth))
    # a weight gradient sums over samples, in other phases they are the columns: both may have any number
    columns, depth = (columns, depth & False) if number == 2 else (columns & False, depth)
    copied = work.depth * (work.rows * (rows | depth) + work.columns * (columns | depth))
    return np.where(copied > 0, _streamed_s(profile, 2.0 * _stored_bytes(profile, element_bytes) * copied), 0.0)


def _streamed_s(profile: ComputeProfile, moved: Floats) -> Floats:
    """Return the time of kernels that read and write so many bytes."""
    if any(kind == "elementwise" for kind, _ in profile.fused):
        return fused_s(profile, elementwise_kernels(elements=moved, accesses=1.0, element_bytes=1))
    zero = 0.0 * moved
    return profile.time_s(
        Kernels(flop=zero, memory_bytes=moved, rows=zero, columns=zero, depth=zero, samples=zero + 1.0), phase="forward"
    )


def _log_amount(work: Kernels) -> Floats:
    """Return the logarithm of the FLOP of kernels, or of their bytes where they have none."""
    return np.asarray(np.log(np.maximum(np.where(work.flop > 0, work.flop, work.memory_bytes), 1.0)))


def stored_kernels(profile: ComputeProfile, work: Kernels, phase: str, element_bytes: int = ELEMENT_BYTES) -> Kernels:
    """Return kernels with the memory traffic of a network's elements in the arithmetic of a profile.

    Args:
        profile: A profile in half precision halves elements of four bytes.
        work: Kernels with the traffic of 4-byte elements.
        phase: One of ``LAYER_PHASES``; an update of smaller elements reads and writes as much as one of 4-byte ones:
            half of the gradients and of the weights, and the master weights.
        element_bytes: Bytes of one element of the network.
    """
    element_bytes = max(element_bytes, ELEMENT_BYTES) if phase == "update" else _stored_bytes(profile, element_bytes)
    if element_bytes == ELEMENT_BYTES:
        return work
    ratio = element_bytes / ELEMENT_BYTES
    return replace(work, memory_bytes=work.memory_bytes * ratio, streamed_bytes=work.streamed_bytes * ratio)


def _stored_bytes(profile: ComputeProfile, element_bytes: int) -> int:
    """Return the bytes of an element in the arithmetic of a profile, which halves those of four bytes."""
    return profile.element_bytes if element_bytes == ELEMENT_BYTES else element_bytes
