"""Storage of checkpoints: the boxes that ranks write, and the files that make a checkpoint count.

It adapts ``torch.distributed.checkpoint`` to boxes of whole tensors; see ``executor.checkpoints.checkpoint``.
"""

import os
import re
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    SavePlan,
    SavePlanner,
    WriteItem,
)
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from executor.checkpoints.checkpoint_format import (
    ABOUT,
    ELEMENT_TYPES,
    SavedBox,
    SavedCheckpoint,
    SavedTensor,
    box_file,
    encoded,
)
from executor.runtime import Box
from hwprofiles import ConfigError, input_text

__all__ = [
    "CheckpointPart",
    "RenamingWriter",
    "first_line",
    "kept_checkpoints",
]

_LATEST, _PARTIAL = "latest", ".partial"
_OWN = re.compile(r"step-[0-9]{6,}(-[0-9]+)?(\.partial)?")
"""Names of the folders that a save may remove."""
_VALID = re.compile(r"step-[0-9]{6,}(-[0-9]+)?")


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """The box of a tensor that one rank holds."""

    box: Box
    whole: tuple[int, ...]
    """Sizes of the whole tensor."""
    tensor: Tensor
    """Elements of the box; a load overwrites them."""


class RenamingWriter(StorageWriter):
    """A writer that makes a checkpoint valid by a rename once all of it is on disk; see ``checkpoint``.

    ``prepare_global_plan`` and ``finish`` run on one rank: the first before any rank writes, the second after all have
    written.
    """

    def __init__(self, folder: Path, step: int, identity: Mapping[str, Any], keep: int) -> None:
        self._folder, self._keep = folder, keep
        self._step, self._identity = step, dict(identity)
        self._name = f"step-{step:06d}"
        self._partial = folder / f"{self._name}{_PARTIAL}"

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Remove checkpoints that are not valid, make the folder of this one, and name the file of each rank."""
        self._folder.mkdir(parents=True, exist_ok=True)
        _remove_others(self._folder, kept_checkpoints(self._folder))
        self._partial.mkdir()
        return [replace(plan, storage_data=box_file(rank)) for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the boxes of a rank to its file.

        Raises:
            OSError: The file cannot be written.
        """
        results: list[WriteResult] = []
        if plan.items:
            with (self._partial / plan.storage_data).open("xb") as file:
                for item in plan.items:
                    box = _written(file, plan.storage_data, item, planner)
                    results.append(WriteResult(index=item.index, size_in_bytes=box.size_bytes, storage_data=box))
                file.flush()
                os.fsync(file.fileno())
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Make the checkpoint valid, once all ranks have written.

        Raises:
            OSError: A file cannot be written.
        """
        tensors = _tensors(metadata, {result.index: result.storage_data for row in results for result in row})
        partial, kept = self._partial, kept_checkpoints(self._folder)
        _write(partial / ABOUT, encoded(SavedCheckpoint(step=self._step, identity=self._identity, tensors=tensors)))
        _sync(partial)
        # A run that was started again may reach a step whose checkpoint is still valid.
        again = (f"{self._name}-{number}" for number in count(2))
        name = next(name for name in chain([self._name], again) if name not in kept)
        partial.rename(self._folder / name)
        _sync(self._folder)
        kept = [name, *kept][: self._keep]
        replacement = self._folder / f"{_LATEST}{_PARTIAL}"
        _write(replacement, "".join(f"{row}\n" for row in kept).encode())
        replacement.replace(self._folder / _LATEST)
        _sync(self._folder)
        _remove_others(self._folder, kept)

    def set_up_storage_writer(self, is_coordinator: bool) -> None:
        """Do nothing: what the writer needs was given to it."""

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Do nothing: a writer writes one checkpoint."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return False: torch is given a writer, and need not choose one by a path."""
        return False


def _written(file: BinaryIO, name: str, item: WriteItem, planner: SavePlanner) -> SavedBox:
    """Append the elements of a box to a file, and return their place."""
    data = planner.resolve_data(item)
    assert isinstance(data, Tensor)
    assert item.tensor_data is not None
    content = data.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    chunk, offset = item.tensor_data.chunk, file.tell()
    file.write(content)
    return SavedBox(
        low=tuple(chunk.offsets), shape=tuple(chunk.sizes), file=name, offset=offset, size_bytes=content.nbytes,
        crc32=zlib.crc32(content),
    )  # fmt: skip


def _tensors(metadata: Metadata, boxes: Mapping[MetadataIndex, SavedBox]) -> dict[str, SavedTensor]:
    """Return the tensors that ranks have written, by name.

    Raises:
        ValueError: A tensor has elements that a checkpoint cannot hold.
    """
    tensors = {}
    for name, saved in metadata.state_dict_metadata.items():
        assert isinstance(saved, TensorStorageMetadata)
        dtype = str(saved.properties.dtype).removeprefix("torch.")
        if dtype not in ELEMENT_TYPES:
            raise ValueError(f"the element type of {name} must be one of {', '.join(ELEMENT_TYPES)}, got {dtype}")
        tensors[name] = SavedTensor(
            dtype=dtype,
            sizes=tuple(saved.size),
            boxes=tuple(boxes[MetadataIndex(name, chunk.offsets)] for chunk in saved.chunks),
        )
    return tensors


def kept_checkpoints(folder: Path) -> list[str]:
    """Return the names of the valid checkpoints in a folder, newest first.

    Raises:
        ConfigError: The file that lists them cannot be read, or lists something else.
    """
    if not os.path.lexists(folder / _LATEST):
        return []
    names = input_text(folder / _LATEST, "checkpoint file").split()
    for name in names:
        if not _VALID.fullmatch(name):
            raise ConfigError(
                f"checkpoint file {folder / _LATEST} must list names such as step-000010, got {name[:60]!r}"
            )
    return names


def _remove_others(folder: Path, kept: list[str]) -> None:
    """Remove the checkpoints of a folder but those that are kept."""
    for entry in folder.iterdir():
        if _OWN.fullmatch(entry.name) and entry.name not in kept:
            shutil.rmtree(entry)


def _write(path: Path, content: bytes) -> None:
    """Write a file to disk, past the system's cache."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Write the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0]
