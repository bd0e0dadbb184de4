"""Data types by role: words, presets, and what contradicts itself."""

import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.graph.type_roles import DataTypes
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from planner.plan.plan_request import PlanRequest

FSDP = "fsdp,dtype=bfloat16,parameter-dtype=float32,gradient-dtype=float32"


@pytest.mark.parametrize(
    ("dtype", "product", "kept", "updated"),
    [
        ("float32", "float32", "float32", "float32"),
        ("tf32", "tf32", "float32", "float32"),
        ("float64", "float64", "float64", "float64"),
        ("float16", "float16", "float16", "float32"),
        ("bfloat16", "bfloat16", "bfloat16", "float32"),
        ("float8", "float8", "bfloat16", "float32"),
    ],
)
def test_a_word_stands_for_a_type_of_each_role(dtype, product, kept, updated):
    types = DataTypes.of(dtype)
    assert (types.product, types.updated, types.state) == (product, updated, updated)
    assert {types.activation, types.parameter, types.accumulation, types.message} == {kept}
    assert bool(types.master) == (kept != updated)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("master-dtype=float32", "master_dtype must be wider than parameters in float32, or none, got 'float32'"),
        (f"{FSDP},master-dtype=float32", "master_dtype must be wider than parameters in float32, or none"),
        ("parameter-dtype=bfloat16", "parameter_dtype must be float32, as activations, or wider, got 'bfloat16'"),
        ("dtype=bfloat16,parameter-dtype=float16", "parameter_dtype must be bfloat16, as activations, or wider"),
        (f"{FSDP},message-dtype=float64", "message_dtype must be float32, as gradients, or narrower, got 'float64'"),
        (
            "dtype=bfloat16,gradient-dtype=float32,message-dtype=bfloat16",
            "message_dtype must be float32, as gradients, where replicas keep .*: compress-gradients=bfloat16 sends",
        ),
        ("main-dtype=float32", "must be made of degrees and options of orrery plan, got 'main-dtype=float32'"),
        ("state-dtype=float8", "state_dtype must be .*float32.*got 'float8'"),
    ],
)
def test_types_that_make_no_sense_are_refused(words, message):
    with pytest.raises(ConfigError, match=message) as error:
        PlanRequest(
            model="vgg16", cluster="dgx-a100", batch=8, strategy=f"data=8,{words}".replace("data=8,fsdp", "fsdp")
        )
    assert "\n" not in str(error.value)


def test_a_plan_keeps_its_types(tmp_path):
    graph, cluster = load_model("gpt2:layers=2", batch=8, element_bytes=2), load_cluster("dgx-h100")
    plan = make_plan(graph, cluster, strategy=f"{FSDP},message-dtype=bfloat16,state-dtype=bfloat16")
    save_plan(plan, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert again.request.types == plan.request.types
    assert plan.request.types == lower_plan(again, graph, cluster).types
    names = ("activation", "parameter", "accumulation", "message", "master", "state")
    kept = ["bfloat16", "float32", "float32", "bfloat16", "", "bfloat16"]
    assert [getattr(plan.request.types, name) for name in names] == kept


def moved(strategy):
    """Bytes of all but sums of gradients, which are gathers of parameters, and of these."""
    graph, cluster = load_model("gpt2:layers=2", batch=8, element_bytes=2), load_cluster("dgx-h100").take(4)
    plan = make_plan(graph, cluster, strategy=strategy, gradient_sync="ring", framework="ideal")
    program = lower_plan(plan, graph, cluster)
    sums = program.syncs_gradients
    return program.size_bytes[~sums].sum(), program.size_bytes[sums].sum()


def test_messages_have_the_types_of_their_roles():
    plain, wide, narrow = (moved(each) for each in ("fsdp,dtype=bfloat16", FSDP, f"{FSDP},message-dtype=bfloat16"))
    assert wide == (plain[0], 2 * plain[1])
    assert narrow == plain


def test_messages_of_whole_gradients_are_compressed_to_fewer_bits():
    """Where gradients are kept whole in float32, bfloat16 halves their messages, and float32 compresses nothing."""
    plain, halved, same = (
        moved(f"data=4,dtype=bfloat16,gradient-dtype=float32{words}")[1]
        for words in ("", ",compress-gradients=bfloat16", ",compress-gradients=float32")
    )
    assert plain == same == 2 * halved
    assert moved("data=4,dtype=bfloat16,compress-gradients=bfloat16")[1] == halved
