"""Plan, simulate, run and compare the parallel training of neural networks.

Names are loaded on first use: ``import orrery`` costs nothing.

Networks and clusters:
    load_model      Build a network by its name and batch: ``load_model("vgg16", batch=512)``.
    load_cluster    Load a cluster of the catalogue or of a file: ``load_cluster("p100-4x4:nodes=4")``.

Plans:
    make_plan       Choose how every layer is split: by a search, a rule or a strategy file.
    PlanRequest     Options of ``make_plan``, which are those of ``orrery plan``.
    Plan            Strategy, price and simulated iteration time of a network on a cluster.
    save_plan, load_plan
                    Write and read plan files.
    lower_plan      Turn a plan into the tasks of one iteration.

Simulation:
    replay          Simulate the tasks of a plan with overlap and contention.
    Replay          Result of a simulation: iteration time, timeline, use of links.
    figure          Draw a simulation as a Plotly figure.

Comparison:
    compare         Price and simulate several strategies.
    write_comparison_page
                    Write a comparison as a page.
    Store           Results of sweeps, as rows.

Errors:
    OrreryError     Base of all errors that a user can cause.
    ConfigError     A field of the input breaks a rule.
    InfeasiblePlanError
                    A plan does not fit in memory.
    UnreachableError
                    No route joins two devices of a cluster.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwprofiles.catalogue.cluster_catalogue import load_cluster
    from hwprofiles.errors import ConfigError, InfeasiblePlanError, OrreryError, UnreachableError
    from planner.models.registry import load_model
    from planner.plan.compare_strategies import compare
    from planner.plan.lowered_plan import lower_plan
    from planner.plan.plan import Plan
    from planner.plan.plan_file import load_plan, save_plan
    from planner.plan.plan_request import PlanRequest
    from planner.plan.planning import make_plan
    from planner.simulation.program_replay import Replay, replay
    from reports.figures.figure_of import figure
    from reports.pages.comparison_page import write_comparison_page
    from studies.sweep.store import Store

__all__ = [
    "ConfigError",
    "InfeasiblePlanError",
    "OrreryError",
    "Plan",
    "PlanRequest",
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

_MODULES = {
    "hwprofiles.catalogue.cluster_catalogue": ("load_cluster",),
    "hwprofiles.errors": ("ConfigError", "InfeasiblePlanError", "OrreryError", "UnreachableError"),
    "planner.models.registry": ("load_model",),
    "planner.plan.compare_strategies": ("compare",),
    "planner.plan.lowered_plan": ("lower_plan",),
    "planner.plan.plan": ("Plan",),
    "planner.plan.plan_file": ("load_plan", "save_plan"),
    "planner.plan.plan_request": ("PlanRequest",),
    "planner.plan.planning": ("make_plan",),
    "planner.simulation.program_replay": ("Replay", "replay"),
    "reports.figures.figure_of": ("figure",),
    "reports.pages.comparison_page": ("write_comparison_page",),
    "studies.sweep.store": ("Store",),
}


def __getattr__(name: str) -> object:
    """Load a public name from the module that defines it."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'orrery' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
