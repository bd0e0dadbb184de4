"""Output files are whole or absent."""

import json
import math
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

from groundwork.errors import ConfigError
from groundwork.input_files import json_input, noted_inputs
from hwprofiles.catalogue.cluster_catalogue import cluster_path
from hwprofiles.compute.profile_file import FOLDER
from orrery.cli import app
from orrery.terminal import signals
from orrery.terminal.exit_codes import run_app
from orrery.terminal.output import output_file, to_json


def test_file_takes_its_name_at_the_end(tmp_path):
    """Until the block ends the old file is there; folders are made on the way."""
    target = tmp_path / "a" / "plan.json"
    with output_file(target) as partial:
        partial.write_text("new")
        assert not target.exists()

    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_a_signal_does_not_part_the_outputs_of_a_command(tmp_path, monkeypatch):
    """It interrupts the command once all have been replaced."""
    replace = os.replace

    def interrupted(source, target):
        replace(source, target)
        signals._interrupt(signal.SIGTERM, None)

    monkeypatch.setattr(signals, "_received", [signal.SIGINT])
    monkeypatch.setattr(os, "replace", interrupted)
    targets = [tmp_path / "page.html", tmp_path / "numbers.json"]
    with pytest.raises(KeyboardInterrupt), output_file(targets[0]) as page, output_file(targets[1]) as numbers:  # noqa: PT012
        page.write_text("new")
        numbers.write_text("new")

    assert [target.read_text() for target in targets] == ["new", "new"]
    with pytest.raises(KeyboardInterrupt):
        signals._interrupt(signal.SIGTERM, None)


