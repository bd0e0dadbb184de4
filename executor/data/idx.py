"""Files of MNIST: arrays in the IDX format, compressed by gzip or not.

Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits", its description of the file formats.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from groundwork.errors import ConfigError
from groundwork.input_arrays import ARRAYS_MIB
from groundwork.input_files import check_input

MNIST_FILES = {
    "training": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "testing": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
"""Names of the files of images and labels by their use; each may end in ``.gz``."""
_BYTES = 0x08
"""Third byte of the magic number: elements are unsigned bytes.  The fourth is the number of dimensions."""
_GZIP = b"\x1f\x8b"


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of bytes in an IDX file.

    Args:
        path: The file; a compressed file is recognised by its first bytes.
        dimensions: Number of dimensions that the array must have.

    Raises:
        ConfigError: The file is missing or damaged, or its magic number or its length is wrong.

    Source:
        LeCun, Cortes and Burges, "The MNIST database of handwritten digits", its description of the file formats.
    """
    check_input(path, "data", limit_mib=ARRAYS_MIB)
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            with gzip.open(raw) if packed else raw as file:
                shape = _sizes(path, file.read(4 + 4 * dimensions), dimensions)
                expected = math.prod(shape)
                if expected > psutil.virtual_memory().available:
                    raise ConfigError(f"data {path} must fit in memory, its sizes make {expected:,} bytes")
                content = file.read(expected + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"data {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(content) != expected:
        sizes = " x ".join(map(str, shape))
        got = "more" if len(content) > expected else str(len(content))
        raise ConfigError(f"data {path} must hold {sizes} bytes after its sizes, got {got}")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _sizes(path: Path, head: bytes, dimensions: int) -> tuple[int, ...]:
    """Return the sizes of an array from the first bytes of its file."""
    magic, wanted = head[:4], bytes((0, 0, _BYTES, dimensions))
    if magic != wanted:
        raise ConfigError(
            f"data {path} must begin with the magic number {wanted.hex()}, got {magic.hex() or 'nothing'}"
        )
    if len(head) < 4 + 4 * dimensions:
        raise ConfigError(f"data {path} must hold {dimensions} sizes after its magic number, got {len(head)} bytes")
    return struct.unpack(f">{dimensions}I", head[4:])


def read_mnist(folder: Path, use: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images, shape (N, 1, height, width), and labels, shape (N,), of the MNIST files in a folder.

    Raises:
        ConfigError: A file is missing or damaged, or the numbers of labels and images differ.
    """
    if not folder.is_dir():
        raise ConfigError(f"data must be the folder of the MNIST files, got {str(folder)!r}")
    names = MNIST_FILES[use]
    images, labels = (
        read_idx(_existing(folder, name), dimensions) for name, dimensions in zip(names, (3, 1), strict=True)
    )
    if len(images) != len(labels):
        raise ConfigError(
            f"data {folder}: {names[1]} must hold a label for each of {len(images)} images, got {len(labels)}"
        )
    return images[:, None], labels.astype(np.int64)


def _existing(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise ConfigError(f"data {folder} must hold {name} or {name}.gz, which it does not")
