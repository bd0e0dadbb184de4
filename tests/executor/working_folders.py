"""Processes by the folder that they work in."""

from pathlib import Path


def at_work_in(folder):
    """Processes with this working directory, which whatever they start inherits."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if path.readlink() == folder:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
