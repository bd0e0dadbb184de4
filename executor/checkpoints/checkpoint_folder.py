"""Folder of a run's checkpoints: which of them count, whenever the writing of one stops.

It holds one folder for each checkpoint, ``step-000123``, and the file ``latest``, which names the valid ones, newest
first.  A checkpoint is written in a folder with the ending ``.partial`` that is renamed when all is on disk, and then
``latest`` is replaced: it names whole checkpoints only, and the next save removes what it does not name.
"""

import os
import re
import shutil
from itertools import chain, count
from pathlib import Path

from executor.checkpoints.checkpoint_format import ABOUT, SavedCheckpoint, encoded
from groundwork.errors import ConfigError
from groundwork.input_files import input_text
from groundwork.whole_files import sync

_LATEST, _PARTIAL = "latest", ".partial"
_OWN = re.compile(r"step-[0-9]{6,}(-[0-9]+)?(\.partial)?")
"""Names of the folders that a save may remove."""
_VALID = re.compile(r"step-[0-9]{6,}(-[0-9]+)?")


def begin_checkpoint(folder: Path, step: int) -> Path:
    """Remove checkpoints that are not valid, and make the folder in which one is written; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    _remove_others(folder, kept_checkpoints(folder))
    partial = folder / f"step-{step:06d}{_PARTIAL}"
    partial.mkdir()
    return partial


def make_valid(partial: Path, saved: SavedCheckpoint, keep: int) -> None:
    """Make the checkpoint valid whose boxes lie in a folder, and remove all but the ``keep`` newest.

    Raises:
        OSError: A file cannot be written.
    """
    folder, kept = partial.parent, kept_checkpoints(partial.parent)
    _write(partial / ABOUT, encoded(saved))
    sync(partial)
    # A run that was started again may reach a step whose checkpoint is still valid.
    own = partial.name.removesuffix(_PARTIAL)
    name = next(name for name in chain([own], (f"{own}-{number}" for number in count(2))) if name not in kept)
    partial.rename(folder / name)
    sync(folder)
    kept = [name, *kept][:keep]
    replacement = folder / f"{_LATEST}{_PARTIAL}"
    _write(replacement, "".join(f"{row}\n" for row in kept).encode())
    replacement.replace(folder / _LATEST)
    sync(folder)
    _remove_others(folder, kept)


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
    path.write_bytes(content)
    sync(path)
