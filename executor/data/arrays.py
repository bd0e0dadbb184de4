"""Arrays in files, mapped into memory where they are not compressed, so that a rank reads its region only."""

import math
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.data.requirements import DataRequirements, RequiredInput
from executor.runtime.boxes import Box
from groundwork.errors import ConfigError
from groundwork.input_arrays import ARRAYS_MIB, array_header, check_archive
from groundwork.input_files import check_input

Array = NDArray[Any]

_ZIP_NAME_LENGTHS = 26
"""Offset of the lengths of the name and of the extra field in a local file header (APPNOTE.TXT, 4.3.7)."""
_ZIP_HEADER_BYTES = 30


class ArraySource:
    """A source of samples in two arrays.

    Args:
        name: Name of the file, for error messages.
        inputs: An array for each input of the model, in order, of shape (N, channel, *positions), where one channel
            needs no axis; floating-point or uint8, integers for inputs that are words.
        targets: Labels, shape (N,), integers; or values, floating-point, shape (N, features) or (N, *sizes of the
            loss's input).
        expected: Shapes that the model requires.

    Raises:
        ConfigError: A type or a shape does not fit the model, or a label is no class of it.
    """

    def __init__(self, name: str, inputs: Sequence[Array], targets: Array, expected: DataRequirements) -> None:
        self._inputs: dict[str, Array] = {}
        for (key, each), array in zip(expected.inputs.items(), inputs, strict=True):
            self._inputs[key] = _checked_input(name, array, each, expected.model)
            if len(targets) != len(array):
                raise ConfigError(
                    f"data {name}: targets must be as many as the {len(array)} {each.array}, got {len(targets)}"
                )
        self.samples = len(targets)
        self._targets = _labels(name, targets, expected) if expected.labelled else _values(name, targets, expected)

    def inputs(self, rows: NDArray[np.int64], box: Box, name: str) -> Array:
        """Return a region of each of some samples; see ``Source.inputs``."""
        region: tuple[Any, ...] = (rows, *map(slice, box.low, box.high))
        return _copied(self._inputs[name][region])

    def targets(self, rows: NDArray[np.int64]) -> Array:
        """Return the targets of some samples; see ``Source.targets``."""
        return _copied(self._targets[rows])


def _checked_input(name: str, inputs: Array, expected: RequiredInput, model: str) -> Array:
    """Return an input that is checked to be what a model reads, with its axis of channels."""
    if expected.words:
        _check_words(name, inputs, expected, model)
    elif inputs.dtype != np.uint8 and inputs.dtype.kind != "f":
        raise ConfigError(f"data {name}: {expected.array} must be floating-point or uint8, got {inputs.dtype}")
    if expected.sample[0] == 1 and inputs.shape[1:] == expected.sample[1:]:
        inputs = inputs[:, None]  # words as modules take them, (N, length)
    if inputs.shape[1:] != expected.sample:
        raise ConfigError(
            f"data {name}: samples must be {_sizes(expected.sample)} as {model} reads them, "
            f"got {_sizes(inputs.shape[1:])} in {expected.array}"
        )
    return inputs


def _check_words(name: str, inputs: Array, expected: RequiredInput, model: str) -> None:
    """Refuse inputs that are no whole numbers of rows of the model's tables."""
    if inputs.dtype.kind not in "iu" or inputs.dtype == np.uint8:
        raise ConfigError(
            f"data {name}: {expected.array} must be integers of 16 bits or more, as {model} reads words, got "
            f"{inputs.dtype}"
        )
    if inputs.size and not 0 <= int(inputs.min()) <= int(inputs.max()) < expected.words:
        raise ConfigError(
            f"data {name}: {expected.array} must be words of {model}, 0 to {expected.words - 1}, got {inputs.min()} to "
            f"{inputs.max()}"
        )


