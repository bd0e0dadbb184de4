"""Headlines of random reports agree with the numbers that stand beside them."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from page_kinds import sweep_frame
from test_validation_page import DEVICES, Validation, make_strategy

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from reports.pages.oracle_page import _tiles
from reports.pages.streams_page import stream_rows, streams_headline
from reports.pages.sweep_page import sweep_headline
from reports.pages.validation_page import validation_headline
from reports.tables.eight_bit_tables import eight_bit_headline
from reports.tables.oracle_tables import booking_line, oracle_headline
from reports.tables.reproduced_values import reproduced_headline, reproduced_values
from studies.eight_bit.compression_request import CompressionRequest
from studies.eight_bit.compression_sweep import sweep_compression
from studies.oracle.oracle_request import OracleRequest
from studies.oracle.projection import oracle
from studies.reproduce.rows import row
from studies.streams.schedule_comparison import compare_schedules
from studies.streams.stream_request import StreamRequest

SEEDS = range(25)


@pytest.fixture(scope="module")
def table():
    request = OracleRequest(
        dataset="imagenet", devices=(1, 2, 4), batch_per_device=32, epochs=3, budget_gpu_hours=1.0, simulate=True
    )
    return oracle(load_model("lenet5", batch=32), load_cluster("abci-v100"), request, processes=1)


@pytest.fixture(scope="module")
def schedules():
    return compare_schedules(load_model("lenet5", batch=4), StreamRequest(device="p100"))


@pytest.fixture(scope="module")
def compression():
    request = CompressionRequest(sub_batches=(1, 2), devices=(4,), link_speeds=(1.0,), types=("float16",))
    return sweep_compression(load_model("lenet5", batch=32), load_cluster("titanx-4"), request)


@pytest.mark.parametrize("simulates", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_oracle_names_the_shortest_epoch_that_is_booked(table, seed, simulates):
    random = np.random.default_rng(seed)

    def times():
        return {"epoch_s": float(random.uniform(100, 9000)), "fits": bool(random.random() < 0.6)}

    rows = tuple(
        replace(each, simulated=each.simulated and simulates and replace(each.simulated, **times()), **times())
        if simulates
        else replace(each, simulated=None, **times())
        for each in table.rows
    )
    found = replace(table, rows=rows, budget_gpu_hours=float(random.uniform(0.1, 30)))
    known = {(each.strategy, each.devices): each.simulated if simulates else each for each in rows}
    fitting = {key: each.epoch_s for key, each in known.items() if each.fits}
    paid = {key: s for key, s in fitting.items() if 3 * s * key[1] / 3600 <= found.budget_gpu_hours}
    headline, booked = oracle_headline(found), booking_line(found)
    if not fitting:
        assert headline.startswith("No strategy fits in memory")
        return
    strategy, devices = min(fitting, key=fitting.get)
    assert headline.startswith(f"{strategy} on {devices} device{'s' * (devices > 1)} is predicted fastest")
    assert (", simulated" in headline) == simulates
    if not paid:
        assert "; no row is within" in headline
        assert "nothing fits" in booked
        return
    best = min(paid, key=paid.get)
    assert f"under {best[0]}, " in booked
    if best != (strategy, devices):
        assert f"it is {best[0]} on {best[1]} device" in headline
    assert [value for label, value, _ in _tiles(found) if label in ("strategy", "devices")] == [best[0], str(best[1])]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_is_faster_where_its_gain_is_more_than_one(schedules, seed):
    random = np.random.default_rng(seed)
    spread = random.choice([1e-4, 1.0])
    results = [
        replace(each, iteration_s=each.iteration_s * math.exp(spread * random.normal())) for each in schedules.results
    ]
    found = replace(schedules, results=type(schedules.results)(results))
    titles, rows = stream_rows(found)
    gains = {cells[0]: float(cells[titles.index("gain")].rstrip("×")) for cells in rows}
    headline = streams_headline(found)
    if max(gains.values()) > 1:
        name, gain = re.match(r"(.+) is (\S+) times as fast as", headline).groups()
        assert gains[name] == float(gain) == max(gains.values())
    else:
        assert headline.startswith(f"No schedule is faster than {rows[0][0]} ")


@pytest.mark.parametrize("seed", SEEDS)
def test_compression_pays_where_it_is_seen_to(compression, seed):
    random = np.random.default_rng(seed)
    spread = random.choice([1e-4, 0.5])
    points = [
        replace(each, iteration_s=each.iteration_s * math.exp(spread * random.normal())) for each in compression.points
    ]
    found = replace(compression, points=type(compression.points)(points))
    headline = eight_bit_headline(found)
    gain = re.search(r", \+(\S+)% compared", headline)
    assert headline.startswith("Compression pays" if gain else "Compression does not pay")
    assert gain is None or float(gain[1]) > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_sweep_names_the_point_of_most_samples(seed):
    random, frame = np.random.default_rng(seed), sweep_frame()
    frame["expected_s"] *= np.exp(random.normal(size=len(frame)))
    rates = frame["batch"] / frame["expected_s"]
    best = frame.loc[rates.idxmax()]
    headline = sweep_headline(frame)
    assert headline.startswith(f"{best['strategy']} has the most samples per second, for {best['model']} on ")
    assert f"batch {best['batch']:,} in " in headline
    assert f"({len(frame)} points, {frame['expected_s'].isna().sum()} of them without a plan)" in headline


@pytest.mark.parametrize("seed", SEEDS)
def test_a_validation_tells_the_largest_error_and_the_order(seed):
    random = np.random.default_rng(seed)
    strategies = tuple(make_strategy(name, *random.uniform(0.3, 0.6, size=2)) for name in ("data", "model", "owt"))
    found = Validation(
        model="small",
        batch=32,
        cluster="lab",
        devices=DEVICES,
        stand_in=False,
        lab=True,
        strategies=strategies,
        refused={},
        environment={},
        notes=(),
    )
    headline = validation_headline(found)
    worst = max(abs(each.predicted_s / each.measured_s - 1) for each in strategies)
    assert f"within {worst:.1%} of measurements" in headline
    ordered = np.argsort([s.predicted_s for s in strategies]) == np.argsort([s.measured_s for s in strategies])
    assert ("and in their measured order" in headline) == ordered.all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_paper_tells_how_many_come_out_and_which_is_farthest(seed):
    random = np.random.default_rng(seed)
    rows = [
        row(f"P, Table 1: claim {i}", str(printed), float(printed * math.exp(0.1 * random.normal())), "ms")
        for i, printed in enumerate(random.integers(1, 90, size=7))
    ]
    rows += [row(f"P, Table 2: words {i}", "n 4", "n 2", "config") for i in range(random.integers(0, 3))]
    errors = [abs(r.ours / float(r.printed) - 1) if r.unit == "ms" else math.inf for r in rows]
    farthest = rows[int(np.argmax([error if error < math.inf else -1 for error in errors]))]
    headline = reproduced_headline("p", reproduced_values(rows))
    assert f"p: {sum(error <= 0.05 for error in errors)} of {len(rows)} printed values" in headline
    assert ("; of the others the farthest is " in headline) == (math.inf in errors)
    assert f"the farthest is {farthest.source.partition(': ')[2]}:" in headline
