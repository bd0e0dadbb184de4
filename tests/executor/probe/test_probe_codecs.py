"""Measured encoding and decoding: from samples to a profile file, and from that to the price of a message."""

import numpy as np
import pytest
import yaml
from hypothesis import given, strategies as st
from test_probe import FACTS, Ticking

from executor.probe.codec_probe import CodecProbe, CodecRow, speed_of
from executor.probe.measured_rows import TimeSamples, over_ranks
from executor.probe.probe_request import ALL_TYPES
from executor.probe.probe_run import probe
from executor.probe.probe_settings import ProbeSettings
from executor.probe.probed_profile import write_profile
from executor.runtime.devices import CpuDevice
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.compute_profile import CodecSpeed
from hwprofiles.compute.profile_file import load_profile
from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from planner.compression.data_types import COMPRESSIONS, compression
from planner.cost.codec_time import ACTIVATIONS, GRADIENTS, codec_s
from planner.cost.compressed_sync import compressed_all_reduce
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model

FIXED_S = {"compress": 4e-5, "decompress": 2e-5, "sum": 1e-5}
PER_S = {"compress": 1e8, "decompress": 4e8, "sum": 2e8}
NUMBERS = (4096, 65536, 1048576)


def rows(kind="dynamic-tree", place=GRADIENTS, tasks=tuple(FIXED_S)):
    return [
        CodecRow(
            type=kind,
            place=place,
            task=task,
            elements=count,
            samples=TimeSamples((FIXED_S[task] + count / PER_S[task],) * 3),
        )
        for task in tasks
        for count in NUMBERS
    ]


def written(tmp_path, measured, name="mine"):
    path = tmp_path / f"{name}.yaml"
    write_profile([], path, device=FACTS, codecs=measured)
    return path


def model_on(path):
    return CostModel(load_model("lenet5", batch=8), load_cluster("lab-4").with_profiles({"cpu-core": str(path)}))


def test_speeds_come_back_from_the_file(tmp_path):
    path = written(tmp_path, [*rows(), *rows("linear:block=64", ACTIVATIONS, ("compress", "decompress"))])
    found = load_profile(str(path)).codecs
    assert set(found) == {
        *(("dynamic-tree", GRADIENTS, task) for task in FIXED_S),
        *(("linear:block=64", ACTIVATIONS, task) for task in ("compress", "decompress")),
    }
    for (_, _, task), speed in found.items():
        assert (speed.fixed_s, speed.elements_per_s) == pytest.approx((FIXED_S[task], PER_S[task]), rel=1e-9)
    section = yaml.safe_load(path.read_text())["compression"]
    assert section["device"] == FACTS.label
    assert section["measured"] == FACTS.measured
    assert section["software"].startswith(f"{FACTS.software}, numba ")
    first = section["rows"][0]
    assert first["elements"] == list(NUMBERS)
    assert first["median_ms"] == pytest.approx([1e3 * (4e-5 + count / 1e8) for count in NUMBERS])
    assert first["spread"] == 0


def test_a_profile_without_measured_types_says_nothing_of_them(tmp_path):
    path = written(tmp_path, [])
    assert "compression" not in yaml.safe_load(path.read_text())
    assert load_profile(str(path)).codecs == {}


@given(fixed_s=st.floats(0, 1e-3), number_s=st.floats(1e-11, 1e-6))
def test_a_straight_line_is_found(fixed_s, number_s):
    speed = speed_of(NUMBERS, [fixed_s + count * number_s for count in NUMBERS])
    assert speed.fixed_s == pytest.approx(fixed_s, rel=1e-6, abs=1e-4 * number_s * NUMBERS[0])
    assert 1 / speed.elements_per_s == pytest.approx(number_s, rel=1e-6)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=5))
def test_any_times_make_a_line_that_rises_from_no_less_than_zero(times):
    speed = speed_of([1000 * 4**i for i in range(len(times))], times)
    assert speed.fixed_s >= 0
    assert 0 < speed.elements_per_s < np.inf


