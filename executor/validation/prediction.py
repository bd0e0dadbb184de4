"""Programs priced by the times of parts of layers that were sampled while they ran."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from executor.probe.codec_probe import CodecRow
from executor.probe.measured_rows import ProbeRow
from executor.probe.probed_profile import write_with_codecs
from hwprofiles.devices.device_graph import DeviceGraph
from planner.layouts.parameter_shards import storage_shards
from planner.layouts.regions import held_regions
from planner.lowering.program import KINDS, Program


def with_codec_times(cluster: DeviceGraph, rows: Sequence[CodecRow], folder: Path, device: str) -> DeviceGraph:
    """Return the cluster with measured times of compression and decompression on all devices.

    Args:
        cluster: Cluster whose compute profiles are written anew.
        rows: Measured times.
        folder: Folder for the profiles; made if missing.
        device: Name of the device that was measured.
    """
    names = list(dict.fromkeys(row.profile for row in cluster.devices))
    paths = {name: folder / f"{number}-{Path(name).stem}.yaml" for number, name in enumerate(names)}
    for name, path in paths.items():
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        write_with_codecs(name, rows, path, device=device, measured=now, software=f"torch {torch.__version__}")
    return cluster.with_profiles({name: str(path) for name, path in paths.items()})


def with_samples(program: Program, rows: Sequence[ProbeRow]) -> Program:
    """Return the program with the median sample of every part as the length of its tasks.

    Args:
        program: Program lowered on any compute profile.
        rows: Samples of every part of its layers, by one rank or several, of one micro-batch where a layer has
            several; without rows the program stays as it is.  Tasks of compression stay as they are in any case.
    """
    if not rows:
        return program
    samples: dict[tuple[str, tuple[int, ...], str], list[float]] = defaultdict(list)
    for row in rows:
        for layer in row.layers:
            samples[layer, row.sizes, row.phase] += row.samples.seconds
    known = {key: float(np.median(seconds)) for key, seconds in samples.items()}
    layers = program.graph.layers
    spaces = [program.spaces_at(i)[i] for i in range(len(layers))]
    regions = [held_regions(space) for space in spaces]
    work_s = program.work_s.copy()
    for task in np.flatnonzero(program.is_compute & ~program.is_codec).tolist():
        i, part = int(program.layer[task]), int(program.part[task])
        sizes = tuple((regions[i].high[part] - regions[i].low[part]).tolist())
        phase = KINDS[program.kind[task]]
        # replicas that divide the optimizer's state each update a share of the parameters that were sampled
        shards = storage_shards(program.conditions.storage, spaces[i]) if phase == "update" else 1
        work_s[task] = known[layers[i].name, sizes, phase] / shards
    return replace(program, work_s=work_s)
