"""Data sets by their specifications."""

import re
from pathlib import Path

import torch

from executor.data.arrays import ArraySource, open_npy, open_npz
from executor.data.dataset import DataRequirements, Dataset, Shuffled, Source
from executor.data.generated import Endless, Repeated
from executor.data.images import ImageSource, Prefetching
from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph


def load_data(
    spec: str, graph: ComputationGraph, *, seed: int, dtype: torch.dtype, device: torch.device | str
) -> Dataset:
    """Open a data set, whose samples come in another random order in each epoch.

    Args:
        spec: ``generated``: random inputs and targets, new ones in every step; ``generated:1024``: as many random
            samples, the same in every epoch; ``FILE.npz`` with the arrays ``inputs`` (for further inputs
            of the model ``inputs_2`` and so on) and ``targets``;
            ``INPUTS.npy,TARGETS.npy``; or a folder of images with a folder for each class.  Inputs of bytes are
            scaled to [-1, 1).
        graph: The model, with its batch.
        seed: Seed of generated samples and of the order.
        dtype: Type of inputs, and of targets that are values.
        device: Device of both.

    Raises:
        ConfigError: The data cannot be read, do not fit the model, or are fewer than one batch.
    """
    expected = DataRequirements.of(graph)
    if spec == "generated":
        return Endless(expected, seed=seed, dtype=dtype, device=device)
    source = _source(spec, expected, seed, dtype, device)
    kind = Prefetching if isinstance(source, ImageSource) else Shuffled
    return kind(source, expected, name=spec, seed=seed, dtype=dtype, device=device)


def _source(spec: str, expected: DataRequirements, seed: int, dtype: torch.dtype, device: torch.device | str) -> Source:
    kind, _, count = spec.partition(":")
    if kind == "generated":
        if not re.fullmatch(r"[1-9][0-9]{0,6}", count):
            raise ConfigError(f"data generated:N needs a number of samples from 1 to 9999999, got {count!r}")
        return Repeated(int(count), expected, seed=seed, dtype=dtype, device=device)
    if spec.endswith(".npz"):
        *inputs, targets = open_npz(Path(spec), [*(each.array for each in expected.inputs.values()), "targets"])
        return ArraySource(spec, inputs, targets, expected)
    if re.fullmatch(r".+\.npy,.+\.npy", spec):
        expected.only_input(spec)
        first, second = map(Path, re.split(r"(?<=\.npy),", spec, maxsplit=1))
        return ArraySource(spec, [open_npy(first)], open_npy(second), expected)
    if Path(spec).is_dir():
        return ImageSource(Path(spec), expected)
    raise ConfigError(
        f"data must be generated, generated:N, FILE.npz, INPUTS.npy,TARGETS.npy or a folder of images, got {spec!r}"
    )
