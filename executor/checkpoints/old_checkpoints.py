"""Checkpoints of version 1, whose metadata is a pickle: read only for users who trust who wrote them.

Of the names that a pickle may hold, only those are looked up that version 1 wrote, so that a pickle made to run a
command is refused.  That is a second guard: no pickle is a safe format.
"""

import io
import pathlib
import pickle
import pickletools
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.distributed.checkpoint import filesystem, metadata as torch_metadata
from torch.serialization import _get_layout

from executor.checkpoints.checkpoint_format import ELEMENT_TYPES, SavedBox, SavedCheckpoint, SavedTensor, check_boxes
from hwprofiles import input_bytes

__all__ = ["OLD_VERSION", "old_checkpoint", "old_elements"]

OLD_VERSION = 1
_FILE = re.compile(r"__[0-9]{1,9}_[0-9]{1,9}\.distcp")
_METADATA = ("Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata", "MetadataIndex")
_KNOWN: dict[tuple[str, str], Any] = {
    **{
        ("torch.distributed.checkpoint.metadata", name): getattr(torch_metadata, name)
        for name in (*_METADATA, "StorageMeta", "_MEM_FORMAT_ENCODING")
    },
    **{("torch", name): dtype for name, dtype in ELEMENT_TYPES.items()},
    **{
        (module, name): pathlib.PurePath
        for module in ("pathlib", "pathlib._local")
        for name in ("PosixPath", "WindowsPath")
    },
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): filesystem._StorageInfo,
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): _get_layout,
}
"""Names in the metadata of version 1, by module and name."""


class _Unpickler(pickle.Unpickler):
    """An unpickler that knows the names of version 1 only."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name stands for.

        Raises:
            ValueError: Version 1 wrote no such name.
        """
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise ValueError(f"its metadata names {f'{module}.{name}'[:80]!r}, which no checkpoint holds") from None


def old_checkpoint(content: Mapping[str, Any], folder: Path) -> SavedCheckpoint:
    """Return a checkpoint of version 1.

    Args:
        content: Value of ``checkpoint.json``.
        folder: Folder that it lies in, with the files of its tensors.

    Raises:
        ValueError: A field is missing or wrong, or ``check_boxes`` refuses a box.
        OSError: A file is missing.
    """
    try:
        tensors = _tensors(_unpickled(input_bytes(folder / ".metadata", "checkpoint file")))
        fields = {"step": content.get("step"), "identity": content.get("identity"), "tensors": tensors}
        saved = msgspec.convert(fields, SavedCheckpoint)
    except Exception as error:  # a damaged pickle raises anything
        raise ValueError(str(error) or type(error).__name__) from error
    check_boxes(saved.tensors, folder, _FILE)
    return saved


def _unpickled(content: bytes) -> Any:
    """Return the metadata in a pickle."""
    for operation, value, _ in pickletools.genops(content):
        # a memo at a place beyond any that a pickle of this size needs takes memory up to that place
        if operation.name in {"PUT", "BINPUT", "LONG_BINPUT"} and int(value or 0) > len(content):
            raise ValueError("its metadata is no pickle that a checkpoint holds")
    return _Unpickler(io.BytesIO(content)).load()


def _tensors(saved: Any) -> dict[str, Any]:
    """Return torch's metadata as fields of ``SavedTensor``, by the tensor's name."""
    places = {(index.fqn, tuple(index.offset)): place for index, place in saved.storage_data.items()}
    return {
        name: {
            "dtype": str(tensor.properties.dtype).removeprefix("torch."),
            "sizes": tuple(tensor.size),
            "boxes": [_box(chunk, places[name, tuple(chunk.offsets)]) for chunk in tensor.chunks],
        }
        for name, tensor in saved.state_dict_metadata.items()
    }


def _box(chunk: Any, place: Any) -> dict[str, Any]:
    """Return torch's description of a box as fields of ``SavedBox``; its zip archive has the checksum."""
    return {
        "low": tuple(chunk.offsets), "shape": tuple(chunk.sizes), "file": place.relative_path,
        "offset": place.offset, "size_bytes": place.length, "crc32": 0,
    }  # fmt: skip


def old_elements(tensor: SavedTensor, box: SavedBox, content: Tensor) -> Tensor:
    """Return the elements of a box from the archive that version 1 holds.

    Raises:
        ValueError: The archive is damaged or has no tensor of the box's shape and type.
    """
    raw = io.BytesIO(content.numpy().data)
    with zipfile.ZipFile(raw) as archive:
        # torch writes no compressed entries; one would take memory beyond the file's size
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()) or archive.testzip():
            raise ValueError(f"the checksum of a box in {box.file} is another")
    raw.seek(0)
    elements = torch.load(raw, map_location="cpu", weights_only=True)
    if (
        not isinstance(elements, Tensor)
        or tuple(elements.shape) != box.shape
        or elements.dtype != ELEMENT_TYPES[tensor.dtype]
    ):
        raise ValueError(f"a box in {box.file} has another shape or element type than the metadata says")
    return elements
