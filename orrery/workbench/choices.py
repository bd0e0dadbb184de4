"""What there is to choose from: models, clusters and strategies, of the catalogue and uploaded."""

from functools import cache
from typing import Any

from hwprofiles.catalogue.cluster_catalogue import cluster_names, describe_cluster, load_cluster
from hwprofiles.plugins.entry_points import plugin_names, working
from orrery.workbench.subject import UPLOAD, check_profiles
from orrery.workbench.working_folder import WorkingFolder
from planner.cost.all_reduce import GRADIENT_SYNCS
from planner.models.registry import load_model, model_names
from planner.parallel.named_rules import NAMED
from planner.parallel.strategies import PIPELINE, SEARCHED
from planner.plan.plan_options import DTYPE_BYTES


@cache
def _catalogue() -> dict[str, Any]:
    """Return what does not change while the server runs."""
    clusters = working("clusters", cluster_names(), describe_cluster)
    return {
        "models": model_names(),
        "clusters": [{"name": each.name, "devices": each.devices, "about": each.description} for each in clusters],
        "strategies": [*NAMED, PIPELINE, *SEARCHED, *plugin_names("strategies")],
        "gradient_syncs": list(GRADIENT_SYNCS),
        "dtypes": list(DTYPE_BYTES),
    }


def choices(folder: WorkingFolder) -> dict[str, Any]:
    """Return the names of everything that can be chosen."""
    uploads = {kind: [f"{UPLOAD}{name}" for name in folder.names(kind, ".yaml")] for kind in ("models", "clusters")}
    return {**_catalogue(), "uploaded": uploads}


def checked_model(file: str) -> dict[str, Any]:
    """Return the size of a model file.

    Raises:
        ConfigError: It breaks a rule.
    """
    graph = load_model(file, batch=1)
    return {"layers": len(graph.layers), "parameters": graph.parameter_count}


def checked_cluster(file: str) -> dict[str, Any]:
    """Return the size of a cluster file.

    Raises:
        ConfigError: It breaks a rule, or names a compute profile outside the catalogue.
    """
    cluster = load_cluster(file)
    check_profiles(cluster)
    return {"devices": len(cluster.devices), "nodes": cluster.node_count}
