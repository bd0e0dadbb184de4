"""Checkpoints that any plan of the same model reads: boxes of whole tensors, kept by ``torch.distributed.checkpoint``.

A folder of checkpoints holds one folder for each, ``step-000123``, and the file ``latest``, which names the valid
ones, newest first.  A checkpoint is written in a folder with the ending ``.partial`` that is renamed when all is on
disk, and then ``latest`` is replaced: whenever the writing stops, ``latest`` names whole checkpoints only, and the
next save removes what it does not name.  Ranks on several machines need a folder that all of them share.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from executor.checkpoints.checkpoint_storage import (
    ABOUT,
    VERSION,
    BoxLoadPlanner,
    BoxSavePlanner,
    CheckedReader,
    CheckpointPart,
    RenamingWriter,
    first_line,
    kept_checkpoints,
)
from hwprofiles import ConfigError
from planner.graph import ComputationGraph

__all__ = ["Checkpoint", "latest_step", "load_checkpoint", "model_identity", "save_checkpoint", "saved_sizes"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Metadata of a checkpoint."""

    path: Path
    step: int
    """Number of training steps before it was saved."""
    identity: Mapping[str, Any]
    """Properties of the run that saved it."""


def model_identity(graph: ComputationGraph) -> str:
    """Return a hash of the layers and their shapes without the batch, which a resumed run may change."""
    layers = graph.undivided.layers
    rows = [(layer.name, layer.operation, layer.inputs, layer.output.dims, layer.output.sizes[1:]) for layer in layers]
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def save_checkpoint(
    folder: Path,
    *,
    step: int,
    identity: Mapping[str, Any],
    tensors: Mapping[str, CheckpointPart],
    keep: int = 2,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Write a checkpoint; all ranks of the group call it together, or one process without a group.

    Args:
        folder: Folder of all checkpoints of a run.
        step: Number of training steps done.
        identity: Properties of the run, which a run that loads the checkpoint can require; JSON.
        tensors: Boxes that this rank holds, by the tensor's name.  The boxes of all ranks cover each tensor; a box that
            several ranks hold is written by one of them.
        keep: Number of checkpoints to keep, this one included, >= 1.
        group: Process group of the ranks; the default group if None.

    Raises:
        ConfigError: The checkpoint cannot be written, boxes do not cover a tensor, or ``keep`` < 1.
    """
    if keep < 1:
        raise ConfigError(f"checkpoints to keep must be >= 1, got {keep}")
    writer = RenamingWriter(folder, step, identity, keep)
    try:
        _collective(save, dict(tensors), storage_writer=writer, planner=BoxSavePlanner(), process_group=group)
    except CheckpointException as error:
        raise ConfigError(f"checkpoint in {folder} cannot be written: {_reason(error)}") from error


def load_checkpoint(
    folder: Path,
    identity: Mapping[str, Any],
    wanted: Mapping[str, CheckpointPart],
    *,
    group: dist.ProcessGroup | None = None,
) -> Checkpoint:
    """Read a checkpoint into the tensors of ``wanted``, however it was partitioned; collective like a save.

    A rank reads the saved boxes that overlap its own, and no others.

    Args:
        folder: Folder of all checkpoints of a run, whose newest is read; or one checkpoint.
        identity: Properties that the checkpoint must have been saved with; it may have more.
        wanted: Boxes that this rank needs, by the tensor's name.
        group: Process group of the ranks; the default group if None.

    Returns:
        The checkpoint's metadata.

    Raises:
        ConfigError: There is no checkpoint, it is damaged, it differs in ``identity``, or it lacks one of ``wanted``.
    """
    checkpoint, reader, metadata, advice = _opened(folder)
    _check(checkpoint, identity, wanted, metadata)
    try:
        _collective(load, dict(wanted), storage_reader=reader, planner=BoxLoadPlanner(), process_group=group)
    except CheckpointException as error:
        raise ConfigError(f"checkpoint {checkpoint.path} is damaged: {_reason(error)}{advice}") from error
    return checkpoint


def latest_step(folder: Path, identity: Mapping[str, Any]) -> int:
    """Return the training steps before the newest checkpoint; arguments and errors as for ``load_checkpoint``."""
    checkpoint, _, metadata, _ = _opened(folder)
    _check(checkpoint, identity, {}, metadata)
    return checkpoint.step


def saved_sizes(folder: Path, identity: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of the whole tensors in the newest checkpoint, by name.

    Arguments and errors as for ``load_checkpoint``.
    """
    checkpoint, _, metadata, _ = _opened(folder)
    _check(checkpoint, identity, {}, metadata)
    rows = metadata.state_dict_metadata.items()
    return {name: tuple(saved.size) for name, saved in rows if isinstance(saved, TensorStorageMetadata)}


def _opened(folder: Path) -> tuple[Checkpoint, "CheckedReader", Metadata, str]:
    """Open the newest checkpoint.

    Returns:
        The checkpoint, its reader, the metadata of its tensors, and advice for the case that it is damaged.
    """
    path, *older = _candidates(folder)
    advice = f"; the one before is {older[0]}" if older else ""
    try:
        content = json.loads((path / ABOUT).read_bytes())
        checkpoint = Checkpoint(path, content["step"], content["identity"])
        reader = CheckedReader(path)
        metadata = reader.read_metadata()
    except Exception as error:  # a damaged pickle raises anything
        raise ConfigError(f"checkpoint {path} is damaged: {first_line(error)}{advice}") from error
    if content.get("version") != VERSION:
        raise ConfigError(f"checkpoint {path} has version {content.get('version')}, this program reads {VERSION}")
    return checkpoint, reader, metadata, advice


def _candidates(folder: Path) -> list[Path]:
    """Return the folder itself if it is a checkpoint, else the checkpoints in it, newest first."""
    if (folder / ABOUT).exists():
        return [folder]
    names = kept_checkpoints(folder)
    if not names:
        raise ConfigError(f"checkpoint folder {folder} holds no checkpoint")
    return [folder / name for name in names]


def _check(
    checkpoint: Checkpoint, identity: Mapping[str, Any], wanted: Mapping[str, CheckpointPart], metadata: Metadata
) -> None:
    """Check a checkpoint against the identity and the tensors that a run requires."""
    for field, value in identity.items():
        saved_with = checkpoint.identity.get(field)
        if saved_with != value:
            raise ConfigError(f"checkpoint {checkpoint.path} was saved with {field} {saved_with}, this run has {value}")
    for name, part in wanted.items():
        saved = metadata.state_dict_metadata.get(name)
        if not isinstance(saved, TensorStorageMetadata):
            raise ConfigError(f"checkpoint {checkpoint.path} must hold {name}, which this run needs")
        if tuple(saved.size) != part.whole:
            raise ConfigError(
                f"checkpoint {checkpoint.path}: {name} has sizes {tuple(saved.size)}, this run has {part.whole}"
            )


def _collective(function: Callable[..., Any], *values: Any, **named: Any) -> None:
    """Call a function of ``torch.distributed.checkpoint``, on all ranks or in one process without a group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        function(*values, no_dist=not dist.is_initialized(), **named)


def _reason(error: CheckpointException) -> str:
    """Return the error of the first rank that failed, on one line."""
    rank, (cause, _) = next(iter(sorted(error.failures.items())))
    return f"{first_line(cause)} (rank {rank})"
