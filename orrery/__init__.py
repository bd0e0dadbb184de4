"""Plan, simulate, run and compare the parallel training of neural networks.

The names below are loaded on first use: ``import orrery`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwprofiles import ConfigError, InfeasiblePlanError, OrreryError, UnreachableError
    from hwprofiles.catalogue import load_cluster
    from planner.models import load_model
    from planner.plan import Plan, compare, load_plan, lower_plan, make_plan, save_plan
    from planner.simulation import Replay, replay
    from reports.figures import figure
    from reports.pages import write_comparison_page
    from studies.sweep import Store

__all__ = [
    "ConfigError",
    "InfeasiblePlanError",
    "OrreryError",
    "Plan",
    "Replay",
    "Store",
    "UnreachableError",
    "compare",
    "figure",
    "load_cluster",
    "load_model",
    "load_plan",
    "lower_plan",
    "make_plan",
    "replay",
    "save_plan",
    "write_comparison_page",
]

_HOMES = {
    "hwprofiles.catalogue.cluster_catalogue": ("load_cluster",),
    "hwprofiles.errors": ("ConfigError", "InfeasiblePlanError", "OrreryError", "UnreachableError"),
    "planner.plan.compare_strategies": ("compare",),
    "planner.models": ("load_model",),
    "planner.plan.plan": ("Plan", "lower_plan", "make_plan"),
    "planner.plan.plan_file": ("load_plan", "save_plan"),
    "planner.simulation.program_replay": ("Replay", "replay"),
    "planner.sweep": ("Store",),
    "reports.pages.comparison_page": ("write_comparison_page",),
    "reports.figures.figure_of": ("figure",),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'orrery' has no attribute {name!r}")
