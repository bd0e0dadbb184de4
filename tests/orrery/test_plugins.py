"""Plug-ins of installed packages: they work as what is built in does, and what fails leaves all else working."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
import yaml

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import CLUSTERS, load_cluster
from hwprofiles.compute.profile_file import FOLDER, load_profile
from hwprofiles.plugins import entry_points
from orrery.cli import app
from orrery.terminal.completion import COMPLETERS
from orrery.terminal.exit_codes import run_app
from orrery.workbench.application import _catalogue
from planner.model_files.model_text import model_text
from planner.models.registry import known_models, load_model, model_names
from planner.strategies.named_strategies import named_strategy, strategy_names

MODULE = """
from pathlib import Path
from planner.model_files.model_text import model_text
from planner.models.registry import class_count, register_model

def write(net, *, classes):
    net.conv(8, 3, pad=1)
    net.linear(classes)
    net.loss()

def faulty(net):
    raise KeyError("no such layer")

def by_size(layer, cluster):
    split = "channel" if layer.parameter_count > 1e6 else "sample"
    return {"degrees": {split: len(cluster.devices)}}

def nonsense(layer, cluster):
    return 3

register_model("tiny", write, image=(3, 32, 32), classes=class_count(10))
register_model("faulty", faulty, image=(3, 32, 32))
register_model("vgg16", faulty, image=(3, 32, 32))
FILE, CLUSTER, DEVICE = (Path(__file__).with_name(f"{name}.yaml") for name in ("model", "cluster", "device"))
TEXT = "no-such-file.yaml"
"""
ENTRY_POINTS = """
[orrery.models]
tiny = bench_plugins
from-a-file = bench_plugins:FILE
faulty = bench_plugins
missing = no_such_module:model
vgg16 = bench_plugins
a name = bench_plugins

[orrery.clusters]
pair = bench_plugins:CLUSTER
lost = bench_plugins:TEXT

[orrery.devices]
card = bench_plugins:DEVICE
broken-card = bench_plugins:FILE

[orrery.strategies]
by-size = bench_plugins:by_size
nonsense = bench_plugins:nonsense
"""


def write_package(folder, *, name="bench-plugins", text=ENTRY_POINTS):
    """Write what an installer leaves of a package: its metadata and its entry points."""
    info = folder / f"{name.replace('-', '_')}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(text)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder with a package that has plug-ins of every kind, good and bad ones."""
    folder = tmp_path_factory.mktemp("site")
    write_package(folder)
    (folder / "bench_plugins.py").write_text(MODULE)
    (folder / "model.yaml").write_text(model_text(load_model("lenet5", batch=4)))
    cluster = yaml.safe_load((CLUSTERS / "titanx-4.yaml").read_text())
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster).replace("titanx-nervana", "card"))
    (folder / "device.yaml").write_text((FOLDER / "titanx-nervana.yaml").read_text())
    return folder


@pytest.fixture
def installed(package, monkeypatch):
    """The package on the path of this process, which forgets it afterwards."""
    known = dict(known_models())
    monkeypatch.syspath_prepend(package)
    entry_points._offers.cache_clear()
    yield package
    entry_points._offers.cache_clear()
    known_models().clear()
    known_models().update(known)
    sys.modules.pop("bench_plugins", None)


def test_a_model_is_built_as_others_are(installed):
    graph = load_model("tiny:classes=100", batch=64)

    assert graph.parameter_count == (3 * 3 * 3 + 1) * 8 + (8 * 32 * 32 + 1) * 100
    with pytest.raises(ConfigError, match=r"parameters of tiny must be classes=N, got 'width=3'"):
        load_model("tiny:width=3", batch=64)


def test_a_model_file_is_a_model(installed):
    graph, original = load_model("from-a-file", batch=32), load_model("lenet5", batch=32)

    assert graph.name == "from-a-file"
    assert [layer.output for layer in graph.layers] == [layer.output for layer in original.layers]
    for parameters in ("classes=3", ""):
        with pytest.raises(ConfigError, match=f"model from-a-file has no parameters, got '{parameters}'"):
            load_model(f"from-a-file:{parameters}", batch=32)


