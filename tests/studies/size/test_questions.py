"""Answers to questions of size against plans of every candidate."""

import contextlib
import math
from dataclasses import replace
from functools import cache

import pytest

from groundwork.errors import ConfigError, DeviceMemoryError
from groundwork.units import GIB
from hwprofiles.catalogue.cluster_catalogue import cluster_path, load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan, simulated_plan
from studies.size import memory_limit
from studies.size.budget import Budget, best_for_budget
from studies.size.deadline import fewest_devices
from studies.size.failures import Failures
from studies.size.memory_limit import largest_batch
from studies.size.network import slowest_network
from studies.size.offers import best_offer
from studies.size.sized_point import Subject, cluster_sizes, sized_point
from studies.size.training import TrainingRun
from studies.size.typed_values import duration_s, read_prices

LENET = Subject(model="lenet5", batch=0, batch_per_device=64, strategies=("data",))
TRAINING = TrainingRun(samples=60_000, epochs=10)
FDR = "fdr-32x3"


def iteration_s(cluster, batch):
    """Expected iteration of data parallelism, planned as by ``orrery plan``."""
    return simulated_plan(load_model("lenet5", batch=batch), cluster, strategy="data").replayed.expected_s


@cache
def sized_s(size, batch):
    """Likewise on a size of a cluster; several tests look at the same sizes."""
    return iteration_s(size.load(), batch)


def train_s(size, training=TRAINING):
    """Time of the training on a size of a cluster."""
    batch = 64 * size.devices
    return training.epochs * math.ceil(training.samples / batch) * sized_s(size, batch)


def test_sizes_are_devices_of_a_node_and_then_nodes(tmp_path):
    sizes = cluster_sizes(FDR, most_devices=10)
    assert [size.devices for size in sizes] == [1, 2, 3, 6, 9]
    assert [len(size.load().devices) for size in sizes] == [1, 2, 3, 6, 9]
    assert [size.devices for size in cluster_sizes("fdr-32x3:nodes=5", most_devices=12, batch=12)] == [1, 2, 3, 6, 12]
    other = tmp_path / "other.yaml"  # whose number of nodes has another name, so that it cannot be varied
    other.write_text(cluster_path("titanx-4").read_text().replace("nodes", "machines"))
    assert [size.devices for size in cluster_sizes(str(other), most_devices=99)] == [1, 2, 3, 4]
    with pytest.raises(ConfigError, match="most_devices must leave a size of titanx-4, got 0"):
        cluster_sizes("titanx-4", most_devices=0)


@pytest.mark.parametrize("place", [0.3, 0.6])
def test_the_fewest_devices_are_those_of_a_scan(place):
    """All sizes up to 24 devices, one by one."""
    sizes = cluster_sizes(FDR, most_devices=24)
    times = [train_s(size) for size in sizes]
    within_s = min(times) + place * (max(times) - min(times))
    answer = fewest_devices(LENET, FDR, TRAINING, within_s=within_s, most_devices=24)
    at = next(i for i, time in enumerate(times) if time <= within_s)
    assert answer.best.point.devices == sizes[at].devices
    assert answer.best.quantity == pytest.approx(times[at])
    expected = [sizes[i].devices for i in (at - 1, at - 2) if i >= 0]
    assert [row.point.devices for row in answer.failing] == expected
    assert all(row.quantity > within_s for row in answer.failing)
    assert answer.best.likely[0] < answer.best.quantity < answer.best.likely[1]
    assert sum(setter.share for setter in answer.pace.setters) == pytest.approx(1.0)
    if answer.sure is not None:
        assert answer.sure.likely[1] <= within_s


def test_no_size_is_enough_for_a_second():
    answer = fewest_devices(LENET, FDR, TRAINING, within_s=1e-3, most_devices=9)
    assert answer.best is None
    assert [row.point.devices for row in answer.failing] == [9, 6]


def test_the_largest_batch_fits_and_one_more_does_not():
    """Memory of a device so small that the boundary is at a few hundred samples."""
    cluster = "titanx-4:device.*.memory_gib=0.05"
    answer = largest_batch(LENET, cluster)
    best, graph = int(answer.best.x), load_cluster(cluster)
    make_plan(load_model("lenet5", batch=4 * best), graph, strategy="data")
    with pytest.raises(Exception, match="does not fit"):
        make_plan(load_model("lenet5", batch=4 * best + 4), graph, strategy="data")
    assert [row.x for row in answer.failing] == [best + 1, best + 2]
    assert answer.best.quantity <= answer.limit < answer.failing[0].quantity


def test_where_memory_sets_no_limit_the_answer_says_so(monkeypatch):
    """The search ends at what can be planned at all: here 100 samples, of four devices."""
    monkeypatch.setattr(memory_limit, "MOST_SAMPLES", 100)
    answer = largest_batch(LENET, "titanx-4")
    assert (answer.best.x, answer.failing) == (25, ())
    assert "100 samples in all, the most that can be planned, fit: memory sets no limit" in answer.notes


