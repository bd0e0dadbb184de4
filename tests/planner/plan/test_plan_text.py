"""Plans said by one text: what its words set, what is refused, lists of plans, and micro-batches of every strategy."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from plans import cluster_of

from groundwork.errors import ConfigError
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan, request_for
from planner.plan.plan_file import load_plan, save_plan
from planner.plan.plan_request import PlanRequest, check_plan_text
from planner.plan.plan_text import plan_list_text, read_plan_text, split_plan_texts


def request(**changes):
    return PlanRequest(**{"model": "lenet5", "cluster": "titanx-4", "batch": 8, **changes})


SAID = {
    "data": {"strategy": "data"},
    "pipeline=4,schedule=gpipe,micro-batches=8,recompute=segments": {
        "strategy": "pipeline=4",
        "schedule": "gpipe",
        "micro_batches": 8,
        "recompute": "segments",
    },
    " data = 2 , optimizer = adam, filter=2": {"strategy": " data = 2 , filter=2", "optimizer": "adam"},
    "tensor=2,sequence,batch_norm=reduced": {"strategy": "tensor=2,sequence", "batch_norm": "reduced"},
    "pipeline,stage-at=conv2+fc1": {"strategy": "pipeline", "stage_at": ("conv2", "fc1")},
    "data,framework=ddp:first_mib=2+bucket_mib=50": {"strategy": "data", "framework": "ddp:first_mib=2,bucket_mib=50"},
    "data,sub-batches=2,update-each": {"strategy": "data", "sub_batches": 2, "update_each": True},
    "data,no-spread": {"strategy": "data", "spread": False},
    "layerwise,refine=9": {"strategy": "layerwise", "refine": 9},
    "schedule=gpipe": {"strategy": "pipeline", "schedule": "gpipe"},
    "folder/a=b,c.yaml,recompute=pool1+pool2": {"strategy": "folder/a=b,c.yaml", "recompute": "pool1,pool2"},
    "folder/dtype=1,recompute=pool1.yaml": {"strategy": "folder/dtype=1,recompute=pool1.yaml"},
}


@pytest.mark.parametrize(("text", "expected"), SAID.items(), ids=SAID)
def test_words_are_options_and_the_rest_is_the_strategy(text, expected):
    made = request(strategy=text)

    assert {name: getattr(made, name) for name in expected} == expected
    assert made.text == text
    assert replace(made, batch=16).text == text
    assert made == replace(request(**expected), text=text)


def test_a_request_that_says_otherwise_loses_the_text():
    made = request(strategy="data,recompute=segments")

    assert replace(made, recompute="none").text == "data"
    assert replace(made, strategy="owt").text == "owt"
    assert replace(made, strategy="owt,optimizer=sgd").text == "owt,optimizer=sgd"


REFUSED = {
    "data,shedule=gpipe": r"options of orrery plan, got 'shedule=gpipe'; did you mean 'schedule'\?",
    "data,recomput": r"got 'recomput'; did you mean 'recompute'\?",
    "data,recompute": "recompute must have a value behind =, got 'recompute'",
    "data,recompute=": "recompute must have a value behind =, got 'recompute='",
    "data,recompute=none,recompute=segments": "must give recompute once, got it again",
    "data,micro-batches=2,micro_batches=2": "must give micro-batches once, got it again",
    "data,micro-batches=x": "micro-batches must be a whole number >= 1, got 'x'",
    "data,update-each=yes": "update-each must be given without a value, or as no-update-each, got 'update-each=yes'",
    "data,optimizer=lion": "optimizer must be one of sgd, momentum, adam, got 'lion'",
    "data,schedule=gpipe": "schedule and stage_at are for the strategy pipeline, not data",
    "data,sub-batches=2,micro-batches=2": "sub_batches must be 1 beside micro_batches of all layers, got 2",
    "layerwise,micro-batches=2": "micro_batches must be left out for layerwise, whose search does not know it, got 2",
    "data=4,fliter=4,recompute=segments": r"got 'fliter=4'; did you mean 'filter'\?",
    "": "strategy must be one of .*, got ''",
    "dta,recompute=segments": r"strategy must be one of .*, got 'dta'; did you mean 'data'\?",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=REFUSED)
def test_wrong_words_are_one_line(text, message):
    with pytest.raises(ConfigError, match=f"{message}$") as caught:
        check_plan_text(text)
    assert "\n" not in str(caught.value)


def test_a_word_and_an_option_agree():
    assert request(strategy="pipeline=4,schedule=gpipe", schedule="gpipe").schedule == "gpipe"
    with pytest.raises(ConfigError, match=r"schedule must be 'gpipe' or left out beside strategy .*, got '1f1b'$"):
        request(strategy="pipeline=4,schedule=gpipe", schedule="1f1b")


def test_every_option_that_may_be_left_out_is_a_word():
    """A new option of planning is a word of the text without a line of its own."""
    values = {bool: "", int: "=2", str: "=word"}
    subject = ("model", "cluster", "batch", "strategy")
    for field in (each for each in fields(PlanRequest) if "option" in each.metadata and each.name not in subject):
        kind = next((kind for kind in values if kind.__name__ in str(field.type)), str)
        word = f"{field.name.replace('_', '-')}{values[kind]}"
        assert read_plan_text(f"data,{word}")[1].keys() == {field.name}


@pytest.mark.parametrize(
    ("text", "plans"),
    [
        (
            "data, data=4,filter=4 , data=2,spatial=8,owt,filter=2,filter=2",
            ["data", "data=4,filter=4", "data=2,spatial=8", "owt", "filter=2"],
        ),
        ("data;data=4,filter=4; spatial=8", ["data", "data=4,filter=4", "spatial=8"]),
        ("tensor=4,data=2,sequence,data", ["tensor=4,data=2,sequence", "data"]),
        (
            "data; data,recompute=segments; pipeline=4,schedule=1f1b;pipeline=4,schedule=gpipe",
            ["data", "data,recompute=segments", "pipeline=4,schedule=1f1b", "pipeline=4,schedule=gpipe"],
        ),
        (
            "data,recompute=segments,data,optimizer=adam,data=2,optimizer=sgd,filter=2,data=4",
            ["data,recompute=segments", "data,optimizer=adam", "data=2,optimizer=sgd,filter=2", "data=4"],
        ),
        ("data,recompute=none,recompute=segments", ["data,recompute=none,recompute=segments"]),
    ],
)
def test_lists_keep_the_words_of_a_plan_together(text, plans):
    assert split_plan_texts(text) == plans


@given(
    st.lists(
        st.sampled_from(["data", "owt", "data=2", "filter=4", "data,recompute=segments", "data=4,filter=2"]),
        min_size=1,
        unique=True,
    )
)
def test_lists_are_written_back(plans):
    assert split_plan_texts(plan_list_text(plans)) == plans


STRATEGIES = ("data", "model", "owt", "channel", "data=2,filter=2")


@pytest.mark.parametrize(
    ("strategy", "framework"), [("data", "ddp"), *((strategy, "ideal") for strategy in STRATEGIES[1:])]
)
def test_micro_batches_accumulate_gradients_under_every_strategy(strategy, framework):
    """Without stages, all layers take each micro-batch forward and backward; synchronised and updated once, at last."""
    graph, cluster = load_model("lenet5", batch=16), cluster_of("titanx-4", 4)
    plan = make_plan(graph, cluster, strategy=f"{strategy},micro-batches=4,framework={framework}")
    whole = make_plan(graph, cluster, strategy=f"{strategy},framework={framework}")
    program, once = lower_plan(plan, graph, cluster), lower_plan(whole, graph, cluster)

    assert (plan.micro_batching.parts, plan.micro_batching.first) == (4, 0)
    for kind, times in (("forward", 4), ("weight_gradient", 4), ("update", 1)):
        tasks, tasks_once = (np.count_nonzero(each.kind == KINDS.index(kind)) for each in (program, once))
        assert tasks == times * tasks_once, kind
    assert np.count_nonzero(program.syncs_gradients) == np.count_nonzero(once.syncs_gradients)
    assert np.count_nonzero(program.moves_activations) == 4 * np.count_nonzero(once.moves_activations)
    assert plan.simulated_s > whole.simulated_s  # smaller kernels, and no sum is shorter


def test_a_plan_file_keeps_the_text(tmp_path):
    text = "data,micro-batches=2,optimizer=adam"
    plan = make_plan(load_model("lenet5", batch=8), cluster_of("titanx-4", 2), strategy=text)
    save_plan(plan, tmp_path / "plan.json")

    again = load_plan(tmp_path / "plan.json")
    assert (again.strategy, again.request) == (text, plan.request)


def test_a_text_sets_the_data_type_of_the_plan():
    graph, cluster = load_model("lenet5", batch=8, element_bytes=2), cluster_of("titanx-4", 2)

    assert request_for(graph, cluster, strategy="data,dtype=bfloat16").dtype == "bfloat16"
    assert request_for(graph, cluster, strategy="data").dtype == "float16"
    with pytest.raises(ConfigError, match="dtype must be of 2 bytes, as the elements of the graph, got 'tf32'"):
        make_plan(graph, cluster, strategy="data,dtype=tf32")
    assert graph.with_element_bytes(4).digest == load_model("lenet5", batch=8).digest
