"""Calibration: known parameters are found again, held-out errors are honest, and unfit input is refused."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml

from groundwork.errors import ConfigError
from groundwork.input_files import yaml_input
from hwprofiles.compute.fused_kernels import FUSED_PHASES
from hwprofiles.compute.kernels import ConvolutionWindow
from hwprofiles.compute.profile_file import ProfileFile, catalogue, load_profile
from hwprofiles.measured.measured_tables import measured_table
from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from studies.calibrate.calibration import calibrated
from studies.calibrate.cross_validation import cross_validated, summary
from studies.calibrate.device_sheets import base_content, device_labels, device_names
from studies.calibrate.fitted_parameters import fit_convolutions, fit_products
from studies.calibrate.kernel_tables import table_kernels
from studies.calibrate.measured_kernels import KernelGroup, MeasuredKernel, grouped, log_errors
from studies.calibrate.measurements import read_measurements
from studies.calibrate.network_tables import fit_networks, iteration_s, table_networks
from studies.calibrate.smooth_corrections import with_table

RNG = np.random.default_rng(3)


def product(m, n, k, time_s=1.0, phase="forward"):
    return MeasuredKernel(
        phase=phase,
        rows=m,
        columns=n,
        depth=k,
        samples=n,
        memory_bytes=4.0 * (m * n + n * k + m * k),
        time_s=time_s,
        family=f"{m}x{k}",
        source="test",
    )


def made_products(profile, count=60, noise=0.0):
    """Products that take what a profile says, times log-normal noise."""
    sizes = np.round(2 ** RNG.uniform(4, 13, (count, 3))).astype(int).tolist()
    rows = [
        product(*size, phase=("forward", "activation_gradient", "weight_gradient")[i % 3])
        for i, size in enumerate(sizes)
    ]
    times = {id(row): profile.time_s(grouped([row])[0].kernels, phase=row.phase)[0] for row in rows}
    return [replace(row, time_s=float(times[id(row)] * np.exp(noise * RNG.standard_normal()))) for row in rows]


def test_known_parameters_are_found_again():
    base = replace(load_profile("p100").for_single_kernels(), table=None)
    truth = replace(base, efficiency=replace(base.efficiency, ceiling=(0.7, 0.8, 0.6, 1.0, 1.0), half_columns=60.0))
    fitted = fit_products(base, grouped(made_products(truth, 150, noise=0.02))).profile

    assert fitted.efficiency.ceiling[:3] == pytest.approx((0.7, 0.8, 0.6), rel=0.05)
    assert fitted.efficiency.half_columns == pytest.approx(60, rel=0.25)


def test_a_share_at_its_bound_is_determined():
    """Where products reach the peak the ceiling ends at 1, and does not fall back to its prior."""
    base = replace(load_profile("p100").for_single_kernels(), table=None)
    truth = replace(
        base,
        peak_flop_per_s=1.1 * base.peak_flop_per_s,
        efficiency=replace(base.efficiency, ceiling=(1.0,) * 5, half_columns=2.0),
    )
    fitted = fit_products(base, grouped(made_products(truth, 150)))

    assert fitted.profile.efficiency.ceiling[0] == pytest.approx(1.0, abs=1e-3)
    assert "efficiency.ceiling.forward" not in fitted.at_prior


def test_what_no_row_determines_stays_at_its_prior_and_is_named():
    """Large products alone say nothing of launches; without gradients nothing of theirs."""
    rows = [product(4096 * i, 8192, 4096 * j, time_s=3.6e-2 * i * j) for i in (1, 2, 3) for j in (1, 2, 3)]
    fitted = fit_products(load_profile("p100").for_single_kernels(), grouped(rows))

    assert "efficiency.launch_overhead_us" in fitted.at_prior
    assert "efficiency.ceiling.weight_gradient" in fitted.at_prior
    assert "efficiency.ceiling.forward" not in fitted.at_prior
    assert fitted.profile.launch_overhead_s == pytest.approx(6e-6)


def test_families_are_held_out_whole():
    """A model that remembers rows is perfect on them, and wrong on every family that it did not see."""
    rows = grouped([product(m, n, 64, time_s=1.0) for m in (64, 128, 256, 512) for n in (8, 16)])
    seen: list[set[str]] = []

    def fit(groups):
        seen.append({family for group in groups for family in group.families})
        return load_profile("p100")

    logs = cross_validated(rows, fit)
    assert [len(families) for families in seen] == [3, 3, 3, 3]
    assert len(logs["product"]) == 8
    assert summary(np.log([1.1, 0.9, 1.2])).median == pytest.approx(0.1)


def test_corrections_bring_measured_kernels_near_without_touching_the_formula():
    profile = replace(load_profile("p100").for_single_kernels(), table=None)
    rows = grouped([replace(row, time_s=row.time_s * 1.2) for row in made_products(profile, 60)])
    corrected = with_table(profile, rows)

    assert np.median(np.abs(log_errors(profile, rows))) > 0.1
    assert np.median(np.abs(log_errors(corrected, rows))) < 0.05
    assert corrected.efficiency == profile.efficiency


def test_deepbench_is_read_as_the_products_that_implement_it():
    """The table's own FLOP count checks windows, strides and padding; a transposed operand tells the phase."""
    table = measured_table("deepbench_conv").query("gpu == 'P100'")
    kernels = [row for row in table_kernels(table, "deepbench_conv") if row.phase == "forward"]
    flop = np.array([2.0 * row.rows * row.columns * row.depth for row in kernels])
    assert flop == pytest.approx((table.fwd_tflops * table.fwd_ms * 1e9).to_numpy(), rel=0.02)
    assert ConvolutionWindow(positions=9, winograd=True) in {row.window for row in kernels}

    products = pd.DataFrame(
        {
            "m": [5] * 3,
            "n": [6] * 3,
            "k": [7] * 3,
            "a_trans": list("TNN"),
            "b_trans": list("NNT"),
            "time_ms": [1.0, 2.0, 3.0],
        }
    )
    phases = [(row.phase, row.time_s) for row in table_kernels(products, "t")]
    assert phases == [("forward", 1e-3), ("activation_gradient", 2e-3), ("weight_gradient", 3e-3)]


