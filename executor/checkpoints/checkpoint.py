"""Checkpoints that any plan of the same model reads: boxes of whole tensors, kept by ``torch.distributed.checkpoint``.

A folder of checkpoints holds one folder for each, ``step-000123``, and the file ``latest``, which names those that
count, newest first.  A checkpoint is written in a folder with the ending ``.partial`` that is renamed when all is on
disk, and then ``latest`` is replaced: whenever the writing stops, ``latest`` names whole checkpoints only, and the
next save removes what it does not name.  Ranks on several machines need a folder that all of them share.
"""

import hashlib
import io
import json
import math
import os
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Size, Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from executor.runtime import Box
from hwprofiles import ConfigError
from planner.graph import ComputationGraph

__all__ = [
    "Checkpoint",
    "CheckpointPart",
    "latest_step",
    "load_checkpoint",
    "model_identity",
    "save_checkpoint",
    "saved_sizes",
]

_VERSION = 1
_LATEST, _ABOUT, _PARTIAL = "latest", "checkpoint.json", ".partial"
_OWN = re.compile(r"step-[0-9]{6,}(-[0-9]+)?(\.partial)?")
"""Names of the folders that a save may remove."""


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """The box that one rank holds of a tensor."""

    box: Box
    whole: tuple[int, ...]
    """Sizes of the whole tensor."""
    tensor: Tensor
    """Of the box's shape; a load overwrites it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint says of itself."""

    path: Path
    step: int
    """Steps of training that it holds."""
    identity: Mapping[str, Any]
    """What it was saved with."""


def model_identity(graph: ComputationGraph) -> str:
    """Hash of the layers and their shapes without the batch, which a resumed run may change."""
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
        folder: Of all checkpoints of a run.
        step: Steps of training done.
        identity: What a run that reads it must have in common with this one, and what else is worth knowing; JSON.
        tensors: By name, what this rank holds.  The boxes of all ranks cover each tensor; a box that several
            ranks hold is written by one of them.
        keep: Checkpoints to keep, this one included, >= 1.
        group: The ranks; the default group if None.

    Raises:
        ConfigError: It cannot be written, boxes do not cover a tensor, or ``keep`` < 1.
    """
    if keep < 1:
        raise ConfigError(f"checkpoints to keep must be >= 1, got {keep}")
    writer = _Writer(folder, step, identity, keep)
    try:
        _collective(save, dict(tensors), storage_writer=writer, planner=_SavePlanner(), process_group=group)
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

    A rank reads the boxes that meet its own, and no others.

    Args:
        folder: Of all checkpoints of a run, whose newest is read; or one checkpoint.
        identity: What the checkpoint must have been saved with; it may say more.
        wanted: By name, what this rank needs.
        group: The ranks; the default group if None.

    Returns:
        What the checkpoint says of itself.

    Raises:
        ConfigError: There is none, it is damaged, it differs in ``identity``, or it lacks one of ``wanted``.
    """
    found, reader, metadata, advice = _opened(folder)
    _check(found, identity, wanted, metadata)
    try:
        _collective(load, dict(wanted), storage_reader=reader, planner=_LoadPlanner(), process_group=group)
    except CheckpointException as error:
        raise ConfigError(f"checkpoint {found.path} is damaged: {_reason(error)}{advice}") from error
    return found


def latest_step(folder: Path, identity: Mapping[str, Any]) -> int:
    """Steps of training behind the newest checkpoint; arguments and errors as for ``load_checkpoint``."""
    found, _, metadata, _ = _opened(folder)
    _check(found, identity, {}, metadata)
    return found.step


