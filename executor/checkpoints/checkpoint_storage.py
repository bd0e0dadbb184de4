"""Storage of checkpoints: which boxes ranks write and read, and the files that make a checkpoint count.

It adapts ``torch.distributed.checkpoint`` to boxes of whole tensors; see ``executor.checkpoints.checkpoint``.
"""

import io
import json
import math
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from torch import Size, Tensor
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
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from executor.runtime import Box
from hwprofiles import ConfigError

__all__ = [
    "ABOUT",
    "VERSION",
    "BoxLoadPlanner",
    "BoxSavePlanner",
    "CheckedReader",
    "CheckpointPart",
    "RenamingWriter",
    "first_line",
    "kept_checkpoints",
]

VERSION = 1
ABOUT = "checkpoint.json"
"""Name of the file with a checkpoint's version, step and identity."""
_LATEST, _PARTIAL = "latest", ".partial"
_OWN = re.compile(r"step-[0-9]{6,}(-[0-9]+)?(\.partial)?")
"""Names of the folders that a save may remove."""


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """The box of a tensor that one rank holds."""

    box: Box
    whole: tuple[int, ...]
    """Sizes of the whole tensor."""
    tensor: Tensor
    """Elements of the box; a load overwrites them."""


def _chunk(part: CheckpointPart) -> ChunkStorageMetadata:
    """Return torch's description of a box."""
    return ChunkStorageMetadata(offsets=Size(part.box.low), sizes=Size(part.box.shape))


class BoxSavePlanner(DefaultSavePlanner):
    """Plan of a save: the boxes that ranks hold."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def create_local_plan(self) -> SavePlan:
        """Return one item for every box that this rank holds."""
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
            ValueError: Their boxes do not cover a tensor.
        """
        plans, metadata = super().create_global_plan(all_plans)
        for name, saved in metadata.state_dict_metadata.items():
            assert isinstance(saved, TensorStorageMetadata)
            # boxes of replicas were reduced to one each before: those left must add up to the tensor
            held, elements = sum(math.prod(chunk.sizes) for chunk in saved.chunks), math.prod(saved.size)
            if held != elements:  # torch omits this check where one process saves
                raise ValueError(f"the boxes of {name} hold {held} of its {elements} elements")
        return plans, metadata

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        """Return the elements of a tensor that this rank holds."""
        tensor: Tensor = self.state_dict[index.fqn].tensor
        return tensor


class BoxLoadPlanner(DefaultLoadPlanner):
    """Plan of a load: the parts of saved boxes that a rank needs."""

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Keep the boxes that this rank needs and the metadata of the saved ones."""
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        """Return one item for every saved box that overlaps a box of this rank."""
        assert self.metadata is not None
        saved = self.metadata.state_dict_metadata
        items = []
        for name, part in self.state_dict.items():
            tensor = saved[name]
            assert isinstance(tensor, TensorStorageMetadata)
            items += create_read_items_for_chunk_list(name, tensor, [_chunk(part)] if part.box.elements else [])
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Return the tensor into which the elements are read."""
        tensor: Tensor = self.state_dict[index.fqn].tensor
        return tensor


class CheckedReader(FileSystemReader):
    """A reader that checks the checksum of every box, which torch writes but ignores when it reads."""

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the boxes of a plan.

        Raises:
            ValueError: A checksum differs from the one that was written.
            OSError: A file cannot be read.
        """
        for entry in {item.storage_index: self.storage_data[item.storage_index] for item in plan.items}.values():
            with Path(self.path, entry.relative_path).open("rb") as file:
                file.seek(entry.offset)
                content = io.BytesIO(file.read(entry.length))
            with zipfile.ZipFile(content) as archive:
                if archive.testzip():
                    raise ValueError(f"the checksum of a box in {entry.relative_path} is another")
        return super().read_data(plan, planner)


class RenamingWriter(FileSystemWriter):
    """A writer that makes a checkpoint valid by a rename once all of it is on disk; see ``checkpoint``.

    ``prepare_global_plan`` and ``finish`` run on one rank: the first before any rank writes, the second after all have
    written.
    """

    def __init__(self, folder: Path, step: int, identity: Mapping[str, Any], keep: int) -> None:
        self._folder, self._keep = folder, keep
        self._name = f"step-{step:06d}"
        self._about = {"version": VERSION, "step": step, "identity": dict(identity)}
        super().__init__(folder / f"{self._name}{_PARTIAL}")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Remove checkpoints that are not valid, and make the folder of this one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        _remove_others(self._folder, kept_checkpoints(self._folder))
        Path(self.path).mkdir()
        planned: list[SavePlan] = super().prepare_global_plan(plans)
        return planned

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Make the checkpoint valid, once all ranks have written.

        Raises:
            OSError: A file cannot be written.
        """
        super().finish(metadata, results)
        partial, kept = Path(self.path), kept_checkpoints(self._folder)
        _write(partial / ABOUT, json.dumps(self._about, indent=1) + "\n")
        _sync(partial)
        # A run that was started again may reach a step whose checkpoint is still valid.
        again = (f"{self._name}-{number}" for number in count(2))
        name = next(name for name in chain([self._name], again) if name not in kept)
        partial.rename(self._folder / name)
        _sync(self._folder)
        kept = [name, *kept][: self._keep]
        replacement = self._folder / f"{_LATEST}{_PARTIAL}"
        _write(replacement, "".join(f"{row}\n" for row in kept))
        replacement.replace(self._folder / _LATEST)
        _sync(self._folder)
        _remove_others(self._folder, kept)


def kept_checkpoints(folder: Path) -> list[str]:
    """Return the names of the valid checkpoints in a folder, newest first."""
    try:
        return (folder / _LATEST).read_text().split()
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(f"checkpoint file {folder / _LATEST} cannot be read: {first_line(error)}") from error


def _remove_others(folder: Path, kept: list[str]) -> None:
    """Remove the checkpoints of a folder but those that are kept."""
    for entry in folder.iterdir():
        if _OWN.fullmatch(entry.name) and entry.name not in kept:
            shutil.rmtree(entry)


def _write(path: Path, text: str) -> None:
    """Write a text file to disk, past the system's cache."""
    with path.open("w") as file:
        file.write(text)
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
