"""The oracle's second answer: rows as plans, against the planner's own way to the same replay."""

import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.simulation.program_replay import replay
from studies.oracle.oracle_request import OracleRequest
from studies.oracle.projection import oracle


@pytest.fixture(scope="module")
def table():
    return oracle(
        load_model("alexnet", batch=32),
        load_cluster("abci-v100"),
        OracleRequest(
            dataset="imagenet",
            devices=(1, 4, 16),
            batch_per_device=32,
            epochs=3,
            budget_gpu_hours=4.0,
            simulate=True,
        ),
        processes=1,
    )


@pytest.mark.parametrize(
    ("strategy", "p", "plan"),
    [
        ("data", 16, "data"),
        ("filter", 4, "model"),
        ("spatial", 4, "spatial"),
        ("layer", 4, "pipeline"),
        ("data+filter", 16, "data=4,filter=4"),
        ("data+spatial", 16, "data=4,spatial=4"),
    ],
)
def test_a_row_is_its_plan_replayed(table, strategy, p, plan):
    row = table.row(strategy, p)
    cluster, graph = load_cluster("abci-v100").take(p), load_model("alexnet", batch=row.batch)
    asked = {}
    if plan == "pipeline":
        asked = {"schedule": "gpipe", "micro_batches": int(row.degrees.removeprefix("S = "))}
    plain = {"gradient_sync": "ring", "framework": "ideal", "interference": False, "spread": False}
    made = make_plan(graph, cluster, strategy=plan, **asked, **plain)

    replayed = replay(lower_plan(made, graph, cluster), iterations=3)

    assert row.simulated.iteration_s == pytest.approx(replayed.iteration_s, rel=1e-9)
    assert row.simulated.fits


def test_parts_add_up_and_epochs_follow(table):
    for row in table.rows:
        second = row.simulated
        if second.refused:
            assert (second.iteration_s, second.fits) == (0.0, False)
            continue
        assert second.compute_s + second.waits_s == pytest.approx(second.iteration_s)
        assert second.epoch_s == pytest.approx(1_281_167 / row.batch * second.iteration_s)
        assert second.memory_bytes > 0


def test_one_device_is_the_closed_form(table):
    """Nothing to communicate, nothing to overlap."""
    row = table.row("serial", 1)

    assert row.simulated.iteration_s == pytest.approx(row.iteration_s)
    assert row.simulated.memory_bytes == pytest.approx(row.memory_bytes, rel=0.05)


def test_winners_and_what_to_book_are_of_the_simulation(table):
    fitting = [row for row in table.rows if row.simulated.fits]
    for p, name in table.simulated_winners.items():
        assert table.row(name, p).simulated.epoch_s == min(r.simulated.epoch_s for r in fitting if r.devices == p)
    booking = table.booking
    hours = {(r.strategy, r.devices): r.devices * 3 * r.simulated.epoch_s / 3600 for r in fitting}
    allowed = [r for r in fitting if hours[r.strategy, r.devices] <= 4.0]
    assert booking.simulated
    assert booking.time_s == pytest.approx(3 * min(r.simulated.epoch_s for r in allowed))
    assert booking.gpu_hours == pytest.approx(hours[booking.strategy, booking.devices])


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("warm_workers")
def test_processes_answer_as_one_does(table):
    rows = oracle(
        load_model("alexnet", batch=32),
        load_cluster("abci-v100"),
        OracleRequest(
            dataset="imagenet",
            devices=(4, 16),
            strategies=("data", "data+filter"),
            batch_per_device=32,
            simulate=True,
        ),
        processes=2,
    ).rows

    assert len(rows) == 4
    for row in rows:
        assert row.simulated == table.row(row.strategy, row.devices).simulated


def test_what_has_no_plan_says_why():
    """As many stages as fit: a stage that does not names its need."""
    graph = load_model("cosmoflow:size=512", batch=8)
    table = oracle(
        graph,
        load_cluster("abci-v100"),
        OracleRequest(dataset="cosmoflow", devices=(4,), strategies=("layer", "data"), simulate=True),
        processes=1,
    )

    assert "does not fit on" in table.row("layer", 4).simulated.refused
    assert not table.row("data", 4).simulated.fits
    assert table.simulated_winners == {}
    assert table.booking is None
