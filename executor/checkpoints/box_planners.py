"""Plans of saves and loads for ``torch.distributed.checkpoint``: which boxes of whole tensors ranks write and read."""

import math
from typing import Any

import numpy as np
from torch import Size, Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from executor.checkpoints.checkpoint_storage import CheckpointPart

__all__ = ["BoxLoadPlanner", "BoxSavePlanner"]


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
        """Return one item for every saved box that overlaps a box of this rank.

        Raises:
            ValueError: Saved boxes do not cover a box of this rank, or overlap in it.
        """
        assert self.metadata is not None
        saved = self.metadata.state_dict_metadata
        items = []
        for name, part in self.state_dict.items():
            tensor = saved[name]
            assert isinstance(tensor, TensorStorageMetadata)
            reads = create_read_items_for_chunk_list(name, tensor, [_chunk(part)] if part.box.elements else [])
            _check_cover(name, part, reads)
            items += reads
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Return the tensor into which the elements are read."""
        tensor: Tensor = self.state_dict[index.fqn].tensor
        return tensor


def _check_cover(name: str, part: CheckpointPart, reads: list[ReadItem]) -> None:
    """Check that reads fill the box of a rank: without overlap, and as many elements as it has."""
    low = np.array([read.dest_offsets for read in reads], dtype=np.int64)
    high = low + np.array([read.lengths for read in reads], dtype=np.int64)
    for i in range(1, len(reads)):
        if ((low[:i] < high[i]) & (low[i] < high[:i])).all(axis=1).any():
            raise ValueError(f"two boxes of {name} overlap")
    covered = sum(math.prod(read.lengths) for read in reads)
    if covered != part.box.elements:
        raise ValueError(f"its boxes hold {covered} of {part.box.elements} elements of {name} that a rank needs")