@pytest.mark.parametrize("name", ["rtx-3090@float16"])
def test_host_time_and_clock_are_found_again(name):
    """Also where kernels of float32, at their own clock, bound those of another arithmetic."""
    profile = load_profile(name).for_single_kernels()
    truth = replace(profile, peak_flop_per_s=profile.peak_flop_per_s * 0.8, sustained_clock=0.8, dispatch_s=2e-4)
    table = pd.DataFrame({"model": ["resnet50"] * 4 + ["vgg16"] * 4, "batch": [1, 2, 64, 256, 64, 128, 256, 512]})
    table["images_per_sec"] = [b / iteration_s(truth, m, b) for m, b in zip(table.model, table.batch, strict=True)]
    fitted = fit_networks(profile, table_networks(table, "t"), kernels=True)

    assert fitted.sustained_clock == pytest.approx(0.8, rel=0.06)
    assert fitted.dispatch_s == pytest.approx(2e-4, rel=0.15)


@pytest.mark.parametrize("name", ["p100", "h200", "gtx-1080"])
def test_every_device_has_a_profile_before_any_row(name):
    content = base_content(name)

    assert ProfileFile.model_validate(content).profile(name).convolution is not None
    assert content["fit"]["transferred_from"] != name
    assert set(device_names()) <= {*device_names(), name}


def test_a_newer_library_lends_its_convolutions_and_nothing_else():
    own, other, newer = (base_content(name) for name in ("titanx", "gtx-1080ti", "titanx-cudnn6"))
    lent = yaml_input(catalogue()["gtx-1080ti"], "profile")["convolution"]
    assert {key: newer["convolution"][key] for key in ("ceiling", "winograd")} == {
        key: lent[key] for key in ("ceiling", "winograd")
    }
    forward = newer["convolution"]["half_sizes"]["forward"]["output_elements"]
    assert forward == pytest.approx(lent["half_sizes"]["forward"]["output_elements"] * 24 / 28, abs=0.1)
    assert newer["peak_tflop_per_s"] == own["peak_tflop_per_s"] != other["peak_tflop_per_s"]