def test_link_is_followed(tmp_path):
    """A symbolic link stays one; the file that it names is replaced."""
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with output_file(tmp_path / "link") as partial:
        partial.write_text("new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_device_is_written_to_and_never_replaced(null_device):
    """It is no file that could be made anew."""
    with output_file(null_device) as place:
        place.write_text("gone")

    assert null_device.is_char_device()


@pytest.mark.parametrize("name", ["", "file/below", "x" * 300], ids=["folder", "below-a-file", "long"])
def test_places_that_cannot_be_written(tmp_path, name):
    """Each is refused on entering, with the path."""
    (tmp_path / "file").write_text("old")

    with pytest.raises((ConfigError, OSError), match=str(tmp_path)), output_file(tmp_path / name):
        pytest.fail("entered")

    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_two_outputs_of_one_name_are_refused_and_leave_nothing(tmp_path):
    """Whatever the second would write, the first must not be lost, nor be half of one and half of the other."""
    with (
        pytest.raises(ConfigError, match=r"output paths must differ, got .*both\.json. twice"),
        output_file(tmp_path / "both.json"),
        output_file(tmp_path / "." / "both.json"),
    ):
        pytest.fail("entered")

    assert list(tmp_path.iterdir()) == []
    with output_file(tmp_path / "both.json") as partial:
        partial.write_text("free again")


@pytest.mark.parametrize("name", ["plan.json", "link.json"])
def test_an_input_is_never_replaced(tmp_path, name):
    """Read before or after the output is opened, by whatever name; the next command may replace it."""
    (tmp_path / "plan.json").write_text('"hours of search"')
    (tmp_path / "link.json").symlink_to("plan.json")
    refused = pytest.raises(ConfigError, match=r"output path must not be a file that is read, got .*plan\.json")
    with noted_inputs():
        with refused, output_file(tmp_path / "plan.json"):
            json_input(tmp_path / name, "plan file")
        json_input(tmp_path / name, "plan file")
        with refused, output_file(tmp_path / name):
            pytest.fail("entered")
        with output_file(tmp_path / "new.json") as partial:
            partial.write_text("new")
    assert (tmp_path / "plan.json").read_text() == '"hours of search"'

    with noted_inputs(), output_file(tmp_path / name) as partial:
        partial.write_text("searched anew")
    assert (tmp_path / "plan.json").read_text() == "searched anew"


REPLACING = {
    "compare": "compare lenet5 --cluster comparison.json --batch 8 --strategies data --out .",
    "oracle": "oracle lenet5 --cluster oracle.json --dataset 1000 --gpus 1..4 --out .",
    "size": "size batch lenet5 --cluster size.json --out .",
    "whatif": "whatif lenet5 --cluster whatif.json --batch 8 --strategies data --out .",
    "scenarios": "whatif scenarios scenarios.yaml --out whatif.html",
    "index": "index . --out page.html",
    "probe": "probe profile.yaml --batch 4 --processes 1 --device cpu --out .",
}


SCENARIOS = """version: 1
model: lenet5
cluster: whatif.json
batch: 8
strategies: [data]
scenarios: {faster: {link.fdr.bandwidth_factor: 2}}
"""


@pytest.mark.parametrize("case", REPLACING)
def test_commands_do_not_replace_what_they_read(tmp_path, monkeypatch, capsys, case):
    """Whether it is named, found by what is named, or bears the name of a page."""
    monkeypatch.chdir(tmp_path)
    text = cluster_path("titanx-4").read_text()
    for name in ("comparison.json", "oracle.json", "size.json", "whatif.json"):
        Path(name).write_text(text)
    Path("scenarios.yaml").write_text(SCENARIOS)
    Path("profile.yaml").write_bytes((FOLDER / "titanx-nervana.yaml").read_bytes())
    Path("page.html").write_text("<title>Of somebody</title>")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    assert run_app(app, REPLACING[case].split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "must not be a file that is read" in line or "must be no file that the index lists" in line
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_json_is_standard():
    """NumPy numbers are numbers, and what JSON cannot say is null."""
    value = {"a": np.float64(0.5), "b": (np.int64(3),), "c": math.nan, "d": np.arange(2)}

    assert json.loads(to_json(value)) == {"a": 0.5, "b": [3], "c": None, "d": [0, 1]}


def options_of(command, name):
    """Yield each command below with its options by their names."""
    if hasattr(command, "commands"):
        for each, below in command.commands.items():
            yield from options_of(below, f"{name} {each}")
    else:
        yield name, {option: each for each in command.params for option in each.opts}


COMMANDS = dict(options_of(get_command(app), "orrery"))
HELP = re.compile(r"Folder for [a-z0-9.]+(, [a-z0-9.]+)*(, or a file that ends in \.[a-z]+( or \.[a-z]+)*)?\.")


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_say_where_they_write_in_one_way(name):
    """Outputs other than ``--out`` are of kinds that no ending tells apart, or are read as well."""
    options = COMMANDS[name]
    others = {each for each, option in options.items() if "write" in (getattr(option, "help", "") or "").lower()}
    assert others <= {"--out", "--trace", "--graph", "--save", "--expand-collectives"}
    assert not {"--html", "--csv", "--parquet", "--output"} & options.keys()
    if "--out" in options:
        assert options["--out"].metavar == "PATH"
        assert HELP.fullmatch(options["--out"].help)


COMPARE = "compare lenet5 --cluster titanx-4 --batch 8 --strategies data --out"
PLAN = "plan lenet5 --cluster titanx-4 --batch 8 --strategy data --out"
WRITTEN = {
    f"{COMPARE} new": {"new/index.html", "new/comparison.json"},
    f"{COMPARE} run-1.5": {"run-1.5/index.html", "run-1.5/comparison.json"},
    f"{COMPARE} new.d/": {"new.d/index.html", "new.d/comparison.json"},
    f"{COMPARE} there.html": {"there.html/index.html", "there.html/comparison.json"},
    f"{COMPARE} a/b/page.html": {"a/b/page.html", "a/b/page.json"},
    f"{COMPARE} page.json": {"page.html", "page.json"},
    f"{PLAN} missing/p.json": {"missing/p.json"},
    f"{PLAN} missing": {"missing/plan.json"},
    f"{PLAN} .": {"plan.json"},
    f"{PLAN} link": {"target.json"},
}
REFUSED = {
    f"{PLAN} p.yaml": "'--out': must be a folder for plan.json, or a file that ends in .json, got 'p.yaml'",
    f"{PLAN} p.JSON": "or a file that ends in .json, got 'p.JSON'",
    f"{PLAN}=": "or a file that ends in .json, got ''",
    f"{PLAN} file": "output path must be writable",
    f"{COMPARE} page.htlm": "or a file that ends in .html or .json, got 'page.htlm'",
    f"{COMPARE} device": "output paths must differ, got '{device}' twice",
    "show p.json --out pages.html": "'--out': must be a folder for index.html, timeline.html, got 'pages.html'",
    "run p.json --out device": "output path must be writable",
    "timeline p.json --html page.html": "No such option: --html; did you mean '--out'?",
}


@pytest.fixture
def place(tmp_path, monkeypatch, null_device):
    """Return a working folder: a folder named like a page, a file, and links to a device and to a file to be made."""
    monkeypatch.chdir(tmp_path)
    Path("there.html").mkdir()
    Path("file").write_text("kept")
    Path("link").symlink_to("target.json")
    Path("device").symlink_to(null_device)
    return tmp_path


def files_below(folder):
    """Return the names of all files below a folder; links are none."""
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file() and not each.is_symlink()}


@pytest.mark.parametrize("words", WRITTEN)
def test_out_is_a_folder_or_a_file_by_its_ending(place, words):
    """What a command also writes lies beside its file, under the same name."""
    assert run_app(app, words.split()) == 0
    assert files_below(place) == {"file", *WRITTEN[words]}


@pytest.mark.parametrize("words", REFUSED)
def test_out_that_a_command_cannot_write_is_refused(place, capsys, null_device, words):
    """In one line with the endings, before any work and with nothing left."""
    if "p.json" in words:
        assert run_app(app, [*PLAN.split(), "p.json"]) == 0
        capsys.readouterr()
    before = files_below(place)
    assert run_app(app, words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert REFUSED[words].format(device=null_device) in line
    assert files_below(place) == before
    assert Path("file").read_text() == "kept"
