"""Language models as networks: decoders of equal blocks, whose layers are named ``blocks.i.``."""

from typing import Any, TypedDict

from planner.graph.computation_graph import ComputationGraph
from planner.graph.parameters import Parameter
from planner.graph.shapes import IntervalMap
from planner.models.builder import ModelBuilder
from planner.operations.joining import Add
from planner.operations.loss import Loss
from planner.operations.products import Attention, TensorProduct
from planner.operations.rearrangement import Rearrangement
from planner.operations.streaming import Elementwise, Embedding, FeatureNorm

MPT_WORDS = 50368
"""Words of MPT's table."""
_LLAMA_WORDS = 32000
_BYTES = 2
_SAMPLE, _CHANNEL, _LENGTH = (IntervalMap(dim=dim) for dim in ("sample", "channel", "length"))
_ALL = IntervalMap(dim=None)


class _Sizes(TypedDict):
    """Dimensions of an output behind the samples, and their sizes."""

    dims: tuple[str, str]
    sizes: tuple[int, int]


def mpt_network(
    *, layers: int, hidden: int, heads: int, seq_len: int, batch: int, words: int = MPT_WORDS
) -> ComputationGraph:
    """Return MPT as ``orrery import`` makes it of its module.

    It has learned positions, GELU between products four times as wide, biases, and scores by the table of words.

    Args:
        layers: Blocks of attention and two products.
        hidden: Elements of a token, a multiple of ``heads``.
        heads: Heads of attention.
        seq_len: Tokens of a sequence.
        batch: Sequences.
        words: Words of the table.

    Source:
        mosaicml/llm-foundry, llmfoundry/models/mpt.  Parameters that its table counts include biases.
    """
    decoder = _Decoder("mpt", hidden=hidden, heads=heads, seq_len=seq_len, batch=batch, biased=True)
    net, previous = decoder.net, decoder.words(words)
    previous = net.add(decoder.pointwise(hidden, "add", saves="nothing", weights=(decoder.table(seq_len),)), name="add")
    for i in range(layers):
        name = f"blocks.{i}."
        packed = decoder.product(f"{name}Wqkv", decoder.norm(f"{name}norm_1", previous), 3 * hidden)
        parts = [net.add(decoder.slice(hidden * k), packed, name=f"{name}{part}") for k, part in enumerate("qkv")]
        after = decoder.attention(name, previous, *parts)
        wide = decoder.product(f"{name}up_proj", decoder.norm(f"{name}norm_2", after), 4 * hidden)
        wide = net.add(decoder.pointwise(4 * hidden, "gelu"), wide, name=f"{name}gelu")
        down = decoder.product(f"{name}down_proj", wide, hidden, 4 * hidden)
        previous = net.add(Add(), after, down, name=f"{name}add_2")
    decoder.scores(previous, words, shared="wte")
    return net.build()


def llama_network(
    *, layers: int, hidden: int, heads: int, key_heads: int, inner: int, seq_len: int, batch: int
) -> ComputationGraph:
    """Return Llama 2 as a compiler fuses it: rotations of queries and keys, and the gate, are a pass each.

    Args:
        layers: Blocks of attention and three products.
        hidden: Elements of a token, a multiple of ``heads``.
        heads: Heads of the queries, a multiple of ``key_heads``.
        key_heads: Heads of keys and values.
        inner: Elements between the products.
        seq_len: Tokens of a sequence.
        batch: Sequences.

    Source:
        Touvron et al., "Llama 2", 2023, Sec. 2.2.
    """
    decoder = _Decoder("llama", hidden=hidden, heads=heads, seq_len=seq_len, batch=batch, key_heads=key_heads)
    net, previous, few = decoder.net, decoder.words(_LLAMA_WORDS), hidden // heads * key_heads
    for i in range(layers):
        name = f"blocks.{i}."
        start, parts = decoder.norm(f"{name}norm_1", previous), []
        for part, width in (("q", hidden), ("k", few), ("v", few)):
            parts.append(decoder.product(f"{name}{part}_proj", start, width))
            if part != "v":
                parts[-1] = net.add(decoder.pointwise(width, "rotate"), parts[-1], name=f"{name}{part}_rotated")
        after = decoder.attention(name, previous, *parts)
        start = decoder.norm(f"{name}norm_2", after)
        wide = [decoder.product(f"{name}{part}_proj", start, inner) for part in ("gate", "up")]
        gated = net.add(decoder.pointwise(inner, "silu", "mul", inputs=2), *wide, name=f"{name}gated")
        previous = net.add(Add(), after, decoder.product(f"{name}down_proj", gated, hidden, inner), name=f"{name}add_2")
    decoder.scores(previous, _LLAMA_WORDS)
    return net.build()


