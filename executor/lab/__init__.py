"""A cluster on one machine: network namespaces as hosts and switches, shaped cables between them."""

from executor.lab.commands import LabStatus, down, status, up
from executor.lab.inside import is_inside, lab_hosts, run_inside
from executor.lab.namespaces import Hosts
from executor.lab.tools import require_lab
from executor.lab.wiring import lab_cluster

__all__ = [
    "Hosts",
    "LabStatus",
    "down",
    "is_inside",
    "lab_cluster",
    "lab_hosts",
    "require_lab",
    "run_inside",
    "status",
    "up",
]
