"""Vision transformer: patches of an image behind a learned position of the class, norms before each half of a block."""

import torch
from torch import Tensor, nn

from executor.families.configuration import PublishedFields
from executor.families.encoder import EncoderBlock, labels_of

VIT_ARCHITECTURES = ("ViTForImageClassification", "ViTModel")


class _Embeddings(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        width, patch = config.count("hidden_size"), config.count("patch_size", 16)
        side = config.count("image_size", 224) // patch
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.position_embeddings = nn.Parameter(torch.empty(1, side * side + 1, width))
        patches = nn.Conv2d(config.count("num_channels", 3), width, patch, patch)
        self.patch_embeddings = nn.ModuleDict({"projection": patches})
        self.dropout = nn.Dropout(config.share("hidden_dropout_prob", 0.0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embeddings["projection"](x).flatten(2).transpose(1, 2)
        return self.dropout(torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.position_embeddings)


class _Body(nn.Module):
    """The encoder, which returns the first position; a pooler makes a product and tanh of it."""

    def __init__(self, config: PublishedFields, *, pooled: bool) -> None:
        super().__init__()
        width = config.count("hidden_size")
        blocks = [EncoderBlock(config, "attention", before=True) for _ in range(config.count("num_hidden_layers"))]
        self.embeddings, self.encoder = _Embeddings(config), nn.ModuleDict({"layer": nn.Sequential(*blocks)})
        self.layernorm = nn.LayerNorm(width, eps=config.number("layer_norm_eps", 1e-12))
        self.pooler = nn.ModuleDict({"dense": nn.Linear(width, width)}) if pooled else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.layernorm(self.encoder["layer"](self.embeddings(x)))[:, 0]
        return x if self.pooler is None else torch.tanh(self.pooler["dense"](x))


class _Classifier(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        self.vit = _Body(config, pooled=False)
        self.classifier = nn.Linear(config.count("hidden_size"), labels_of(config))

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.classifier(self.vit(pixel_values))


def vit(config: PublishedFields) -> nn.Module:
    """Return an encoder of images, with the scores of classes where its architecture has them.

    Raises:
        ConfigError: A field breaks its rule.
    """
    headed = config.architecture(VIT_ARCHITECTURES) == "ViTForImageClassification"
    return _Classifier(config) if headed else _Body(config, pooled=True)