@pytest.mark.parametrize("gradient_sync", ["direct", "ps-spread", "ps"])
def test_prices_are_those_of_the_rows_by_hand(tmp_path, gradient_sync):
    """Messages and numbers of the table in docs/compression.md, four replicas of 1000 numbers."""
    p, n, m = 4, 1000, 250
    kind, devices = compression("dynamic-tree"), np.arange(p)
    total = compressed_all_reduce(kind, gradient_sync, n, p)

    def s(task, messages, numbers):
        return messages * FIXED_S[task] + numbers / PER_S[task]

    one, rest = np.arange(p) == 0, np.arange(p) > 0
    expected = {
        "direct": (
            s("compress", 1, n) * np.ones(p),
            None,
            (s("decompress", 1, n) + s("sum", p - 1, (p - 1) * n)) * np.ones(p),
        ),
        "ps-spread": (
            s("compress", p - 1, (p - 1) * m) * np.ones(p),
            (s("sum", p - 1, (p - 1) * m) + s("compress", 1, m)) * np.ones(p),
            s("decompress", p, p * m) * np.ones(p),
        ),
        "ps": (
            s("compress", 1, n) * rest,
            (s("sum", p - 1, (p - 1) * n) + s("compress", 1, n)) * one,
            s("decompress", 1, n) * np.ones(p),
        ),
    }[gradient_sync]
    model = model_on(written(tmp_path, rows()))
    for work, expected_s in zip((total.before, total.middle, total.after), expected, strict=True):
        assert (work is None) == (expected_s is None)
        if work is not None:
            np.testing.assert_allclose(codec_s(model, kind, GRADIENTS, devices, work), expected_s, rtol=1e-9)


def test_other_types_places_and_tasks_stay_with_the_roofline(tmp_path):
    bare, measured = model_on(written(tmp_path, [], "bare")), model_on(written(tmp_path, rows(tasks=["compress"])))
    devices = np.arange(4)
    for text, place, same in (
        ("linear", GRADIENTS, True),
        ("dynamic-tree", ACTIVATIONS, True),
        ("dynamic-tree", GRADIENTS, False),
    ):
        kind = compression(text)
        before, after = (
            compressed_all_reduce(kind, "direct", 1000, 4).before,
            compressed_all_reduce(kind, "direct", 1000, 4).after,
        )
        streamed, found = (codec_s(model, kind, place, devices, before) for model in (bare, measured))
        assert np.allclose(streamed, found) == same
        decoded = [codec_s(model, kind, place, devices, after) for model in (bare, measured)]
        np.testing.assert_array_equal(*decoded)


def test_plans_know_that_speeds_have_changed(tmp_path):
    digests = {
        model_on(written(tmp_path, measured, name)).compute_times.digest
        for name, measured in (("a", []), ("b", rows()), ("c", rows(tasks=["compress"])))
    }
    assert len(digests) == 3


def change(key, value):
    def changed(section):
        section["rows"][0][key] = value

    return changed


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (change("elements_per_s", 0.0), "compression.rows.0.elements_per_s: "),
        (change("elements_per_s", float("inf")), "compression.rows.0.elements_per_s: "),
        (change("fixed_us", -1.0), "compression.rows.0.fixed_us: "),
        (change("fixed_us", float("nan")), "compression.rows.0.fixed_us: "),
        (change("spread", -0.1), "compression.rows.0.spread: "),
        (change("task", "encode"), "compression.rows.0.task: "),
        (change("place", "weights"), "compression.rows.0.place: "),
        (change("elements", []), "compression.rows.0.elements: "),
        (change("median_ms", [1.0]), "needs a median_ms for each of its 3 sizes"),
        (change("median_ms", [1.0, 2.0, 0.0]), "compression.rows.0.median_ms.2: "),
        (change("faster", 1), "compression.rows.0.faster: "),
        (change("task", "decompress"), "dynamic-tree, gradients, decompress is there twice"),
        (lambda section: section.pop("device"), "compression.device: "),
        (lambda section: section.update(rows=[]), "compression.rows: "),
    ],
)
def test_bad_rows_are_refused_on_one_line(tmp_path, spoil, reason):
    path = written(tmp_path, rows())
    content = yaml.safe_load(path.read_text())
    spoil(content["compression"])
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError) as caught:
        load_profile(str(path))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("dynamic-tre", "did you mean 'dynamic-tree'"),
        ("linear:normalised=1", "type must be 'linear', got 'linear:normalised=1'"),
    ],
)
def test_types_that_nothing_would_find_are_refused(tmp_path, kind, reason):
    path = written(tmp_path, rows(kind))
    with pytest.raises(ConfigError, match=rf"compute profile mine: compression: .*{reason}"):
        model_on(path)


