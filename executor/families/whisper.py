"""Whisper: an encoder of spectra behind two convolutions, and a decoder of words that attends to it."""

import torch
from torch import Tensor, nn

from executor.families.blocks import ACTIVATION_NAMES, activation, joined_heads
from executor.families.configuration import PublishedFields


class _Attention(nn.Module):
    """Attention to the sequence itself, or to another; keys have no bias."""

    def __init__(self, config: PublishedFields, heads: int) -> None:
        super().__init__()
        width = config.count("d_model")
        self.size, self.dropout = config.head_size(width, heads), config.share("attention_dropout", 0.0)
        self.k_proj, self.v_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.q_proj, self.out_proj = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, other: Tensor, causal: bool) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(other), self.v_proj(other)
        dropout = self.dropout if self.training else 0.0
        return self.out_proj(joined_heads(q, k, v, self.size, causal=causal, dropout=dropout))


class _Block(nn.Module):
    """Block of the encoder, or of the decoder, which attends to the encoder's result between the two halves."""

    def __init__(self, config: PublishedFields, side: str) -> None:
        super().__init__()
        width, inner = config.count("d_model"), config.count(f"{side}_ffn_dim")
        heads, self.decodes = config.count(f"{side}_attention_heads"), side == "decoder"
        self.self_attn, self.self_attn_layer_norm = _Attention(config, heads), nn.LayerNorm(width)
        if self.decodes:
            self.encoder_attn, self.encoder_attn_layer_norm = _Attention(config, heads), nn.LayerNorm(width)
        self.activation_fn = activation(config.choice("activation_function", tuple(ACTIVATION_NAMES), "gelu"))
        self.fc1, self.fc2, self.final_layer_norm = (
            nn.Linear(width, inner),
            nn.Linear(inner, width),
            nn.LayerNorm(width),
        )
        self.dropout = nn.Dropout(config.share("dropout", 0.0))
        self.activation_dropout = nn.Dropout(config.share("activation_dropout", 0.0))

    def forward(self, x: Tensor, encoded: Tensor | None = None) -> Tensor:
        y = self.self_attn_layer_norm(x)
        x = x + self.dropout(self.self_attn(y, y, self.decodes))
        if encoded is not None:
            x = x + self.dropout(self.encoder_attn(self.encoder_attn_layer_norm(x), encoded, False))
        y = self.activation_dropout(self.activation_fn(self.fc1(self.final_layer_norm(x))))
        return x + self.dropout(self.fc2(y))


class _Encoder(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        width = config.count("d_model")
        self.conv1 = nn.Conv1d(config.count("num_mel_bins", 80), width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(config.count("max_source_positions", 1500), width)
        self.embed_positions.weight.requires_grad_(False)  # published weights hold sines, which are never trained
        self.layers = nn.ModuleList(_Block(config, "encoder") for _ in range(config.count("encoder_layers")))
        self.layer_norm, self.gelu = nn.LayerNorm(width), nn.GELU()
        self.dropout = nn.Dropout(config.share("dropout", 0.0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.gelu(self.conv2(self.gelu(self.conv1(x)))).transpose(1, 2)
        x = self.dropout(x + self.embed_positions.weight)
        for block in self.layers:
            x = block(x)
        return self.layer_norm(x)


class _Decoder(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        width = config.count("d_model")
        self.embed_tokens = nn.Embedding(config.count("vocab_size"), width)
        self.embed_positions = nn.Embedding(config.count("max_target_positions", 448), width)
        self.layers = nn.ModuleList(_Block(config, "decoder") for _ in range(config.count("decoder_layers")))
        self.layer_norm, self.dropout = nn.LayerNorm(width), nn.Dropout(config.share("dropout", 0.0))

    def forward(self, words: Tensor, encoded: Tensor) -> Tensor:
        x = self.embed_tokens(words) + self.embed_positions(torch.arange(words.shape[1], device=words.device))
        x = self.dropout(x)
        for block in self.layers:
            x = block(x, encoded)
        return self.layer_norm(x)


class _Whisper(nn.Module):
    def __init__(self, config: PublishedFields) -> None:
        super().__init__()
        decoder = _Decoder(config)
        self.model = nn.ModuleDict({"encoder": _Encoder(config), "decoder": decoder})
        self.proj_out = nn.Linear(config.count("d_model"), config.count("vocab_size"), bias=False)
        self.proj_out.weight = decoder.embed_tokens.weight

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> Tensor:
        return self.proj_out(self.model["decoder"](decoder_input_ids, self.model["encoder"](input_features)))


def whisper(config: PublishedFields) -> nn.Module:
    """Return an encoder of spectra with a decoder of words, and the scores of all words at every position.

    Raises:
        ConfigError: A field breaks its rule.
    """
    config.architecture(("WhisperForConditionalGeneration",))
    return _Whisper(config)
