"""``orrery fidelity``: what it prints and writes, and its exit codes; intervals in the other commands."""

import json
from functools import cache

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from studies.fidelity import fidelity_run


def printed(capsys, *words):
    """Run a command; return its exit code, standard output and standard error."""
    code = run_app(app, list(words))
    return code, *capsys.readouterr()


@pytest.fixture(scope="module", autouse=True)
def _judged_once():
    """The rows of a kind take seconds, and every command here needs the same."""
    judged = cache(fidelity_run.judged_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fidelity_run, "judged_rows", lambda only, progress: judged(only))
        yield


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The fastest kind, as JSON and as a page."""
    page = tmp_path_factory.mktemp("fidelity") / "page.html"
    with pytest.MonkeyPatch.context() as patch:
        lines = []
        patch.setattr("sys.stdout.write", lines.append)
        assert run_app(app, ["fidelity", "--only", "kernels", "--out", str(page), "--json"]) == 0
    return json.loads("".join(lines)), page.read_text()


def test_json_and_page_tell_the_same(kernels):
    values, page = kernels

    assert {each["kind"] for each in values["comparisons"]} == {"kernels"}
    fitted = next(each for each in values["measures"] if each["rows"])
    assert f"{fitted['median']:.0%}".replace("%", " % (bar 8 %)") in page
    assert all(each["name"] in page for each in values["comparisons"])
    assert sum(each["rows"] for each in values["measures"]) == sum(each["rows"] for each in values["comparisons"])


def test_checks_end_with_code_1_where_errors_grew(capsys, tmp_path, kernels):
    """Against a record of a tenth of the errors every comparison is worse: one line each on standard error."""
    from planner.expected.likely_times import RECORDED

    record = json.loads(RECORDED.read_text())
    fields = record["measures"][0]
    for kind in ("measures", "comparisons"):
        record[kind] = [{name: each[name] for name in fields} for each in kernels[0][kind]]
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    assert printed(capsys, "fidelity", "--only", "kernels", "--check", "--recorded", str(path))[0] == 0

    for each in record["measures"] + record["comparisons"]:
        each["median"] = each["median"] and each["median"] / 10
    path.write_text(json.dumps(record))
    code, out, err = printed(capsys, "fidelity", "--only", "kernels", "--check", "--recorded", str(path))

    assert (code, out) == (1, "")
    assert len(err.splitlines()) == sum(bool(each["rows"]) for each in record["measures"] + record["comparisons"])
    assert all(line.startswith("orrery: ") and "median error was" in line for line in err.splitlines())


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["--record", "--check"], "record must be given without check"),
        (["--record", "--only", "papers"], "record must be given without only"),
        (["--only", "kernels", "--check", "--recorded", "absent.json"], "absent.json"),
    ],
)
def test_bad_input_ends_in_one_line(capsys, words, rule):
    code, out, err = printed(capsys, "fidelity", *words)

    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert rule in err


def test_predicted_times_have_intervals(capsys, tmp_path):
    """Plan, simulate and compare print ``likely_s`` beside each time; a plan's replay has about the plan's."""
    file = str(tmp_path / "plan.json")
    case = ["lenet5", "--cluster", "titanx-4", "--batch", "256"]
    planned = json.loads(printed(capsys, "plan", *case, "--strategy", "data", "--out", file, "--json")[1])
    simulated = json.loads(printed(capsys, "simulate", file, "--json")[1])
    compared = printed(capsys, "compare", *case, "--strategies", "data,model", "--out", str(tmp_path / "c"), "--json")
    rows = json.loads(compared[1])["strategies"]

    for values in (planned, simulated, *rows):
        low, high = values["likely_s"]
        assert 0 < low < high
    assert planned["likely_s"] == pytest.approx(simulated["likely_s"], rel=0.2)
    assert rows[0]["likely_s"] == pytest.approx(simulated["likely_s"])
    assert " to " in next(line for line in printed(capsys, "simulate", file)[1].splitlines() if "likely" in line)
