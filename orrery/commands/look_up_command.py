"""``orrery models`` and ``orrery clusters``: the catalogues."""

from orrery.terminal import JsonOption, cluster_row, model_values, print_json, print_table, progress_bar

__all__ = ["orrery_clusters", "orrery_models"]


def orrery_models(*, json: JsonOption = False) -> None:
    """List the built-in models with their sizes."""
    from planner.models import model_names

    with progress_bar("building models"):
        rows = model_values(model_names())
    print_json(rows) if json else print_table(rows)


def orrery_clusters(*, json: JsonOption = False) -> None:
    """List the clusters of the catalogue."""
    from hwprofiles.catalogue import cluster_names, describe_cluster

    summaries = [describe_cluster(name) for name in cluster_names()]
    print_json(summaries) if json else print_table([cluster_row(summary) for summary in summaries])
