"""Llama, Mistral, Mixtral and Qwen2: RMS norms, rotary positions, grouped keys and values, gated products."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from executor.families.blocks import ACTIVATION_NAMES, activation
from executor.families.configuration import PublishedFields


class Experts(nn.Module):
    """Gated experts, each of which takes as many rows of every sample as it would if rows were shared out evenly.

    A row chooses the experts of its largest scores; an expert takes the rows that give it most, and passes over those
    that are more than its share.  So sizes do not depend on the data.

    Source:
        Riquelme et al., "Scaling Vision with Sparse Mixture of Experts", NeurIPS 2021, Sec. 2.3 and 4.1: a capacity,
        and rows in the order of their weights.  Jiang et al., "Mixtral of Experts", 2024, Sec. 2.1: the experts.
    """

    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        width, inner = config.count("hidden_size"), config.count("intermediate_size")
        self.experts, self.chosen = config.count("num_local_experts", 8), config.count("num_experts_per_tok", 2)
        if self.chosen > self.experts:
            rule = f"at most the {self.experts} experts of num_local_experts"
            raise config.problem("num_experts_per_tok", rule, self.chosen)
        self.gate = nn.Linear(width, self.experts, bias=False)
        self.w1, self.w3 = (nn.Parameter(torch.empty(self.experts, width, inner)) for _ in range(2))
        self.w2 = nn.Parameter(torch.empty(self.experts, inner, width))
        self.act_fn = activation(config.choice("hidden_act", tuple(ACTIVATION_NAMES), "silu"))
        for matrix in (self.w1, self.w2, self.w3):
            nn.init.normal_(matrix, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the experts make of rows, shape (samples, rows, channels)."""
        scores = self.gate(x).softmax(-1)
        least = scores.topk(self.chosen, -1).values[..., -1:]
        scores = torch.where(scores >= least, scores, 0.0)
        scores = (scores / scores.sum(-1, keepdim=True)).transpose(1, 2)
        weights, places = scores.topk(-(-self.chosen * x.shape[1] // self.experts), -1)
        index = places.flatten(1)[..., None].expand(-1, -1, x.shape[2])
        rows = x.gather(1, index).unflatten(1, (self.experts, -1))
        inner = self.act_fn(torch.einsum("sern,enh->serh", rows, self.w1))
        inner = inner * torch.einsum("sern,enh->serh", rows, self.w3)
        made = torch.einsum("serh,ehn->sern", inner, self.w2) * weights[..., None]
        return torch.zeros_like(x).scatter_add(1, index, made.flatten(1, 2))


_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Qwen2ForCausalLM")


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return heads whose channels are turned in pairs by angles that grow with the position."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class _Attention(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        width, self.heads = config.count("hidden_size"), config.count("num_attention_heads")
        self.groups = config.count("num_key_value_heads", self.heads)
        self.size = config.count("head_dim", config.head_size(width, self.heads))
        if self.heads % self.groups:
            raise config.problem("num_key_value_heads", f"a divisor of the {self.heads} heads", self.groups)
        # Qwen2 has biases before its attention and none behind it, and no field that says so
        qwen = config.values.get("model_type") == "qwen2"
        before = config.flag("attention_bias", qwen)
        self.dropout = config.share("attention_dropout", 0.0)
        self.q_proj = nn.Linear(width, self.heads * self.size, bias=before)
        self.k_proj = nn.Linear(width, self.groups * self.size, bias=before)
        self.v_proj = nn.Linear(width, self.groups * self.size, bias=before)
        self.o_proj = nn.Linear(self.heads * self.size, width, bias=before and not qwen)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (m(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for m in (self.q_proj, self.k_proj, self.v_proj))
        q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
        if self.groups < self.heads:
            k, v = (each.repeat_interleave(self.heads // self.groups, 1) for each in (k, v))
        dropout = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class _Mlp(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        width, inner, bias = (
            config.count("hidden_size"),
            config.count("intermediate_size"),
            config.flag("mlp_bias", False),
        )
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=bias), nn.Linear(width, inner, bias=bias)
        self.down_proj = nn.Linear(inner, width, bias=bias)
        self.act_fn = activation(config.choice("hidden_act", tuple(ACTIVATION_NAMES), "silu"))

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class _Block(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        width, eps = config.count("hidden_size"), config.number("rms_norm_eps", 1e-6)
        experts = config.values.get("model_type") == "mixtral"
        self.self_attn, self.mlp = _Attention(config), Experts(config) if experts else _Mlp(config)
        self.input_layernorm = nn.RMSNorm(width, eps=eps)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class _Body(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        width = config.count("hidden_size")
        self.embed_tokens = nn.Embedding(config.count("vocab_size"), width)
        self.layers = nn.ModuleList(_Block(config) for _ in range(config.count("num_hidden_layers")))
        self.norm = nn.RMSNorm(width, eps=config.number("rms_norm_eps", 1e-6))
        self.size = config.count("head_dim", width // config.count("num_attention_heads"))
        # How longer contexts scale the base of the rotary frequencies is noted, and not followed.
        for name in ("rope_scaling", "rope_parameters"):
            given = config.values.get(name)
            kind = given.get("rope_type", given.get("type", "default")) if isinstance(given, dict) else "default"
            if kind != "default":
                config.notes.append(
                    f"{name} ({str(kind)[:40]}) is not followed: positions turn by rope_theta alone, in the same time"
                )
        inner = config.values.get("rope_parameters")
        theta = inner.get("rope_theta") if isinstance(inner, dict) else None
        self.theta = config.number("rope_theta", 10_000.0 if theta is None else theta)

    def forward(self, words: Tensor) -> Tensor:
        """Return the last layer's values, shape (samples, length, channels), of words (samples, length)."""
        x = self.embed_tokens(words)
        place = torch.arange(words.shape[1], device=x.device)[:, None]
        angle = place * (1 / self.theta) ** (torch.arange(0, self.size, 2, device=x.device)[None] / self.size)
        angle = torch.cat([angle, angle], -1)
        cos, sin = torch.cos(angle).to(x.dtype), torch.sin(angle).to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class _Llama(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        self.model = _Body(config)
        self.lm_head = nn.Linear(config.count("hidden_size"), config.count("vocab_size"), bias=False)
        if config.flag("tie_word_embeddings", False):
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.lm_head(self.model(input_ids))


def llama(config: PublishedFields) -> nn.Module:
    """Return a decoder of words, with the scores of all words at every position.

    Raises:
        ConfigError: A field breaks its rule.
    """
    config.architecture(_ARCHITECTURES)
    if config.values.get("model_type") == "mixtral":
        config.notes.append("each expert takes an even share of the rows of every sample: rows beyond it pass it over")
    return _Llama(config)
