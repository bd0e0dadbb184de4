"""Format of a checkpoint: ``checkpoint.json`` says where every box of each tensor lies in files of raw elements.

Neither can run code.  The elements of a box lie one after another, in C order and little-endian, with a CRC-32; the
JSON file has a SHA-256 of its other fields.  Whatever a file claims is checked against the sizes of the files before
memory is allocated for it.
"""

import hashlib
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import torch
from msgspec import Meta, Struct

__all__ = [
    "ABOUT",
    "ELEMENT_TYPES",
    "VERSION",
    "SavedBox",
    "SavedCheckpoint",
    "SavedTensor",
    "box_file",
    "check_boxes",
    "encoded",
    "parsed",
]

VERSION: Final = 2
ABOUT = "checkpoint.json"
"""Name of the file with a checkpoint's version, step, identity and tensors."""
ELEMENT_TYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16, torch.int32,
        torch.int64,
    )
}  # fmt: skip
"""Element types by name: those whose bytes may be any."""
_FILE = re.compile(r"rank-[0-9]{4,9}\.bin")
_MOST_DIMENSIONS, _MOST_BOXES = 64, 2**16

_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Counts = Annotated[tuple[_Count, ...], Meta(max_length=_MOST_DIMENSIONS)]


class SavedBox(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The place of a box of a tensor, in the tensor and in a file."""

    low: _Counts
    shape: _Counts
    file: str
    offset: _Count
    """Bytes before it in the file."""
    size_bytes: _Count
    crc32: Annotated[int, Meta(ge=0, le=2**32 - 1)]


class SavedTensor(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tensor and the boxes that it was saved in."""

    dtype: str
    sizes: _Counts
    boxes: Annotated[tuple[SavedBox, ...], Meta(max_length=_MOST_BOXES)]


class SavedCheckpoint(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What ``checkpoint.json`` holds beside its checksum."""

    version: Literal[2] = VERSION
    step: _Count
    identity: dict[str, Any]
    tensors: dict[str, SavedTensor]


def encoded(saved: SavedCheckpoint) -> bytes:
    """Return the content of ``checkpoint.json``."""
    content = msgspec.to_builtins(saved)
    return msgspec.json.encode({**content, "sha256": _digest(content)}) + b"\n"


def parsed(content: Mapping[str, Any], folder: Path) -> SavedCheckpoint:
    """Return a checkpoint of this version.

    Args:
        content: Value of ``checkpoint.json``.
        folder: Folder that it lies in, with the files that it names.

    Raises:
        ValueError: A field is missing or wrong, the checksum is another, or ``check_boxes`` refuses a box.
        OSError: A file is missing.
    """
    fields = {name: value for name, value in content.items() if name != "sha256"}
    if content.get("sha256") != _digest(fields):
        raise ValueError(f"the checksum of {ABOUT} is another")
    saved = msgspec.convert(fields, SavedCheckpoint)
    check_boxes(saved.tensors, folder, _FILE)
    for name, tensor in saved.tensors.items():
        for box in tensor.boxes:
            needed_bytes = math.prod(box.shape) * ELEMENT_TYPES[tensor.dtype].itemsize
            if box.size_bytes != needed_bytes:
                raise ValueError(f"a box of {name!r} must have {needed_bytes} bytes, got {box.size_bytes}")
    return saved


def check_boxes(tensors: Mapping[str, SavedTensor], folder: Path, file_name: re.Pattern[str]) -> None:
    """Check that boxes lie in their tensors and fill them, and lie in files that are large enough for all of them.

    Args:
        tensors: Tensors by name.
        folder: Folder of the files.
        file_name: Pattern of the files' names.

    Raises:
        ValueError: Names the first tensor or file that breaks a rule.
        OSError: A file is missing.
    """
    used_bytes: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for name, tensor in tensors.items():
        _check_tensor(name, tensor)
        for box in tensor.boxes:
            used_bytes[box.file] += box.size_bytes
            ends[box.file] = max(ends[box.file], box.offset + box.size_bytes)
    for file, used in used_bytes.items():
        if not file_name.fullmatch(file):
            raise ValueError(f"{file[:60]!r} is no name of a file of boxes")
        about = os.stat(folder / file)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"{file} must be a regular file")
        if max(used, ends[file]) > about.st_size:
            raise ValueError(f"{file} must have at least {max(used, ends[file])} bytes, got {about.st_size}")


def _check_tensor(name: str, tensor: SavedTensor) -> None:
    """Check the boxes of a tensor against its sizes, and their bytes against their elements."""
    if tensor.dtype not in ELEMENT_TYPES:
        raise ValueError(f"the element type of {name!r} must be one of {', '.join(ELEMENT_TYPES)}")
    itemsize = ELEMENT_TYPES[tensor.dtype].itemsize
    for box in tensor.boxes:
        if not len(box.low) == len(box.shape) == len(tensor.sizes):
            raise ValueError(f"a box of {name!r} must have {len(tensor.sizes)} dimensions")
        if any(low + length > size for low, length, size in zip(box.low, box.shape, tensor.sizes, strict=True)):
            raise ValueError(f"a box of {name!r} lies outside of it")
        if math.prod(box.shape) * itemsize > box.size_bytes:
            raise ValueError(f"a box of {name!r} has more elements than its {box.size_bytes} bytes hold")
    if len({box.low for box in tensor.boxes}) < len(tensor.boxes):
        raise ValueError(f"two boxes of {name!r} begin at the same place")
    held, elements = sum(math.prod(box.shape) for box in tensor.boxes), math.prod(tensor.sizes)
    if held != elements:
        raise ValueError(f"the boxes of {name!r} hold {held} of its {elements} elements")


def box_file(rank: int) -> str:
    """Return the name of the file with the boxes that a rank writes."""
    return f"rank-{rank:04d}.bin"


def _digest(fields: Mapping[str, Any]) -> str:
    """Return the SHA-256 of fields, whatever the layout of the file that they were read from."""
    return hashlib.sha256(msgspec.json.encode(fields)).hexdigest()
