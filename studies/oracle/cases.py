"""Cases: a strategy on a number of devices with its degrees, within the limits of Table 1's last column."""

from dataclasses import dataclass

import numpy as np

from groundwork.errors import ConfigError
from hwprofiles.devices.device_graph import DeviceGraph
from planner.graph.computation_graph import ComputationGraph
from studies.oracle.layer_sizes import Sizes
from studies.oracle.oracle_request import OracleRequest, samples_of
from studies.oracle.splits import Split

HYBRIDS = {"data+filter": "filter", "data+spatial": "spatial"}
"""Hybrid strategies with the strategy inside each group; the groups are replicas that split the samples."""
SAMPLED = ("data", *HYBRIDS)
"""Strategies that split samples; in weak scaling their mini-batch grows with the devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleInputs:
    """Inputs that all cases of one request share."""

    sizes: Sizes
    samples: int
    """D, samples of the data set."""
    batch: int
    """Samples of a mini-batch: of all devices, or of each device in weak scaling."""
    weak: bool
    """True if the mini-batch grows with the devices."""
    node_devices: int
    """Devices of the largest node."""
    request: OracleRequest

    def batch_of(self, strategy: str, p: int) -> int:
        """Return B for a strategy on p devices.

        In weak scaling a strategy that splits no samples keeps the batch of one device.

        Source: Kahira et al., "An Oracle ...", Figure 1.
        """
        return self.batch * p if self.weak and strategy in SAMPLED else self.batch


def inputs_of(graph: ComputationGraph, cluster: DeviceGraph, request: OracleRequest) -> OracleInputs:
    """Return the inputs that all cases of a request share.

    Args:
        graph: The network; its batch is the mini-batch of all devices in strong scaling.
        cluster: Device graph.
        request: Data set, scaling and parameters of the closed forms.

    Raises:
        ConfigError: A mini-batch is larger than the data set.
    """
    samples, per_device = samples_of(request.dataset), request.batch_per_device
    batch = graph.batch if per_device is None else per_device
    if batch > samples:
        raise ConfigError(f"batch must be at most the {samples:,} samples of the data set, got {batch:,}")
    return OracleInputs(
        sizes=Sizes(graph),
        samples=samples,
        batch=batch,
        weak=per_device is not None,
        node_devices=int(np.bincount([device.node for device in cluster.devices]).max()),
        request=request,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleCase:
    """A strategy on p = p1 p2 devices."""

    strategy: str
    p: int
    batch: int
    p1: int = 1
    """Parts of the samples."""
    p2: int = 1
    """Devices of a group: parts of the dimension that is split inside it."""
    grid: tuple[int, ...] = ()
    """Degrees of the positions, where they are split."""
    segments: int = 1
    """Micro-batches of a pipeline."""

    @property
    def kind(self) -> str:
        """Strategy inside a group: the strategy itself unless it is a hybrid."""
        return HYBRIDS.get(self.strategy, self.strategy)

    @property
    def split(self) -> Split:
        """Split of the layers into what one device holds."""
        return Split(
            devices=self.p,
            samples=self.batch / self.p1 / self.segments,
            filters=self.p2 if self.kind == "filter" else 1,
            channels=self.p2 if self.kind == "channel" else 1,
            grid=self.grid,
        )

    @property
    def degrees(self) -> str:
        """Degrees in few words, such as ``4 x 16`` or ``S = 8``."""
        if self.strategy == "layer":
            return f"S = {self.segments}"
        words = [str(self.p1)] if self.strategy in HYBRIDS else []
        return " x ".join([*words, *map(str, self.grid or ((self.p2,) if words else ()))])


def limit_of(inputs: OracleInputs, strategy: str) -> tuple[int, str]:
    """Return the most devices that a strategy can use, and the reason.

    C_1 of an image is 3, and yet the paper runs Channel on up to 64 devices.  So the limit of Channel is taken over
    the layers after the first, and the first is split by filters.

    Source: Kahira et al., "An Oracle ...", Table 1, last column.
    """
    if strategy in HYBRIDS:
        data, why_data = limit_of(inputs, "data")
        inner, why_inner = limit_of(inputs, HYBRIDS[strategy])
        if inner < 2:
            return 0, why_inner
        if inputs.weak:  # samples grow with all devices, not with the groups only
            return data, f"{why_data}; p2 {why_inner.removeprefix('p ')}"
        return data * inner, f"p1 {why_data.removeprefix('p ')}; p2 {why_inner.removeprefix('p ')}"
    sizes, batch = inputs.sizes, inputs.batch
    if strategy == "serial":
        return 1, "it is one device"
    if strategy == "layer":
        return len(sizes.y), f"p <= G: {sizes.graph.name} has {len(sizes.y)} layers"
    if strategy == "data":
        if inputs.weak:
            return inputs.samples // batch, f"p <= D/b: {inputs.samples:,} samples, {batch} a device"
        return batch, f"p <= B: a mini-batch has {batch} samples"
    if strategy == "spatial":
        if sizes.no_grid:
            return 0, sizes.no_grid
        name, least = min(sizes.positions, key=lambda row: np.prod(row[1]))
        return int(np.prod(least)), f"p <= min(W x H): {name} has {' x '.join(map(str, least))} positions"
    return _limit_of_channels(sizes, strategy)


def _limit_of_channels(sizes: Sizes, strategy: str) -> tuple[int, str]:
    """Return the limit of Filter or Channel: the fewest channels that some layer has to split."""
    rows = []
    for layer, mixing, first in zip(sizes.graph.layers, sizes.mixing, sizes.first, strict=True):
        if mixing and (strategy == "filter" or first):
            rows.append((layer.output.size("channel"), f"{layer.name} has {layer.output.size('channel')} filters"))
        elif mixing:
            count = layer.input_shapes[0].size("channel")
            rows.append((count, f"{layer.name} has {count} channels"))
    if not rows:
        return 1, f"{sizes.graph.name} has no layer with weights"
    least, words = min(rows, key=lambda row: row[0])
    return least, f"p <= min({'F' if strategy == 'filter' else 'C'}): {words}"


def case_of(inputs: OracleInputs, strategy: str, p: int) -> OracleCase | str:
    """Return the case of a strategy on p devices, or the reason why there is none.

    Raises:
        ConfigError: The requested segments do not divide the mini-batch of the pipeline.
    """
    limit, reason = limit_of(inputs, strategy)
    if p > limit:
        return f"at most {limit:,} devices: {reason}" if limit else reason
    batch = inputs.batch_of(strategy, p)
    if batch > inputs.samples:
        return f"a mini-batch of {batch:,} is more than the data set's {inputs.samples:,} samples"
    if strategy in HYBRIDS:
        return _hybrid(inputs, strategy, p, batch)
    if strategy == "data":
        return OracleCase(strategy=strategy, p=p, batch=batch, p1=p)
    if strategy == "spatial":
        grid = inputs.sizes.grid(p)
        if grid is None:
            return _no_grid(inputs, p)
        return OracleCase(strategy=strategy, p=p, batch=batch, p2=p, grid=grid)
    if strategy == "layer":
        return OracleCase(strategy=strategy, p=p, batch=batch, p2=p, segments=_segments(inputs, p, batch))
    return OracleCase(strategy=strategy, p=p, batch=batch, p2=p)


def _no_grid(inputs: OracleInputs, p: int) -> str:
    """Return the reason why no grid of p parts suits the layer with the fewest positions."""
    name, least = min(inputs.sizes.positions, key=lambda row: np.prod(row[1]))
    return f"no grid of {p} parts fits the {' x '.join(map(str, least))} positions of {name}"


def _segments(inputs: OracleInputs, p: int, batch: int) -> int:
    """Return the micro-batches of a pipeline: those requested, or the largest divisor up to 4 p."""
    given = inputs.request.segments
    if given is None:
        most = min(4 * p, batch) if p > 1 else 1
        return next(s for s in range(most, 0, -1) if batch % s == 0)
    if batch % given:
        raise ConfigError(f"segments must divide the batch of the pipeline, {batch}, got {given}")
    return given


def _hybrid(inputs: OracleInputs, strategy: str, p: int, batch: int) -> OracleCase | str:
    """Return a hybrid's case, or the reason why there is none.

    Groups lie inside a node where it has enough devices, because most bytes move inside groups.
    """
    inner = HYBRIDS[strategy]
    limit, reason = limit_of(inputs, inner)
    given = inputs.request.group
    usual = [d for d in range(1, p) if p % d == 0 and 1 < d <= limit]
    inside = [d for d in reversed(usual) if d <= inputs.node_devices]
    why = f"p = {p} makes no groups of 2 or more devices that are less than all"
    # the largest groups inside a node first, then the smallest of those that span nodes
    for group in [given] if given else inside + [d for d in usual if d not in inside]:
        if p % group:
            return f"groups of {group} devices do not divide {p}"
        if group > limit:
            return f"groups have at most {limit} devices: {reason}"
        if p // group > batch:
            why = f"at most {batch} groups: p1 <= B, a mini-batch has {batch} samples"
            continue
        grid = inputs.sizes.grid(group) if inner == "spatial" else ()
        if grid is None:
            why = _no_grid(inputs, group)
            continue
        return OracleCase(strategy=strategy, p=p, batch=batch, p1=p // group, p2=group, grid=grid)
    return why
