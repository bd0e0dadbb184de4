"""The sweep: its points are our plans, links slow down as asked, and crossovers are where gains change sign."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from studies.eight_bit.compression_request import CompressionRequest
from studies.eight_bit.compression_sweep import sweep_compression
from studies.eight_bit.lists import factors, type_list, whole_numbers
from studies.eight_bit.thresholds import BEST, bisected, crossing


def sweep(**changes):
    values = {
        "sub_batches": (1, 2),
        "types": ("dynamic-tree",),
        "devices": (2, 4),
        "link_speeds": (0.01, 1.0),
        "compress": "both",
    }
    request = CompressionRequest(**values | changes)
    return sweep_compression(load_model("lenet5", batch=32), load_cluster("titanx-4"), request)


@pytest.fixture(scope="module")
def found():
    return sweep(sub_batches=(1, 2, 5))


def test_every_point_is_there_with_a_time_or_a_reason(found):
    assert len(found.points) == 3 * 2 * 2 * 2
    for point in found.points:
        assert bool(point.reason) == (point.sub_batches == 5) == math.isnan(point.iteration_s)
    assert any("8 of 24" in note or "4 of 24" in note for note in found.notes)
    assert any("sub_batches must be >= 1 and divide the batch of 128, got 5" in note for note in found.notes)


def test_a_point_is_the_plan_of_the_same_choices(found):
    """At factor 1: what ``orrery plan`` says for the same words."""
    graph, cluster = load_model("lenet5", batch=128), load_cluster("titanx-4")
    alone = make_plan(load_model("lenet5", batch=32), cluster.take(1), strategy="data").simulated_s
    plan = make_plan(
        graph,
        cluster,
        strategy="owt",
        gradient_sync="auto",
        sub_batches=2,
        compress_gradients="dynamic-tree",
        compress_activations="dynamic-tree",
    )
    (point,) = [
        p for p in found.points if (p.sub_batches, p.type, p.devices, p.link_speed) == (2, "dynamic-tree", 4, 1.0)
    ]

    assert point.iteration_s == pytest.approx(plan.simulated_s, rel=1e-12)
    assert point.speedup == pytest.approx(4 * alone / plan.simulated_s, rel=1e-12)


def test_only_the_slowest_links_in_use_are_scaled(found):
    """The fabric beyond the machine is slower than its switches, but no route of one machine uses it."""
    assert (found.link_class, found.link_bytes_per_s) == ("switch-port", 7e9)
    times = {(p.devices, p.link_speed): p.iteration_s for p in found.points if p.type == "float32" and not p.reason}
    assert times[4, 0.01] > times[4, 1.0]
    assert times[2, 0.01] == times[2, 1.0]  # two devices below one switch


def test_another_class_of_links_can_be_chosen():
    """Two devices of one switch share nothing but their own slots."""
    swept = sweep(sub_batches=(1,), devices=(2,), link_class="slot")
    slower, faster = (point.iteration_s for point in swept.points if point.type == "float32")
    assert (swept.link_class, swept.link_bytes_per_s) == ("slot", 14e9)
    assert slower > faster


def test_slow_links_make_compression_pay_and_bisection_finds_where():
    """The threshold splits: a little slower it pays, a little faster it does not."""
    swept = sweep(sub_batches=(1,), devices=(4,), link_speeds=(0.01, 0.1, 1.0, 10.0), types=("float16",), exact=True)
    (crossed,) = [each for each in swept.crossings if each.axis == "link_speed" and each.sub_batches == BEST]
    assert crossed.pays_at_low
    assert crossed.exact == bool(crossed.thresholds)
    for threshold in crossed.thresholds[:1]:
        near = sweep(
            sub_batches=(1,), devices=(4,), link_speeds=(threshold / 1.01, threshold * 1.01), types=("float16",)
        )
        slower, faster = (p.gain for p in near.points if p.type == "float16")
        assert slower > 0 >= faster - 1e-6
    assert crossed.thresholds


def test_types_with_a_residual_compress_gradients_alone():
    swept = sweep(sub_batches=(1,), devices=(4,), link_speeds=(1.0,), types=("one-bit",))
    assert "one-bit compresses gradients alone: it keeps a residual" in swept.notes
    with pytest.raises(ConfigError, match=r"types must keep no residual where .* got 'one-bit'"):
        sweep(types=("float16", "one-bit"), compress="activations")


def test_a_sweep_without_a_point_is_refused():
    with pytest.raises(ConfigError, match="none of"):
        sweep(sub_batches=(7,), devices=(4,), link_speeds=(1.0,))


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8), st.floats(1.1, 3.0))
def test_thresholds_rise_between_their_values_and_each_changes_the_answer(gains, step):
    values = [step**power for power in range(len(gains))]
    made = crossing(
        "link_speed", "float16", list(zip(values, gains, strict=True)), sub_batches=0, devices=4, link_speed=0
    )
    pays = [gain > 1e-6 for gain in gains]

    assert len(made.thresholds) == sum(a != b for a, b in pairwise(pays))
    assert list(made.thresholds) == sorted(made.thresholds)
    for threshold, (low, high) in zip(made.thresholds, made.between, strict=True):
        assert low <= threshold <= high


def test_interpolation_and_bisection_find_a_known_zero():
    def gain(x):
        return math.log(3.0 / x)

    made = crossing(
        "link_speed", "float16", [(x, gain(x)) for x in (0.5, 2, 8)], sub_batches=0, devices=4, link_speed=0
    )
    assert made.thresholds == (pytest.approx(3.0, rel=1e-5),)
    assert bisected(made, lambda x: gain(x) ** 3).thresholds == (pytest.approx(3.0, rel=0.02),)
    assert bisected(made, gain).thresholds == (pytest.approx(3.0, rel=0.001),)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"types": ("dynamic-tre",)}, "did you mean 'dynamic-tree'"),
        ({"types": ("float32",)}, "types must name a data type other than float32"),
        ({"devices": (8,)}, "devices must be at most the 4 of titanx-4"),
        ({"devices": (1,)}, "2 or more of them"),
        ({"link_speeds": (0.0,)}, "link_speeds must be finite and > 0"),
        ({"link_speeds": (math.nan,)}, "link_speeds must be finite and > 0"),
        ({"compress": "all"}, "compress must be one of"),
    ],
)
def test_bad_questions_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        sweep(**changes)


def test_lists_are_read_as_they_are_typed():
    assert whole_numbers("sub_batches", "4, 1,2") == (4, 1, 2)
    assert factors("link_speeds", "0.5,1e1") == (0.5, 10.0)
    assert type_list("float16, dynamic-tree:block=64,top=0.8,linear") == (
        "float16",
        "dynamic-tree:block=64,top=0.8",
        "linear",
    )
    for reader, text in ((whole_numbers, "1,,2"), (whole_numbers, "1.5"), (factors, "fast")):
        with pytest.raises(ConfigError, match="must be"):
            reader("values", text)
