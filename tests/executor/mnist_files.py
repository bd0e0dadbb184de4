"""Small files in the format of MNIST."""

import gzip
import struct

import numpy as np

from executor.data.idx import MNIST_FILES


def idx_bytes(array, *, magic=None, cut=0):
    """An array of bytes as the format lays it out."""
    head = magic if magic is not None else bytes((0, 0, 8, array.ndim))
    content = head + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    return content[: len(content) - cut]


def write_mnist(folder, *, training=24, testing=8, packed=False):
    """Four small files of random images and labels; returns the arrays by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    random, arrays = np.random.default_rng(0), {}
    for use, count in (("training", training), ("testing", testing)):
        images, labels = MNIST_FILES[use]
        arrays |= {images: random.integers(0, 256, (count, 28, 28)), labels: random.integers(0, 10, count)}
    for name, array in arrays.items():
        content = idx_bytes(array)
        (folder / f"{name}.gz").write_bytes(gzip.compress(content)) if packed else (folder / name).write_bytes(content)
    return arrays
