"""Writer of checkpoints of version 1, for the tests: metadata and boxes are pickles, as torch writes them."""

import json
import warnings

from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from executor.checkpoints.box_planners import BoxSavePlanner


def save_old(folder, *, step, identity, tensors):
    """Write a checkpoint as one process, and name it as the newest."""
    path = folder / f"step-{step:06d}"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        save(dict(tensors), storage_writer=FileSystemWriter(path), planner=BoxSavePlanner(), no_dist=True)
    (path / "checkpoint.json").write_text(json.dumps({"version": 1, "step": step, "identity": identity}, indent=1))
    (folder / "latest").write_text(f"{path.name}\n")
    return path
