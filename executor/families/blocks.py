"""Parts that several families have: attention of heads, activations, and tables of positions."""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import functional

ACTIVATION_NAMES: Mapping[str, str] = {
    "gelu": "none",
    "gelu_new": "tanh",
    "gelu_pytorch_tanh": "tanh",
    "silu": "",
    "swish": "",
    "relu": "",
    "tanh": "",
}
"""Names of activations in configurations; of GELU with its approximation."""
_PLAIN: Mapping[str, type[nn.Module]] = {"silu": nn.SiLU, "swish": nn.SiLU, "relu": nn.ReLU, "tanh": nn.Tanh}


def activation(name: str) -> nn.Module:
    """Return the activation of a name of ``ACTIVATION_NAMES``."""
    return _PLAIN[name]() if name in _PLAIN else nn.GELU(ACTIVATION_NAMES[name])


def joined_heads(
    query: Tensor, key: Tensor, value: Tensor, size: int, *, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """Return the attention of heads, joined.

    Args:
        query: Shape (samples, queries, heads x size).
        key: Shape (samples, keys, heads x size).
        value: As ``key``.
        size: Channels of a head.
        causal: Whether each query reads the keys up to its own position only.
        dropout: Share of the weights that is dropped.
    """
    q, k, v = (each.unflatten(-1, (-1, size)).transpose(1, 2) for each in (query, key, value))
    y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    return y.transpose(1, 2).flatten(2)