def test_a_searched_strategy_says_what_it_needs_without_a_search_for_what_fits(monkeypatch):
    """The least that one of the candidates needs, which is not more than data parallelism does."""
    cluster = cluster_sizes("titanx-4:device.*.memory_gib=0.05", most_devices=4)[-1]
    ruled = sized_point(replace(LENET, batch_per_device=2048), cluster)
    monkeypatch.setattr(DeviceMemoryError, "fitting", None)
    searched = sized_point(replace(LENET, batch_per_device=2048, strategies=("layerwise",)), cluster)
    assert "does not fit on" in searched.refusal
    assert 0.05 * GIB < searched.peak_bytes <= ruled.peak_bytes < math.inf


def test_the_fastest_for_a_budget_is_that_of_a_scan():
    """Device hours of all sizes, one by one; a price of 2 doubles them."""
    sizes = cluster_sizes(FDR, most_devices=24)
    hours = [size.devices * train_s(size) / 3600 for size in sizes]
    limit = (hours[2] + hours[-1]) / 2
    budget = Budget(money=2 * limit, device_hours=None, prices={"": 2.0})
    answer = best_for_budget(LENET, [FDR], TRAINING, budget, most_devices=24)
    affordable = [size for size, spent in zip(sizes, hours, strict=True) if spent <= limit]
    fastest = min(affordable, key=train_s)
    assert answer.best.cost.total_s == pytest.approx(train_s(fastest))
    assert answer.best.quantity <= 2 * limit
    assert all(row.quantity > 2 * limit for row in answer.failing)


@pytest.mark.parametrize("affordable", [2, 4])
def test_sizes_that_lack_memory_do_not_end_the_search_of_a_budget(affordable):
    """Of a batch that only 12 devices and more can hold all sizes are planned one by one."""
    cluster, batch = f"{FDR}:device.*.memory_gib=0.05", 3600
    spent = {}
    for size in cluster_sizes(cluster, most_devices=24, batch=batch):
        with contextlib.suppress(DeviceMemoryError):
            spent[size.devices] = size.devices * 10 * math.ceil(60_000 / batch) * sized_s(size, batch) / 3600
    hours = sorted(spent.values())
    limit = math.sqrt(hours[affordable - 1] * hours[affordable]) if affordable < len(hours) else 2 * hours[-1]
    assert min(spent) > 1
    subject = Subject(model="lenet5", batch=batch, batch_per_device=0, strategies=("data",))
    budget = Budget(money=None, device_hours=limit, prices={})
    answer = best_for_budget(subject, [cluster], TRAINING, budget, most_devices=24)
    fits = {devices: each for devices, each in spent.items() if each <= limit}
    assert answer.best.point.devices == min(fits, key=lambda devices: fits[devices] / devices)
    assert answer.best.quantity == pytest.approx(fits[answer.best.point.devices])
    assert [row.point.devices for row in answer.curve if row.point.refusal][-1] < min(spent)


def test_where_no_size_has_the_memory_the_budget_has_no_answer():
    subject = Subject(model="lenet5", batch=3600, batch_per_device=0, strategies=("data",))
    budget = Budget(money=None, device_hours=1e6, prices={})
    answer = best_for_budget(subject, ["titanx-4:device.*.memory_gib=0.01"], TRAINING, budget, most_devices=4)
    assert answer.best is None
    assert answer.notes == ()


def test_with_a_deadline_the_cheapest_in_time_is_taken():
    """Of two clusters at one price the one whose devices take fewer hours."""
    within_s = 1.5 * train_s(cluster_sizes(FDR, most_devices=6)[-1])
    budget = Budget(money=1e6, device_hours=None, prices={"": 1.0})
    answer = best_for_budget(LENET, [FDR, "p100-4x4"], TRAINING, budget, within_s=within_s, most_devices=12)
    in_time = [row for row in answer.curve if row.cost.total_s <= within_s]
    assert answer.best.quantity == min(row.quantity for row in in_time)
    assert all(row.cost.total_s > within_s for row in answer.failing)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"money": 1.0, "device_hours": 1.0, "prices": {}}, "budget must be either money or device hours, got both"),
        ({"money": None, "device_hours": None, "prices": {}}, "got neither"),
        ({"money": -1.0, "device_hours": None, "prices": {}}, "money must be finite and > 0, got -1.0"),
    ],
)
def test_budgets_that_are_none_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        Budget(**given)


def test_money_needs_prices():
    with pytest.raises(ConfigError, match="price of fdr-32x3 must be given"):
        best_for_budget(LENET, [FDR], TRAINING, Budget(money=1.0, device_hours=None, prices={}))


