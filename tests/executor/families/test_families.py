"""Modules of published configurations: parameters as published, keys of the weights, blocks as PyTorch's own."""

import json
from functools import partial

import pytest
import torch
from torch import nn

from executor.families.configuration import PublishedFields
from executor.families.encoder import EncoderBlock
from executor.families.llama import Experts
from executor.families.published import _FAMILIES, configured_model
from groundwork.errors import ConfigError
from planner.importing.graph_of import imported_graph
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

# Fields of the config.json that is published beside each model's weights, and the elements of these weights.
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5}
LLAMA_3 = LLAMA | {"vocab_size": 128256, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rope_theta": 5e5}
BERT = {
    "model_type": "bert",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "vocab_size": 30522,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
}
WHISPER = {"model_type": "whisper", "vocab_size": 51865, "num_mel_bins": 80, "max_source_positions": 1500}


def _whisper(width, layers, heads):
    sides = {"layers": layers, "attention_heads": heads, "ffn_dim": 4 * width}
    return WHISPER | {"d_model": width} | {f"{s}_{k}": v for s in ("encoder", "decoder") for k, v in sides.items()}


PUBLISHED = {
    "Llama-2-7B": (
        6_738_415_616,
        LLAMA
        | {
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "vocab_size": 32000,
            "max_position_embeddings": 4096,
        },
    ),
    "Llama-3-8B": (
        8_030_261_248,
        LLAMA_3 | {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32},
    ),
    "Llama-3-70B": (
        70_553_706_496,
        LLAMA_3 | {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_hidden_layers": 80},
    ),
    "Mistral-7B-v0.1": (
        7_241_732_096,
        {
            "model_type": "mistral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
            "max_position_embeddings": 32768,
        },
    ),
    "Mixtral-8x7B-v0.1": (
        46_702_792_704,
        {
            "model_type": "mixtral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "vocab_size": 32000,
            "max_position_embeddings": 32768,
        },
    ),
    "Qwen2-0.5B": (
        494_032_768,
        {
            "model_type": "qwen2",
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_attention_heads": 14,
            "num_hidden_layers": 24,
            "num_key_value_heads": 2,
            "vocab_size": 151936,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
        },
    ),
    "GPT-2": (
        124_439_808,
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257},
    ),
    "BERT-base with its pooler": (109_482_240, BERT),
    "BERT-base for masked words": (109_514_298, BERT | {"architectures": ["BertForMaskedLM"]}),
    "ViT-B/16": (
        86_567_656,
        {
            "model_type": "vit",
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "id2label": {str(i): "" for i in range(1000)},
        },
    ),
    "Whisper tiny": (37_760_640, _whisper(384, 4, 6)),
    "Whisper small": (241_734_912, _whisper(768, 12, 12)),
}
SMALL = {
    "llama": {
        "model_type": "llama",
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 20,
        "max_position_embeddings": 6,
    },
    "mixtral": {
        "model_type": "mixtral",
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "vocab_size": 20,
        "max_position_embeddings": 6,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "gpt2": {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 6, "vocab_size": 20},
    "bert": BERT
    | {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 20,
        "intermediate_size": 24,
        "max_position_embeddings": 6,
        "architectures": ["BertForMaskedLM"],
    },
    "bert of classes": BERT
    | {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": 20,
        "intermediate_size": 24,
        "architectures": ["BertForSequenceClassification"],
    },
    "vit": {
        "model_type": "vit",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 24,
        "image_size": 16,
        "patch_size": 8,
        "num_labels": 5,
    },
    "vit of no classes": {
        "model_type": "vit",
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 24,
        "image_size": 16,
        "patch_size": 8,
        "architectures": ["ViTModel"],
    },
    "whisper": _whisper(16, 1, 4)
    | {"vocab_size": 20, "num_mel_bins": 4, "max_source_positions": 8, "max_target_positions": 6},
}
KEYS = {
    "llama": [
        "model.embed_tokens.weight",
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.1.post_attention_layernorm.weight",
        "model.norm.weight",
        "lm_head.weight",
    ],
    "gpt2": ["transformer.wte.weight", "transformer.h.1.attn.c_attn.bias", "transformer.h.0.mlp.c_fc.weight"],
    "bert": [
        "bert.embeddings.LayerNorm.weight",
        "bert.encoder.layer.1.attention.self.query.weight",
        "bert.encoder.layer.0.attention.output.LayerNorm.bias",
        "bert.encoder.layer.0.intermediate.dense.weight",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.decoder.bias",
    ],
    "vit": [
        "vit.embeddings.patch_embeddings.projection.weight",
        "vit.encoder.layer.1.attention.attention.key.bias",
        "vit.encoder.layer.0.layernorm_before.weight",
        "classifier.weight",
    ],
    "whisper": [
        "model.encoder.conv1.weight",
        "model.encoder.embed_positions.weight",
        "model.decoder.layers.0.encoder_attn.k_proj.weight",
        "model.decoder.layers.0.fc1.bias",
    ],
}


def written(tmp_path, fields):
    """A configuration in a file."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields))
    return path


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_many_as_published(tmp_path, name):
    """Every matrix, bias and norm of the published weights is there, and none beside; nothing takes memory."""
    count, fields = PUBLISHED[name]
    module = configured_model(written(tmp_path, fields)).module

    assert sum(each.numel() for each in module.parameters()) == count
    assert all(each.is_meta for each in module.parameters())


@pytest.mark.parametrize(
    ("name", "eps"), [("llama", 1e-6), ("gpt2", 1e-5), ("bert", 1e-12), ("vit", 1e-12), ("whisper", 1e-5)]
)
def test_norms_add_what_the_families_do_unless_a_file_says_otherwise(tmp_path, name, eps):
    """As in the configuration classes of Hugging Face's transformers, whose files leave out what is usual."""
    module = configured_model(written(tmp_path, SMALL[name])).module
    norms = [each for each in module.modules() if isinstance(each, nn.LayerNorm | nn.RMSNorm)]

    assert norms
    assert {norm.eps for norm in norms} == {eps}


@pytest.mark.parametrize("name", SMALL)
def test_every_family_is_imported_whole(tmp_path, name):
    """The graph has all parameters by their published keys, one sample, and no layer that only samples divide."""
    found = configured_model(written(tmp_path, SMALL[name]))
    keys = set(found.module.state_dict())
    count = sum(each.numel() for each in found.module.parameters())
    imported = imported_graph(trace_of(found.module, found.inputs), name=name, loss=found.loss)

    assert imported.graph.batch == 1
    assert imported.graph.parameter_count == count
    assert (imported.by_sample, imported.unread, imported.dropped) == ((), (), ())
    assert set(KEYS.get(name, ())) <= keys


@pytest.mark.parametrize(("before", "name"), [(False, "self"), (True, "attention")])
def test_blocks_of_encoders_compute_what_pytorch_does(before, name):
    """With the same weights, a block of BERT and one of ViT are the encoder layer of torch.nn."""
    fields = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_attention_heads": 4,
        "layer_norm_eps": 1e-5,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    block = EncoderBlock(PublishedFields("config.json", fields), name, before=before).double()
    layer = nn.TransformerEncoderLayer(16, 4, 24, 0.0, "gelu", batch_first=True, norm_first=before).double()
    norm = (
        [block.layernorm_before, block.layernorm_after]
        if before
        else [block.attention["output"].LayerNorm, block.output.LayerNorm]
    )
    pairs = [
        (layer.self_attn.out_proj, block.attention["output"].dense),
        (layer.linear1, block.intermediate["dense"]),
        (layer.linear2, block.output.dense),
        (layer.norm1, norm[0]),
        (layer.norm2, norm[1]),
    ]
    with torch.no_grad():
        for theirs, ours in pairs:
            theirs.load_state_dict(ours.state_dict())
        rows = block.attention[name]
        layer.self_attn.in_proj_weight.copy_(torch.cat([m.weight for m in (rows.query, rows.key, rows.value)]))
        layer.self_attn.in_proj_bias.copy_(torch.cat([m.bias for m in (rows.query, rows.key, rows.value)]))
        x = torch.randn(2, 5, 16, dtype=torch.float64)
        torch.testing.assert_close(block(x), layer(x), rtol=1e-12, atol=1e-12)


def test_gpt2_computes_what_pytorch_does():
    """Words and positions are added, blocks are PyTorch's with the norms first and a causal mask, and words score."""
    module = _FAMILIES["gpt2"].make(PublishedFields("config.json", SMALL["gpt2"])).double().eval()
    for each in module.parameters():  # some begin with what is in memory
        nn.init.normal_(each, std=0.3)
    body, words = module.transformer, torch.randint(20, (2, 5))
    x = body.wte.weight[words] + body.wpe.weight[:5]
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    for block in body.h:
        gelu = partial(nn.functional.gelu, approximate="tanh")
        layer = nn.TransformerEncoderLayer(16, 4, 64, 0.0, gelu, batch_first=True, norm_first=True).double().eval()
        pairs = [
            (layer.self_attn.in_proj_weight, block.attn.c_attn.weight.T),
            (layer.self_attn.in_proj_bias, block.attn.c_attn.bias),
            (layer.self_attn.out_proj.weight, block.attn.c_proj.weight.T),
            (layer.self_attn.out_proj.bias, block.attn.c_proj.bias),
            (layer.linear1.weight, block.mlp.c_fc.weight.T),
            (layer.linear1.bias, block.mlp.c_fc.bias),
            (layer.linear2.weight, block.mlp.c_proj.weight.T),
            (layer.linear2.bias, block.mlp.c_proj.bias),
            *((getattr(layer, f"norm{i}").weight, getattr(block, f"ln_{i}").weight) for i in (1, 2)),
            *((getattr(layer, f"norm{i}").bias, getattr(block, f"ln_{i}").bias) for i in (1, 2)),
        ]
        with torch.no_grad():
            for theirs, ours in pairs:
                theirs.copy_(ours)
            x = layer(x, src_mask=causal)
    scores = nn.functional.layer_norm(x, (16,), body.ln_f.weight, body.ln_f.bias) @ body.wte.weight.T
    torch.testing.assert_close(module(words), scores, rtol=1e-10, atol=1e-10)


DROPOUTS = {
    "llama": ["attention_dropout"],
    "gpt2": ["attn_pdrop", "embd_pdrop", "resid_pdrop"],
    "bert": ["attention_probs_dropout_prob", "hidden_dropout_prob"],
    "bert of classes": ["classifier_dropout"],
    "vit": ["attention_probs_dropout_prob", "hidden_dropout_prob"],
    "whisper": ["activation_dropout", "attention_dropout", "dropout"],
}
"""Fields of dropout by the small model of which they are."""


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, each in DROPOUTS.items() for field in each])
def test_every_dropout_drops_in_training_alone(name, field):
    """With one dropout on and all others off, results differ from pass to pass in training, and never after it."""
    none = dict.fromkeys([each for fields in DROPOUTS.values() for each in fields], 0.0)
    config = PublishedFields("config.json", SMALL[name] | none | {field: 0.5})
    family = _FAMILIES[SMALL[name]["model_type"]]
    module = family.make(config)
    for each in module.parameters():  # some begin with what is in memory
        nn.init.normal_(each)
    inputs = [
        torch.rand(each.shape) if each.floating else torch.randint(20, (1, min(6, each.shape[1])))
        for each in family.inputs(config)
    ]
    once, again = (module.train()(*inputs) for _ in range(2))
    still, also = (module.eval()(*inputs) for _ in range(2))

    assert not torch.equal(once, again)
    assert torch.equal(still, also)


