"""Transformers of the catalogue with sizes of the user's: the weights and the work of the families' modules."""

import json

import pytest

from executor.families.published import configured_model
from planner.importing.graph_of import imported_graph
from planner.models.registry import load_model
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

SIZES = "layers=3,hidden=120,heads=6,ffn=200,words=500,sequence=70"
COUNTS = {"num_hidden_layers": 3, "hidden_size": 120, "num_attention_heads": 6, "intermediate_size": 200}
LLAMA = COUNTS | {"model_type": "llama", "num_key_value_heads": 2, "vocab_size": 500, "max_position_embeddings": 131072}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 5, "num_experts_per_tok": 3}
GPT = {"model_type": "gpt2", "n_layer": 3, "n_embd": 120, "n_head": 6, "n_inner": 200, "n_positions": 70}
BERT = COUNTS | {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "vocab_size": 500,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
PRODUCTS = ("linear", "matrix_product", "attention")


def weights(graph):
    """Return the shape of each tensor of the ``state_dict``, aliases included."""
    return {
        key: parameter.shape
        for layer in graph.layers
        for parameter in layer.parameters
        for name, key in (*layer.keys, *layer.aliases)
        if name == parameter.name
    }


def work(graph):
    """Return the FLOP of all products."""
    return sum(layer.forward_flop() for layer in graph.layers if layer.operation.kind in PRODUCTS)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (f"gpt2:{SIZES}", GPT | {"vocab_size": 500}),
        (f"llama-1b:{SIZES},kv_heads=2,tied=0", LLAMA),
        (f"mixtral:{SIZES},kv_heads=2,experts=5,chosen=3", MIXTRAL),
        (f"bert-base:{SIZES}", BERT),
    ],
)
def test_sizes_give_the_weights_and_the_work_of_the_module(tmp_path, spec, fields):
    """The same keys, shapes and parameters, and the same FLOP, as of a published configuration of these sizes."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields))
    trace = trace_of(configured_model(path).module, input_specs(["2x70:int"]))
    theirs = imported_graph(trace, name="theirs", loss="softmax_per_position").graph
    ours = load_model(spec, batch=2)

    assert weights(theirs).items() <= weights(ours).items()  # the published BERT has a second name for a bias
    assert ours.parameter_count == theirs.parameter_count
    assert work(ours) == work(theirs)