@pytest.mark.parametrize("name", ["titanx-pascal-cudnn6", "gtx-1080-cudnn6"])
def test_profiles_say_whose_convolutions_they_have(name):
    """Those that ship, and those that a calibration begins with and writes."""
    shipped = yaml_input(catalogue()[name], "profile")
    base = base_content(name)
    assert base["fit"]["transferred_from"] == shipped["fit"]["transferred_from"] == "gtx-1080ti"
    rows = made_products(replace(load_profile("p100").for_single_kernels(), table=None), 12, noise=0.03)
    assert calibrated(rows, [], base).content["fit"]["transferred_from"] == "gtx-1080ti"


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_profiles_that_were_fitted_to_measured_rows_have_their_errors(name):
    content = yaml_input(catalogue()[name], "profile")
    fit = content.get("fit", {"method": "none", "errors": {}})
    fitted = any("hwprofiles/measured/" in source for source in content["sources"])
    assert bool(fit["errors"]) == fitted
    assert fit["method"].startswith("none") != fitted


@pytest.mark.parametrize(("name", "relative"), [("titanx-cudnn6", "titanx"), ("titanx-pascal-cudnn6", "titanx-pascal")])
def test_convolutions_of_an_older_library_are_refused(name, relative, tmp_path, capsys):
    """DeepBench measured both cards with cuDNN 5, under the label that the sheet has for their products."""
    out = tmp_path / "mine.yaml"
    assert run_app(app, ["calibrate", "deepbench_conv", "--device", name, "--out", str(out)]) == 2
    said = capsys.readouterr().err.strip()
    assert re.search(rf"left out for {name}, .* got 1\d\d; --device {relative} takes them", said)
    assert "\n" not in said
    assert not out.exists()
    assert len(read_measurements(["deepbench_gemm"], name).kernels) > 80


@pytest.mark.parametrize("name", ["a100-40gb", "h100-80gb", "v100-16gb", "rtx-3090"])
def test_tensor_cores_load_sixteen_bytes_of_channels(name):
    """Half precision of either kind has the same kernels, and eight bits those of half precision."""
    file = ProfileFile.model_validate(base_content(name))
    for precision in file.precisions:
        profile = file.profile(name, precision)
        assert profile.tiles.channel_multiple * profile.element_bytes == 16


def test_twice_the_float32_units_reach_a_smaller_share_of_their_peak():
    """Four networks on cards of Ampere, with 128 in a multiprocessor, over those on cards of Turing, with 64."""
    table, means = measured_table("tf_cnn_single_gpu").query("precision == 'fp32'"), []
    for names in (["rtx-3080", "rtx-3090", "rtx-a6000"], ["rtx-2080ti", "rtx-8000"]):
        peaks = {device_labels(name)[1]: base_content(name)["peak_tflop_per_s"] for name in names}
        mine = table[table.config.isin(peaks)]
        shares = mine.images_per_sec.astype(float) / mine.config.map(peaks)
        means.append(shares.groupby(mine.model).mean())
    assert (means[0] / means[1]).to_numpy() == pytest.approx(0.65, abs=0.035)
    theirs, ours = (base_content(name) for name in ("a100-40gb", "h100-80gb"))
    assert ours["convolution"]["ceiling"] == pytest.approx(
        {phase: 0.65 * value for phase, value in theirs["convolution"]["ceiling"].items()}, abs=1e-4
    )


def test_the_same_multiprocessors_have_the_products_that_were_measured():
    """H100 as H200, in float32 and float64: large products of either reach what the table of the other has."""
    table = measured_table("h200_products").query("n == 4096 and k == 4096")
    for precision in ("float32", "float64"):
        (kernel,) = table_kernels(table[table.precision == precision], "h200_products")
        (group,) = grouped([kernel])
        for name in ("h100-80gb", "h200"):
            profile = load_profile(f"{name}@{precision}").for_single_kernels()
            assert profile.time_s(group.kernels) == pytest.approx(kernel.time_s, rel=0.03)


