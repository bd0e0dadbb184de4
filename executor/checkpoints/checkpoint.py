"""Checkpoints that any plan of the same model reads: boxes of whole tensors, in files that cannot run code.

The files are those of ``checkpoint_format``, in a folder of ``checkpoint_folder``.  Ranks on several machines need a
folder that all of them share.
"""

import hashlib
import math
import os
import textwrap
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from executor.checkpoints.checkpoint_folder import begin_checkpoint, kept_checkpoints, make_valid
from executor.checkpoints.checkpoint_format import (
    ABOUT,
    ELEMENT_TYPES,
    VERSION,
    SavedBox,
    SavedCheckpoint,
    SavedTensor,
    box_file,
    parsed,
)
from executor.rendezvous.all_ranks import of_all_ranks
from executor.runtime.boxes import Box
from groundwork.errors import ConfigError, first_line
from groundwork.input_files import json_input
from groundwork.whole_files import sync
from planner.graph.computation_graph import ComputationGraph

_T = TypeVar("_T")
_BoxKey = tuple[str, tuple[int, ...]]
"""Name of a tensor, and the first indices of a box of it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Metadata of a checkpoint."""

    path: Path
    step: int
    """Number of training steps before it was saved."""
    identity: Mapping[str, Any]
    """Properties of the run that saved it."""


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """A box of a tensor that one rank holds, and others if it holds several."""

    box: Box
    whole: tuple[int, ...]
    """Sizes of the whole tensor."""
    tensor: Tensor
    """Elements of the box; a load overwrites them."""
    others: "tuple[CheckpointPart, ...]" = ()
    """Further boxes of the same tensor, which have no others."""

    @property
    def boxes(self) -> "tuple[CheckpointPart, ...]":
        """All boxes of the tensor that the rank holds."""
        return (self, *self.others)


def model_identity(graph: ComputationGraph) -> str:
    """Return a hash of the layers and their shapes without the batch, which a resumed run may change."""
    layers = graph.layers
    rows = [(layer.name, layer.operation, layer.inputs, layer.output.dims, layer.output.sizes[1:]) for layer in layers]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def save_checkpoint(
    folder: Path, *, step: int, identity: Mapping[str, Any], tensors: Mapping[str, CheckpointPart], keep: int = 2
) -> None:
    """Write a checkpoint; all ranks of the group call it together, or one process without a group.

    Args:
        folder: Folder of all checkpoints of a run.
        step: Number of training steps done.
        identity: Properties of the run, which a run that loads the checkpoint can require; JSON.
        tensors: Boxes that this rank holds, by the tensor's name.  The boxes of all ranks cover each tensor; a box that
            several ranks hold is written by one of them.
        keep: Number of checkpoints to keep, this one included, >= 1.

    Raises:
        ConfigError: The checkpoint cannot be written, boxes do not cover a tensor, or ``keep`` < 1.
    """
    if keep < 1:
        raise ConfigError(f"checkpoints to keep must be >= 1, got {keep}")
    rank = dist.get_rank() if dist.is_initialized() else 0
    problem = f"checkpoint in {folder} cannot be written"
    mine = {(name, part.box.low): part for name, first in tensors.items() for part in first.boxes}
    descriptions = _agreed(lambda: {key: _BoxDescription.of(key[0], part) for key, part in mine.items()}, problem)
    try:
        writers = _writers(descriptions)
    except ValueError as error:  # on every rank, as all have the same boxes before them
        raise ConfigError(f"{problem}: {error}") from error
    partial = _agreed(lambda: begin_checkpoint(folder, step) if rank == 0 else None, problem)[0]
    assert partial is not None

    def write() -> dict[_BoxKey, tuple[str, int]]:
        """Write the boxes of this rank; returns the file and the checksum of each."""
        files: dict[int, dict[str, Tensor]] = {}
        written = dict[_BoxKey, tuple[str, int]]()
        for (name, low), writer in writers.items():
            if writer == rank:
                values = mine[name, low].tensor.detach().cpu().contiguous()
                # a file has one box of each tensor: further boxes lie in files of their own
                number = next(n for n in count(rank, len(descriptions)) if name not in files.get(n, {}))
                files.setdefault(number, {})[name] = values
                written[name, low] = box_file(number), _checksum(values)
        for number, content in files.items():
            save_file(content, partial / box_file(number))
            sync(partial / box_file(number))
        return written

    written = _agreed(write, problem)

    def finish() -> None:
        """Write where all boxes lie, and let the checkpoint count."""
        boxes: dict[str, list[SavedBox]] = {name: [] for row in descriptions for name, _ in row}
        for (name, low), writer in writers.items():
            shape, (file, crc32) = descriptions[writer][name, low].shape, written[writer][name, low]
            boxes[name].append(SavedBox(low=low, shape=shape, file=file, crc32=crc32))
        about = {name: each for row in descriptions for (name, _), each in row.items()}
        saved = {
            name: SavedTensor(dtype=about[name].dtype, sizes=about[name].whole, boxes=tuple(row))
            for name, row in boxes.items()
        }
        make_valid(partial, SavedCheckpoint(step=step, identity=dict(identity), tensors=saved), keep)

    _agreed(lambda: finish() if rank == 0 else None, problem)


