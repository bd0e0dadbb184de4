"""Every public function that reads or writes a file takes its path as text or as a Path, and refuses anything else."""

import shutil
from pathlib import Path

import pytest

import orrery
from hwprofiles.catalogue.cluster_catalogue import cluster_path


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """Public functions of one path by name, each with the path that it reads or writes."""
    folder = tmp_path_factory.mktemp("paths")
    shutil.copy(cluster_path("titanx-4"), folder / "cluster.yaml")
    graph, cluster = orrery.load_model("lenet5", batch=8), orrery.load_cluster("titanx-4")
    plan = orrery.make_plan(graph, cluster, strategy="data")
    comparison = orrery.compare(graph, cluster, ["data"])
    orrery.save_plan(plan, folder / "plan.json")

    def stored(opened):
        with opened as store:
            return store

    made = {
        "load_cluster": (orrery.load_cluster, "cluster.yaml"),
        "save_plan": (lambda path: orrery.save_plan(plan, path), "saved.json"),
        "load_plan": (orrery.load_plan, "plan.json"),
        "compare": (lambda path: orrery.compare(graph, cluster, [path]), "plan.json"),
        "make_plan": (lambda path: orrery.make_plan(graph, cluster, strategy=path), "plan.json"),
        "write_comparison_page": (lambda path: orrery.write_comparison_page(comparison, path), "page.html"),
        "write_trace": (orrery.replay(orrery.lower_plan(plan, graph, cluster)).write_trace, "trace.json"),
        "Store.writing": (lambda path: stored(orrery.Store.writing(path)), "store.sqlite"),
    }
    return {name: (function, folder / file) for name, (function, file) in made.items()}


@pytest.mark.parametrize(
    "name",
    [
        "load_cluster",
        "save_plan",
        "load_plan",
        "compare",
        "make_plan",
        "write_comparison_page",
        "write_trace",
        "Store.writing",
    ],
)
def test_paths_are_text_or_paths(functions, name):
    function, path = functions[name]
    for given in (str(path), Path(path)):
        function(given)
        assert path.exists()
    for given in (3, None, b"bytes"):
        with pytest.raises(orrery.ConfigError, match=r"must be text or a path, got"):
            function(given)


def test_models_are_text_or_paths(tmp_path):
    """A path stands for its text, by which the network is named."""
    path = tmp_path / "model.yaml"
    path.write_text("format: orrery model 2\n")
    with pytest.raises(orrery.ConfigError, match=f"model file {path}"):
        orrery.load_model(path, batch=8)
    with pytest.raises(orrery.ConfigError, match="model must be text or a path, got 3"):
        orrery.load_model(3, batch=8)
