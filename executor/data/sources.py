"""Data by their specifications, opened and checked against what a model requires; torch is not needed for that."""

import re
from pathlib import Path

from executor.data.arrays import ArraySource, open_npy, open_npz
from executor.data.images import ImageSource
from executor.data.requirements import DataRequirements
from groundwork.errors import ConfigError


def opened_data(spec: str, expected: DataRequirements) -> ArraySource | ImageSource | int | None:
    """Open the data of a specification, as of ``executor.data.load.load_data``.

    Returns:
        The samples of files; the number of generated ones; None where these are new in every step.

    Raises:
        ConfigError: The data cannot be read, do not fit the model, or are fewer than one batch.
    """
    if spec == "generated":
        return None
    source = _source(spec, expected)
    samples = source if isinstance(source, int) else source.samples
    if samples < expected.batch:
        raise ConfigError(f"data {spec} must have at least the batch's {expected.batch} samples, got {samples}")
    return source


def _source(spec: str, expected: DataRequirements) -> ArraySource | ImageSource | int:
    kind, _, count = spec.partition(":")
    if kind == "generated":
        if not re.fullmatch(r"[1-9][0-9]{0,6}", count):
            raise ConfigError(f"data generated:N needs a number of samples from 1 to 9999999, got {count!r}")
        return int(count)
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
