"""Cases: a strategy on a number of devices with its degrees, and what Table 1's last column allows."""

from dataclasses import dataclass

import numpy as np

from hwprofiles import ConfigError
from studies.oracle.layer_sizes import Sizes
from studies.oracle.oracle_options import OracleOptions
from studies.oracle.oracle_table import Limit
from studies.oracle.splits import Split

__all__ = ["HYBRIDS", "SAMPLED", "OracleCase", "OracleRequest", "case_of", "limit_of", "limits_of"]

HYBRIDS = {"data+filter": "filter", "data+spatial": "spatial"}
"""What splits the rest within a group."""
SAMPLED = ("data", *HYBRIDS)
"""Strategies that split samples, whose batch grows with the devices in weak scaling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleRequest:
    """What all cases share."""

    sizes: Sizes
    samples: int
    """D."""
    batch: int
    """Of all devices, or of each in weak scaling."""
    weak: bool
    node_devices: int
    options: OracleOptions

    def batch_of(self, strategy: str, p: int) -> int:
        """B of a strategy; in weak scaling what splits no samples keeps the batch of one device, as in Figure 1."""
        return self.batch * p if self.weak and strategy in SAMPLED else self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleCase:
    """A strategy on p = p1 p2 devices."""

    strategy: str
    p: int
    batch: int
    p1: int = 1
    """Parts of the samples."""
    p2: int = 1
    """Parts of the rest: devices of a group."""
    grid: tuple[int, ...] = ()
    segments: int = 1

    @property
    def split(self) -> Split:
        """What a device holds."""
        kind = HYBRIDS.get(self.strategy, self.strategy)
        return Split(
            devices=self.p,
            samples=self.batch / self.p1 / self.segments,
            filters=self.p2 if kind == "filter" else 1,
            channels=self.p2 if kind == "channel" else 1,
            grid=self.grid,
        )

    @property
    def degrees(self) -> str:
        """In few words."""
        if self.strategy == "layer":
            return f"S = {self.segments}"
        words = [str(self.p1)] if self.strategy in HYBRIDS else []
        return " x ".join([*words, *map(str, self.grid or ((self.p2,) if words else ()))])


def limit_of(question: OracleRequest, strategy: str) -> tuple[int, str]:
    """Most devices of a strategy, and why (last column of Table 1).

    C_1 of an image is 3, and yet the paper runs Channel on up to 64 devices: read as the layers after the first,
    which is split by filters.
    """
    if strategy in HYBRIDS:
        return _limit_of_hybrid(question, strategy)
    sizes, batch = question.sizes, question.batch
    if strategy == "serial":
        return 1, "it is one device"
    if strategy == "layer":
        return len(sizes.y), f"p <= G: {sizes.graph.name} has {len(sizes.y)} layers"
    if strategy == "data":
        if question.weak:
            return question.samples // batch, f"p <= D/b: {question.samples:,} samples, {batch} a device"
        return batch, f"p <= B: a mini-batch has {batch} samples"
    if strategy == "spatial":
        if not sizes.positions:
            return 1, f"{sizes.graph.name} has no layer with positions"
        name, least = min(sizes.positions, key=lambda row: np.prod(row[1]))
        return int(np.prod(least)), f"p <= min(W x H): {name} has {' x '.join(map(str, least))} positions"
    return _limit_of_channels(sizes, strategy)


def _limit_of_channels(sizes: Sizes, strategy: str) -> tuple[int, str]:
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


def _limit_of_hybrid(question: OracleRequest, strategy: str) -> tuple[int, str]:
    data, why_data = limit_of(question, "data")
    inner, why_inner = limit_of(question, HYBRIDS[strategy])
    if question.weak:  # samples grow with all devices, not with the groups only
        return data, f"{why_data}; p2 {why_inner.removeprefix('p ')}"
    return data * inner, f"p1 {why_data.removeprefix('p ')}; p2 {why_inner.removeprefix('p ')}"


def case_of(question: OracleRequest, strategy: str, p: int) -> OracleCase | str:
    """The case of a strategy on p devices, or why there is none."""
    limit, reason = limit_of(question, strategy)
    if p > limit:
        return f"at most {limit:,} devices: {reason}"
    batch = question.batch_of(strategy, p)
    if batch > question.samples:
        return f"a mini-batch of {batch:,} is more than the data set's {question.samples:,} samples"
    if strategy in HYBRIDS:
        return _hybrid(question, strategy, p, batch)
    if strategy == "data":
        return OracleCase(strategy=strategy, p=p, batch=batch, p1=p)
    if strategy == "spatial":
        grid = question.sizes.grid(p)
        if grid is None:
            return _no_grid(question, p)
        return OracleCase(strategy=strategy, p=p, batch=batch, p2=p, grid=grid)
    if strategy == "layer":
        return OracleCase(strategy=strategy, p=p, batch=batch, p2=p, segments=_segments(question, p, batch))
    return OracleCase(strategy=strategy, p=p, batch=batch, p2=p)


def _no_grid(question: OracleRequest, p: int) -> str:
    name, least = min(question.sizes.positions, key=lambda row: np.prod(row[1]))
    return f"no grid of {p} parts fits the {' x '.join(map(str, least))} positions of {name}"


def _segments(question: OracleRequest, p: int, batch: int) -> int:
    given = question.options.segments
    if given is None:
        most = min(4 * p, batch) if p > 1 else 1
        return next(s for s in range(most, 0, -1) if batch % s == 0)
    if batch % given:
        raise ConfigError(f"segments must divide the batch of the pipeline, {batch}, got {given}")
    return given


def _hybrid(question: OracleRequest, strategy: str, p: int, batch: int) -> OracleCase | str:
    """Groups inside a node where it has devices enough, so that what is exchanged most stays there."""
    inner = HYBRIDS[strategy]
    limit, reason = limit_of(question, inner)
    given = question.options.group
    usual = [d for d in range(1, p) if p % d == 0 and 1 < d <= limit]
    inside = [d for d in reversed(usual) if d <= question.node_devices]
    why = f"p = {p} makes no groups of 2 or more devices that are less than all"
    for group in [given] if given else inside + [d for d in usual if d not in inside]:
        if p % group:
            return f"groups of {group} devices do not divide {p}"
        if group > limit:
            return f"groups have at most {limit} devices: {reason}"
        if p // group > batch:
            why = f"at most {batch} groups: p1 <= B, a mini-batch has {batch} samples"
            continue
        grid = question.sizes.grid(group) if inner == "spatial" else ()
        if grid is None:
            why = _no_grid(question, group)
            continue
        return OracleCase(strategy=strategy, p=p, batch=batch, p1=p // group, p2=group, grid=grid)
    return why


def limits_of(question: OracleRequest, strategy: str, refused: dict[int, str]) -> Limit:
    """The limit with the numbers of devices that it refuses."""
    devices, reason = limit_of(question, strategy)
    return Limit(strategy=strategy, devices=devices, reason=reason, refused=refused)
