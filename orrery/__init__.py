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
    from hwprofiles import ConfigError, InfeasiblePlanError, OrreryError, UnreachableError
    from hwprofiles.catalogue import load_cluster
    from planner.models import load_model
    from planner.plan import Plan, PlanRequest, compare, load_plan, lower_plan, make_plan, save_plan
    from planner.simulation import Replay, replay
    from reports.figures import figure
    from reports.pages import write_comparison_page
    from studies.sweep import Store

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

_ROOMS = {
    "hwprofiles": ("ConfigError", "InfeasiblePlanError", "OrreryError", "UnreachableError"),
    "hwprofiles.catalogue": ("load_cluster",),
    "planner.models": ("load_model",),
    "planner.plan": ("Plan", "PlanRequest", "compare", "load_plan", "lower_plan", "make_plan", "save_plan"),
    "planner.simulation": ("Replay", "replay"),
    "reports.figures": ("figure",),
    "reports.pages": ("write_comparison_page",),
    "studies.sweep": ("Store",),
}


def __getattr__(name: str) -> object:
    """Load a public name from the room that lends it."""
    for room, names in _ROOMS.items():
        if name in names:
            return getattr(import_module(room), name)
    raise AttributeError(f"module 'orrery' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
