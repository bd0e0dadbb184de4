"""Input rates: iterations take what the slower takes, the devices or the input of their samples."""

import pytest
from plans import cluster_of

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import simulated_plan
from planner.plan.pace import pace_of
from planner.simulation.program_replay import replay
from planner.simulation.steady_path import program_path


def _replayed(devices=2, batch=32, **options):
    cluster = load_cluster(f"dgx-h100:nodes={devices // 8}") if devices > 8 else cluster_of("dgx-h100", devices)
    return simulated_plan(load_model("lenet5", batch=batch), cluster, strategy="data", **options).replayed


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({}, 0.9),
        ({}, 3.0),
        ({"software": "pytorch"}, 0.2),
        ({"software": "pytorch"}, 3.0),
        ({"micro_batches": 2}, 0.9),
        ({"recompute": "segments"}, 0.2),
    ],
)
def test_the_slower_of_devices_and_input_sets_the_pace(options, share):
    alone = _replayed(**options)
    rate = share * 32 / alone.iteration_s
    found = _replayed(input_images_per_s=rate, **options)
    assert found.iteration_s == pytest.approx(max(alone.iteration_s, 32 / rate), rel=1e-6)
    assert replay(found.program, engine="simpy").iteration_s == pytest.approx(found.iteration_s, rel=1e-9)


def test_a_rate_that_is_given_has_no_error():
    """Ten images a second are trained where no more come, and a rate far above what devices need changes nothing."""
    alone, slow, fast = _replayed(), _replayed(input_images_per_s=10.0), _replayed(input_images_per_s=1e9)
    assert (slow.expected_s, slow.likely_s) == (3.2, (3.2, 3.2))
    assert (fast.expected_s, fast.likely_s) == (alone.expected_s, alone.likely_s)
    assert alone.expected_s != pytest.approx(alone.iteration_s, rel=0.01)


def test_replicas_that_stand_for_others_wait_for_the_samples_of_all():
    found = _replayed(devices=128, batch=512, input_images_per_s=1000.0)
    assert found.program.classes is not None
    assert found.iteration_s == pytest.approx(0.512, rel=1e-6)


def test_the_pace_names_the_input():
    found = _replayed(input_images_per_s=100.0)
    path = program_path(found)
    assert sum(path.seconds_by("kind").values()) == pytest.approx(found.iteration_s, rel=1e-9)
    assert path.seconds_by("kind")["input"] > 0.9 * found.iteration_s
    assert pace_of(found, path).sentence.startswith("the input of samples sets the pace")


@pytest.mark.parametrize("rate", [0, -1.0, float("inf"), float("nan")])
def test_a_rate_that_brings_nothing_or_all_is_refused(rate):
    with pytest.raises(ConfigError) as refused:
        _replayed(input_images_per_s=rate)
    assert "input_images_per_s must be" in str(refused.value)
    assert "\n" not in str(refused.value)
