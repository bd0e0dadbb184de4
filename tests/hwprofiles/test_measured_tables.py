"""Tables of measurements: each says where it is from, and our own rows agree with one another and with physics."""

from pathlib import Path

import numpy as np
import pytest

import hwprofiles.measured.measured_tables as module
from hwprofiles.compute.profile_file import load_profile
from hwprofiles.measured.measured_tables import measured_table, measured_table_names

README = Path(module.__file__).with_name("README.md").read_text()
PARTS = [name for name in measured_table_names() if name.startswith("h200_")]


@pytest.mark.parametrize("name", measured_table_names())
def test_the_readme_says_where_a_table_is_from(name):
    family = name.partition("_benchmarks_")[0]
    assert f"`{name}.csv`" in README or f"`{family}_benchmarks_*.csv`" in README


@pytest.mark.parametrize("name", PARTS)
def test_our_own_rows_are_of_one_device_and_complete(name):
    table = measured_table(name)
    assert set(table.gpu) == {"H200"}
    assert not table.isna().any(axis=None)


def test_no_product_is_faster_than_the_data_sheet():
    table = measured_table("h200_products")
    for precision, rows in table.groupby("precision"):
        peak_flop_per_s = load_profile(f"h200@{precision}").for_single_kernels().peak_flop_per_s
        assert (2.0 * rows.m * rows.n * rows.k / (rows.time_us * 1e-6)).max() < peak_flop_per_s


@pytest.mark.parametrize("name", ["h200_networks", "h200_language_models"])
def test_steps_last_as_long_as_host_and_device_need(name):
    """Profiled apart, where kernels may be a few percent slower; a replay of a graph is one launch."""
    table = measured_table(name)
    busy = np.maximum(table.kernels_ms, table.host_ms)
    assert (table.step_ms > 0.94 * busy).all()
    assert (table.allocated_mib <= table.reserved_mib).all()
    assert (table.reserved_mib <= table.driver_mib).all()


def test_a_long_run_is_as_the_readme_says():
    """The energy is that of the power; the clock and a step's energy are those that the table of the README has."""
    table = measured_table("h200_sustained").query("time_s > 3")
    first, last = table.iloc[0], table.iloc[-1]
    energy_j, steps, seconds = (last[name] - first[name] for name in ("energy_j", "steps", "time_s"))

    assert energy_j == pytest.approx(table.power_w.mean() * seconds, rel=0.01)
    assert energy_j / steps == pytest.approx(103, abs=1)
    assert seconds / steps == pytest.approx(0.149, abs=0.001)
    assert table.clock_mhz.mean() / 1980 == pytest.approx(0.84, abs=0.006)
    assert "| energy of a step of that Llama, 149 ms | 103 J |" in README
    assert "0.84 of the boost clock" in README
