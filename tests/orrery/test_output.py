"""Output files are whole or absent."""

import json
import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from hwprofiles.catalogue.cluster_catalogue import cluster_path
from hwprofiles.compute.profile_file import FOLDER
from hwprofiles.errors import ConfigError
from hwprofiles.input_files import json_input, noted_inputs
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


def test_device_is_written_to_and_never_replaced():
    """/dev/null is no file that could be made anew."""
    with output_file(Path("/dev/null")) as place:
        place.write_text("gone")

    assert Path("/dev/null").is_char_device()


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
    "profile": "plan lenet5 --cluster uses-profile.yaml --batch 8 --strategy data --out profile.yaml",
    "index": "index . --out whatif.json",
    "probe": "probe profile.yaml --batch 4 --processes 1 --device cpu --out .",
}


@pytest.mark.parametrize("case", REPLACING)
def test_commands_do_not_replace_what_they_read(tmp_path, monkeypatch, capsys, case):
    """Whether it is named, found by what is named, or bears the name of a page."""
    monkeypatch.chdir(tmp_path)
    text = cluster_path("titanx-4").read_text()
    for name in ("comparison.json", "oracle.json", "size.json", "whatif.json"):
        Path(name).write_text(text)
    Path("uses-profile.yaml").write_text(text.replace("titanx-nervana", "profile.yaml"))
    Path("profile.yaml").write_bytes((FOLDER / "titanx-nervana.yaml").read_bytes())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    assert run_app(app, REPLACING[case].split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "must not be a file that is read" in line or "must be no file that the index lists" in line
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_json_is_standard():
    """NumPy numbers are numbers, and what JSON cannot say is null."""
    value = {"a": np.float64(0.5), "b": (np.int64(3),), "c": math.nan, "d": np.arange(2)}

    assert json.loads(to_json(value)) == {"a": 0.5, "b": [3], "c": None, "d": [0, 1]}
