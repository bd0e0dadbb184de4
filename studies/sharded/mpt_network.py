"""MPT as a network: a decoder with learned positions, GELU between products four times as wide, and tied words."""

from typing import TypedDict

from planner.graph import ComputationGraph, IntervalMap, Parameter
from planner.models import ModelBuilder
from planner.operations import Add, Attention, Elementwise, Embedding, FeatureNorm, Loss, Rearrangement, TensorProduct

__all__ = ["WORDS", "mpt_network"]

WORDS = 50368
"""Words of the table."""
_BYTES = 2
_SAMPLE, _CHANNEL, _LENGTH = (IntervalMap(dim=dim) for dim in ("sample", "channel", "length"))
_ALL = IntervalMap(dim=None)


class _Sizes(TypedDict):
    """Dimensions of an output behind the samples, and their sizes."""

    dims: tuple[str, str]
    sizes: tuple[int, int]


def mpt_network(*, layers: int, hidden: int, heads: int, seq_len: int, batch: int) -> ComputationGraph:
    """Return MPT as ``orrery import`` makes it of its module; layers of block i are named ``blocks.i.``.

    Args:
        layers: Blocks of attention and two products.
        hidden: Elements of a token, a multiple of ``heads``.
        heads: Heads of attention.
        seq_len: Tokens of a sequence.
        batch: Sequences.

    Source:
        mosaicml/llm-foundry, llmfoundry/models/mpt.  Parameters that its table counts include biases.
    """
    decoder = _Decoder(
        hidden, heads, seq_len, ModelBuilder("mpt", batch=batch, image=(1, seq_len), element_bytes=_BYTES)
    )
    decoder.words()
    for i in range(layers):
        decoder.block(f"blocks.{i}.")
    decoder.logits()
    return decoder.net.build()


class _Decoder:
    """Builder of the layers, one after another."""

    def __init__(self, hidden: int, heads: int, seq_len: int, net: ModelBuilder) -> None:
        self.hidden, self.heads, self.seq_len, self.net = hidden, heads, seq_len, net

    def words(self) -> None:
        """Add the words and their positions."""
        words, positions = (Parameter("weight", (count, self.hidden), axis=1) for count in (WORDS, self.seq_len))
        reads = ((_SAMPLE, _ALL, _LENGTH),)
        self.net.add(Embedding(**self._sizes(self.hidden), reads=reads, weights=(words,)), "input", name="wte")
        added = Elementwise(
            **self._sizes(self.hidden), reads=((_SAMPLE, _CHANNEL, _LENGTH),), weights=(positions,), steps=("add",),
            saves="nothing",
        )  # fmt: skip
        self.net.add(added, name="add")

    def block(self, name: str) -> None:
        """Add a block, whose layers' names begin so."""
        net, hidden, size = self.net, self.hidden, self.hidden // self.heads
        before = net.last
        self._norm(f"{name}norm_1")
        packed = self._product(f"{name}Wqkv", 3 * hidden, hidden)
        parts = [
            net.add(self._slice(hidden * number), packed, name=f"{name}{part}") for number, part in enumerate("qkv")
        ]
        head = IntervalMap(dim="channel", group_out=size, group_in=size)
        attention = Attention(
            **self._sizes(hidden), keys=self.seq_len, key_channels=size, value_channels=size, causal=True,
            reads=((_SAMPLE, head, _LENGTH), (_SAMPLE, head, _ALL), (_SAMPLE, _CHANNEL, _ALL)),
        )  # fmt: skip
        net.add(attention, *parts, name=f"{name}attn")
        after = net.add(Add(), before, self._product(f"{name}out_proj", hidden, hidden), name=f"{name}add")
        self._norm(f"{name}norm_2")
        self._product(f"{name}up_proj", 4 * hidden, hidden)
        reads = ((_SAMPLE, _CHANNEL, _LENGTH),)
        net.add(Elementwise(**self._sizes(4 * hidden), reads=reads, steps=("gelu",)), name=f"{name}gelu")
        net.add(Add(), after, self._product(f"{name}down_proj", hidden, 4 * hidden), name=f"{name}add_2")

    def logits(self) -> None:
        """Add the last norm, the scores of all words by the words' own table, and the loss."""
        self._norm("norm_f")
        self._product("logits", WORDS, self.hidden, shared="wte")
        self.net.add(Loss(function="softmax_per_position"), name="loss")

    def _norm(self, name: str) -> str:
        weights = (Parameter("weight", (self.hidden,)), Parameter("bias", (self.hidden,)))
        norm = FeatureNorm(
            **self._sizes(self.hidden), reads=((_SAMPLE, _ALL, _LENGTH),), weights=weights, function="layer_norm"
        )
        return self.net.add(norm, name=name)

    def _product(self, name: str, width: int, depth: int, *, shared: str = "") -> str:
        weights = [Parameter("weight", (width, depth), shared=shared)]
        weights += [] if shared else [Parameter("bias", (width,))]
        product = TensorProduct(
            kind="matrix_product", **self._sizes(width), reads=((_SAMPLE, _ALL, _LENGTH),), weights=tuple(weights),
            depth=float(depth),
        )  # fmt: skip
        return self.net.add(product, name=name)

    def _slice(self, first: int) -> Rearrangement:
        reads = ((_SAMPLE, IntervalMap(dim="channel", offset=-first), _LENGTH),)
        return Rearrangement(kind="slice", **self._sizes(self.hidden), reads=reads)

    def _sizes(self, channels: int) -> _Sizes:
        return {"dims": ("channel", "length"), "sizes": (channels, self.seq_len)}
