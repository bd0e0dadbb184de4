"""Folders of images, one sub-folder for each class."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from executor.data.requirements import DataRequirements
from executor.runtime.boxes import Box
from groundwork.errors import ConfigError

_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_MODES = {1: "L", 3: "RGB"}
_MOST_THREADS = 8


class ImageSource:
    """A source of the images in a folder, whose sub-folders in the order of their names are the classes.

    An image is scaled until it covers the model's height and width, then cropped to its centre.

    Raises:
        ConfigError: Pillow is missing, the model does not read images of 1 or 3 channels alone, its targets are not
            labels, or it has fewer classes than there are sub-folders.
    """

    def __init__(self, folder: Path, expected: DataRequirements) -> None:
        try:
            import PIL.Image  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                f"data {folder}: images need Pillow, which is not installed: pip install 'orrery-training[images]'"
            ) from error
        sample = expected.only_input(str(folder)).sample
        channels, *positions = sample
        if len(positions) != 2 or channels not in _MODES:
            sizes = " x ".join(map(str, sample))
            raise ConfigError(
                f"data {folder}: images have 1 or 3 channels, height and width; {expected.model} reads {sizes}"
            )
        if expected.positions:
            raise ConfigError(f"data {folder}: an image has one label, {expected.model} learns one a position")
        if not expected.labelled:
            raise ConfigError(f"data {folder}: images have labels, {expected.model} learns {expected.classes} values")
        classes = sorted(entry for entry in folder.iterdir() if entry.is_dir())
        if len(classes) > expected.classes:
            raise ConfigError(
                f"data {folder}: {len(classes)} folders, {expected.model} tells {expected.classes} classes apart"
            )
        files = [(path, label) for label, entry in enumerate(classes) for path in _image_files(entry)]
        self.samples = len(files)
        self._paths = [path for path, _ in files]
        self._labels = np.array([label for _, label in files], dtype=np.int64)
        self._mode = _MODES[channels]
        self._height, self._width = positions
        self._pool = ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS))

    def inputs(self, rows: NDArray[np.int64], box: Box, name: str) -> NDArray[np.uint8]:
        """Return a region of each of some samples; see ``Source.inputs``."""
        slices = tuple(map(slice, box.low, box.high))
        values = np.empty((len(rows), *box.shape), dtype=np.uint8)
        for i, pixels in enumerate(self._pool.map(self._pixels, rows.tolist())):
            values[i] = pixels[slices]
        return values

    def targets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the targets of some samples; see ``Source.targets``."""
        return self._labels[rows]

    def _pixels(self, row: int) -> NDArray[np.uint8]:
        """Return the pixels of one image, shape (channel, height, width)."""
        from PIL import Image, ImageOps

        path = self._paths[row]
        try:
            with Image.open(path) as image:
                fitted = ImageOps.fit(image.convert(self._mode), (self._width, self._height), Image.Resampling.BILINEAR)
        except Exception as error:  # a damaged image makes Pillow raise whatever its decoder meets
            raise ConfigError(f"data {path} cannot be read as an image: {error}") from error
        pixels = np.asarray(fitted, dtype=np.uint8)
        return pixels.reshape(self._height, self._width, -1).transpose(2, 0, 1)


def _image_files(folder: Path) -> list[str]:
    """Return the images in a folder and those below it, in the order of their names.

    A data set may have a million of them: what they are is read with their names, without a look at each.
    """
    found, left = list[str](), [str(folder)]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                elif os.path.splitext(entry.name)[1].lower() in _SUFFIXES and entry.is_file():
                    found.append(entry.path)
    return sorted(found, key=lambda path: path.split(os.sep))