def test_what_is_built_in_stays(installed):
    """The package registers a network of its own as vgg16."""
    load_model("tiny", batch=2)
    with pytest.raises(ConfigError, match=r"plug-in faulty .* of bench-plugins 1\.5"):  # which tiny's module registered
        load_model("faulty", batch=2)

    assert load_model("vgg16", batch=2).parameter_count > 138e6
    assert model_names().count("vgg16") == 1


def test_clusters_devices_and_strategies_work_together(installed):
    cluster, graph = load_cluster("pair"), load_model("alexnet", batch=64)
    rule = {"channel" if layer.parameter_count > 1e6 else "sample" for layer in graph.layers}
    strategy = named_strategy("by-size", graph, 4, cluster)

    assert cluster.name == "pair"  # whatever its file says
    assert {device.profile for device in cluster.devices} == {"card"}
    assert load_profile("card").peak_flop_per_s == load_profile("titanx-nervana").peak_flop_per_s
    assert rule == {"channel", "sample"}
    for layer in graph.layers:
        split = "channel" if layer.parameter_count > 1e6 else "sample"
        assert strategy[layer.name].degrees[split] == 4
    assert "by-size" in strategy_names()


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (
            lambda: load_model("missing", batch=2),
            "plug-in missing (orrery.models) of bench-plugins 1.5: ModuleNotFoundError: No module named "
            "'no_such_module'",
        ),
        (
            lambda: load_model("faulty", batch=2),
            "plug-in faulty (orrery.models) of bench-plugins 1.5: KeyError: 'no such layer'",
        ),
        (
            lambda: load_cluster("lost"),
            "plug-in lost (orrery.clusters) of bench-plugins 1.5: the entry point must name the path of a file, got "
            "'no-such-file.yaml'",
        ),
        (
            lambda: named_strategy("nonsense", load_model("lenet5", batch=4), 4, load_cluster("titanx-4")),
            "plug-in nonsense (orrery.strategies) of bench-plugins 1.5: strategy: configurations.conv1 must have "
            "degrees, got 3",
        ),
        (
            lambda: named_strategy("by-size", load_model("lenet5", batch=4), 4),
            "strategy must be one that is built in where no cluster is known, got 'by-size'",
        ),
    ],
)
def test_what_fails_names_itself_and_its_package(installed, load, said):
    with pytest.raises(ConfigError) as caught:
        load()
    assert str(caught.value) == said


