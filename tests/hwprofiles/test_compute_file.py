"""Profile files: the catalogue, the rows of Table 4, and every refusal in one line."""

import math

import pytest
import yaml

from groundwork.errors import ConfigError
from groundwork.input_files import yaml_input
from hwprofiles.compute.profile_file import catalogue, load_profile, profile_names
from hwprofiles.compute.profile_summary import describe_profile

# Dettmers, ICLR 2016, Table 4, baseline milliseconds: forward, activation gradient, weight gradient.
TABLE_4 = {
    "conv1": (4, 1, 3.5),
    "conv2": (10, 11, 11),
    "conv3": (5, 6, 5),
    "conv4": (6.5, 5.5, 6.5),
    "conv5": (4, 4, 5),
    "fc1": (1.3, 1.3, 1.5),
    "fc2": (0.45, 0.45, 0.5),
    "fc3": (0.4, 0.4, 0.2),
}


def p100() -> dict:
    return yaml_input(catalogue()["p100"], "profile")


def write(tmp_path, data) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(data if isinstance(data, str) else yaml.dump(data, Dumper=yaml.CSafeDumper))
    return str(path)


def test_the_catalogue_holds_the_papers_and_todays_devices():
    assert profile_names() == sorted(
        [
            "a100-40gb",
            "a100-80gb",
            "b200",
            "cpu-core",
            "gtx-1080",
            "gtx-1080-cudnn6",
            "gtx-1080ti",
            "gtx-titan",
            "h100-80gb",
            "h200",
            "k80",
            "m40",
            "m60",
            "p100",
            "rtx-2070-max-q",
            "rtx-2080-max-q",
            "rtx-2080-super-max-q",
            "rtx-2080ti",
            "rtx-3080",
            "rtx-3090",
            "rtx-8000",
            "rtx-a6000",
            "t4",
            "titanx",
            "titanx-cudnn6",
            "titanx-nervana",
            "titanx-pascal",
            "titanx-pascal-cudnn6",
            "titanxp",
            "v100-16gb",
            "v100-32gb",
        ]
    )


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_names_sources_and_arithmetic(name):
    profile = load_profile(name)

    assert profile.name == name
    assert all(profile.sources)
    assert profile.arithmetic == "float32"
    assert catalogue()[name].read_text().startswith("#"), "a profile opens with how its numbers were obtained"


@pytest.mark.parametrize("layer", TABLE_4)
def test_measured_rows_are_table_4(layer):
    profile = load_profile("titanx-nervana")

    for phase, printed_ms in zip(("forward", "activation_gradient", "weight_gradient"), TABLE_4[layer], strict=True):
        row = profile.measured("alexnet-3072", layer, phase)
        assert row is not None
        assert (row.batch, row.time_s) == (128, pytest.approx(printed_ms / 1e3))
    assert profile.measured("alexnet-3072", layer, "update") is None
    assert profile.measured("alexnet", layer, "forward") is None


def test_fully_connected_rows_add_up_to_the_printed_total():
    times = [
        load_profile("titanx-nervana").measured("alexnet-3072", f"fc{i}", p).time_s
        for i in (1, 2, 3)
        for p in ("forward", "activation_gradient", "weight_gradient")
    ]

    assert math.fsum(times) == pytest.approx(6.5e-3)


def test_a_file_is_read_in_si(tmp_path):
    profile = load_profile(write(tmp_path, p100() | {"memory_gib": 2, "launch_overhead_us": 3, "sustained_clock": 1.0}))

    assert (profile.name, profile.memory_bytes, profile.launch_overhead_s) == ("mine", 2 * 2**30, pytest.approx(3e-6))
    assert (profile.peak_flop_per_s, profile.memory_bytes_per_s) == (pytest.approx(10.6e12), pytest.approx(732e9))


def test_cards_may_run_above_the_boost_clock_of_their_data_sheet(tmp_path):
    """Up to twice, where power allows; short runs of single kernels are priced at the boost clock."""
    profile = load_profile(write(tmp_path, p100() | {"sustained_clock": 1.25}))
    assert profile.peak_flop_per_s == pytest.approx(1.25 * 10.6e12)
    assert profile.for_single_kernels().peak_flop_per_s == pytest.approx(10.6e12)
    with pytest.raises(ConfigError, match=r"sustained_clock: must be .*2, got 2\.5"):
        load_profile(write(tmp_path, p100() | {"sustained_clock": 2.5}))


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError, match="unknown compute profile 'p10'; did you mean 'p100'"):
        load_profile("p10")
    with pytest.raises(ConfigError, match="unknown compute profile 'zzz'; known: a100-40gb, "):
        load_profile("zzz")


RATES = ["peak_tflop_per_s", "memory_bandwidth_gbyte_per_s", "memory_gib", "launch_overhead_us"]


@pytest.mark.parametrize("value", [0, -1.5, math.nan, math.inf, -math.inf, 1e308, True, "fast", None])
@pytest.mark.parametrize("key", RATES)
def test_sizes_and_rates_are_finite_and_positive(tmp_path, key, value):
    with pytest.raises(ConfigError, match=f"{key}: must be .*, got ") as caught:
        load_profile(write(tmp_path, p100() | {key: value}))
    assert "\n" not in str(caught.value)


def test_all_errors_come_in_one_line_with_their_paths(tmp_path):
    data = p100() | {"memory_gb": 16, "multiprocessors": 0}
    data["efficiency"]["ceiling"]["forward"] = 1.2
    data["measured"] = [{"model": "m", "layer": "l", "batch": 0}]
    del data["sources"]

    with pytest.raises(ConfigError) as caught:
        load_profile(write(tmp_path, data))
    message = str(caught.value)
    assert "\n" not in message
    for path in ("memory_gb: ", "multiprocessors: ", "efficiency.ceiling.forward: ", "measured.0.batch: ", "sources: "):
        assert path in message


@pytest.mark.parametrize("text", ["", "[1, 2]", "a: [", "p100"])
def test_what_is_no_profile_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match=r"compute profile .*mine\.yaml(: | is not YAML)"):
        load_profile(write(tmp_path, text))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        load_profile(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("name", profile_names())
def test_a_summary_says_what_the_profile_says(name):
    """Peaks by arithmetic are those of the profiles without their sustained clock, errors those of the file."""
    summary = describe_profile(name)
    for arithmetic, peak_flop_per_s in summary.peak_flop_per_s.items():
        profile = load_profile(f"{name}@{arithmetic}")
        assert peak_flop_per_s * profile.sustained_clock == pytest.approx(profile.peak_flop_per_s, rel=1e-12)
    assert summary.memory_bytes == load_profile(name).memory_bytes
    errors = yaml_input(catalogue()[name], "profile").get("fit", {}).get("errors", {})
    assert {each.kind: (each.rows, each.median, each.p90) for each in summary.errors} == {
        kind: (each["rows"], each["median"], each["p90"]) for kind, each in errors.items()
    }
    assert summary.rows == sum(each["rows"] for each in errors.values())