def test_products_of_float64_are_fitted_apart_and_leave_the_launch_as_it_was():
    """A file has one overhead of a launch, that of bfloat16 where tensor cores have it."""
    base = base_content("h200")
    rows = {}
    for name in ("float32", "float64"):
        truth = replace(load_profile(f"h200@{name}").for_single_kernels(), table=None)
        truth = replace(truth, efficiency=replace(truth.efficiency, ceiling=(0.5,) * 5))
        rows[name] = [replace(row, precision=name) for row in made_products(truth, 30)]
    content = calibrated([*rows["float32"], *rows["float64"]], [], base).content
    assert content["launch_overhead_us"] == base["launch_overhead_us"]
    assert content["float64"]["peak_tflop_per_s"] == base["float64"]["peak_tflop_per_s"]
    for name, several in rows.items():
        profile = ProfileFile.model_validate(content).profile("mine", name).for_single_kernels()
        assert np.median(np.abs(log_errors(profile, grouped(several)))) < 0.1
    windowed = replace(rows["float64"][0], window=ConvolutionWindow(positions=9))
    with pytest.raises(ConfigError, match="rows of float64 must be matrix products"):
        calibrated([windowed], [], base)


def test_tiles_that_rows_were_made_by_are_found_again():
    """Convolutions of DeepBench in another device's tiles: the fit follows the rows, and padding stays."""
    truth = replace(load_profile("a100-40gb@float16").for_single_kernels(), table=None, in_float32=None)
    truth = replace(truth, tiles=replace(truth.tiles, ceiling=0.7, unaligned=(2.0, 2.0, 6.0), narrow_window=1.3))
    table = measured_table("h200_convolutions").query("precision == 'float16'")
    groups = [
        KernelGroup(each.phase, each.kernels, truth.time_s(each.kernels, phase=each.phase), each.families)
        for each in grouped(table_kernels(table, "h200_convolutions"))[::2]
    ]
    other = replace(truth.tiles, ceiling=0.9, load=(30.0,) * 3, unaligned=(1.0,) * 3, prologue=500.0)
    fitted = fit_convolutions(replace(truth, tiles=other), groups).profile
    assert np.quantile(np.abs(log_errors(fitted, groups)), 0.9) < 0.1
    assert fitted.tiles.unaligned == pytest.approx((2.0, 2.0, 6.0), rel=0.2)
    assert fitted.tiles.channel_multiple == 8


RTX = (
    "rtx-2070-max-q",
    "rtx-2080-max-q",
    "rtx-2080-super-max-q",
    "rtx-2080ti",
    "rtx-3080",
    "rtx-3090",
    "rtx-8000",
    "rtx-a6000",
)


@pytest.mark.parametrize("name", RTX)
def test_data_sheets_of_rtx_cards_agree_with_their_cores_and_clocks(name):
    """A multiprocessor of Turing has 64 float32 units and 512 of tensor cores in half precision, one of GA102 twice
    as many float32 units; tensor cores of GeForce cards sum in float32 at half that rate, and take TF32 at half."""
    content = base_content(name)
    ampere = "tf32" in content["precisions"]
    found = re.search(r"(\d+) cores, ([\d.]+) GHz", content["sources"][0])
    units = content["multiprocessors"] * (128 if ampere else 64)
    if found:
        assert int(found[1]) == units
        assert content["peak_tflop_per_s"] == pytest.approx(2e-3 * units * float(found[2]), rel=2e-3)
    rate = {"rtx-8000": 8, "rtx-a6000": 4}.get(name, 2 if ampere else 4)  # over that of the float32 units
    peaks = {key: entry["peak_tflop_per_s"] for key, entry in content["precisions"].items()}
    assert peaks["float16"] == pytest.approx(rate * content["peak_tflop_per_s"], rel=5e-3)
    if ampere:
        assert (peaks["bfloat16"], 2 * peaks["tf32"]) == pytest.approx((peaks["float16"],) * 2, rel=3e-3)
        assert content["precisions"]["tf32"]["element_bytes"] == 4


def test_slower_tensor_cores_reach_a_greater_share_of_their_peak():
    """At half of V100's products a clock loads take half as long beside them."""
    theirs = yaml_input(catalogue()["v100-32gb"], "profile")["precisions"]["float16"]["tiles"]
    ours = base_content("rtx-3090")["precisions"]["float16"]["tiles"]
    assert leaves(ours["load"]) == pytest.approx(
        {key: load / 2 for key, load in leaves(theirs["load"]).items()}, rel=1e-3
    )
    assert ours["ceiling"] == theirs["ceiling"]


