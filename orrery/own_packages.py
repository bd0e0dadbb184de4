"""Orrery's packages come before modules of the user that have the same names, such as ``planner``."""

import os
import sys
from importlib import import_module
from itertools import takewhile

_PACKAGES = ("groundwork", "hwprofiles", "simulator", "planner", "studies", "executor", "reports", "orrery")


def import_own_packages() -> None:
    """Import the packages of this installation, for this process and those that it starts.

    ``python -m`` and ``PYTHONPATH`` put folders of the user before the one that holds this file.  Where they hold such
    a name, this folder goes to the front.  What a command later imports of the user, as the code of a model, gets these
    packages by these names too: an interpreter has one module of a name.
    """
    own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    before = ["", *takewhile(lambda path: os.path.realpath(path) != own, sys.path)]
    files = [os.path.join(path, name + end) for path in before for name in _PACKAGES for end in ("/__init__.py", ".py")]
    if any(os.path.exists(file) and not os.path.realpath(file).startswith(own + os.sep) for file in files):
        sys.path.insert(0, own)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [own, os.environ.get("PYTHONPATH")]))
        os.environ["PYTHONSAFEPATH"] = "1"
    for name in _PACKAGES:
        import_module(name)
