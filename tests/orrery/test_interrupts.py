"""An interrupt keeps, writes and shows what is finished, as the whole answer has it."""

import json
from functools import partial

import pytest

from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from planner.plan import compare_strategies
from studies.oracle import projection
from studies.size import deadline, memory_limit, network
from studies.sweep import sweep_run
from studies.sweep.evaluate_point import evaluate_point
from studies.whatif import scenarios

SIZE = "size {} lenet5 --batch-per-device 64"
FDR = "--cluster fdr-32x3 --epochs 10 --dataset 60000"
CASES = {
    "compare": (
        "compare lenet5 --cluster titanx-4 --batch 64 --strategies data,owt,filter",
        compare_strategies,
        "price_strategy",
        "comparison.json",
    ),
    "whatif": (
        "whatif lenet5 --cluster titanx-4 --batch 64 --strategies data",
        scenarios,
        "_under",
        "whatif.json",
    ),
    "deadline": (
        f"{SIZE.format('deadline')} {FDR} --within 4s --most-devices 24",
        deadline,
        "sized_point",
        "size.json",
    ),
    "offers": (
        f"{SIZE.format('offers')} {FDR} --cluster titanx-4 --cluster p100-4x4",
        deadline,
        "sized_point",
        "size.json",
    ),
    "budget": (
        f"{SIZE.format('budget')} {FDR} --device-hours 0.05 --most-devices 24",
        deadline,
        "sized_point",
        "size.json",
    ),
    "network": (f"{SIZE.format('network')} --cluster fdr-32x3:nodes=2 --link fdr", network, "_slower", "size.json"),
    "memory": (
        f"{SIZE.format('batch')} --cluster titanx-4:device.*.memory_gib=0.7",
        memory_limit,
        "sized_point",
        "size.json",
    ),
}


def interrupt_after(monkeypatch, module, name, count):
    """Let a function of a module raise KeyboardInterrupt after so many calls."""
    work, left = getattr(module, name), [None] * count

    def interrupted(*arguments, **options):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return work(*arguments, **options)

    monkeypatch.setattr(module, name, interrupted)


def points(name, values):
    """The rows of an answer that an interrupt cuts short, without what compares them with all others."""
    if name == "compare":
        return [(row["name"], row["ladder_s"]) for row in values["strategies"]]
    return values["rows"] if name == "whatif" else values["curve"]


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("name", CASES)
def test_what_is_finished_is_kept_and_shown(tmp_path, monkeypatch, capsys, name, count):
    """Rows are those of the whole answer; where nothing is finished nothing is written."""
    words, module, function, numbers = CASES[name]
    monkeypatch.chdir(tmp_path)
    if count:
        assert run_app(app, [*words.split(), "--out", "whole"]) == 0
        capsys.readouterr()
        count += 3 * (name == "network")  # some calls before the second point
    interrupt_after(monkeypatch, module, function, count)

    assert run_app(app, [*words.split(), "--out", "out"]) == 130
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1] == "orrery: interrupted"
    assert (tmp_path / "out").exists() == ("page: out/index.html" in printed.out) == bool(count)
    if not count:
        return
    whole, kept = (json.loads((tmp_path / folder / numbers).read_text()) for folder in ("whole", "out"))
    rows = points(name, kept)
    assert 0 < len(rows) < len(points(name, whole))
    assert all(row in points(name, whole) for row in rows)
    assert (tmp_path / "out" / "index.html").exists()
    assert "Interrupted" in printed.out
    assert not any("Interrupted" in each for each in whole["notes"])
    if "interrupted" in kept:
        holding = [row for row in kept["curve"] if row["holds"]]
        assert (kept["interrupted"], whole["interrupted"]) == (True, False)
        assert kept["best"] in (holding or [None])
        assert kept["headline"].startswith(f"Interrupted after {len(rows)} points, of which ")


def alone(simulate, *given, processes):
    """Without the start of other processes."""
    yield from simulate(*given, processes=1)


def test_rows_of_the_oracle_that_were_not_simulated_keep_their_closed_forms(tmp_path, monkeypatch, capsys):
    """A number of devices has a simulated winner only where all of its rows are simulated."""
    monkeypatch.chdir(tmp_path)
    words = ["oracle", "lenet5", "--cluster", "titanx-4", "--dataset", "60000", "--gpus", "2,4", "--simulate", "--json"]
    cases, simulate = [], projection.simulate_cases

    def some(graph, cluster, given, samples, *, processes):
        cases[:] = given
        for number, result in simulate(graph, cluster, given, samples, processes=1):
            if given[number].p == 2:
                continue
            yield number, result
        raise KeyboardInterrupt

    monkeypatch.setattr(projection, "simulate_cases", partial(alone, simulate))
    assert run_app(app, words) == 0
    whole = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(projection, "simulate_cases", some)

    assert run_app(app, words) == 130
    kept = json.loads(capsys.readouterr().out)
    assert kept["rows"] == [row | {"simulated": None} if row["devices"] == 2 else row for row in whole["rows"]]
    assert kept["simulated_winners"] == {p: name for p, name in whole["simulated_winners"].items() if p != "2"}
    done = sum(row["simulated"] is not None for row in kept["rows"])
    assert kept["notes"] == [*whole["notes"], f"Interrupted: {done} of {len(cases)} rows were simulated."]


def test_a_sweep_says_how_many_points_are_stored_and_goes_on_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = "version: 1\nname: little\nmodels: lenet5\nclusters: titanx-4\nbatch: [8, 16, 24]\nstrategies: data\n"
    (tmp_path / "sweep.yaml").write_text(text)
    words = ["sweep", "sweep.yaml", "--store", "r.sqlite", "--json"]

    def computed(points, *, processes):
        for done, point in enumerate(points):
            if done == 2:
                raise KeyboardInterrupt
            yield point, evaluate_point(point)

    monkeypatch.setattr(sweep_run, "compute_locally", computed)
    counts = {"points": 3, "refused": 0, "failed": 0}
    for code, stored, new, left in ((130, 0, 2, 1), (0, 2, 1, 0)):
        assert run_app(app, words) == code
        said = json.loads(capsys.readouterr().out)
        assert (
            said == {"sweep": "little", "store": "r.sqlite", "stored": stored, "computed": new, "left": left} | counts
        )


def test_what_a_library_makes_of_an_interrupt_is_one(monkeypatch, capsys):
    """Numba raises another error where a signal ends its compilation: no defect is reported."""
    import signal

    from orrery.terminal import signals

    def compiled(*_, **__):
        try:
            signals._interrupt(signal.SIGTERM, None)
        except KeyboardInterrupt:
            raise RuntimeError("no compiled object yet") from None

    monkeypatch.setattr(compare_strategies, "price_strategy", compiled)
    words = ["compare", "lenet5", "--cluster", "titanx-4", "--batch", "64", "--strategies", "data", "--out", "out"]
    assert run_app(app, words) == 143
    assert capsys.readouterr().err == "orrery: terminated\n"
