"""BERT: three embeddings, norms behind each half of a block, and the head that the architecture names."""

from typing import Any

import torch
from torch import Tensor, nn

from executor.families.blocks import ACTIVATION_NAMES, activation
from executor.families.configuration import PublishedFields
from executor.families.encoder import EncoderBlock, labels_of

BERT_ARCHITECTURES = ("BertModel", "BertForMaskedLM", "BertForSequenceClassification")


class _Embeddings(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        width = config.count("hidden_size")
        self.word_embeddings = nn.Embedding(config.count("vocab_size"), width)
        self.position_embeddings = nn.Embedding(config.count("max_position_embeddings"), width)
        self.token_type_embeddings = nn.Embedding(config.count("type_vocab_size", 2), width)
        self.LayerNorm = nn.LayerNorm(width, eps=config.number("layer_norm_eps", 1e-12))
        self.dropout = nn.Dropout(config.share("hidden_dropout_prob", 0.1))

    def forward(self, words: Tensor) -> Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        x = self.word_embeddings(words) + self.token_type_embeddings(torch.zeros_like(words))
        return self.dropout(self.LayerNorm(x + self.position_embeddings(places)))


class _Body(nn.Module):
    """The encoder; with a pooler it returns the first position through a product and tanh, else all positions."""

    def __init__(self, config: PublishedFields, *, pooled: bool) -> None:
        super().__init__()
        width = config.count("hidden_size")
        blocks = [EncoderBlock(config, "self", before=False) for _ in range(config.count("num_hidden_layers"))]
        self.embeddings, self.encoder = _Embeddings(config), nn.ModuleDict({"layer": nn.Sequential(*blocks)})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(width, width)}) if pooled else None

    def forward(self, words: Tensor) -> Tensor:
        x = self.encoder["layer"](self.embeddings(words))
        return x if self.pooler is None else torch.tanh(self.pooler["dense"](x[:, 0]))


class _WordScores(nn.Module):
    """Head of masked words: a transform, then the scores of all words by their table."""

    def __init__(self, config: PublishedFields, table: Any) -> None:
        super().__init__()
        width = config.count("hidden_size")
        self.transform = nn.ModuleDict(
            {
                "dense": nn.Linear(width, width),
                "act": activation(config.choice("hidden_act", tuple(ACTIVATION_NAMES), "gelu")),
                "LayerNorm": nn.LayerNorm(width, eps=config.number("layer_norm_eps", 1e-12)),
            }
        )
        self.decoder = nn.Linear(width, config.count("vocab_size"))
        if config.flag("tie_word_embeddings", True):
            self.decoder.weight = table

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.transform["LayerNorm"](self.transform["act"](self.transform["dense"](x))))


class _Headed(nn.Module):
    """The encoder with the scores of all words at every position, or with those of classes."""

    def __init__(self, config: PublishedFields, *, words: bool) -> None:
        super().__init__()
        self.bert = _Body(config, pooled=not words)
        if words:
            table = self.bert.embeddings.word_embeddings.weight
            self.cls = nn.ModuleDict({"predictions": _WordScores(config, table)})
        else:
            dropout = config.share("classifier_dropout", config.share("hidden_dropout_prob", 0.1))
            self.dropout = nn.Dropout(dropout)
            self.classifier = nn.Linear(config.count("hidden_size"), labels_of(config))

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.bert(input_ids)
        return self.cls["predictions"](x) if hasattr(self, "cls") else self.classifier(self.dropout(x))


def bert(config: PublishedFields) -> nn.Module:
    """Return an encoder of words with the head of its architecture.

    Raises:
        ConfigError: A field breaks its rule.
    """
    kind = config.architecture(BERT_ARCHITECTURES)
    if kind == "BertModel":  # its keys have no name of the encoder before them
        return _Body(config, pooled=True)
    return _Headed(config, words=kind == "BertForMaskedLM")