def test_long_sequences_and_what_is_not_followed_are_said(tmp_path):
    """One sample of at most 4,096 words is imported, longer ones by --input, with what the module leaves out."""
    _, fields = PUBLISHED["Mistral-7B-v0.1"]
    path = written(
        tmp_path, fields | {"num_hidden_layers": 1, "sliding_window": 4096, "rope_scaling": {"rope_type": "llama3"}}
    )
    short, long = configured_model(path), configured_model(path, input_specs(["2x8192:int"]))

    assert [each.shape for each in (*short.inputs, *long.inputs)] == [(1, 4096), (2, 8192)]
    assert "4,096 words of the 32,768 that it allows: --input 1x32768:int" in short.notes[0]
    fewer = {name: value for name, value in fields.items() if name != "max_position_embeddings"}
    open_ended = configured_model(written(tmp_path, fewer | {"num_hidden_layers": 1}))
    assert "sequences have 2,048 words, as the configuration has no max_position_embeddings" in open_ended.notes[0]
    assert "sliding_window of 4,096 is not followed" in long.notes[0]
    assert all("rope_scaling (llama3) is not followed" in each.notes[-1] for each in (short, long))


@pytest.mark.parametrize(
    ("fields", "sizes", "message"),
    [
        ({}, (), r"model_type must be one of llama, mistral, mixtral, qwen2, gpt2, bert, vit, whisper, got 'None'"),
        ({"model_type": "mamba"}, (), r"model_type must be one of .*, got 'mamba'"),
        (SMALL["mixtral"] | {"num_experts_per_tok": 5}, (), r"num_experts_per_tok must be at most the 4 experts of"),
        ({"model_type": []}, (), r"model_type must be one of"),
        (SMALL["llama"] | {"hidden_size": "16"}, (), r"hidden_size must be a whole number from 1 to .*, got '16'"),
        ({"model_type": "llama"}, (), r"hidden_size must be a whole number from 1 to .*, got none"),
        (SMALL["llama"] | {"num_hidden_layers": 10**9}, (), r"num_hidden_layers must be .* 1 to 1,000"),
        (SMALL["llama"] | dict.fromkeys(["hidden_size", "num_attention_heads", "head_dim"], 2**24), (), r"conf"),
        (SMALL["llama"] | {"num_attention_heads": 3}, (), r"heads must divide the 16 channels, got 3"),
        (SMALL["llama"] | {"num_key_value_heads": 3}, (), r"num_key_value_heads must be a divisor of the 4 heads"),
        (SMALL["llama"] | {"hidden_act": "sigmoid"}, (), r"hidden_act must be one of gelu, .*, got 'sigmoid'"),
        (SMALL["bert"] | {"architectures": ["BertForQuestionAnswering"]}, (), r"architectures must be a list of"),
        (SMALL["gpt2"], ("2x7:int",), r"input must be NxWORDS:int of at most 6 words, .*got 2x7:int"),
        (SMALL["gpt2"], ("2x6",), r"input must be NxWORDS:int"),
        (SMALL["vit"], ("2x3x8x8",), r"input must be Nx3x16x16, .* got 2x3x8x8"),
        (SMALL["whisper"], ("2x4x16",), r"input must be Nx4x16 and NxWORDS:int"),
    ],
)
def test_what_no_module_can_be_built_of_is_refused(tmp_path, fields, sizes, message):
    """One line names the field, the value and the rule."""
    with pytest.raises(ConfigError, match=message) as error:
        configured_model(written(tmp_path, fields), input_specs(sizes) if sizes else ())

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("experts", "chosen", "rows"), [(4, 2, 6), (4, 4, 6), (3, 2, 7), (5, 3, 4)])
def test_experts_take_the_rows_that_give_them_most(experts, chosen, rows):
    """Row by row and expert by expert: a row's weights are those of its best experts, whose share of rows is full."""
    sizes = {"hidden_size": 6, "intermediate_size": 5, "num_local_experts": experts, "num_experts_per_tok": chosen}
    module, most = Experts(PublishedFields("config.json", sizes)).double(), -(-chosen * rows // experts)
    for matrix in (module.w1, module.w2, module.w3):
        nn.init.normal_(matrix)
    x, expected = torch.randn(2, rows, 6, dtype=torch.float64), torch.zeros(2, rows, 6, dtype=torch.float64)
    for sample, rows_of in enumerate(x):
        weights = torch.zeros(rows, experts, dtype=torch.float64)
        for row, values in enumerate(rows_of):
            scores = torch.exp(module.gate.weight @ values)
            best = scores.argsort(descending=True)[:chosen]
            weights[row, best] = scores[best] / scores[best].sum()
        for expert in range(experts):
            takes = [row for row in weights[:, expert].argsort(descending=True)[:most] if weights[row, expert] > 0]
            for row in takes:
                gate, up = (rows_of[row] @ matrix[expert] for matrix in (module.w1, module.w3))
                made = (gate * torch.sigmoid(gate) * up) @ module.w2[expert]
                expected[sample, row] += weights[row, expert] * made
    torch.testing.assert_close(module(x), expected)
