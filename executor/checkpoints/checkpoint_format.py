"""Format of a checkpoint: ``checkpoint.json`` says which boxes of each tensor lie in which safetensors file.

Neither can run code.  A file ``rank-0000.safetensors`` holds boxes that one rank wrote, by the names of their tensors,
and can be read without this program.  Where a rank wrote several boxes of a tensor, as of one that replicas divide, the
further ones lie in files of higher numbers.  Each box has a CRC-32 in the JSON file, which has a SHA-256 of its other
fields.  Whatever it claims is checked against the sizes of the files before memory is allocated for it.
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

VERSION: Final = 3
ABOUT = "checkpoint.json"
"""Name of the file with a checkpoint's version, step, identity and tensors."""
ELEMENT_TYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    )
}
"""Element types by name: those whose bytes may be any."""
_FILE = re.compile(r"rank-[0-9]{4,9}\.safetensors")
_MOST_DIMENSIONS, _MOST_BOXES = 64, 2**16

_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Counts = Annotated[tuple[_Count, ...], Meta(max_length=_MOST_DIMENSIONS)]


class SavedBox(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The place of a box in its tensor, and the file that holds it."""

    low: _Counts
    shape: _Counts
    file: str
    crc32: Annotated[int, Meta(ge=0, le=2**32 - 1)]


class SavedTensor(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tensor and the boxes that it was saved in."""

    dtype: str
    sizes: _Counts
    boxes: Annotated[tuple[SavedBox, ...], Meta(max_length=_MOST_BOXES)]


class SavedCheckpoint(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What ``checkpoint.json`` holds beside its checksum."""

    version: Literal[3] = VERSION
    step: _Count
    identity: dict[str, Any]
    tensors: dict[str, SavedTensor]


def encoded(saved: SavedCheckpoint) -> bytes:
    """Return the content of ``checkpoint.json``."""
    content = msgspec.to_builtins(saved)
    return msgspec.json.encode({**content, "sha256": _digest(content)}) + b"\n"


def parsed(content: Mapping[str, Any], folder: Path) -> SavedCheckpoint:
    """Return a checkpoint of this version.

    Raises:
        ValueError: A field is missing or wrong, the checksum is another, boxes do not fill their tensor, or lie in
            files that are too small for all of them.
        OSError: A file is missing.
    """
    fields = {name: value for name, value in content.items() if name != "sha256"}
    if content.get("sha256") != _digest(fields):
        raise ValueError(f"the checksum of {ABOUT} is another")
    saved = msgspec.convert(fields, SavedCheckpoint)
    needed_bytes: Counter[str] = Counter()
    for name, tensor in saved.tensors.items():
        _check_tensor(name, tensor)
        for box in tensor.boxes:
            needed_bytes[box.file] += math.prod(box.shape) * ELEMENT_TYPES[tensor.dtype].itemsize
    for file, needed in needed_bytes.items():
        if not _FILE.fullmatch(file):
            raise ValueError(f"{file[:60]!r} is no name of a file of boxes")
        about = os.stat(folder / file)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"{file} must be a regular file")
        if needed > about.st_size:
            raise ValueError(f"{file} must have at least {needed} bytes, got {about.st_size}")
    return saved


def _check_tensor(name: str, tensor: SavedTensor) -> None:
    """Check the boxes of a tensor against its sizes."""
    if tensor.dtype not in ELEMENT_TYPES:
        raise ValueError(f"the element type of {name!r} must be one of {', '.join(ELEMENT_TYPES)}")
    for box in tensor.boxes:
        if not len(box.low) == len(box.shape) == len(tensor.sizes):
            raise ValueError(f"a box of {name!r} must have {len(tensor.sizes)} dimensions")
        if any(low + length > size for low, length, size in zip(box.low, box.shape, tensor.sizes, strict=True)):
            raise ValueError(f"a box of {name!r} lies outside of it")
    for place, what in (("low", "begin at the same place"), ("file", "lie in one file")):
        if len({getattr(box, place) for box in tensor.boxes}) < len(tensor.boxes):
            raise ValueError(f"two boxes of {name!r} {what}")
    held, elements = sum(math.prod(box.shape) for box in tensor.boxes), math.prod(tensor.sizes)
    if held != elements:
        raise ValueError(f"the boxes of {name!r} hold {held} of its {elements} elements")


def box_file(number: int) -> str:
    """Return the name of a file with boxes: the first that a rank writes has its number."""
    return f"rank-{number:04d}.safetensors"


def _digest(fields: Mapping[str, Any]) -> str:
    """Return the SHA-256 of fields, whatever the layout of the file that they were read from."""
    return hashlib.sha256(msgspec.json.encode(fields)).hexdigest()