def test_the_slowest_network_loses_less_than_the_next_slower():
    """Each step is planned anew here, and the loss computed from it."""
    cluster = "fdr-32x3:nodes=2"
    today_s = iteration_s(load_cluster(cluster), 384)
    answer = slowest_network(LENET, cluster, link="fdr", loss=0.1)
    for row, holds in ((answer.best, True), (answer.failing[0], False), (answer.failing[1], False)):
        factor = row.x / 6e9
        slower = load_cluster(f"{cluster},link.fdr.bandwidth_factor={factor:.9g}")
        lost = 1 - today_s / iteration_s(slower, 384)
        assert row.quantity == pytest.approx(lost, abs=1e-6)
        assert (lost <= 0.1) is holds
        assert row.likely[0] < row.quantity < row.likely[1]
    assert answer.curve[0].likely == (0.0, 0.0)


def test_slower_networks_build_on_the_factor_that_the_cluster_sets():
    """A cluster whose links are halved; each candidate against one whose bandwidth is set outright."""
    cluster = "fdr-32x3:nodes=2,link.fdr.bandwidth_factor=0.5"
    answer = slowest_network(LENET, cluster, link="fdr", loss=0.1)
    today_s = iteration_s(load_cluster(cluster), 384)
    assert answer.curve[0].x == pytest.approx(3e9)
    for row in (answer.best, *answer.failing):
        slower = load_cluster(f"fdr-32x3:nodes=2,link.fdr.bandwidth_gbyte_per_s={row.x / 1e9:.9g}")
        assert row.quantity == pytest.approx(1 - today_s / iteration_s(slower, 384), abs=1e-6)
    assert 0 < answer.best.quantity <= 0.1 < answer.failing[0].quantity


def test_an_unknown_class_lists_those_there_are():
    with pytest.raises(ConfigError, match="one of slot, nic-port, switch-port, fdr, got 'fdrr'; did you mean 'fdr'"):
        slowest_network(LENET, "fdr-32x3:nodes=2", link="fdrr", loss=0.1)
    with pytest.raises(ConfigError, match=r"loss must be > 0 and < 1, which is 100 %, got 1\.5 \(150 %\)"):
        slowest_network(LENET, "fdr-32x3:nodes=2", link="fdr", loss=1.5)


def test_offers_are_ranked_by_time_or_by_money():
    """Three devices are faster than one, and at ten times the price dearer."""
    offers = ["fdr-32x3:nodes=1", "titanx-4"]
    answer = best_offer(LENET, offers, TRAINING, prices={})
    times = [row.cost.total_s for row in answer.curve]
    assert answer.best.point.cluster == offers[times.index(min(times))]
    dear = {name: (1000.0 if name == answer.best.point.cluster else 1.0) for name in offers}
    assert best_offer(LENET, offers, TRAINING, prices=dear, by="money").best is not None
    assert best_offer(LENET, offers, TRAINING, prices=dear, by="money").best.point.cluster != answer.best.point.cluster


def test_failures_and_power_count_in_the_cost():
    """Time lost grows with failures; energy is the boards' limit times the time."""
    often = TrainingRun(samples=60_000, epochs=10, failures=Failures(node_mtbf_s=30.0, checkpoint_s=0.1, restart_s=1.0))
    plain, lossy = (best_offer(LENET, ["titanx-4"], each, prices={}).best.cost for each in (TRAINING, often))
    assert plain.lost_s == 0
    assert lossy.total_s == pytest.approx(plain.train_s + lossy.lost_s)
    assert lossy.lost_s > 0
    assert lossy.likely_s[0] > plain.likely_s[0]
    watts = {"titanx-nervana": 250, "titanx": 250}
    profile = load_cluster("titanx-4").devices[0].profile
    assert plain.energy_kwh == pytest.approx(4 * watts[profile] * plain.total_s / 3.6e6)
    assert plain.device_hours == pytest.approx(4 * plain.total_s / 3600)
    priced = best_offer(LENET, ["titanx-4"], TRAINING, prices={"": 2.5}).best.cost
    assert priced.money_per_million_samples == pytest.approx(2.5 * priced.device_hours / 0.6)
    assert plain.money_per_million_samples is None


def test_durations_and_prices_are_read():
    assert [duration_s(word) for word in ("36h", "1.5d", "90min", "30s", "1y")] == [129600, 129600, 5400, 30, 31557600]
    for wrong in ("36", "h", "-1h", "nanh", "1e999h", "1 week", "0s"):
        with pytest.raises(ConfigError, match="must be a number > 0 with a unit"):
            duration_s(wrong)
    assert read_prices(["1.5", "a:nodes=2=3"], ["a:nodes=2", "b"]) == {"": 1.5, "a:nodes=2": 3.0}
    for words, message in ((["x"], "got 'x'"), (["c=1"], "one of the clusters a"), (["1", "2"], "given once")):
        with pytest.raises(ConfigError, match=message):
            read_prices(words, ["a"])