def _labels(name: str, targets: Array, expected: DataRequirements) -> Array:
    """Return targets that are checked to be classes of the model, as int64."""
    if targets.dtype.kind not in "iu" or targets.shape[1:] != expected.positions:
        each = f"{_sizes(expected.positions)} integers a sample, the classes" if expected.positions else ""
        raise ConfigError(
            f"data {name}: targets must be {each or 'one integer a sample, the class'}, for {expected.model}, "
            f"got {targets.dtype} of shape {targets.shape}"
        )
    wrong = np.argwhere((targets < 0) | (targets >= expected.classes))
    if wrong.size:
        place = ", ".join(map(str, wrong[0].tolist()))
        raise ConfigError(
            f"data {name}: targets[{place}] must be a class of {expected.model}, 0 to {expected.classes - 1}, "
            f"got {targets[tuple(wrong[0])]}"
        )
    return targets.astype(np.int64)


def _values(name: str, targets: Array, expected: DataRequirements) -> Array:
    """Return targets that are checked to be values for the model, in the shape of the loss's input."""
    shapes = ((math.prod(expected.outputs),), expected.outputs)
    if targets.dtype.kind != "f" or targets.shape[1:] not in shapes:
        raise ConfigError(
            f"data {name}: targets must be floating-point of {_sizes(expected.outputs)} a sample for "
            f"{expected.model}, got {targets.dtype} of {_sizes(targets.shape[1:])}"
        )
    return targets.reshape(len(targets), *expected.outputs)


def _copied(values: Array) -> Array:
    """Return values in a row of memory and in this machine's byte order."""
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "single numbers"


def open_npy(path: Path) -> Array:
    """Map the array of an .npy file into memory.

    Raises:
        ConfigError: The file is missing, damaged or holds objects.
    """
    check_input(path, "data", limit_mib=ARRAYS_MIB)
    try:
        return _with_rows(path, np.load(path, mmap_mode="r", allow_pickle=False))
    except ConfigError:
        raise
    except Exception as error:  # a damaged header makes NumPy raise half a dozen kinds
        raise _unreadable(path, error) from error


def open_npz(path: Path, names: Sequence[str]) -> list[Array]:
    """Return some arrays of an .npz file, in order; a compressed file is read entirely.

    Raises:
        ConfigError: The file is missing, damaged, or lacks one of them.
    """
    check_input(path, "data", limit_mib=ARRAYS_MIB)
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, f"data {path}")
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            for name in names:
                if name not in members:
                    wanted = f"{', '.join(names[:-1])} and {names[-1]}"
                    raise ConfigError(f"data {path} must hold the arrays {wanted}, got {', '.join(members)}")
        return [_with_rows(path, _member(path, members[name])) for name in names]
    except ConfigError:
        raise
    except Exception as error:  # a damaged archive makes zipfile, zlib and NumPy raise a dozen kinds
        raise _unreadable(path, error) from error


def _member(path: Path, info: zipfile.ZipInfo) -> Array:
    """Return one array of an .npz file, mapped into memory where it is not compressed.

    ::

        local file header (30 bytes) | name | extra field | .npy header | elements, mapped
    """
    if info.compress_type != zipfile.ZIP_STORED:
        with np.load(path, allow_pickle=False) as archive:
            array: Array = archive[info.filename.removesuffix(".npy")]
            return array
    with path.open("rb") as file:
        file.seek(info.header_offset + _ZIP_NAME_LENGTHS)
        name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
        file.seek(info.header_offset + _ZIP_HEADER_BYTES + name_bytes + extra_bytes)
        # NumPy reads the .npy header; what follows in the file are the elements
        shape, fortran, dtype = array_header(file)
        if dtype.hasobject:
            raise ValueError("it holds objects")
        mapped: Array = np.memmap(
            path, dtype=dtype, mode="r", offset=file.tell(), shape=shape, order="F" if fortran else "C"
        )
        return mapped


def _with_rows(path: Path, array: Array) -> Array:
    if array.ndim == 0:
        raise ConfigError(f"data {path} must hold arrays of samples, got a single number")
    return array


def _unreadable(path: Path, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or error
    return ConfigError(f"data {path} cannot be read: {reason}")