def test_a_name_that_two_packages_offer_is_refused(installed, tmp_path, monkeypatch):
    write_package(tmp_path, name="other", text="[orrery.models]\ntiny = bench_plugins\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry_points._offers.cache_clear()
    with pytest.raises(ConfigError, match=r"of other 1\.5 and bench-plugins 1\.5: the name is offered twice"):
        load_model("tiny", batch=2)


def test_lists_have_what_works_and_a_line_for_what_does_not(installed, tmp_path, monkeypatch, capsys):
    write_package(tmp_path, name="unreadable", text="[orrery.models]\nno equals sign\n")
    (tmp_path / "bare-1.0.dist-info").mkdir()
    (tmp_path / "bare-1.0.dist-info" / "entry_points.txt").write_text("[orrery.clusters]\nbare = bare:PATH\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry_points._offers.cache_clear()

    assert run_app(app, ["models", "--json"]) == 0
    said = capsys.readouterr()
    names = [row["name"] for row in json.loads(said.out)]
    assert set(model_names()) - set(names) == {"faulty", "missing"}
    assert {"tiny", "from-a-file", "lenet5"} <= set(names)
    lines = said.err.splitlines()
    for start in (
        "orrery: plug-ins of unreadable 1.5: entry_points.txt cannot be read:",
        "orrery: plug-in a name (orrery.models) of bench-plugins 1.5: name must be of letters, digits, - and _",
        "orrery: plug-in faulty (orrery.models) of bench-plugins 1.5: KeyError:",
        "orrery: plug-in missing (orrery.models) of bench-plugins 1.5: ModuleNotFoundError:",
    ):
        assert len([line for line in lines if line.startswith(start)]) == 1, start
    assert len(lines) == 4

    assert run_app(app, ["devices", "--json"]) == 0
    said = capsys.readouterr()
    assert {"card", "p100"} <= {row["name"] for row in json.loads(said.out)}
    lines = [line for line in said.err.splitlines() if " unreadable 1.5: " not in line]
    assert len(lines) == 1
    assert lines[0].startswith("orrery: plug-in broken-card (orrery.devices) of bench-plugins 1.5: compute profile ")


def test_packages_without_metadata_are_read_whichever_library_finds_them(tmp_path, monkeypatch):
    """The standard library knows no name of them; importlib_metadata, which may take its place, raises."""
    folder = tmp_path / "bare-1.0.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text("[orrery.clusters]\nbare = bare:PATH\n")

    class Raising(PathDistribution):
        @property
        def metadata(self):
            raise FileNotFoundError("No package metadata was found.")

    for kind in (PathDistribution, Raising):
        monkeypatch.setattr("importlib.metadata.distributions", lambda kind=kind: [kind(folder)])
        entry_points._offers.cache_clear()
        assert entry_points._offers("models").problems == []
        assert entry_points._offers("clusters").points["bare"][0][0] == "a package without metadata"
    entry_points._offers.cache_clear()


def test_shells_and_the_workbench_offer_them(installed, capsys):
    choices = _catalogue.__wrapped__()

    assert {"tiny", "from-a-file"} <= set(choices["models"])
    assert {"pair", "lost"} & {each["name"] for each in choices["clusters"]} == {"pair"}
    assert "by-size" in choices["strategies"]
    assert capsys.readouterr().err.startswith("orrery: plug-in lost (orrery.clusters) of bench-plugins 1.5: ")
    assert [COMPLETERS["model"]("tin"), COMPLETERS["cluster"]("pai"), COMPLETERS["strategies"]("data,by")] == [
        ["tiny"],
        ["pair"],
        ["data,by-size"],
    ]


def test_commands_take_plugins_from_an_installed_wheel(package, tmp_path):
    """The way of a user: a wheel on the path, a plan made, read and simulated by processes of their own."""
    site, plan = tmp_path / "site", tmp_path / "plan.json"
    with zipfile.ZipFile(tmp_path / "bench_plugins-1.5-py3-none-any.whl", "w") as wheel:
        for path in (path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"):
            wheel.write(path, path.relative_to(package))
        wheel.writestr(
            "bench_plugins-1.5.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("bench_plugins-1.5.dist-info/RECORD", "")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, wheel.filename], check=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(Path(__file__).resolve().parents[2])])}
    options = ["tiny", "--cluster", "pair", "--batch", "64", "--strategy", "by-size", "--out", str(plan)]
    for words in (["plan", *options], ["simulate", str(plan)]):
        ended = subprocess.run(
            [sys.executable, "-m", "orrery", *words], env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr

    assert json.loads(plan.read_text())["strategy"] == "by-size"


def test_nothing_built_in_reads_entry_points(tmp_path):
    """Start-up costs nothing: the reader is not called for what is built in."""
    script = (
        "import sys\n"
        "from hwprofiles.plugins import entry_points\n"
        "def refuse(kind): raise SystemExit('entry points were read')\n"
        "entry_points._offers = refuse\n"
        "from orrery.cli import app\n"
        "from orrery.terminal.exit_codes import run_app\n"
        "sys.exit(max(run_app(app, words.split()) for words in sys.argv[1:]))"
    )
    plan = "plan lenet5 --cluster titanx-4 --batch 64 --strategy data=4 --out plan.json"
    command = [sys.executable, "-c", script, "--help", plan, "simulate plan.json"]
    paths = os.pathsep.join([str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
