"""Which compute profile of the catalogue stands for a GPU that a file or a user names."""

import re
from dataclasses import dataclass
from pathlib import Path

from groundwork.control_characters import printable
from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean
from hwprofiles.compute.profile_file import catalogue, load_profile, profile_names

_MODELS = (
    (r"b200", ("b200",)),
    (r"h200", ("h200",)),
    (r"h100|h800", ("h100-80gb",)),
    (r"a100|a800", ("a100-40gb", "a100-80gb")),
    (r"v100", ("v100-16gb", "v100-32gb")),
    (r"p100", ("p100",)),
    (r"k80", ("k80",)),
    (r"m40", ("m40",)),
    (r"m60", ("m60",)),
    (r"1080ti", ("gtx-1080ti",)),
    (r"gtx1080$", ("gtx-1080",)),
    (r"titanxp$|titanxpcollector", ("titanxp",)),
    (r"gtxtitanx$", ("titanx",)),
    (r"titanxpascal|nvidiatitanx$|^titanx$", ("titanx-pascal",)),
    (r"gtxtitan$", ("gtx-titan",)),
    (r"teslat4$|nvidiat4$|^t4$", ("t4",)),
    (r"rtx2070(with)?maxq", ("rtx-2070-max-q",)),
    (r"rtx2080(with)?maxq", ("rtx-2080-max-q",)),
    (r"rtx2080super(with)?maxq", ("rtx-2080-super-max-q",)),
    (r"rtx2080ti$", ("rtx-2080ti",)),
    (r"rtx8000$", ("rtx-8000",)),
    (r"rtx3080$", ("rtx-3080",)),
    (r"rtx3090$", ("rtx-3090",)),
    (r"rtxa6000$", ("rtx-a6000",)),
)
"""Profiles by the letters and digits of a product's name; several that differ by the memory that the name states."""
_CAPABILITIES = {
    37: ("k80",),
    60: ("p100",),
    70: ("v100-16gb", "v100-32gb"),
    75: ("t4", "rtx-2080ti", "rtx-8000"),
    80: ("a100-40gb", "a100-80gb"),
    86: ("rtx-3080", "rtx-3090", "rtx-a6000"),
    90: ("h100-80gb", "h200"),
    100: ("b200",),
}
"""Profiles of servers and workstations by compute capability; where there are several, the user names one."""
_WAY_OUT = "name a compute profile that stands for it with --device"


@dataclass(frozen=True, slots=True)
class GpuKind:
    """A compute profile and the memory of its device."""

    profile: str
    memory_bytes: float
    generation: str
    """Name of the catalogue's profile whose links it has; empty for a profile file."""


def gpu_of_request(name: str) -> GpuKind:
    """Return the GPU that a user names: a profile of the catalogue or of a plug-in, a profile file, or a product.

    Args:
        name: Such as ``v100-16gb``, ``mine.yaml`` or ``Tesla V100-SXM2-16GB``.

    Raises:
        ConfigError: It is none of these.
    """
    if name in catalogue():
        return _kind(name)
    if name.endswith((".yaml", ".yml")) or Path(name).is_file() or name in profile_names():
        return GpuKind(name, load_profile(name).memory_bytes, "")
    found = _profiles(name)
    if len(found) == 1:
        return _kind(found[0])
    hint = did_you_mean(name, profile_names()) or "; known: " + ", ".join(found or profile_names())
    raise ConfigError(f"device must be a compute profile, a profile file or a product, got {printable(name)!r}{hint}")


def gpu_of_model(model: str, origin: str, memory_bytes: float | None = None) -> GpuKind:
    """Return the GPU of a product's name as a program prints it.

    Raises:
        ConfigError: The catalogue has no profile for it, or several.
    """
    found = _profiles(model)
    if len(found) > 1 and memory_bytes:
        found = tuple(sorted(found, key=lambda name: abs(load_profile(name).memory_bytes - memory_bytes)))[:1]
    if len(found) == 1:
        return _kind(found[0])
    if found:
        raise ConfigError(
            f"{origin} does not say how much memory {model!r} has; name it with --device: {' or '.join(found)}"
        )
    raise ConfigError(f"{origin}: no compute profile is known for {printable(model)[:60]!r}; {_WAY_OUT}")


def gpu_of_capability(capability: int, origin: str) -> GpuKind:
    """Return the GPU of a compute capability, where the catalogue knows only one.

    Raises:
        ConfigError: The catalogue has none, or several.
    """
    found = _CAPABILITIES.get(capability, ())
    if len(found) == 1:
        return _kind(found[0])
    which = f"name it with --device: {' or '.join(found)}" if found else _WAY_OUT
    raise ConfigError(f"{origin} says only that its GPUs have compute capability {capability / 10:g}; {which}")


def _profiles(model: str) -> tuple[str, ...]:
    """Return the profiles that may stand for a product."""
    stated = re.search(r"\b(\d{1,4})\s?GB\b", model, re.IGNORECASE)
    plain = re.sub(r"[^a-z0-9]", "", (model[: stated.start()] if stated else model).lower())
    for pattern, names in _MODELS:
        if re.search(pattern, plain):
            exact = tuple(name for name in names if stated and name.endswith(f"-{stated[1]}gb"))
            return exact or names
    return ()


def _kind(profile: str) -> GpuKind:
    return GpuKind(profile, load_profile(profile).memory_bytes, profile)
