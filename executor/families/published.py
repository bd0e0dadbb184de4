"""Modules of published configurations, with the inputs and the loss that they are trained with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from executor.families.bert import BERT_ARCHITECTURES, bert
from executor.families.configuration import PublishedFields, read_configuration
from executor.families.gpt2 import gpt2
from executor.families.llama import llama
from executor.families.vit import VIT_ARCHITECTURES, vit
from executor.families.whisper import whisper
from groundwork.errors import ConfigError
from planner.tracing.inputs import InputSpec

_MOST_WORDS = 4096
"""Longest sequence that is imported unless the user gives one: attention of longer ones is seldom trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredModel:
    """A module and how it is trained."""

    module: nn.Module
    """On the meta device."""
    inputs: tuple[InputSpec, ...]
    loss: str
    notes: tuple[str, ...]
    """What was chosen for the user, and what of the configuration is not followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """How the modules of a family are made."""

    make: Callable[[PublishedFields], nn.Module]
    inputs: Callable[[PublishedFields], tuple[InputSpec, ...]]
    """Inputs of one sample, sequences of words as long as the configuration allows."""
    loss: Callable[[PublishedFields], str] = lambda _: "softmax_per_position"
    any_length: bool = False
    """True if sequences may be longer than the configuration says, as positions are no table."""


def _words(field: str, default: int = 0) -> Callable[[PublishedFields], tuple[InputSpec, ...]]:
    """Return the function that gives the input of a family that reads words."""
    return lambda config: (_spec(config.count(field, *([default] if default else [])), floating=False),)


def _spec(*sizes: int, floating: bool = True) -> InputSpec:
    return InputSpec(shape=(1, *sizes), floating=floating)


def _image(config: PublishedFields) -> tuple[InputSpec, ...]:
    side = config.count("image_size", 224)
    return (_spec(config.count("num_channels", 3), side, side),)


def _speech(config: PublishedFields) -> tuple[InputSpec, ...]:
    """Return the inputs of Whisper, whose second convolution has stride 2."""
    spectra = _spec(config.count("num_mel_bins", 80), 2 * config.count("max_source_positions", 1500))
    return (spectra, *_words("max_target_positions", 448)(config))


def _loss(known: Sequence[str], *losses: str) -> Callable[[PublishedFields], str]:
    """Return the function that gives the loss of each architecture."""
    return lambda config: losses[known.index(config.architecture(known))]


_LLAMA = _Family(make=llama, inputs=_words("max_position_embeddings", 2048), any_length=True)
_FAMILIES: Mapping[str, _Family] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "qwen2": _LLAMA,
    "gpt2": _Family(make=gpt2, inputs=_words("n_positions", 1024)),
    "bert": _Family(
        make=bert,
        inputs=_words("max_position_embeddings"),
        loss=_loss(BERT_ARCHITECTURES, "mean_squared_error", "softmax_per_position", "softmax"),
    ),
    "vit": _Family(make=vit, inputs=_image, loss=_loss(VIT_ARCHITECTURES, "softmax", "mean_squared_error")),
    "whisper": _Family(make=whisper, inputs=_speech),
}
"""By ``model_type``."""


def configured_model(path: Path, given: Sequence[InputSpec] = ()) -> ConfiguredModel:
    """Build the module of a published configuration, without weights.

    Args:
        path: The ``config.json`` that is published with a model's weights.
        given: Sizes of its inputs; none: one sample, of words as many as the configuration allows, at most 4,096.

    Raises:
        ConfigError: The file is no configuration, its family is not known, a field breaks its rule, or the sizes do not
            fit it.
    """
    config = read_configuration(path)
    family = _FAMILIES[_family_of(config)]
    own = family.inputs(config)
    if given:
        inputs = tuple(given)
        _check_inputs(inputs, own, family.any_length)
    else:
        inputs = tuple(each if each.floating else _capped(config, each) for each in own)
        if family.any_length and "max_position_embeddings" not in config.values:
            config.notes.append(
                f"sequences have {inputs[0].shape[1]:,} words, as the configuration has no max_position_embeddings: "
                f"--input 1xN:int imports longer or shorter ones"
            )
    _note_window(config, max(each.shape[1] for each in inputs))
    try:
        with torch.device("meta"):
            module = family.make(config)
    except RuntimeError as error:  # tensors of more elements than PyTorch can count
        raise ConfigError(f"configuration {path}: {' '.join(str(error).split())[:160]}") from None
    return ConfiguredModel(module=module, inputs=inputs, loss=family.loss(config), notes=tuple(config.notes))


def _family_of(config: PublishedFields) -> str:
    """Return the family of a configuration.

    Raises:
        ConfigError: None is named, or one that is not known.
    """
    kind = config.values.get("model_type")
    if isinstance(kind, str) and kind in _FAMILIES:
        return kind
    raise ConfigError(
        f"configuration {config.path}: model_type must be one of {', '.join(_FAMILIES)}, got {str(kind)[:80]!r}; "
        f"import other models from their code, as package.module:function"
    )


def _capped(config: PublishedFields, words: InputSpec) -> InputSpec:
    """Return an input of words that is no longer than what is imported unless the user says so."""
    length = words.shape[1]
    if length <= _MOST_WORDS:
        return words
    config.notes.append(
        f"sequences have {_MOST_WORDS:,} words of the {length:,} that it allows: --input 1x{length}:int imports these"
    )
    return _spec(_MOST_WORDS, floating=False)


def _note_window(config: PublishedFields, length: int) -> None:
    """Note that attention in a window is imported as attention to all positions before."""
    window = config.values.get("sliding_window")
    if type(window) is int and window < length and config.flag("use_sliding_window", True):
        config.notes.append(f"sliding_window of {window:,} is not followed: each word attends to all words before it")


def _check_inputs(given: Sequence[InputSpec], own: Sequence[InputSpec], any_length: bool) -> None:
    """Refuse sizes that do not fit a family: only samples and words may be others than its own."""
    fits = len(given) == len(own) and all(
        one.floating == two.floating
        and len(one.shape) == len(two.shape)
        and (one.shape[1:] == two.shape[1:] or (not one.floating and (any_length or one.shape[1] <= two.shape[1])))
        for one, two in zip(given, own, strict=True)
    )
    if not fits:
        rules = [
            f"Nx{'x'.join(map(str, each.shape[1:]))}"
            if each.floating
            else f"NxWORDS:int{'' if any_length else f' of at most {each.shape[1]:,} words'}"
            for each in own
        ]
        raise ConfigError(
            f"input must be {' and '.join(rules)}, as the configuration has it, got "
            f"{' and '.join('x'.join(map(str, each.shape)) + ':int' * (not each.floating) for each in given)}"
        )
