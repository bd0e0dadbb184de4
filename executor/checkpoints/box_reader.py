"""The reader of saved boxes for ``torch.distributed.checkpoint``, which plans the reads; it unpickles nothing."""

import os
import zlib
from collections.abc import Callable, Mapping
from io import BufferedReader
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from executor.checkpoints.checkpoint_format import ELEMENT_TYPES, SavedBox, SavedTensor

__all__ = ["BoxReader", "Decoder", "raw_elements"]

Decoder = Callable[[SavedTensor, SavedBox, Tensor], Tensor]
"""Function that returns the elements of a box from its bytes."""


def raw_elements(tensor: SavedTensor, box: SavedBox, content: Tensor) -> Tensor:
    """Return the elements of a box from the bytes that a checkpoint holds.

    Raises:
        ValueError: The checksum is another.
    """
    if zlib.crc32(content.numpy().data) != box.crc32:
        raise ValueError(f"the checksum of a box in {box.file} is another")
    return content.view(ELEMENT_TYPES[tensor.dtype]).reshape(box.shape)


class BoxReader(StorageReader):
    """A reader of boxes that were checked by ``checkpoint_format.check_boxes``.

    Args:
        folder: Folder of the files.
        tensors: Tensors by name.
        decode: Gives the elements of a box.
    """

    def __init__(self, folder: Path, tensors: Mapping[str, SavedTensor], decode: Decoder = raw_elements) -> None:
        self._folder, self._tensors, self._decode = folder, tensors, decode

    def read_metadata(self) -> Metadata:  # without **kwargs, where torch would look for metadata of single ranks
        """Return torch's description of the tensors."""
        return Metadata({name: _described(tensor) for name, tensor in self._tensors.items()})

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the boxes of a plan.

        Raises:
            ValueError: A checksum differs from the one that was written, or a file ends early.
            OSError: A file cannot be read.
        """
        boxes = {(name, box.low): box for name, tensor in self._tensors.items() for box in tensor.boxes}
        rows = [(boxes[_key(item)], item) for item in plan.items]
        rows.sort(key=lambda row: (row[0].file, row[0].offset))
        for name, group in groupby(rows, key=lambda row: row[0].file):
            with (self._folder / name).open("rb") as file:
                for box, item in group:
                    self._read(file, box, item, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read(self, file: BufferedReader, box: SavedBox, item: ReadItem, planner: LoadPlanner) -> None:
        """Read one box, and copy the part of it that a rank needs."""
        content = torch.empty(box.size_bytes, dtype=torch.uint8)
        file.seek(box.offset)
        if file.readinto(content.numpy().data) != box.size_bytes:
            raise ValueError(f"{box.file} ends early")
        elements = self._decode(self._tensors[item.storage_index.fqn], box, content)
        for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            elements = elements.narrow(dimension, start, length)
        planner.resolve_tensor(item).detach().copy_(elements)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool) -> None:
        """Do nothing: what the reader needs was given to it."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return plans

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: a reader reads one checkpoint."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return False: torch is given a reader, and need not choose one by a path."""
        return False


def _key(item: ReadItem) -> tuple[str, tuple[int, ...]]:
    """Return the tensor that an item reads from, and where its box begins there."""
    return item.storage_index.fqn, tuple(item.storage_index.offset or ())


def _described(tensor: SavedTensor) -> Any:
    """Return torch's description of a tensor."""
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=ELEMENT_TYPES[tensor.dtype]),
        size=Size(tensor.sizes),
        chunks=[ChunkStorageMetadata(offsets=Size(box.low), sizes=Size(box.shape)) for box in tensor.boxes],
    )