def load_checkpoint(folder: Path, identity: Mapping[str, Any], wanted: Mapping[str, CheckpointPart]) -> Checkpoint:
    """Read a checkpoint into the tensors of ``wanted``, however it was partitioned; collective like a save.

    A rank reads the saved boxes that overlap its own, and no others.

    Args:
        folder: Folder of all checkpoints of a run, whose newest is read; or one checkpoint.
        identity: Properties that the checkpoint must have been saved with; it may have more.
        wanted: Boxes that this rank needs, by the tensor's name.

    Raises:
        ConfigError: There is no checkpoint, it is damaged, it differs in ``identity``, it lacks one of ``wanted``, or
            it is of another version.
    """
    opened = _opened(folder, identity)
    for name, part in wanted.items():
        saved = opened.saved.tensors.get(name)
        if saved is None:
            raise ConfigError(f"checkpoint {opened.path} must hold {name}, which this run needs")
        if saved.sizes != part.whole:
            raise ConfigError(f"checkpoint {opened.path}: {name} has sizes {saved.sizes}, this run has {part.whole}")
    _agreed(lambda: _read(opened, wanted), f"checkpoint {opened.path} is damaged", opened.advice)
    return Checkpoint(opened.path, opened.saved.step, opened.saved.identity)


def latest_step(folder: Path, identity: Mapping[str, Any]) -> int:
    """Return the training steps before the newest checkpoint; arguments and errors as for ``load_checkpoint``."""
    return _opened(folder, identity).saved.step


