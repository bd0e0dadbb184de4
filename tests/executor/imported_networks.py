"""Small networks of the kinds that users import, from torch.nn alone, each with its input and its loss."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from executor.families.configuration import PublishedFields
from executor.families.gpt2 import gpt2
from executor.families.llama import llama


class _Basic(nn.Module):
    """Residual block of ResNet-18."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        short = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))
        self.downsample = short if stride > 1 or inputs != channels else None

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.downsample is None else self.downsample(x)
        return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + kept)


class ResNet18(nn.Module):
    """ResNet-18 of narrow layers: two blocks in each of four stages."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        widths = [4, 4, 8, 8, 8]
        stages = [[_Basic(a, b, 1 if i == 0 else 2), _Basic(b, b, 1)] for i, (a, b) in enumerate(pairwise(widths))]
        self.layers = nn.Sequential(*(nn.Sequential(*stage) for stage in stages))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.pool(self.layers(self.stem(x))), 1))


class _Inverted(nn.Module):
    """Inverted residual of MobileNet-v2."""

    def __init__(self, inputs: int, channels: int, stride: int, wider: int) -> None:
        super().__init__()
        inner = inputs * wider
        self.body = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False),
            nn.BatchNorm2d(inner, eps=1e-3),
            nn.ReLU6(inplace=True),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(True),
            nn.Conv2d(inner, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.adds = stride == 1 and inputs == channels

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


class MobileNetV2(nn.Module):
    """MobileNet-v2 of four inverted residuals, the last norm without a scale and the last activation with slopes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 3, 2, 1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU6(inplace=True),
            _Inverted(4, 4, 1, 1),
            _Inverted(4, 8, 2, 3),
            _Inverted(8, 8, 1, 3),
            _Inverted(8, 8, 1, 3),
            nn.Conv2d(8, 16, 1, bias=False),
            nn.BatchNorm2d(16, affine=False),
            nn.PReLU(16),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(functional.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1))


class _Next(nn.Module):
    """Block of ConvNeXt: depthwise 7 x 7, norm over channels, two linear layers, a factor for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.act, self.gamma = nn.GELU(), nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(self.act(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


class Crossing(nn.Module):
    """U-Net of one level, with the peak of its memory at the transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.inner = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 64, 3, padding=1)
        self.up, self.join = nn.ConvTranspose2d(64, 32, 2, 2), nn.Conv2d(36, 4, 3, padding=1)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        kept = functional.relu(self.down(x))
        inner = functional.relu(self.inner(functional.max_pool2d(kept, 2)))
        joined = functional.relu(self.join(torch.cat([kept, self.up(inner)], 1)))
        return self.head(joined.mean((2, 3)))


class _Norm2d(nn.Module):
    """Normalisation over channels that come second, written out as ConvNeXt has it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        spread = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(spread + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ConvNeXt(nn.Module):
    """ConvNeXt-T with two stages of one block."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 2, 2), _Norm2d(8))
        self.first, self.second = _Next(8), _Next(16)
        self.down = nn.Sequential(_Norm2d(8), nn.Conv2d(8, 16, 2, 2))
        self.norm, self.head = nn.LayerNorm(16, eps=1e-6), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.down(self.first(self.stem(x))))
        return self.head(self.norm(x.mean([-2, -1])))


class _Encoder(nn.Module):
    """Transformer block with its norms before (ViT, GPT-2) or behind (BERT); attention fused or written out."""

    def __init__(self, width: int, heads: int, *, before: bool, causal: bool = False, explicit: bool = False) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width, eps=1e-12)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3)) if explicit else (None,) * 3
        if explicit:
            del self.qkv
        act = nn.GELU("tanh") if causal else nn.GELU()
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), act, nn.Linear(2 * width, width))
        self.heads, self.before, self.causal, self.explicit = heads, before, causal, explicit

    def attend(self, x: Tensor) -> Tensor:
        b, length, width = x.shape
        depth = width // self.heads
        if not self.explicit:
            q, k, v = self.qkv(x).view(b, length, 3, self.heads, depth).permute(2, 0, 3, 1, 4).unbind(0)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            q, k, v = (
                m(x).view(b, length, self.heads, depth).transpose(1, 2) for m in (self.query, self.key, self.value)
            )
            y = torch.softmax(q @ k.transpose(-1, -2) / depth**0.5, -1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, length, width))

    def forward(self, x: Tensor) -> Tensor:
        if self.before:
            x = x + self.attend(self.ln1(x))
            return x + self.mlp(self.ln2(x))
        x = self.ln1(x + self.attend(x))
        return self.ln2(x + self.mlp(x))


