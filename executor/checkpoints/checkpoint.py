"""Checkpoints that any plan of the same model reads: boxes of whole tensors, in files that cannot run code.

``torch.distributed.checkpoint`` plans what ranks write and read; the files are those of ``checkpoint_format``.

A folder of checkpoints holds one folder for each, ``step-000123``, and the file ``latest``, which names the valid
ones, newest first.  A checkpoint is written in a folder with the ending ``.partial`` that is renamed when all is on
disk, and then ``latest`` is replaced: whenever the writing stops, ``latest`` names whole checkpoints only, and the
next save removes what it does not name.  Ranks on several machines need a folder that all of them share.
"""

import hashlib
import os
import textwrap
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from executor.checkpoints.box_planners import BoxLoadPlanner, BoxSavePlanner
from executor.checkpoints.box_reader import BoxReader, raw_elements
from executor.checkpoints.checkpoint_format import ABOUT, VERSION, SavedCheckpoint, parsed
from executor.checkpoints.checkpoint_storage import (
    CheckpointPart,
    RenamingWriter,
    first_line,
    kept_checkpoints,
)
from executor.checkpoints.old_checkpoints import OLD_VERSION, old_checkpoint, old_elements
from hwprofiles import ConfigError, json_input
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
    trust_old: bool = False,
) -> Checkpoint:
    """Read a checkpoint into the tensors of ``wanted``, however it was partitioned; collective like a save.

    A rank reads the saved boxes that overlap its own, and no others.

    Args:
        folder: Folder of all checkpoints of a run, whose newest is read; or one checkpoint.
        identity: Properties that the checkpoint must have been saved with; it may have more.
        wanted: Boxes that this rank needs, by the tensor's name.
        group: Process group of the ranks; the default group if None.
        trust_old: True to read a checkpoint of version 1, whose metadata can run code, too.

    Returns:
        The checkpoint's metadata.

    Raises:
        ConfigError: There is no checkpoint, it is damaged, it differs in ``identity``, it lacks one of ``wanted``, or
            it is of another version.
    """
    opened = _opened(folder, trust_old=trust_old)
    _check(opened, identity, wanted)
    try:
        _collective(load, dict(wanted), storage_reader=opened.reader, planner=BoxLoadPlanner(), process_group=group)
    except CheckpointException as error:
        raise ConfigError(f"checkpoint {opened.path} is damaged: {_reason(error)}{opened.advice}") from error
    return Checkpoint(opened.path, opened.saved.step, opened.saved.identity)


def latest_step(folder: Path, identity: Mapping[str, Any], *, trust_old: bool = False) -> int:
    """Return the training steps before the newest checkpoint; arguments and errors as for ``load_checkpoint``."""
    opened = _opened(folder, trust_old=trust_old)
    _check(opened, identity, {})
    return opened.saved.step


def saved_sizes(folder: Path, identity: Mapping[str, Any], *, trust_old: bool = False) -> dict[str, tuple[int, ...]]:
    """Return the sizes of the whole tensors in the newest checkpoint, by name.

    No tensor has more elements than the checkpoint's files hold.  Arguments and errors as for ``load_checkpoint``.
    """
    opened = _opened(folder, trust_old=trust_old)
    _check(opened, identity, {})
    return {name: tensor.sizes for name, tensor in opened.saved.tensors.items()}


@dataclass(frozen=True, slots=True)
class _Opened:
    """A checkpoint whose metadata has been read and checked."""

    path: Path
    saved: SavedCheckpoint
    reader: BoxReader
    advice: str
    """What to say where it turns out to be damaged."""


def _opened(folder: Path, *, trust_old: bool) -> _Opened:
    """Open the newest checkpoint."""
    path, *older = _candidates(folder)
    advice = f"; the one before is {older[0]}" if older else ""
    try:
        content = json_input(path / ABOUT, "checkpoint file")
        version = content.get("version") if isinstance(content, dict) else None
        if type(version) is not int:
            raise ValueError(f"{ABOUT} must say its version")
        _check_version(path, version, trust_old=trust_old)
        if version == OLD_VERSION:
            saved, decode = old_checkpoint(content, path), old_elements
        else:
            saved, decode = parsed(content, path), raw_elements
    except _VersionError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(f"checkpoint {path} is damaged: {first_line(error)}{advice}") from error
    return _Opened(path, saved, BoxReader(path, saved.tensors, decode), advice)


class _VersionError(ConfigError):
    """A checkpoint is of a version that is not read."""


def _check_version(path: Path, version: int, *, trust_old: bool) -> None:
    """Refuse the versions that this program does not read, or reads only if it may."""
    if version == OLD_VERSION and not trust_old:
        raise _VersionError(
            f"checkpoint {path} has version {OLD_VERSION}, whose metadata can run code: --trust-old-checkpoint"
            " (trust_old_checkpoint) reads it, only if you trust who wrote it"
        )
    if version not in (OLD_VERSION, VERSION):
        raise _VersionError(f"checkpoint {path} has version {version}, this program reads {VERSION}")


def _candidates(folder: Path) -> list[Path]:
    """Return the folder itself if it is a checkpoint, else the checkpoints in it, newest first."""
    if os.path.lexists(folder / ABOUT):
        return [folder]
    names = kept_checkpoints(folder)
    if not names:
        raise ConfigError(f"checkpoint folder {folder} holds no checkpoint")
    return [folder / name for name in names]


def _check(opened: _Opened, identity: Mapping[str, Any], wanted: Mapping[str, CheckpointPart]) -> None:
    """Check a checkpoint against the identity and the tensors that a run requires."""
    path, saved = opened.path, opened.saved
    for field, value in identity.items():
        saved_with = saved.identity.get(field)
        if saved_with != value:
            shown = textwrap.shorten(str(saved_with), 80, placeholder="...")
            raise ConfigError(f"checkpoint {path} was saved with {field} {shown}, this run has {value}")
    for name, part in wanted.items():
        if name not in saved.tensors:
            raise ConfigError(f"checkpoint {path} must hold {name}, which this run needs")
        sizes = saved.tensors[name].sizes
        if sizes != part.whole:
            raise ConfigError(f"checkpoint {path}: {name} has sizes {sizes}, this run has {part.whole}")


def _collective(function: Callable[..., Any], *values: Any, **named: Any) -> None:
    """Call a function of ``torch.distributed.checkpoint``, on all ranks or in one process without a group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        function(*values, no_dist=not dist.is_initialized(), **named)


def _reason(error: CheckpointException) -> str:
    """Return the error of the first rank that failed, on one line."""
    rank, (cause, _) = next(iter(sorted(error.failures.items())))
    return f"{first_line(cause)} (rank {rank})"