@pytest.mark.parametrize("faster", [1.1, 1.8])
def test_a_card_that_is_faster_than_its_relative_may_exceed_its_boost_clock(faster):
    """Convolutions reach the whole peak at most; what is left is a clock above the boost clock."""
    base = base_content("rtx-2080ti")
    truth = ProfileFile.model_validate(base | {"sustained_clock": 1.0}).profile("truth")
    truth = replace(truth, peak_flop_per_s=truth.peak_flop_per_s * faster)
    table = pd.DataFrame({"model": ["resnet50", "vgg16", "alexnet"], "batch": [64, 64, 512]})
    table["images_per_sec"] = [b / iteration_s(truth, m, b) for m, b in zip(table.model, table.batch, strict=True)]
    content = calibrated([], table_networks(table, "t"), base).content
    fitted = ProfileFile.model_validate(content).profile("fitted")

    assert max(fitted.convolution.ceiling) <= 1
    assert (fitted.sustained_clock > 1) == (faster > 1.5)
    for model, batch in zip(table.model, table.batch, strict=True):
        assert iteration_s(fitted, model, batch) == pytest.approx(iteration_s(truth, model, batch), rel=0.03)


def test_the_command_makes_the_profile_that_ships():
    """Section by section, as the file says of itself."""
    shipped = yaml_input(catalogue()["rtx-3090"], "profile")
    measured = read_measurements([shipped["sources"][-1].rpartition("/")[2].removesuffix(".csv")], "rtx-3090")
    made = calibrated((), measured.networks, base_content("rtx-3090"), sources=shipped["sources"][-1:]).content
    assert made.keys() == shipped.keys()
    assert leaves(made) == pytest.approx(leaves(shipped), rel=2e-3, abs=2e-3)


def leaves(content, path=""):
    """The numbers of a profile file by their paths."""
    items = content.items() if isinstance(content, dict) else enumerate(content)
    found = {}
    for key, value in items:
        if isinstance(value, (dict, list)):
            found |= leaves(value, f"{path}{key}.")
        elif isinstance(value, (int, float)):
            found[f"{path}{key}"] = value
    return found


def test_the_content_is_a_profile_that_says_how_good_it_is():
    truth = replace(load_profile("p100").for_single_kernels(), table=None)
    result = calibrated(made_products(truth, 40, noise=0.03), [], base_content("p100"), sources=["test"])
    profile = ProfileFile.model_validate(result.content).profile("mine")

    assert result.errors["product"].rows == 40
    assert result.errors["product"].median < 0.15
    assert profile.table is not None
    assert result.content["fit"]["errors"]["product"]["rows"] == 40
    assert result.content["sources"][-1] == "test"


BAD = {
    "m,n,k,time_h\n1,2,3,4\n": "unknown unit of 'time_h'; known: s, ms, us, ns",
    "m,n,k,time_ms,time_us\n1,2,3,4,5\n": "mixes units: time_ms and time_us",
    "m,n,k\n1,2,3\n": "needs a column time_s, time_ms or time_us",
    "a,b\n1,2\n": "must hold convolutions or products: it needs the columns m, n, k",
    "m,n,k,time_ms\n1,2,x,4\n": "k must be a whole number in 1 .. 1000000000, got 'x' in row 1",
    "m,n,k,time_ms\n1,2,1e18,4\n": "k must be a whole number in 1 .. 1000000000, got '1e\\+18' in row 1",
    "m,n,k,time_ms\n16.0,2,3,4\n": "a fit of products needs at least 8 rows",
    "m,n,k,time_ms\n1,2,3,-4\n": "time_ms must be a number > 0, got -4 in row 1",
    "m,n,k,time_ms\n1,2,3,1e999\n": "time_ms must be a number > 0, got inf in row 1",
    "m,n,k,time_ms\n1,2,3,4\n": "a fit of products needs at least 8 rows of 3 different weights",
    "m,n,k,time_ms,precision\n1,2,3,4,fp12\n": "unknown precision 'fp12'",
    "m,n,k,time_ms,precision\n1,2,3,4,fp8\n": "rows of float8 need that arithmetic's peak",
    "m,n,k,time_ms,gpu\n1,2,3,4,A\n1,2,3,4,B\n": "no rows of p100 or P100 or .*; its devices: A, B; choose one by",
    "in_w,in_h,in_c,batch_n,out_k,filter_r_h,filter_s_w,pad_h,pad_w,stride_h,stride_w,fwd_ms\n"
    "28,3,8,4,16,9,5,1,0,1,1,2\n": "filters must be no larger than the padded image of 5 x 28, got 9 x 5",
    "model,batch,images_per_sec\nLeNet,1,2\n": "hold no kernel and no known network of p100",
}


