"""Small modules for the tests of the importer, each with the sizes of its input and the axes of its tensors."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from executor.families.configuration import PublishedFields
from executor.families.llama import Experts
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs
from planner.tracing.trace import Trace


class _Function(nn.Module):
    """A module that applies a function to its input and its parts."""

    def __init__(self, function: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.parts, self.function = nn.ModuleList(parts), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.parts)


class _Scaled(nn.Module):
    """A tensor times a trained number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class TiedModel(nn.Module):
    """An embedding whose table is also the last matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(32, 16), nn.Linear(16, 32, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.table(ids)))


class _Attention(nn.Module):
    """Attention of 4 heads over a sequence, or of windows of an image that may be shifted."""

    def __init__(self, channels: int, *, window: int = 0, shift: int = 0, explicit: bool = False, kv: int = 4) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(channels, n * channels // 4) for n in (4, kv, kv))
        self.window, self.shift, self.explicit, self.kv = window, shift, explicit, kv

    def forward(self, x: Tensor) -> Tensor:
        if not self.window:
            return self._attend(x)
        x = x.permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        size = self.window
        x = torch.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
        x = x.view(b, h // size, size, w // size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, c)
        y = self._attend(x).view(b, h // size, w // size, size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y).permute(0, 3, 1, 2)

    def _attend(self, x: Tensor) -> Tensor:
        b, length, c = x.shape
        d = c // 4
        q, k, v = (m(x).view(b, length, -1, d).transpose(1, 2) for m in (self.q, self.k, self.v))
        if self.kv < 4:
            k, v = (t[:, :, None].expand(b, self.kv, 4 // self.kv, length, d).reshape(b, 4, length, d) for t in (k, v))
        if self.explicit:
            y = ((q @ k.transpose(-1, -2)) / d**0.5).softmax(-1) @ v
        else:
            y = functional.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).reshape(b, length, c)


def _qkv(x: Tensor, project: nn.Module) -> Tensor:
    """Attention with one projection for queries, keys and values, as vision transformers have."""
    b, length, c = x.shape
    q, k, v = project(x).reshape(b, length, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, length, c)


def _shared_keys(x: Tensor) -> Tensor:
    """Attention of four heads, two of which share their keys and values each, that mixes no channels of others."""
    b, length, c = x.shape
    q, k = (t.reshape(b, length, -1, c // 4).transpose(1, 2) for t in (x, x[..., : c // 2]))
    return functional.scaled_dot_product_attention(q, k, k, enable_gqa=True).transpose(1, 2).reshape(b, length, c)


def _classed(x: Tensor, conv: nn.Module) -> Tensor:
    """Patches of an image behind one more position, as vision transformers have."""
    y = conv(x).flatten(2).transpose(1, 2)
    return torch.cat([y.mean(1, keepdim=True), y], 1)


def _squeezed(x: Tensor, conv: nn.Module) -> Tensor:
    return x * torch.sigmoid(conv(x.mean((2, 3), keepdim=True)))


def _shuffled(x: Tensor, conv: nn.Module) -> Tensor:
    b, c, h, w = x.shape
    return conv(x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w))


def _split(x: Tensor) -> Tensor:
    one, two = x.chunk(2, 1)
    return torch.cat([two, torch.sin(one), x[:, 1:3]], 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A module and what is known of it."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    last: bool = False
    """True if input and output have their channels last."""
    exact: bool = True
    """True if the regions that parts need are known to be boxes, and no smaller ones would do."""


def _routed(x: Tensor, gate: nn.Module) -> Tensor:
    """Sums of rows by weights whose order topk leaves open."""
    weights, places = gate(x).transpose(1, 2).topk(5, -1, sorted=False)
    index = places.flatten(1)[..., None].expand(-1, -1, x.shape[2])
    return torch.zeros_like(x).scatter_add(1, index, x.gather(1, index) * weights.flatten(1)[..., None])


def _f(function: Callable[..., Tensor], *parts: Callable[[], nn.Module], shape: tuple[int, ...], **fields: Any) -> Case:
    return Case(make=lambda: _Function(function, *(part() for part in parts)), shape=shape, **fields)


IMAGE = (2, 4, 8, 8)
SEQUENCE = (2, 8, 16)
EXPERTS = {"hidden_size": 16, "intermediate_size": 12, "num_local_experts": 4, "num_experts_per_tok": 2}
CASES: dict[str, Case] = {
    "convolution": Case(make=lambda: nn.Conv2d(4, 6, 3, padding=1), shape=IMAGE),
    "strided": Case(make=lambda: nn.Conv2d(4, 6, (3, 2), stride=2, padding=(1, 0)), shape=IMAGE),
    "dilated": Case(make=lambda: nn.Conv2d(4, 6, 3, padding=2, dilation=2), shape=IMAGE, exact=False),
    "grouped": Case(make=lambda: nn.Conv2d(4, 8, 3, padding=1, groups=2), shape=IMAGE),
    "depthwise": Case(make=lambda: nn.Conv2d(4, 4, 5, padding=2, groups=4), shape=IMAGE),
    "same": Case(make=lambda: nn.Conv2d(4, 4, 4, padding="same"), shape=IMAGE),
    "transposed": Case(make=lambda: nn.ConvTranspose2d(4, 6, 2, stride=2), shape=IMAGE),
    "transposed, narrower": Case(make=lambda: nn.ConvTranspose2d(4, 2, 2, stride=2), shape=IMAGE),
    "transposed, overlapping": Case(make=lambda: nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1), shape=IMAGE),
    "transposed, grouped": Case(make=lambda: nn.ConvTranspose2d(4, 4, 3, padding=1, groups=2), shape=IMAGE),
    "convolution 1d": Case(make=lambda: nn.Conv1d(4, 6, 3, padding=1), shape=(2, 4, 8)),
    "convolution 3d": Case(make=lambda: nn.Conv3d(2, 4, 3, padding=1), shape=(2, 2, 4, 4, 4)),
    "average pooling": Case(make=lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), shape=IMAGE),
    "adaptive pooling": Case(make=lambda: nn.AdaptiveAvgPool2d(3), shape=IMAGE),
    "nearest": Case(make=lambda: nn.Upsample(scale_factor=2), shape=IMAGE),
    "bilinear": Case(make=lambda: nn.Upsample(size=(20, 12), mode="bilinear"), shape=IMAGE, exact=False),
    "bilinear, aligned": Case(
        make=lambda: nn.Upsample(size=(20, 5), mode="bilinear", align_corners=True), shape=IMAGE, exact=False
    ),
    "bicubic": Case(make=lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"), shape=IMAGE, exact=False),
    "padding": Case(make=lambda: nn.ZeroPad2d((1, 2, 0, 3)), shape=IMAGE),
    "pixel shuffle": _f(lambda x, m: m(functional.pixel_shuffle(x, 2)), lambda: nn.Conv2d(1, 1, 1), shape=IMAGE),
    "pixel unshuffle": _f(
        lambda x, m: m(functional.pixel_unshuffle(x, 2)),
        lambda: nn.Conv2d(16, 16, 1, groups=16),
        shape=IMAGE,
        exact=False,
    ),
    "channel shuffle": _f(_shuffled, lambda: nn.Conv2d(4, 4, 1, groups=4), shape=IMAGE, exact=False),
    "split and join": _f(_split, shape=IMAGE, exact=False),
    "squeeze and excitation": _f(_squeezed, lambda: nn.Conv2d(4, 4, 1), shape=IMAGE, exact=False),
    "linear over sequences": Case(make=lambda: nn.Linear(16, 8), shape=SEQUENCE, last=True),
    "linear over positions": _f(
        lambda x, m: m(x.transpose(1, 2)).transpose(1, 2), lambda: nn.Linear(8, 4), shape=SEQUENCE, last=True
    ),
    "layer norm": Case(make=lambda: nn.LayerNorm(16), shape=SEQUENCE, last=True),
    "group norm": Case(make=lambda: nn.GroupNorm(2, 4), shape=IMAGE),
    "instance norm": Case(make=lambda: nn.InstanceNorm2d(4, affine=True), shape=IMAGE),
    "softmax": Case(make=lambda: nn.Softmax(-1), shape=SEQUENCE, last=True),
    "attention": Case(make=lambda: _Attention(16), shape=SEQUENCE, last=True),
    "attention, written out": Case(make=lambda: _Attention(16, explicit=True), shape=SEQUENCE, last=True),
    "attention, grouped": Case(make=lambda: _Attention(16, kv=2), shape=SEQUENCE, last=True),
    "attention, shared keys": _f(_shared_keys, shape=SEQUENCE, last=True, exact=False),
    "attention, one projection": _f(_qkv, lambda: nn.Linear(16, 48), shape=SEQUENCE, last=True),
    "attention in windows": Case(make=lambda: _Attention(16, window=4), shape=(2, 16, 8, 8)),
    "attention in shifted windows": Case(
        make=lambda: _Attention(16, window=2, shift=1, explicit=True), shape=(2, 16, 8, 8), exact=False
    ),
    "patches": _f(_classed, lambda: nn.Conv2d(4, 8, 2, stride=2), shape=IMAGE, exact=False),
    "merged frames": _f(
        lambda x, m: m(x.transpose(1, 2).reshape(-1, 2, 4, 4)).view(2, 4, 3, 4, 4).transpose(1, 2),
        lambda: nn.Conv2d(2, 3, 3, padding=1),
        shape=(2, 2, 4, 4, 4),
        exact=False,
    ),
    "circular padding": Case(make=lambda: nn.CircularPad2d((1, 2, 0, 3)), shape=IMAGE, exact=False),
    "prelu": Case(make=lambda: nn.PReLU(4), shape=IMAGE),
    "prelu of one slope": Case(make=lambda: nn.PReLU(), shape=IMAGE),
    "norm over planes": Case(make=lambda: nn.LayerNorm([8, 8]), shape=IMAGE),
    "norm over all": Case(make=lambda: nn.LayerNorm([4, 8, 8]), shape=IMAGE),
    "gated": _f(lambda x: functional.glu(x, 1), shape=IMAGE, exact=False),
    "gated, last": _f(lambda x: functional.glu(x), shape=SEQUENCE, last=True, exact=False),
    "learned number": Case(make=_Scaled, shape=IMAGE),
    "learned, expanded as data": _f(
        lambda x, m: x + m.weight.expand_as(x), lambda: nn.Embedding(8, 16), shape=SEQUENCE, last=True, exact=False
    ),
    "rotation": _f(lambda x: torch.tanh(torch.roll(x, 3, 2)), shape=IMAGE, exact=False),
    "experts": Case(
        make=lambda: Experts(PublishedFields(Path("small.json"), EXPERTS)), shape=SEQUENCE, last=True, exact=False
    ),
    "rows in any order": _f(_routed, lambda: nn.Linear(16, 4), shape=SEQUENCE, last=True, exact=False),
    "einsum": _f(
        lambda x, m: torch.einsum("blc,bmc->blm", x, m(x)),
        lambda: nn.Linear(16, 16),
        shape=SEQUENCE,
        last=True,
        exact=False,
    ),
}


@cache
def traced(name: str) -> Trace:
    """Trace of a case, made once in a process; whoever asks first finds the same random numbers behind it as others."""
    with torch.random.fork_rng():
        return trace_of(CASES[name].make(), input_specs(["x".join(map(str, CASES[name].shape))]))