class ViT(nn.Module):
    """Vision transformer: patches, a class token, positions, two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.cls, self.positions = nn.Parameter(torch.zeros(1, 1, 16)), nn.Parameter(torch.zeros(1, 17, 16))
        self.blocks = nn.Sequential(*(_Encoder(16, 4, before=True) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class Bert(nn.Module):
    """BERT: three embeddings, two blocks of attention written out, the pooled first position."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.types = nn.Embedding(24, 16), nn.Embedding(12, 16), nn.Embedding(2, 16)
        self.norm = nn.LayerNorm(16, eps=1e-12)
        self.blocks = nn.Sequential(*(_Encoder(16, 4, before=False, explicit=True) for _ in range(2)))
        self.pooler, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        types = torch.zeros_like(ids)
        x = self.norm(self.words(ids) + self.types(types) + self.places(places))
        return self.head(torch.tanh(self.pooler(self.blocks(x)[:, 0])))


class Gpt2(nn.Module):
    """GPT-2: words and positions, two causal blocks, scores of all words at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(24, 16), nn.Embedding(12, 16)
        self.blocks = nn.Sequential(*(_Encoder(16, 4, before=True, causal=True) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 24, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


class Windows(nn.Module):
    """Shifted windows with a bias by relative place, and a product over positions: parameters without channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.qkv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 24), nn.LayerNorm(8)
        self.bias, self.mix, self.head = nn.Parameter(torch.zeros(49, 2)), nn.Linear(64, 64), nn.Linear(8, 4)
        self.mix_norm = nn.LayerNorm([8, 64])
        rows = torch.arange(4)
        place = torch.stack(torch.meshgrid(rows, rows, indexing="ij")).flatten(1)
        away = place[:, :, None] - place[:, None, :] + 3
        self.register_buffer("index", 7 * away[0] + away[1], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.roll(self.stem(x).permute(0, 2, 3, 1), (-1, -1), (1, 2))
        b, c = len(x), 8
        x = x.view(b, 2, 4, 2, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b * 4, 16, c)
        q, k, v = self.qkv(self.norm(x)).reshape(b * 4, 16, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.bias[self.index.view(-1)].view(16, 16, 2).permute(2, 0, 1)[None]
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(b * 4, 16, c)
        y = y.view(b, 2, 2, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, 64, c).transpose(1, 2)
        return self.head(self.mix(self.mix_norm(functional.gelu(y))).mean(2))


class TiedBert(Bert):
    """BERT with the head of masked words: a transform, then scores with the table of words, and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.transform, self.act, self.scores = nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 24)
        self.scores.weight = self.words.weight
        del self.pooler, self.head

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.types(torch.zeros_like(ids)) + self.places(places))
        return self.scores(self.act(self.transform(self.blocks(x))))


def _published(make: Callable[[PublishedFields], nn.Module], **fields: Any) -> nn.Module:
    """Return the module of a published configuration, with values."""
    return make(PublishedFields(Path("config.json"), fields))


def _qwen2() -> nn.Module:
    """Qwen2: keys and values of half the heads, biases before attention, one table for words and their scores."""
    return _published(
        llama,
        model_type="qwen2",
        hidden_size=16,
        intermediate_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=2,
        vocab_size=24,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_theta=10.0,
    )


def _gpt2() -> nn.Module:
    """GPT-2 with matrices whose inputs come first, without dropout."""
    return _published(
        gpt2,
        n_embd=16,
        n_layer=1,
        n_head=4,
        n_positions=12,
        vocab_size=24,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
    )


class TiedGpt2(Gpt2):
    """GPT-2 whose scores of words are made with the table of words."""

    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.wte.weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network and how it is trained in plain PyTorch."""

    make: Callable[[], nn.Module]
    sizes: str
    """Input of a batch, as the import takes it."""
    loss: str = "softmax"

    @property
    def batch(self) -> int:
        """Samples of a batch."""
        return int(self.sizes.split("x")[0])

    def inputs(self, values: Tensor) -> Tensor:
        """Return data as the module takes them."""
        return values.squeeze(1).long() if self.sizes.endswith(":int") else values

    def loss_of(self, output: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        if self.loss == "softmax":
            return functional.cross_entropy(output, targets)
        if self.loss == "softmax_per_position":
            return functional.cross_entropy(output.movedim(-1, 1), targets)
        return functional.mse_loss(output.movedim(-1, 1), targets)


NETWORKS: dict[str, Network] = {
    "resnet-18": Network(make=ResNet18, sizes="8x3x16x16"),
    "mobilenet-v2": Network(make=MobileNetV2, sizes="8x3x16x16"),
    "convnext-t": Network(make=ConvNeXt, sizes="8x3x16x16"),
    "vit-tiny": Network(make=ViT, sizes="8x3x16x16"),
    "bert-tiny": Network(make=TiedBert, sizes="8x8:int", loss="softmax_per_position"),
    "llama-tiny": Network(make=_qwen2, sizes="8x8:int", loss="softmax_per_position"),
    "windows": Network(make=Windows, sizes="8x3x8x8"),
    "crossing": Network(make=Crossing, sizes="8x3x32x32"),
    "gpt2-published": Network(make=_gpt2, sizes="8x8:int", loss="softmax_per_position"),
    "gpt2-tiny": Network(make=TiedGpt2, sizes="8x8:int", loss="mean_squared_error"),
}
