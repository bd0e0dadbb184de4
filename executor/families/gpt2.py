"""GPT-2: learned positions, norms before each half of a block, the table of words as last matrix."""

import torch
from torch import Tensor, nn

from executor.families.blocks import ACTIVATION_NAMES, activation, joined_heads
from executor.families.configuration import PublishedFields


class _Product(nn.Module):
    """Linear layer whose matrix has its inputs first, as GPT-2's published weights have."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(inputs, outputs)), nn.Parameter(torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return y.view(*x.shape[:-1], y.shape[-1])


class _Attention(nn.Module):
    def __init__(self, config: PublishedFields, width: int) -> None:
        super().__init__()
        self.c_attn, self.c_proj = _Product(width, 3 * width), _Product(width, width)
        self.size = config.head_size(width, config.count("n_head"))
        self.dropout = config.share("attn_pdrop", 0.1)
        self.resid_dropout = nn.Dropout(config.share("resid_pdrop", 0.1))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.c_attn(x).chunk(3, -1)
        dropout = self.dropout if self.training else 0.0
        return self.resid_dropout(self.c_proj(joined_heads(query, key, value, self.size, causal=True, dropout=dropout)))


class _Mlp(nn.Module):
    def __init__(self, config: PublishedFields, width: int) -> None:
        super().__init__()
        inner = config.count("n_inner", 4 * width)
        self.c_fc, self.c_proj = _Product(width, inner), _Product(inner, width)
        self.act = activation(config.choice("activation_function", tuple(ACTIVATION_NAMES), "gelu_new"))
        self.dropout = nn.Dropout(config.share("resid_pdrop", 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(self.act(self.c_fc(x))))


class _Block(nn.Module):
    def __init__(self, config: PublishedFields, width: int) -> None:
        super().__init__()
        eps = config.number("layer_norm_epsilon", 1e-5)
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.attn, self.mlp = _Attention(config, width), _Mlp(config, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class _Body(nn.Module):
    def __init__(self, config: PublishedFields, width: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.count("vocab_size"), width)
        self.wpe = nn.Embedding(config.count("n_positions"), width)
        self.drop = nn.Dropout(config.share("embd_pdrop", 0.1))
        self.h = nn.ModuleList(_Block(config, width) for _ in range(config.count("n_layer")))
        self.ln_f = nn.LayerNorm(width, eps=config.number("layer_norm_epsilon", 1e-5))

    def forward(self, words: Tensor) -> Tensor:
        x = self.drop(self.wte(words) + self.wpe(torch.arange(words.shape[1], device=words.device)))
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class _Gpt2(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        width = config.count("n_embd")
        self.transformer = _Body(config, width)
        self.lm_head = nn.Linear(width, config.count("vocab_size"), bias=False)
        if config.flag("tie_word_embeddings", True):
            self.lm_head.weight = self.transformer.wte.weight

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.lm_head(self.transformer(input_ids))


def gpt2(config: PublishedFields) -> nn.Module:
    """Return a decoder of words, with the scores of all words at every position.

    Raises:
        ConfigError: A field breaks its rule.
    """
    config.architecture(("GPT2LMHeadModel",))
    return _Gpt2(config)