def test_every_type_is_measured_where_it_is_used():
    assert {*ALL_TYPES, "float32"} == set(COMPRESSIONS)
    found = CodecProbe(ALL_TYPES, Ticking(), [64, 1000])
    found.warm_up()
    found.sample()
    found.sample()
    places = {(row.type, row.place): set() for row in found.rows()}
    for row in found.rows():
        places[row.type, row.place].add((row.task, row.elements))
        assert row.samples.seconds == (1.0, 1.0)
    assert {key for key, place in places if place == ACTIVATIONS} == {
        name for name in ALL_TYPES if not compression(name).feedback
    }
    for (_, place), tasks in places.items():
        expected = FIXED_S if place == GRADIENTS else ("compress", "decompress")
        assert tasks == {(task, count) for task in expected for count in (64, 1000)}
    joined = over_ranks([found.rows(), found.rows()])
    assert joined == found.rows()


def test_times_are_those_of_the_work():
    """Sixteen times as many numbers take longer, and no time is nothing."""
    found = CodecProbe(["dynamic-tree"], CpuDevice(), [2**14, 2**20])
    found.warm_up()
    for _ in range(5):
        found.sample()
    for few, many in zip(found.rows()[:3], found.rows()[5:8], strict=True):
        assert (few.task, few.place) == (many.task, many.place)
        assert 0 < min(few.samples.seconds) < min(many.samples.seconds)


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("warm_ranks")
def test_processes_measure_the_types_that_are_asked_for(tmp_path):
    settings = ProbeSettings(
        batch=4, processes=2, strategies=("data",), repetitions=2, codecs=("linear:block=64", "one-bit")
    )
    found = probe(["lenet5"], settings, out=tmp_path / "here")
    cluster = load_cluster(str(found.cluster_file))
    speeds = load_profile(cluster.devices[0].profile).codecs
    assert {(kind, place) for kind, place, _ in speeds} == {
        ("linear:block=64", GRADIENTS),
        ("linear:block=64", ACTIVATIONS),
        ("one-bit", GRADIENTS),
    }
    model = CostModel(load_model("lenet5", batch=4), cluster)
    work = compressed_all_reduce(compression("one-bit"), "direct", 500, 2).before
    speed = speeds["one-bit", GRADIENTS, "compress"]
    expected_s = speed.fixed_s + 500 / speed.elements_per_s
    assert codec_s(model, compression("one-bit"), GRADIENTS, np.arange(2), work) == pytest.approx([expected_s] * 2)


def test_an_unknown_type_is_refused_before_anything_is_measured(capsys, tmp_path):
    words = ["probe", "lenet5", "--batch", "4", "--processes", "2", "--out", str(tmp_path / "out")]
    assert run_app(app, [*words, "--codecs", "dynamic-tre"]) == 2
    assert "did you mean 'dynamic-tree'" in capsys.readouterr().err


def test_a_speed_prices_messages_and_numbers():
    speed = CodecSpeed(fixed_s=2.0, elements_per_s=10.0)
    np.testing.assert_array_equal(speed.time_s(np.array([0, 1, 3]), np.array([0, 5, 40])), [0, 2.5, 10])