def saved_sizes(folder: Path, identity: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of the whole tensors in the newest checkpoint, by name.

    No tensor has more elements than the checkpoint's files hold.  Arguments and errors as for ``load_checkpoint``.
    """
    return {name: tensor.sizes for name, tensor in _opened(folder, identity).saved.tensors.items()}


def _agreed(work: Callable[[], _T], problem: str, advice: str = "") -> list[_T]:
    """Do some work on every rank, and return the results of all; where one fails, all raise its error.

    Raises:
        ConfigError: ``problem``, the reason of the first rank that failed, and ``advice``.
    """
    cause: Exception | None = None
    try:
        row: tuple[Any, str] = work(), ""
    except Exception as error:  # whatever it is, the other ranks must not wait for this one
        row, cause = (None, first_line(error)), error
    rows = [row]
    if dist.is_initialized():
        rows = of_all_ranks(row)
    for rank, (_, reason) in enumerate(rows):
        if reason:
            raise ConfigError(f"{problem}: {reason} (rank {rank}){advice}") from cause
    return [result for result, _ in rows]


@dataclass(frozen=True, slots=True)
class _BoxDescription:
    """Box of a tensor that a rank holds, without its elements, for all ranks to know."""

    dtype: str
    whole: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, name: str, part: CheckpointPart) -> "_BoxDescription":
        """Return what a part holds.

        Raises:
            ValueError: It has elements that a checkpoint cannot hold.
        """
        dtype = str(part.tensor.dtype).removeprefix("torch.")
        if dtype not in ELEMENT_TYPES:
            raise ValueError(f"the element type of {name} must be one of {', '.join(ELEMENT_TYPES)}, got {dtype}")
        return cls(dtype, part.whole, part.box.shape)


def _writers(boxes: Sequence[Mapping[_BoxKey, _BoxDescription]]) -> dict[_BoxKey, int]:
    """Return the rank that writes each box: of its holders the least busy.

    Raises:
        ValueError: The boxes do not add up to a tensor.
    """
    holders: dict[_BoxKey, list[int]] = {}
    for rank, row in enumerate(boxes):
        for key, box in row.items():
            if math.prod(box.shape):
                holders.setdefault(key, []).append(rank)
    written_bytes, elements, writers = [0] * len(boxes), Counter[str](), {}
    for (name, low), ranks in holders.items():
        writer = writers[name, low] = min(ranks, key=lambda rank: (written_bytes[rank], rank))
        box = boxes[writer][name, low]
        written_bytes[writer] += math.prod(box.shape) * ELEMENT_TYPES[box.dtype].itemsize
        elements[name] += math.prod(box.shape)
    for row in boxes:
        for (name, _), box in row.items():
            if elements[name] != math.prod(box.whole):
                raise ValueError(f"the boxes of {name} hold {elements[name]} of its {math.prod(box.whole)} elements")
    return writers


def _checksum(tensor: Tensor) -> int:
    """Return the CRC-32 of a tensor's bytes, in C order."""
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A checkpoint whose metadata has been read and checked."""

    path: Path
    saved: SavedCheckpoint
    advice: str
    """What to say where it turns out to be damaged."""


def _opened(folder: Path, identity: Mapping[str, Any]) -> _Opened:
    """Open the newest checkpoint, which must have been saved with ``identity``."""
    path, *older = _candidates(folder)
    advice = f"; the one before is {older[0]}" if older else ""
    try:
        content = json_input(path / ABOUT, "checkpoint file")
        version = content.get("version") if isinstance(content, dict) else None
        if type(version) is not int:
            raise ValueError(f"{ABOUT} must say its version")
        saved = parsed(content, path) if version == VERSION else None
    except (OSError, ValueError) as error:
        raise ConfigError(f"checkpoint {path} is damaged: {first_line(error)}{advice}") from error
    if saved is None:
        writer = "a later" if version > VERSION else "an earlier"
        raise ConfigError(
            f"checkpoint {path} must have version {VERSION}, got {version}: {writer} version of Orrery wrote it, and"
            " can go on from it"
        )
    for field, value in identity.items():
        if saved.identity.get(field) != value:
            shown = textwrap.shorten(str(saved.identity.get(field)), 80, placeholder="...")
            raise ConfigError(f"checkpoint {path} was saved with {field} {shown}, this run has {value}")
    return _Opened(path, saved, advice)


def _candidates(folder: Path) -> list[Path]:
    """Return the folder itself if it is a checkpoint, else the checkpoints in it, newest first."""
    if os.path.lexists(folder / ABOUT):
        return [folder]
    names = kept_checkpoints(folder)
    if not names:
        raise ConfigError(f"checkpoint folder {folder} holds no checkpoint")
    return [folder / name for name in names]


def _read(opened: _Opened, wanted: Mapping[str, CheckpointPart]) -> None:
    """Read the saved boxes that overlap those of this rank, file by file.

    Raises:
        ValueError: Saved boxes do not cover a box of this rank, or overlap in it; or a file holds another box than the
            checkpoint says.
        SafetensorError: A file is damaged.
    """
    reads: dict[str, dict[tuple[str, SavedBox], list[CheckpointPart]]] = {}
    for name, first in wanted.items():
        for part in first.boxes:
            overlaps = []
            for saved in opened.saved.tensors[name].boxes:
                overlap = _box_of(saved) & part.box
                if overlap.elements:
                    overlaps.append(overlap)
                    reads.setdefault(saved.file, {}).setdefault((name, saved), []).append(part)
            _check_cover(name, part.box, overlaps)
    for file, rows in reads.items():
        with safe_open(opened.path / file, framework="pt") as content:
            for (name, saved), parts in rows.items():
                values = content.get_tensor(name)
                dtype = opened.saved.tensors[name].dtype
                if values.dtype != ELEMENT_TYPES[dtype] or tuple(values.shape) != saved.shape:
                    raise ValueError(f"{name} in {file} must be {dtype} of sizes {saved.shape}")
                if _checksum(values) != saved.crc32:
                    raise ValueError(f"the checksum of a box in {file} is another")
                for part in parts:
                    box = _box_of(saved)
                    overlap = box & part.box
                    part.tensor.detach()[overlap.within(part.box)] = values[overlap.within(box)]


def _box_of(saved: SavedBox) -> Box:
    return Box(saved.low, tuple(low + size for low, size in zip(saved.low, saved.shape, strict=True)))


def _check_cover(name: str, box: Box, overlaps: Sequence[Box]) -> None:
    """Check that regions fill a box: without overlap, and as many elements as it has."""
    low, high = (np.array([getattr(each, side) for each in overlaps], dtype=np.int64) for side in ("low", "high"))
    for i in range(1, len(overlaps)):
        if ((low[:i] < high[i]) & (low[i] < high[:i])).all(axis=1).any():
            raise ValueError(f"two boxes of {name} overlap")
    covered = sum(each.elements for each in overlaps)
    if covered != box.elements:
        raise ValueError(f"its boxes hold {covered} of {box.elements} elements of {name} that a rank needs")
