"""Blocks of the encoders BERT and ViT: norms behind each half of a block, or before it."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from executor.families.blocks import ACTIVATION_NAMES, activation, joined_heads
from executor.families.configuration import PublishedFields


class _Projections(nn.Module):
    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width, bias=bias) for _ in range(3))


class _Output(nn.Module):
    """The product behind attention or the wider layer, with the norm where norms come behind."""

    def __init__(self, inputs: int, width: int, dropout: float, norm: nn.Module | None) -> None:
        super().__init__()
        self.dense, self.dropout = nn.Linear(inputs, width), nn.Dropout(dropout)
        if norm is not None:
            self.LayerNorm = norm

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        y = self.dropout(self.dense(x)) + kept
        return self.LayerNorm(y) if hasattr(self, "LayerNorm") else y


class EncoderBlock(nn.Module):
    """A block of attention to all positions and of two products, with the keys of the published weights.

    Args:
        config: The configuration.
        name: Key of the three projections: ``self`` in BERT, ``attention`` in ViT.
        before: Whether norms come before each half, as in ViT.
    """

    def __init__(self, config: PublishedFields, name: str, *, before: bool) -> None:
        super().__init__()
        width, inner = config.count("hidden_size"), config.count("intermediate_size")
        eps, dropout = (
            config.number("layer_norm_eps", 1e-12),
            config.share("hidden_dropout_prob", 0.0 if before else 0.1),
        )
        norms = [nn.LayerNorm(width, eps=eps) for _ in range(2)]
        if before:
            self.layernorm_before, self.layernorm_after = norms
        behind = [None if before else norm for norm in norms]
        self.size = config.head_size(width, config.count("num_attention_heads"))
        self.attention_dropout = config.share("attention_probs_dropout_prob", 0.0 if before else 0.1)
        self.name, self.before = name, before
        self.attention = nn.ModuleDict(
            {
                name: _Projections(width, config.flag("qkv_bias", True)),
                "output": _Output(width, width, dropout, behind[0]),
            }
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.act = activation(config.choice("hidden_act", tuple(ACTIVATION_NAMES), "gelu"))
        self.output = _Output(inner, width, dropout, behind[1])

    def forward(self, x: Tensor) -> Tensor:
        """Return the result of the block, of the input's shape (samples, length, channels)."""
        y = self.layernorm_before(x) if self.before else x
        rows: Any = self.attention[self.name]
        dropout = self.attention_dropout if self.training else 0.0
        y = joined_heads(rows.query(y), rows.key(y), rows.value(y), self.size, dropout=dropout)
        x = self.attention["output"](y, x)
        y = self.layernorm_after(x) if self.before else x
        return self.output(self.act(self.intermediate["dense"](y)), x)


def labels_of(config: PublishedFields) -> int:
    """Return the number of classes: of ``id2label``, of ``num_labels``, or 2, as Transformers has it."""
    names = config.values.get("id2label")
    return len(names) if isinstance(names, Mapping) and names else config.count("num_labels", 2)
