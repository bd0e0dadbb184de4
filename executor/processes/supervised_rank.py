"""Entry point of every rank with a supervisor: ``python -m executor.processes.supervised_rank MODULE ARGUMENT...``."""

import runpy
import sys

from executor.processes.parent_watch import end_with_parent

if __name__ == "__main__":
    end_with_parent()  # before the imports of the module, which take a second
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
