"""``orrery plan`` answers first; what it refuses comes with a command that works."""

import json
import re
import shlex
from types import SimpleNamespace

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from orrery.terminal.plan_view import configuration_rows, plan_command
from planner.plan.plan_request import PlanRequest


def plan(tmp_path, *words):
    """The exit code of ``orrery plan``."""
    return run_app(app, ["plan", *words, "--out", str(tmp_path / "plan.json")])


def test_the_answer_comes_first(capsys, tmp_path):
    """The first line has the time with its interval and the rate; every layer is in one row of a run of equal ones."""
    assert plan(tmp_path, "vgg16", "--cluster", "titanx-4", "--batch", "64", "--strategy", "owt") == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"vgg16 on titanx-4, batch 64, owt, float32: [\d.]+ ms an iteration "
        r"\(likely [\d.]+ to [\d.]+ ms; simulated [\d.]+ ms\), [\d.]+ images/s, MFU [\d.]+%\.",
        lines[0],
    )
    assert sum("conv1_1 to pool5" in line for line in lines) == 1
    assert not any("conv3_1" in line for line in lines)
    held = {
        name: float(size.replace(",", ""))
        for name, size in re.findall(r"(\w+ memory|memory [a-z ]+) \(MiB\) +│ ([\d,.]+)", "\n".join(lines))
    }
    peak = held.pop("peak memory")
    assert peak == pytest.approx(sum(held.values()), rel=0.01), "the peak is said beside what it is made of"


def test_rows_hold_every_layer_once():
    """Runs end where degrees or devices change, and not where layers have other dimensions that are not split."""

    def configured(devices, **degrees):
        return SimpleNamespace(degrees=degrees, devices=devices)

    configurations = {
        "a": configured((0, 1), sample=2, length=1),
        "b": configured((0, 1), sample=2, channel=1, height=1),
        "c": configured((1, 2), sample=2),
        "d": configured((1, 2), sample=1, channel=2),
        "e": configured((1, 2), channel=2),
        "f": configured((1,), sample=1),
    }
    rows = configuration_rows(SimpleNamespace(configurations=configurations))
    assert [(row["layer"], row["layers"]) for row in rows] == [("a to b", 2), ("c", 1), ("d to e", 2), ("f", 1)]
    assert [row["degrees"] for row in rows] == ["n=2", "n=2", "c=2", "whole"]


def test_a_refusal_prints_a_command_that_works(capsys, tmp_path):
    """The words behind "this works" are run as they stand."""
    assert plan(tmp_path, "vgg16", "--cluster", "titanx-4", "--batch", "2048", "--strategy", "owt") == 2
    error = capsys.readouterr().err
    words = shlex.split(error.partition("this works: orrery ")[2])
    assert "--micro-batches" in words
    assert run_app(app, [*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["simulated_s"] > 0


@pytest.mark.parametrize(
    ("batch", "strategies"),
    [
        ("256", "hybrid"),  # one weird trick fits with twice the batch, but is no hybrid
        ("1212", "data,model"),  # model fits with 113, too, which cannot be divided among four devices
    ],
)
def test_a_refused_comparison_prints_one_that_works_where_parameters_fill_the_memory(
    batch, strategies, capsys, tmp_path
):
    small = ["compare", "alexnet", "--cluster", "titanx-4:device.*.memory_gib=0.5415", "--strategies", strategies]
    assert run_app(app, [*small, "--batch", batch, "--out", str(tmp_path)]) == 2
    words = shlex.split(capsys.readouterr().err.partition("this works: orrery ")[2])
    assert run_app(app, [*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batch"] >= 56


def test_a_refused_comparison_prints_a_command_that_works(capsys, tmp_path):
    """Each strategy has its reason; the command has the largest batch that one of them fits with, and all options."""
    asked = ["compare", "alexnet", "--cluster", "titanx-4", "--strategies", "data,owt", "--gradient-sync", "tree"]
    assert run_app(app, [*asked, "--batch", "65536", "--out", str(tmp_path / "a page")]) == 2
    error = capsys.readouterr().err
    assert "data: plan does not fit" in error
    assert "owt: plan does not fit" in error
    words = shlex.split(error.partition("this works: orrery ")[2])
    assert words[-2:] == ["--gradient-sync", "tree"]
    assert run_app(app, [*words, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["batch"] < 65536
    assert {row["name"] for row in values["strategies"]} <= {"data", "owt"}


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "layerwise"},
        {"strategy": "owt", "sub_batches": 4, "update_each": True},
        {"strategy": "pipeline", "stage_at": ("a", "b")},
    ],
)
def test_commands_name_what_differs_from_the_defaults(options, tmp_path):
    """Flags have no value, lists are joined by commas, defaults are left out."""
    request = PlanRequest(model="alexnet", cluster="titanx-4", batch=64, **options)
    words = shlex.split(plan_command(request, tmp_path / "a plan.json"))
    typed = {
        "strategy": ["--strategy", options.get("strategy", "")],
        "sub_batches": ["--sub-batches", "4"],
        "update_each": ["--update-each"],
        "stage_at": ["--stage-at", "a,b"],
    }
    expected = [word for name in options for word in typed[name]]
    begin = ["orrery", "plan", "alexnet", "--cluster", "titanx-4", "--batch", "64"]
    assert words == [*begin, *expected, "--out", str(tmp_path / "a plan.json")]
