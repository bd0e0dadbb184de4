"""Models by name, with parameters after a colon: ``vgg16:classes=21841``."""

import importlib
import os
import pkgutil
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from groundwork.errors import ConfigError
from groundwork.input_files import AnyPath, text_of
from groundwork.suggestions import did_you_mean
from hwprofiles.plugins.entry_points import load_plugin, naming_plugin, plugin_names, plugin_path
from planner.graph.computation_graph import ComputationGraph
from planner.model_files.model_file import kept_content, model_of, read_model_file
from planner.model_files.own_models import is_own_model, names_code, own_model
from planner.models.builder import ModelBuilder
from planner.models.sized_files import ModelSizes, repeated, with_own_parameters
from planner.operations.checks import check_int


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Integer parameter of a model."""

    default: int | str
    """Value, or for a model file a formula of the fields before it."""
    low: int = 1
    """Least value."""
    high: int = 10_000_000
    """Greatest value."""
    power_of_two: bool = False
    """True if only powers of two are allowed."""
    step: int = 1
    """Distance of allowed values, counted from ``low``."""
    most: str = ""
    """Of a model file, the field whose value this one must not exceed; empty for none."""

    @property
    def rule(self) -> str:
        """Rule of the values in words, for messages."""
        if self.step > 1:
            return f"one of {self.low}, {self.low + self.step}, ... up to {self.high}"
        kind = "a power of two" if self.power_of_two else "an integer"
        return f"{kind} from {self.low} to {self.high}"

    def read(self, name: str, text: str) -> int:
        """Return the value of ``text``.

        Raises:
            ConfigError: The value breaks the rule; the message names it ``name``.
        """
        value = int(text) if re.fullmatch(r"[0-9]{1,18}", text) else -1
        steps = range(self.low, self.high + 1, self.step)
        if value not in steps or (self.power_of_two and value & (value - 1)):
            raise ConfigError(f"{name} must be {self.rule}, got {text!r}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredModel:
    """Model that can be built by name."""

    write: Callable[..., None]
    """Function that adds the layers: called with the builder, then the fields by name."""
    image: Callable[..., tuple[int, ...]]
    """Function from the fields to the channels and positions of a sample."""
    fields: dict[str, Field]
    """Parameters that a user may set."""
    plugin: bool = False
    """True if a plug-in has registered it."""


_MODELS: dict[str, RegisteredModel] = {}
"""Models of the files that have been loaded so far; ``known_models`` loads all."""


@cache
def known_models() -> dict[str, RegisteredModel]:
    """Load every file of this folder once, and return the models that they registered, by name."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")
    return _MODELS


def class_count(default: int = 1000) -> Field:
    """Return the parameter for the number of classes of a classifier."""
    return Field(default=default, low=2)


def register_model(
    name: str,
    write: Callable[..., None],
    *,
    image: tuple[int, ...] | Callable[..., tuple[int, ...]],
    **fields: Field,
) -> None:
    """Register a model under a name.

    Args:
        name: Name on the command line.
        write: Function that adds the layers to a ``ModelBuilder``; called as ``write(net, **values)``.
        image: Channels and positions of a sample, or a function from the fields' values to them.
        **fields: Parameters that a user may set.
    """
    shape = image if callable(image) else lambda **_: image
    _MODELS[name] = RegisteredModel(write=write, image=shape, fields=fields)


def model_names() -> list[str]:
    """Return the names of all models, plug-ins' included, in alphabetical order, with numbers in them by size."""
    names = {*known_models(), *_files(), *plugin_names("models")}
    return sorted(names, key=lambda name: re.sub(r"\d+", lambda digits: digits[0].zfill(9), name))


@cache
def _files() -> dict[str, Path]:
    """Return the model files of the catalogue by the models' names."""
    return {path.stem: path for path in (Path(__file__).parent / "imported").glob("*.json")}


def _is_of_catalogue(spec: str) -> bool:
    """Return whether a model is one of the catalogue: ``vgg16:make@3x32x32`` is a function of a package ``vgg16``."""
    name, _, parameters = spec.partition(":")
    return "@" not in parameters and (name in known_models() or name in _files())


MOST_SAMPLES = 10**8
"""Most samples of a mini-batch, with which the bytes of the largest tensors still fit 64-bit integers."""


def check_no_code(where: str, spec: str) -> None:
    """Refuse a model that is a function of a user's code, where a file names it: files never run code.

    Raises:
        ConfigError: The model is a function.
    """
    if names_code(spec) and not _is_of_catalogue(spec):
        raise ConfigError(
            f"{where}model must not be code, which files never run, got {spec!r}; "
            "write it to a model file by orrery import, and name that"
        )


