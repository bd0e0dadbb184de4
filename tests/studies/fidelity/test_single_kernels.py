"""Rows of DeepBench as layers: the sizes that the table states, and the prices of the public function."""

from dataclasses import replace

import numpy as np
import pytest

from hwprofiles.measured.measured_tables import measured_table
from planner.cost.compute_time import kernel_s
from studies.calibrate.kernel_tables import table_kernels
from studies.fidelity import single_kernels
from studies.fidelity.collective_times import collective_rows
from studies.fidelity.one_gpu_training import one_gpu_rows


@pytest.fixture(scope="module")
def priced():
    """All rows, and the layers that were priced for them."""
    layers = []

    def keep(profile, model, layer, phase, part):
        layers.append((layer, phase))
        return kernel_s(profile, model, layer, phase, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(single_kernels, "kernel_s", keep)
        rows = list(single_kernels.kernel_rows())
    return rows, layers


def test_every_measured_time_has_its_row(priced):
    rows, _ = priced
    convolutions, products = measured_table("deepbench_conv"), measured_table("deepbench_gemm")
    columns = ["fwd_ms", "bwd_data_ms", "bwd_weight_ms"]

    assert len(rows) == int((convolutions[columns] > 0).to_numpy().sum()) + len(products)
    measured_ms = [*convolutions[columns].to_numpy().ravel(), *products.time_ms]
    measured_ms = [value for value in measured_ms if value > 0]
    assert sorted(row.measured * 1e3 for row in rows) == pytest.approx(sorted(measured_ms))


def test_layers_do_the_work_that_the_table_states(priced):
    """The table gives TFLOP/s and ms; its own count has fractions of positions, so that it differs by up to 2 %."""
    rows, layers = priced
    kept = [row for row in rows if row.is_predicted]
    assert len(kept) == len(layers)
    convolutions = measured_table("deepbench_conv")
    stated = {
        (round(row.fwd_ms * 1e-3, 12), row.gpu): row.fwd_tflops * row.fwd_ms * 1e9 for row in convolutions.itertuples()
    }
    gpus = {"p100": "P100", "titanx": "TitanX", "v100-16gb": "V100"}
    checked = 0
    for row, (layer, phase) in zip(kept, layers, strict=True):
        key = (round(row.measured, 12), gpus.get(row.group))
        if phase == "forward" and key in stated and layer.operation.kind == "convolution":
            same_time = np.isclose(convolutions.fwd_ms * 1e-3, row.measured) & (convolutions.gpu == key[1])
            flops = (convolutions.fwd_tflops * convolutions.fwd_ms * 1e9)[same_time]
            assert any(layer.forward_flop() == pytest.approx(flop, rel=0.02) for flop in flops)
            checked += 1
    assert checked >= 150


def test_products_are_judged_as_the_kernels_that_profiles_are_fitted_to(priced):
    """Transposed operands are other kernels of the library: what calibration reads as a gradient is judged as one."""
    table = measured_table("deepbench_gemm")
    fitted = sorted((k.phase, k.rows, k.columns, k.depth) for k in table_kernels(table, "deepbench_gemm"))
    judged = []
    for layer, phase in priced[1]:
        if layer.operation.kind == "linear":
            part = {dim: np.array([n]) for dim, n in zip(layer.output.dims, layer.output.sizes, strict=True)}
            work = layer.kernels(phase, part)
            judged.append((phase, int(work.rows[0]), int(work.columns[0]), int(work.depth[0])))

    assert sorted(judged) == fitted
    assert {phase for phase, *_ in judged} == {"forward", "activation_gradient", "weight_gradient"}


def test_devices_and_systems_of_the_catalogue_have_predictions(priced):
    rows = [*priced[0], *one_gpu_rows("convnet_benchmarks_models")]

    assert {row.group for row in rows if row.is_predicted} >= {"p100", "titanx"}
    for system in ("h100_sxm", "polaris over slingshot"):
        assert next(row for row in collective_rows() if row.group == system).is_predicted


def test_rows_without_a_prediction_say_why(priced):
    with pytest.raises(ValueError, match=r"reason must say why .* has no prediction, got none"):
        replace(priced[0][0], predicted=np.nan)
