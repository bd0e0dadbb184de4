"""Sensitivities against what scaling must do, and against times written down by hand."""

import pytest
from hypothesis import given, settings, strategies as st
from plans import cluster_of, lowering_of, program_of

from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.simulation.program_replay import replay
from planner.simulation.sensitivity import faster, sensitivities
from planner.strategies.named_strategies import named_strategy

MODELS = ("data", "model", "owt", "spatial")


def program(strategy, *, model="lenet5", spec="titanx-4", count=4, batch=64):
    graph = load_model(model, batch=batch)
    return program_of(CostModel(graph, cluster_of(spec, count)), named_strategy(strategy, graph, count))


def rows_of(lowered, **options):
    return sensitivities(lowered, lowering_of(lowered), **options)


def everything(lowered, factor):
    cluster = lowered.cluster
    links = {(quantity, link.link_class) for link in cluster.links for quantity in ("bandwidth", "latency")}
    speeds = {("speed", device.profile) for device in cluster.devices}
    return {key: 1 / factor if key[0] == "latency" else factor for key in links | speeds}


@pytest.mark.parametrize("strategy", MODELS)
@pytest.mark.parametrize("spec", ["titanx-4", "p100-4x4", "fdr-32x3"])
def test_everything_twice_as_fast_halves_the_iteration_exactly(strategy, spec):
    """Halving is exact in binary numbers, so every event of the replay halves to the last bit."""
    lowered = program(strategy, spec=spec)
    quick = lowering_of(lowered)(faster(lowered.cluster, everything(lowered, 2.0)))

    assert replay(quick).iteration_s == replay(lowered).iteration_s / 2


@given(st.sampled_from(MODELS), st.floats(0.3, 5.0))
@settings(max_examples=10)
def test_everything_faster_shortens_the_iteration_alike(strategy, factor):
    lowered = program(strategy)
    quick = lowering_of(lowered)(faster(lowered.cluster, everything(lowered, factor)))

    assert replay(quick).iteration_s * factor == pytest.approx(replay(lowered).iteration_s, rel=1e-9)


def test_unused_link_classes_have_no_effect():
    """One machine of four devices never touches its network card."""
    rows = rows_of(program("model"))

    unused = [row for row in rows if row.of in ("fdr", "nic-port")]
    assert len(unused) == 4
    assert all(row.effect == row.elasticity == row.elasticity_spread == 0 for row in unused)
    assert not any(row.reroutes for row in unused)


def test_one_device_depends_on_its_speed_alone():
    """Twice the speed is half the time; the elasticity of c / x is -1, but for the difference quotient's curvature."""
    rows = rows_of(program("data", count=1))

    assert rows[0].change == "titanx-nervana twice as fast"
    assert rows[0].effect == pytest.approx(-0.5, rel=1e-12)
    assert rows[0].elasticity == pytest.approx((1 / 1.01 - 1 / 0.99) / 0.02, rel=1e-9)
    assert {row.effect for row in rows[1:]} == {0.0}


def test_exposed_exchange_is_worth_what_its_terms_are():
    """Rings longer than the backward pass; every row is what a replay of its own gives."""
    lowered = program("data", model="alexnet", spec="p100-4x4", count=16, batch=16)
    base_s = replay(lowered).iteration_s
    rows = {(row.quantity, row.of): row for row in rows_of(lowered)}

    for (quantity, of), row in rows.items():
        factor = 0.5 if quantity == "latency" else 2.0
        again_s = replay(lowering_of(lowered)(faster(lowered.cluster, {(quantity, of): factor}))).iteration_s
        assert row.iteration_s == pytest.approx(again_s, rel=1e-14)  # routes found in another order round otherwise
        assert row.effect == pytest.approx(again_s / base_s - 1)
    # Time is homogeneous of degree one in all works and latencies: Euler's theorem on elasticities.
    total = sum(row.elasticity * (1 if quantity == "latency" else -1) for (quantity, _), row in rows.items())
    assert total == pytest.approx(1, abs=2e-3 + sum(row.elasticity_spread for row in rows.values()))


def test_rows_come_sorted_and_repeat():
    first, second = (rows_of(program("owt")) for _ in range(2))

    assert first == second
    assert [row.effect for row in first] == sorted(row.effect for row in first)


def test_progress_counts_every_quantity():
    seen = []
    rows = rows_of(program("data"), progress=lambda label, done, total: seen.append((label, done, total)))

    assert [done for _, done, _ in seen] == list(range(len(rows)))
    assert {label for label, _, _ in seen} == {row.change for row in rows}