def load_model(spec: AnyPath, *, batch: int, element_bytes: int = 4) -> ComputationGraph:
    """Build a model.

    Args:
        spec: Name and parameters: ``vgg16``, ``vgg16:classes=21841``; several are joined by commas.  Or a model file
            (``.yaml``), an exported program (``.pt2``), an ONNX file (``.onnx``), or a function with the sizes of
            a sample of each of its inputs: ``package.module:function@3x224x224``.
        batch: Samples in a mini-batch, >= 1.
        element_bytes: Bytes of an element of a tensor: 2, 4 or 8.

    Returns:
        The computation graph, named ``spec``.

    Raises:
        ConfigError: The model or a parameter is unknown, a value breaks its rule, ``batch`` is not an integer from 1 to
            ``MOST_SAMPLES``, or ``element_bytes`` is none of 2, 4 and 8.
    """
    check_int("batch", batch, 1)
    if batch > MOST_SAMPLES:
        raise ConfigError(f"batch must be at most {MOST_SAMPLES:,}, got {batch:,}")
    given = text_of(spec, "model")
    name, colon, text = given.partition(":")
    if is_own_model(given) and not _is_of_catalogue(given):
        return own_model(given, batch=batch, element_bytes=element_bytes)
    if name in _files():
        return _from_file(given, batch=batch, element_bytes=element_bytes)
    model: RegisteredModel | Path | None = known_models().get(name)
    if model is None and name in plugin_names("models"):
        model = _from_plugin(name)
    if isinstance(model, Path):
        _check_no_parameters(given)
        return read_model_file(model, name=given, batch=batch, element_bytes=element_bytes)
    if model is None:
        raise ConfigError(
            f"model must be one of {', '.join(model_names())}, a .yaml, .pt2 or .onnx file or "
            f"package.module:function@SIZES, got {name!r}{_hint(name)}"
        )
    values = _values(name, model.fields, text.split(",") if colon else [])
    with naming_plugin("models", name) if model.plugin else nullcontext():
        net = ModelBuilder(given, batch=batch, image=model.image(**values), element_bytes=element_bytes)
        model.write(net, **values)
        return net.build()


def _from_plugin(name: str) -> RegisteredModel | Path:
    """Return what a plug-in offers: a model file, or the model that its module has registered.

    Raises:
        PluginError: It does not load, or offers neither.
    """
    ours = dict(known_models())
    try:
        found = load_plugin("models", name)
    finally:  # a plug-in adds the models that its package offers, and replaces none, also where it breaks off
        added = {each: _MODELS[each] for each in plugin_names("models") if each in _MODELS}
        _MODELS.clear()
        _MODELS.update({each: replace(model, plugin=True) for each, model in added.items()} | ours)
    if isinstance(found, str | os.PathLike):
        return plugin_path("models", name)
    with naming_plugin("models", name):
        if name not in _MODELS:
            raise ConfigError(f"the entry point must name a model file, or what registers a model {name!r}")
    return _MODELS[name]


def with_words(spec: str, words: int, padded: int) -> str:
    """Return a model of the catalogue with more words, or an empty text where ``words`` are not those that it has.

    Args:
        spec: As for ``load_model``.
        words: Words that the model may have.
        padded: Words that it is to have.
    """
    name, _, text = spec.partition(":")
    content = kept_content(_files()[name]) if name in _files() else {}
    usual = content.get("sizes", {}).get("words", {}).get("default")
    settings = [each for each in text.split(",") if each]
    given = [each for each in settings if each.partition("=")[0] == "words"]
    if given != [f"words={words}"] and (given or usual != words):
        return ""
    return f"{name}:{','.join([*(each for each in settings if each not in given), f'words={padded}'])}"


_PUBLISHED = re.compile(r"(code-?llama|llama|mistral|qwen|gpt|bert|vit|whisper).*|.*\.json", re.IGNORECASE)
"""Names of models whose configurations are published, and of such files."""


def _hint(name: str) -> str:
    """Return what an unknown name means: a known one that is near, or a model whose configuration is published."""
    near = did_you_mean(name, model_names(), cutoff=0.85)
    if near or not _PUBLISHED.fullmatch(name):
        return near or did_you_mean(name, model_names())
    known = "it" if name.endswith(".json") else "its published configuration"
    source = name if name.endswith(".json") else "config.json"
    return f"; import {known}: orrery import {source} --out {Path(name).stem if source == name else name}.yaml"


def _from_file(spec: str, *, batch: int, element_bytes: int) -> ComputationGraph:
    """Build a model of the catalogue that is a model file."""
    name, colon, text = spec.partition(":")
    content, where = kept_content(_files()[name]), f"model {spec}"
    if "sizes" not in content:
        _check_no_parameters(spec)
        return model_of(content, where, name=spec, batch=batch, element_bytes=element_bytes)
    fields = {key: Field(**row) for key, row in content["sizes"].items()}
    sizes = ModelSizes(name, _values(name, fields, text.split(",") if colon else []))
    for key, field in fields.items():
        if field.most and sizes[key] > sizes[field.most]:
            raise ConfigError(f"{name}:{key} must be at most {field.most}={sizes[field.most]}, got {sizes[key]}")
    rows = content["layers"] if sizes.get("tied", 1) else with_own_parameters(content["layers"])
    filled = sizes.filled({"format": content["format"], "data": content["data"], "layers": rows})
    one = model_of(filled, where, name=spec, batch=batch, element_bytes=element_bytes)
    if max(layer.output.elements for layer in one.layers) * element_bytes >= 2**63:
        raise ConfigError(f"{where} with batch {batch:,} has tensors of 2^63 bytes or more")
    return ComputationGraph(spec, batch, repeated(one.layers, sizes["layers"]), element_bytes=element_bytes)


def _check_no_parameters(spec: str) -> None:
    """Refuse parameters of a model that is a file."""
    name, colon, text = spec.partition(":")
    if colon:
        raise ConfigError(f"model {name} has no parameters, got {text!r}")


def _values(name: str, fields: dict[str, Field], settings: list[str]) -> dict[str, int | str]:
    """Return the values of a model's fields: those of the settings ``key=value``, and defaults."""
    given: dict[str, int | str] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if key not in fields or not equals:
            allowed = ", ".join(f"{field}=N" for field in fields)
            raise ConfigError(f"parameters of {name} must be {allowed}, got {setting!r}{did_you_mean(key, fields)}")
        if key in given:
            raise ConfigError(f"{name}:{key} must be given once, got {setting!r} again")
        given[key] = fields[key].read(f"{name}:{key}", text)
    return {key: field.default for key, field in fields.items()} | given
