"""The command ``orrery analyse``."""

import json

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    question = ["lenet5", "--cluster", "titanx-4", "--batch", "64", "--strategy", "model"]
    assert run_app(app, ["plan", *question, "--out", str(path)]) == 0
    return path


def test_one_json_value_with_everything(plan_file, capsys):
    """Seconds add up; the sensitivities name every class of links and the devices."""
    assert run_app(app, ["analyse", str(plan_file), "--json"]) == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out, parse_constant=pytest.fail)

    assert printed.err == ""
    assert printed.out.count("\n") == 1
    path = answer["critical_path"]
    assert sum(path["by_kind_s"].values()) == pytest.approx(answer["iteration_s"])
    steps_s = sum(step["end_s"] - step["start_s"] for step in path["steps"])
    assert steps_s == pytest.approx(path["iterations"] * answer["iteration_s"])
    assert {row["of"] for row in answer["sensitivities"]} == {
        "slot",
        "switch-port",
        "nic-port",
        "fdr",
        "titanx-nervana",
    }
    assert answer["exposed_communication"][0].keys() >= {"layer", "kind", "link_class", "latency_s", "wait_s"}
    pace = answer["pace"]
    assert sum(row["share"] for row in pace["setters"]) == pytest.approx(1)
    assert pace["sentence"].startswith(
        {"bandwidth": "{} links set", "arithmetic": "arithmetic of {} sets", "latency": "latency of {} sets"}[
            pace["setters"][0]["kind"]
        ].format(pace["setters"][0]["of"])
    )
    assert answer["likely_s"][0] < answer["iteration_s"] < answer["likely_s"][1]
    memory = answer["memory"]
    alive_bytes = sum(row["size_bytes"] for row in memory["alive_at_peak"])
    assert alive_bytes == memory["peak_bytes"][memory["fullest"]] == max(memory["curve"]["held_bytes"])


def test_tables_of_at_most_so_many_rows(plan_file, capsys):
    """Each section has its title, and no more rows than asked for."""
    assert run_app(app, ["analyse", str(plan_file), "--top", "2"]) == 0
    printed = capsys.readouterr().out

    first, second, third, *_ = printed.splitlines()
    assert first.startswith("lenet5 on titanx-4, batch 64, model, float32: ")
    assert "set the pace" in second
    assert third.startswith("To be faster: ")
    for title in ("Critical path by kind", "Communication on the critical path", "faster hardware", "Memory: at most"):
        assert title in printed
    assert printed.count("twice as fast") + printed.count("latency halved") == 2


def test_memory_is_said_as_simulated_and_as_planned(tmp_path, capsys):
    """Parameters that are gathered early lie in memory for longer than a plan in program order says."""
    path, question = tmp_path / "plan.json", ["llama-1b:layers=4", "--cluster", "dgx-h100", "--batch", "16"]
    assert run_app(app, ["plan", *question, "--strategy", "fsdp", "--out", str(path), "--json"]) == 0
    planned = sum(json.loads(capsys.readouterr().out)["memory_by_kind_bytes"].values())
    assert run_app(app, ["analyse", str(path), "--json"]) == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    assert memory["program_order_peak_bytes"] == planned < memory["peak_bytes"][memory["fullest"]]
    assert run_app(app, ["analyse", str(path)]) == 0
    assert "task by task, as plan says" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--top", "0"], ["--top", "few"], ["--engine", "simpy"]])
def test_bad_words_are_refused(words, plan_file, capsys):
    assert run_app(app, ["analyse", str(plan_file), *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_that_is_no_plan_is_refused(tmp_path, capsys):
    (tmp_path / "no.json").write_text("{}")

    assert run_app(app, ["analyse", str(tmp_path / "no.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
