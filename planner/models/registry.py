"""Models by name, with parameters after a colon: ``vgg16:classes=21841``."""

import difflib
import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hwprofiles import ConfigError
from planner.graph import ComputationGraph
from planner.models.builder import ModelBuilder
from planner.operations import check_int

__all__ = ["Field", "classes", "load_model", "model_names", "register"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An integer parameter of a model."""

    default: int
    low: int
    high: int
    power_of_two: bool = False
    step: int = 1

    @property
    def rule(self) -> str:
        """What values must be."""
        if self.step > 1:
            return f"one of {self.low}, {self.low + self.step}, ... up to {self.high}"
        kind = "a power of two" if self.power_of_two else "an integer"
        return f"{kind} from {self.low} to {self.high}"

    def read(self, name: str, text: str) -> int:
        """Value of ``text``; raises ``ConfigError`` where it breaks the rule."""
        value = int(text) if re.fullmatch(r"[0-9]{1,18}", text) else -1
        steps = range(self.low, self.high + 1, self.step)
        if value not in steps or (self.power_of_two and value & (value - 1)):
            raise ConfigError(f"{name} must be {self.rule}, got {text!r}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredModel:
    """How a named model is built."""

    write: Callable[..., None]
    """Adds the layers: called with the builder, then the fields by name."""
    image: Callable[..., tuple[int, ...]]
    """Channels and positions of a sample, from the fields."""
    fields: dict[str, Field]


_MODELS: dict[str, RegisteredModel] = {}
"""Those of the files that have been loaded; ``known_models`` loads all."""


@cache
def known_models() -> dict[str, RegisteredModel]:
    """Load every file of this folder once, and return the models that they registered, by name."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")
    return _MODELS


def classes(default: int = 1000) -> Field:
    """The number of classes that a classifier tells apart."""
    return Field(default=default, low=2, high=10_000_000)


def register(
    name: str,
    write: Callable[..., None],
    *,
    image: tuple[int, ...] | Callable[..., tuple[int, ...]],
    **fields: Field,
) -> None:
    """Make a model known.

    Args:
        name: As on the command line.
        write: Adds the layers to a ``ModelBuilder``; called as ``write(net, **values)``.
        image: Channels and positions of a sample, or a function of the fields' values that gives them.
        fields: The parameters that a user may set.
    """
    shape = image if callable(image) else lambda **_: image
    _MODELS[name] = RegisteredModel(write=write, image=shape, fields=fields)


def model_names() -> list[str]:
    """Names of all models, numbers in them in order of size."""
    return sorted(known_models(), key=lambda name: re.sub(r"\d+", lambda digits: digits[0].zfill(9), name))


MOST_SAMPLES = 10**8
"""Of a mini-batch: the bytes of the largest tensors still fit 64-bit integers."""


def load_model(spec: str, *, batch: int, element_bytes: int = 4) -> ComputationGraph:
    """Build a model.

    Args:
        spec: Name and parameters: ``vgg16``, ``vgg16:classes=21841``; several are joined by commas.
        batch: Samples in a mini-batch, >= 1.
        element_bytes: Size of a number: 4 or 8.

    Returns:
        The computation graph, named ``spec``.

    Raises:
        ConfigError: The model or a parameter is unknown, a value breaks its rule, ``batch`` is not an integer from 1 to
            ``MOST_SAMPLES``, or ``element_bytes`` is neither 4 nor 8.
    """
    check_int("batch", batch, 1)
    if batch > MOST_SAMPLES:
        raise ConfigError(f"batch must be at most {MOST_SAMPLES:,}, got {batch:,}")
    name, colon, text = spec.partition(":")
    model = known_models().get(name)
    if model is None:
        raise ConfigError(
            f"model must be one of {', '.join(model_names())}, got {name!r}{_nearest(name, known_models())}"
        )
    values = _values(name, model.fields, text.split(",") if colon else [])
    net = ModelBuilder(spec, batch=batch, image=model.image(**values), element_bytes=element_bytes)
    model.write(net, **values)
    return net.build()


def _values(name: str, fields: dict[str, Field], settings: list[str]) -> dict[str, int]:
    given: dict[str, int] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if key not in fields or not equals:
            allowed = ", ".join(f"{field}=N" for field in fields)
            raise ConfigError(f"parameters of {name} must be {allowed}, got {setting!r}{_nearest(key, fields)}")
        if key in given:
            raise ConfigError(f"{name}:{key} must be given once, got {setting!r} again")
        given[key] = fields[key].read(f"{name}:{key}", text)
    return {key: field.default for key, field in fields.items()} | given


def _nearest(name: str, names: dict[str, RegisteredModel] | dict[str, Field]) -> str:
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"; did you mean {close[0]!r}?" if close and close[0] != name else ""
