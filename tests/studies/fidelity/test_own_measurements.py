"""Our own rows of an H200: each is judged once, at its measured time, by the price of the order that is priced."""

import statistics

import pytest

from hwprofiles.measured.measured_tables import measured_table
from studies.calibrate.kernel_tables import table_kernels
from studies.fidelity import own_measurements
from studies.fidelity.device_names import rows_of_table
from studies.fidelity.judged_row import OwnMeasure
from studies.fidelity.own_measurements import own_kernel_rows, own_training_rows

PHASES = ["fwd_us", "bwd_data_us", "bwd_weight_us"]


@pytest.fixture(scope="module")
def rows():
    return list(own_kernel_rows())


@pytest.fixture(scope="module")
def language_rows():
    """Steps of one sequence, and one that was compiled, as they are planned; the others would take as long again."""

    def asked(name):
        found = [row for row in rows_of_table(name) if name == "h200_language_models"]
        found = [row for row in found if row.batch == 1 or (row.model == "llama-1b" and row.mode == "compile")]
        return [row for row in found if row.model == "llama-1b" or row.mode != "compile"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_measurements, "rows_of_table", asked)
        return list(own_training_rows())


def seconds(rows, *measures):
    return sorted(row.measured for row in rows if row.measure in measures)


def test_every_measured_kernel_is_judged_once(rows):
    convolutions = measured_table("h200_convolutions")[PHASES].to_numpy().ravel()
    both = (OwnMeasure.CONVOLUTIONS, OwnMeasure.COPIED_CONVOLUTIONS)
    assert seconds(rows, *both) == pytest.approx(sorted(convolutions * 1e-6))
    for measure, name in ((OwnMeasure.PRODUCTS, "h200_products"), (OwnMeasure.ELEMENTWISE, "h200_elementwise")):
        assert seconds(rows, measure) == pytest.approx(sorted(measured_table(name).time_us * 1e-6))
    assert all(row.is_predicted for row in rows if row.measure in (*both, OwnMeasure.PRODUCTS, OwnMeasure.ELEMENTWISE))


def test_copies_and_sums_in_float32_are_predicted_from_those_in_bfloat16(rows):
    """Sizes from 16 KiB to 1 GiB, one arithmetic judges the fit to the other: launch and bandwidth are the device's."""
    others = [row for row in rows if row.measure == OwnMeasure.ELEMENTWISE and not row.fitted]
    assert {row.comparison.split(", ")[-1] for row in others} == {"float32"}
    assert statistics.median(abs(row.error) for row in others) < 0.08


def test_profiles_are_fitted_to_the_order_of_channels_that_they_are_judged_by(rows):
    """Channels last in tensor cores, first in float32: the rows that calibration reads are those of the measure."""
    read = table_kernels(measured_table("h200_convolutions"), "h200_convolutions")
    assert seconds(rows, OwnMeasure.CONVOLUTIONS) == pytest.approx(sorted(kernel.time_s for kernel in read))
    assert {
        row.comparison.split(", ")[-2:] == ["float32", "NCHW"]
        for row in rows
        if row.measure == OwnMeasure.CONVOLUTIONS and "float32" in row.comparison
    } == {True}


def test_every_step_is_predicted_and_none_was_fitted_to(monkeypatch):
    monkeypatch.setattr(own_measurements, "_planned_s", lambda *_, **__: 1.0)
    steps = list(own_training_rows())
    assert len(steps) == len(measured_table("h200_networks")) + len(measured_table("h200_language_models"))
    assert all(row.is_predicted and not row.fitted for row in steps)


def test_steps_of_llama_take_what_was_measured(language_rows):
    """One by one, compiled and in a graph, of 512 to 8,192 tokens: of what was measured on the device only launches."""
    errors = [abs(row.error) for row in language_rows if row.subject == "llama-1b"]
    assert len(errors) == 5
    assert statistics.median(errors) < 0.08


def test_a_host_bounds_small_steps_unless_their_graph_was_recorded(language_rows):
    """Eager steps of one sequence of GPT-2 take twice as long as in a graph: the host launches, the device waits."""
    eager, graph = (
        next(row for row in language_rows if row.comparison == f"gpt2, h200, bfloat16, {mode}" and row.size == 1)
        for mode in ("eager", "graph")
    )
    assert eager.measured > 1.9 * graph.measured
    assert eager.predicted > 1.9 * graph.predicted