class _Decoder:
    """Builder of the layers that decoders have."""

    def __init__(
        self, name: str, *, hidden: int, heads: int, seq_len: int, batch: int, key_heads: int = 0, biased: bool = False
    ) -> None:
        self.hidden, self.size, self.seq_len, self.biased = hidden, hidden // heads, seq_len, biased
        self.queries_a_key = heads // (key_heads or heads)
        self.net = ModelBuilder(name, batch=batch, image=(1, seq_len), element_bytes=_BYTES)

    def words(self, count: int) -> str:
        """Add the table of words."""
        reads = ((_SAMPLE, _ALL, _LENGTH),)
        table = Embedding(**self._sizes(self.hidden), reads=reads, weights=(self.table(count),))
        return self.net.add(table, "input", name="wte")

    def table(self, count: int) -> Parameter:
        """Return a row for each of so many words or positions."""
        return Parameter("weight", (count, self.hidden), axis=1)

    def attention(self, name: str, before: str, *parts: str) -> str:
        """Add attention over queries, keys and values, its product, and what was before."""
        head, size = self.size * self.queries_a_key, self.size
        own = IntervalMap(dim="channel", group_out=size, group_in=size)
        shared = own if head == size else IntervalMap(dim="channel", group_out=head, group_in=size)
        values = _CHANNEL if head == size else shared
        attention = Attention(
            **self._sizes(self.hidden),
            keys=self.seq_len,
            key_channels=size,
            value_channels=size,
            causal=True,
            reads=((_SAMPLE, own, _LENGTH), (_SAMPLE, shared, _ALL), (_SAMPLE, values, _ALL)),
        )
        self.net.add(attention, *parts, name=f"{name}attn")
        return self.net.add(
            Add(), before, self.product(f"{name}out_proj", self.net.last, self.hidden), name=f"{name}add"
        )

    def scores(self, previous: str, words: int, shared: str = "") -> None:
        """Add the last norm, the scores of all words, by the table of a layer if one is named, and the loss."""
        normal = self.norm("norm_f", previous)
        self.biased = False
        self.product("scores", normal, words, shared=shared)
        self.net.add(Loss(function="softmax_per_position"), name="loss")

    def norm(self, name: str, source: str) -> str:
        """Add a normalisation of each token: with a bias of its mean, too."""
        weights = [Parameter(each, (self.hidden,)) for each in ("weight", "bias")[: 1 + self.biased]]
        norm = FeatureNorm(
            **self._sizes(self.hidden),
            reads=((_SAMPLE, _ALL, _LENGTH),),
            weights=tuple(weights),
            function="layer_norm" if self.biased else "rms_norm",
        )
        return self.net.add(norm, source, name=name)

    def product(self, name: str, source: str, width: int, depth: int = 0, *, shared: str = "") -> str:
        """Add a product of each token; without ``depth`` of the hidden size."""
        weights = [Parameter("weight", (width, depth or self.hidden), shared=shared)]
        weights += [Parameter("bias", (width,))] if self.biased else []
        product = TensorProduct(
            kind="matrix_product",
            **self._sizes(width),
            reads=((_SAMPLE, _ALL, _LENGTH),),
            weights=tuple(weights),
            depth=float(depth or self.hidden),
        )
        return self.net.add(product, source, name=name)

    def pointwise(self, width: int, *steps: str, inputs: int = 1, **fields: Any) -> Elementwise:
        """Return a pass over so many elements of each token of each input."""
        return Elementwise(**self._sizes(width), reads=((_SAMPLE, _CHANNEL, _LENGTH),) * inputs, steps=steps, **fields)

    def slice(self, first: int) -> Rearrangement:
        """Return the elements of each token from one on."""
        reads = ((_SAMPLE, IntervalMap(dim="channel", offset=-first), _LENGTH),)
        return Rearrangement(kind="slice", **self._sizes(self.hidden), reads=reads)

    def _sizes(self, channels: int) -> _Sizes:
        return {"dims": ("channel", "length"), "sizes": (channels, self.seq_len)}