@pytest.mark.parametrize("text", BAD)
def test_unfit_measurements_are_refused_in_one_line(tmp_path, text, capsys):
    """The exit code is 2, and a profile that is there stays as it is."""
    table, out = tmp_path / "rows.csv", tmp_path / "profile.yaml"
    table.write_text(text)
    out.write_text("mine")

    assert run_app(app, ["calibrate", str(table), "--device", "p100", "--out", str(out)]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert re.search(BAD[text], said), said
    assert out.read_text() == "mine"


def test_a_profile_is_fitted_by_the_command(tmp_path, capsys):
    out, table = tmp_path / "mine.yaml", measured_table("deepbench_gemm").query("gpu == 'T4'")
    path = tmp_path / "mine.csv"
    table.drop(columns=["gpu"]).to_csv(path, index=False)

    assert run_app(app, ["calibrate", str(path), "--device", "t4", "--out", str(out), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["errors"][0]["what"] == "product"
    assert values["errors"][0]["median"] < 0.15
    assert load_profile(str(out)).table is not None
    assert yaml.safe_load(out.read_text())["fit"]["at_prior"] == values["at_prior"]


def test_probe_output_is_read_as_products(tmp_path):
    layers = [
        {"model": "lenet5", "layers": ["conv2"], "part": [8, 50, 8, 8], "phase": phase, "median_s": 1e-3}
        for phase in ("forward", "update")
    ]
    path = tmp_path / "probe.json"
    path.write_text(json.dumps({"layers": layers}))
    (kernel,) = read_measurements([str(path)], "cpu-core").kernels

    assert (kernel.rows, kernel.columns, kernel.phase, kernel.time_s) == (50, 8 * 64, "forward", 1e-3)
    path.write_text(json.dumps({"layers": [{"model": "lenet5"}]}))
    with pytest.raises(ConfigError, match=r"layers\.0 must have model, layers, part, phase, median_s"):
        read_measurements([str(path)], "cpu-core")


def test_a_table_is_read_alike_by_name_and_by_path(tmp_path):
    """Also a copy of another name: MXNet's AlexNet is none of the catalogue's in either."""
    copy = tmp_path / "mine.csv"
    measured_table("mxnet_single_gpu").to_csv(copy, index=False)
    found = [read_measurements([name], "k80").networks for name in ("mxnet_single_gpu", str(copy))]

    assert found[0]
    assert [replace(row, source="") for row in found[0]] == [replace(row, source="") for row in found[1]]
    assert {row.model for row in found[0]} == {"inception-v3", "resnet50"}


@pytest.mark.parametrize("name", [name for name in device_names() if name in catalogue()])
def test_shipped_profiles_hold_what_their_relatives_lend_today(name):
    """What no row of a device determines is that of its relative as that ships, not as it once was."""
    shipped, base = yaml_input(catalogue()[name], "profile"), base_content(name)
    fitted = set(shipped["fit"]["errors"])
    for prefix, mine, lent in [
        ("", shipped, base),
        *((f"{kind} ", mine, base["precisions"][kind]) for kind, mine in shipped.get("precisions", {}).items()),
    ]:
        for section in ("convolution", "tiles"):
            if not fitted & {f"{prefix}convolution forward", f"{prefix}network"} and section in lent:
                assert leaves(mine[section]) == pytest.approx(leaves(lent[section]), rel=1e-3)
        if f"{prefix}network" not in fitted:
            assert mine.get("sustained_clock", 1.0) == lent.get("sustained_clock", 1.0)
        own = {
            (row["kind"], row["phase"])
            for row in mine.get("fused", ())
            if f"{prefix}{row['kind']} {row['phase']}" in fitted
        }
        own |= {("elementwise", phase) for kind, _ in own for phase in FUSED_PHASES if kind == "elementwise"}
        assert [row for row in mine.get("fused", ()) if (row["kind"], row["phase"]) not in own] == [
            row for row in lent.get("fused", ()) if (row["kind"], row["phase"]) not in own
        ]
