"""Arrays in .npz files that users name: read only where the file can hold what it says."""

import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil
from numpy.typing import NDArray

from groundwork.errors import ConfigError, first_line
from groundwork.input_files import check_input

ARRAYS_MIB = 65_536
"""Largest file of arrays; what it holds must fit in memory, too."""


def array_input(path: Path, what: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name.

    Raises:
        ConfigError: The file cannot be read, is damaged, holds objects, or more than fits in memory.
    """
    check_input(path, what, limit_mib=ARRAYS_MIB)
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, f"{what} {path}")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: np.asarray(arrays[name]) for name in arrays.files}
    except ConfigError:
        raise
    except Exception as error:  # a damaged file makes zipfile, zlib and NumPy raise a dozen kinds
        raise ConfigError(f"{what} {path} is damaged, or no file of arrays: {first_line(error)}") from None


def check_archive(archive: zipfile.ZipFile, origin: str) -> None:
    """Refuse an archive whose members, unpacked, do not fit in memory, or say that they are larger than they are.

    Raises:
        ConfigError: The members are too large, or a header names a shape of more elements than its member holds.
    """
    members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    free = psutil.virtual_memory().available
    if unpacked > free:
        raise ConfigError(
            f"{origin} would take {unpacked / 2**30:.4g} GiB of memory, and {free / 2**30:.3g} GiB are free"
        )
    for member in members:
        with archive.open(member) as file:
            shape, _, dtype = array_header(file)
        size = dtype.itemsize
        for length in shape:
            size *= int(length)
        if min(shape, default=0) < 0 or size > member.file_size:
            raise ConfigError(f"{origin}: {member.filename} says that its shape is {shape}, which it cannot hold")


def array_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an .npy file; return the array's shape, whether it is in Fortran's order, and its type."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)
