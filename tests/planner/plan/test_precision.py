"""Plans in half precision: bytes, memory and times follow, and master weights stay in single precision."""

import pytest
import yaml
from plans import star

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.profile_file import catalogue
from planner.cost.update_traffic import OPTIMIZERS
from planner.graph.type_roles import DataTypes
from planner.memory.memory_policy import MemoryPolicy
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.lowered_plan import cost_model_of, lower_plan
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan


def planned(dtype, **options):
    element_bytes = {"float16": 2, "bfloat16": 2}.get(dtype, 4)
    graph, cluster = load_model("vgg16", batch=64, element_bytes=element_bytes), load_cluster("abci-v100").take(4)
    plan = make_plan(graph, cluster, strategy="data", dtype=dtype, **options)
    return plan, lower_plan(plan, graph, cluster), cost_model_of(plan.request, graph, cluster)


def test_messages_halve_and_products_take_the_tensor_cores():
    # a library would choose other protocols for shorter messages, whose flags are bytes, too
    single, half = (planned(dtype, gradient_sync="ring", framework="ideal") for dtype in ("float32", "float16"))
    assert half[1].moved_bytes == single[1].moved_bytes / 2
    assert half[2].profiles[0].name == "v100-16gb@float16"
    assert half[0].simulated_s < single[0].simulated_s / 1.5


@pytest.mark.parametrize(
    ("cluster", "cores", "boost_ghz"), [("dgx-a100", 6912, 1.41), ("dgx-h100", 16896, 1.98), ("dgx-b200", 18944, 1.98)]
)
def test_float32_stays_outside_tensor_cores(cluster, cores, boost_ghz):
    """A core does one multiplication and one addition in a clock (CUDA C++ programming guide, arithmetic
    instructions); a backward pass takes twice the FLOP of the forward pass."""
    graph, device = load_model("bert-base:layers=2", batch=8), load_cluster(cluster).take(1)
    least_s = 3 * sum(layer.forward_flop() for layer in graph.layers) / (cores * 2 * boost_ghz * 1e9)
    single_s, rounded_s = (
        make_plan(graph, device, strategy="data", dtype=dtype).simulated_s for dtype in ("float32", "tf32")
    )
    (compared,) = compare(graph, device, ["data"]).strategies
    assert least_s < single_s == compared.simulated_s < 3 * least_s
    assert rounded_s < least_s


def test_a_cluster_that_says_another_arithmetic_is_refused():
    named = load_cluster("abci-v100:device.*.profile=v100-16gb@float16").take(1)
    graph = load_model("lenet5", batch=8)
    with pytest.raises(ConfigError, match="dtype must be float16, as the compute profile 'v100-16gb@float16' says"):
        make_plan(graph, named, strategy="data")


def test_an_update_moves_as_many_bytes():
    """Weights and gradients of two bytes, master weights and momentum of four: 20 bytes read and written in both."""
    single, half = (planned(dtype)[2] for dtype in ("float32", "float16"))
    for i, space in enumerate(model_space for model_space in single.all_configurations()):
        np_single, np_half = (model.compute_times.slowest_part_s(i, space)["update"] for model in (single, half))
        assert np_half == pytest.approx(np_single)


@pytest.mark.parametrize(("optimizer", "expected"), [("sgd", 8), ("momentum", 12), ("adam", 16)])
def test_a_parameter_takes_as_many_bytes_in_both_precisions(optimizer, expected):
    """Rajbhandari et al., "ZeRO", SC 2020, Sec. 3.1: 16 bytes with Adam in mixed precision, 2 + 2 + 12."""
    states = MemoryPolicy(optimizer=optimizer)
    assert set(OPTIMIZERS) == {"sgd", "momentum", "adam"}
    for dtype, size in (("float32", 4), ("float16", 2), ("bfloat16", 2), ("float8", 2)):
        assert sum(states.kept_bytes(DataTypes.of(dtype), divided=False)) + size == expected


def test_the_plan_keeps_its_type(tmp_path):
    plan, program, _ = planned("float16")
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan
    assert plan.request.dtype == "float16"
    assert program.graph.element_bytes == 2


def test_a_device_that_does_not_know_the_arithmetic_is_named():
    graph = load_model("lenet5", batch=8, element_bytes=2)
    with pytest.raises(ConfigError, match="knows no arithmetic 'bfloat16'; known: float32"):
        make_plan(graph, star(2), strategy="data", dtype="bfloat16")
    with pytest.raises(ConfigError, match="dtype must be of 2 bytes, as the elements of the graph, got 'tf32'"):
        make_plan(graph, star(2), strategy="data", dtype="tf32")


@pytest.mark.parametrize(
    ("profile", "boost_ghz", "products", "convolutions"),
    [
        ("p100", 1.48, 1792, 1792),
        ("a100-80gb", 1.41, 6912, 3456),
        ("rtx-3090", 1.695, 164, 164),
    ],
)
def test_float64_takes_the_units_that_compute_it(profile, boost_ghz, products, convolutions):
    """A unit does one multiplication and one addition in a clock; A100's tensor cores do as many again, of products.

    Units of a multiprocessor: 32 of compute capability 6.0, 7.0 and 8.0, 4 of 6.1, 2 of 8.6 (CUDA C++ programming
    guide, arithmetic instructions).
    """
    device = load_cluster(f"dgx-a100:device.*.profile={profile}").take(1)
    for model, units in (("bert-base:layers=2", products), ("vgg16", convolutions)):
        graph = load_model(model, batch=16, element_bytes=8)
        plan, (compared,) = make_plan(graph, device, strategy="data"), compare(graph, device, ["data"]).strategies
        least_s = 3 * sum(layer.forward_flop() for layer in graph.layers) / (units * 2 * boost_ghz * 1e9)
        assert 0.98 * least_s < plan.simulated_s == compared.simulated_s < 3 * least_s
        assert sum("reaches in float32" in note for note in plan.notes) == 1


@pytest.mark.parametrize("known", [True, False])
def test_plans_in_float64_say_where_no_peak_is_known(tmp_path, known):
    content = yaml.safe_load(catalogue()["p100"].read_text()) | ({} if known else {"float64": None})
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    device = load_cluster(f"dgx-a100:device.*.profile={tmp_path / 'mine.yaml'}").take(1)
    half, whole = (
        make_plan(load_model("vgg16", batch=8, element_bytes=size), device, strategy="data") for size in (4, 8)
    )
    assert sum("no peak in float64" in note for note in whole.notes) == (not known)
    assert not half.notes
    # without a peak only the traffic doubles
    assert (whole.simulated_s > 2 * half.simulated_s) == known


def test_a_comparison_prices_elements_of_two_bytes_as_a_plan_does():
    graph, cluster = load_model("vgg16", batch=64, element_bytes=2), load_cluster("abci-v100").take(4)
    (result,) = compare(graph, cluster, ["data"]).strategies
    assert result.simulated_s == make_plan(graph, cluster, strategy="data").simulated_s