def saved_sizes(folder: Path, identity: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Sizes of the whole tensors in the newest checkpoint, by name; arguments and errors as for ``load_checkpoint``."""
    found, _, metadata, _ = _opened(folder)
    _check(found, identity, {}, metadata)
    rows = metadata.state_dict_metadata.items()
    return {name: tuple(saved.size) for name, saved in rows if isinstance(saved, TensorStorageMetadata)}


def _opened(folder: Path) -> tuple[Checkpoint, "_Reader", Metadata, str]:
    """The newest checkpoint, how to read it, and what to advise where it turns out to be damaged."""
    path, *older = _candidates(folder)
    advice = f"; the one before is {older[0]}" if older else ""
    try:
        content = json.loads((path / _ABOUT).read_bytes())
        found = Checkpoint(path, content["step"], content["identity"])
        reader = _Reader(path)
        metadata = reader.read_metadata()
    except Exception as error:  # a damaged pickle raises anything
        raise ConfigError(f"checkpoint {path} is damaged: {_line(error)}{advice}") from error
    if content.get("version") != _VERSION:
        raise ConfigError(f"checkpoint {path} has version {content.get('version')}, this program reads {_VERSION}")
    return found, reader, metadata, advice


def _candidates(folder: Path) -> list[Path]:
    """The checkpoint that a folder is, or those that it holds, newest first."""
    if (folder / _ABOUT).exists():
        return [folder]
    names = _kept(folder)
    if not names:
        raise ConfigError(f"checkpoint folder {folder} holds no checkpoint")
    return [folder / name for name in names]


def _check(
    found: Checkpoint, identity: Mapping[str, Any], wanted: Mapping[str, CheckpointPart], metadata: Metadata
) -> None:
    for field, value in identity.items():
        if found.identity.get(field) != value:
            raise ConfigError(
                f"checkpoint {found.path} was saved with {field} {found.identity.get(field)}, this run has {value}"
            )
    for name, part in wanted.items():
        saved = metadata.state_dict_metadata.get(name)
        if not isinstance(saved, TensorStorageMetadata):
            raise ConfigError(f"checkpoint {found.path} must hold {name}, which this run needs")
        if tuple(saved.size) != part.whole:
            raise ConfigError(
                f"checkpoint {found.path}: {name} has sizes {tuple(saved.size)}, this run has {part.whole}"
            )


def _collective(function: Callable[..., Any], *values: Any, **named: Any) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        function(*values, no_dist=not dist.is_initialized(), **named)


def _chunk(part: CheckpointPart) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=Size(part.box.low), sizes=Size(part.box.shape))


class _SavePlanner(DefaultSavePlanner):
    """Says which box of which tensor a rank holds."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def create_local_plan(self) -> SavePlan:
        """One item for every box that this rank holds."""
        self.plan = SavePlan(
            [
                WriteItem(
                    index=MetadataIndex(name, part.box.low),
                    type=WriteItemType.SHARD,
                    tensor_data=TensorWriteData(
                        chunk=_chunk(part),
                        properties=TensorProperties.create_from_tensor(part.tensor),
                        size=Size(part.whole),
                    ),
                )
                for name, part in self.state_dict.items()
                if part.box.elements
            ]
        )
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Join the plans of all ranks.

        Raises:
            ValueError: Their boxes do not make up a whole tensor.
        """
        plans, metadata = super().create_global_plan(all_plans)
        for name, saved in metadata.state_dict_metadata.items():
            assert isinstance(saved, TensorStorageMetadata)
            held, elements = sum(math.prod(chunk.sizes) for chunk in saved.chunks), math.prod(saved.size)
            if held != elements:  # torch leaves this out where one process saves
                raise ValueError(f"the boxes of {name} hold {held} of its {elements} elements")
        return plans, metadata

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        """What this rank holds of a tensor."""
        tensor: Tensor = self.state_dict[index.fqn].tensor
        return tensor


class _LoadPlanner(DefaultLoadPlanner):
    """Says which parts of which saved boxes a rank needs."""

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        """One item for every saved box that meets a box of this rank."""
        assert self.metadata is not None
        saved = self.metadata.state_dict_metadata
        items = []
        for name, part in self.state_dict.items():
            tensor = saved[name]
            assert isinstance(tensor, TensorStorageMetadata)
            items += create_read_items_for_chunk_list(name, tensor, [_chunk(part)] if part.box.elements else [])
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Where what is read of a tensor goes."""
        tensor: Tensor = self.state_dict[index.fqn].tensor
        return tensor


class _Reader(FileSystemReader):
    """Checks what it reads: torch writes a checksum with every box, and ignores it when it reads."""

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read what a plan asks for.

        Raises:
            ValueError: A checksum is another than the one that was written.
            OSError: A file cannot be read.
        """
        for place in {item.storage_index: self.storage_data[item.storage_index] for item in plan.items}.values():
            with Path(self.path, place.relative_path).open("rb") as file:
                file.seek(place.offset)
                content = io.BytesIO(file.read(place.length))
            with zipfile.ZipFile(content) as archive:
                if archive.testzip():
                    raise ValueError(f"the checksum of a box in {place.relative_path} is another")
        return super().read_data(plan, planner)


class _Writer(FileSystemWriter):
    """Writes beside, and makes the checkpoint count when all of it is on disk; see the module's text.

    The two methods run on one rank, the first before any rank writes, the second after all have written.
    """

    def __init__(self, folder: Path, step: int, identity: Mapping[str, Any], keep: int) -> None:
        self._folder, self._keep = folder, keep
        self._name = f"step-{step:06d}"
        self._about = {"version": _VERSION, "step": step, "identity": dict(identity)}
        super().__init__(folder / f"{self._name}{_PARTIAL}")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Make room: what did not come to count is removed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        _remove_others(self._folder, _kept(self._folder))
        Path(self.path).mkdir()
        planned: list[SavePlan] = super().prepare_global_plan(plans)
        return planned

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Make the checkpoint count, once all ranks have written.

        Raises:
            OSError: It cannot be written.
        """
        super().finish(metadata, results)
        partial, kept = Path(self.path), _kept(self._folder)
        _write(partial / _ABOUT, json.dumps(self._about, indent=1) + "\n")
        _sync(partial)
        # A run that was started again may come by a step whose checkpoint still counts.
        again = (f"{self._name}-{number}" for number in count(2))
        name = next(name for name in chain([self._name], again) if name not in kept)
        partial.rename(self._folder / name)
        _sync(self._folder)
        kept = [name, *kept][: self._keep]
        beside = self._folder / f"{_LATEST}{_PARTIAL}"
        _write(beside, "".join(f"{row}\n" for row in kept))
        beside.replace(self._folder / _LATEST)
        _sync(self._folder)
        _remove_others(self._folder, kept)


def _kept(folder: Path) -> list[str]:
    """Names of the checkpoints that count, newest first."""
    try:
        return (folder / _LATEST).read_text().split()
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(f"checkpoint file {folder / _LATEST} cannot be read: {_line(error)}") from error


def _remove_others(folder: Path, kept: list[str]) -> None:
    for entry in folder.iterdir():
        if _OWN.fullmatch(entry.name) and entry.name not in kept:
            shutil.rmtree(entry)


def _write(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Put the names in a folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: CheckpointException) -> str:
    rank, (cause, _) = next(iter(sorted(error.failures.items())))
    return f"{_line(cause)} (rank {rank})"


def _line(error: BaseException) -> str:
    """What an error says, on one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]
