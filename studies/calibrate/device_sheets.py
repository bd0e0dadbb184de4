"""Data sheets of known devices, and profile contents made of them."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from groundwork.errors import ConfigError
from groundwork.input_files import yaml_input
from groundwork.suggestions import did_you_mean
from hwprofiles.compute.profile_file import catalogue, profile_names, profile_path
from hwprofiles.compute.profile_sections import TileSection
from studies.calibrate.profile_content import tile_section

_FILE = Path(__file__).with_name("device_sheets.yaml")
_NUMBERS = ("peak_tflop_per_s", "memory_bandwidth_gbyte_per_s", "memory_gib", "multiprocessors")
_LIBRARY = "library"
"""Key of the profile whose convolutions, of a newer library, a device takes."""
_TENSOR, _TENSOR_RATE = "tensor_relative", "tensor_rate"
"""Keys of the profile whose tensor cores are the nearest that were measured, and of a device's FLOP per clock and
multiprocessor there as a share of that profile's."""
_TILES, _TILE_RATE, _TILE_SHARE = "tiles_of", "tile_rate", "tile_share"
"""Keys of the profile whose convolutions in tensor cores a device takes, of its products a clock and multiprocessor
there as a share of that profile's, and of the share of its peak that it reaches over that profile's."""
_OTHER_TILES = "h200"
"""Profile whose convolutions were measured in arithmetic that the lender does not have, such as TF32."""
_OWN_KERNELS = ("least_rows", "gradient_channels")
"""Keys of convolutions that say which tiles the kernels for a generation of cards have."""
_CLOCK = "sustained_clock"
"""Key of the clock in long runs, of cards whose power does not allow the boost clock there."""
_UNITS = "doubles_float32_units"
"""Key of the flag of cards whose multiprocessors have 128 float32 units where their relative's have 64."""
_PRODUCTS = "products"
"""Key of the profile of a device with the same multiprocessors, whose products in float32 and float64 were measured."""
_DOUBLE_UNITS = 0.65
"""Share of the peak that multiprocessors of 128 float32 units reach over that of those of 64, as operands come no
faster: AlexNet, Inception-v3, ResNet-50 and VGG-16 give 0.64, 0.68, 0.65 and 0.64, on RTX 3080, RTX 3090 and RTX A6000
over RTX 2080 Ti and Quadro RTX 8000 (images/s over peak, ``tf_cnn_single_gpu``); with all else of V100 they give 0.60
to 0.76 of V100's."""
_OWN_TILES = ("float16", "tf32")
"""Arithmetic of tensor cores whose convolutions a profile always holds; others have those of half precision."""
_ELEMENT_BYTES = {"float8": 1, "tf32": 4}
"""Bytes of an activation where they are not two."""


@cache
def _sheets() -> dict[str, dict[str, Any]]:
    """Return the data sheets by name of device."""
    sheets: dict[str, dict[str, Any]] = yaml_input(_FILE, "data sheets")
    return sheets


def device_names() -> list[str]:
    """Return the devices with data sheets."""
    return list(_sheets())


def device_labels(name: str) -> tuple[str, ...]:
    """Return the names by which tables of measurements know a device; its own name first."""
    return (name, *_sheets().get(name, {}).get("labels", []))


def check_library(name: str, convolutions: int) -> None:
    """Refuse rows of convolutions of a device that takes those of another profile.

    Its labels are those of the same card with the older library, so that these rows would be taken for the newer one's.

    Raises:
        ConfigError: There are any, and its data sheet names a ``library``.
    """
    sheet = _sheets().get(name, {})
    if convolutions and _LIBRARY in sheet:
        raise ConfigError(
            f"rows of convolutions must be left out for {name}, which has those of {sheet[_LIBRARY]} by a newer"
            f" library; got {convolutions}; --device {sheet['relative']} takes them"
        )


def base_content(name: str) -> dict[str, Any]:
    """Return the content of a device's profile before calibration.

    A device with a data sheet takes what the sheet does not say from the profile of its nearest relative in the
    catalogue, with the half sizes of the output scaled by the multiprocessors.  Where a sheet names a ``library``, the
    convolutions are those of that profile, whose device was measured with a newer one.

    Args:
        name: A device with a data sheet, a profile of the catalogue or of a plug-in, or the path of a profile file.

    Raises:
        ConfigError: The device is unknown, or its file cannot be read.
    """
    sheet = _sheets().get(name)
    if sheet is None:
        if name in profile_names() or Path(name).suffix in (".yaml", ".yml"):
            return dict(yaml_input(profile_path(name), "compute profile"))
        known = [*device_names(), *profile_names()]
        hint = did_you_mean(name, known) or f"; known: {', '.join(sorted(set(known)))}"
        raise ConfigError(f"unknown device {name!r}{hint}, or the path of a profile with its data sheet")
    return _with_sheet(name, sheet)


def _with_sheet(name: str, sheet: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a known device."""
    content: dict[str, Any] = {}
    donors = [donor for donor in _relatives(name) if donor in catalogue()]
    if name in catalogue():  # what a data sheet says of streams; the rest is to be fitted anew
        own = yaml_input(catalogue()[name], "compute profile")
        content |= {"launch": own["launch"]} if "launch" in own else {}
    for donor in (sheet[_LIBRARY], *donors) if _LIBRARY in sheet else donors:
        lent: dict[str, Any] = dict(yaml_input(catalogue()[donor], "compute profile"))
        scale = sheet["multiprocessors"] / lent["multiprocessors"]
        for section in ("convolution",) if donor == sheet.get(_LIBRARY) else ("efficiency", "convolution"):
            if section in lent and section not in content:
                content[section] = _scaled(lent[section], scale)
        for key in ("launch_overhead_us", _CLOCK):
            if key in lent and donor != sheet.get(_LIBRARY):
                content.setdefault(key, lent[key])
    if sheet.get(_UNITS):
        for section in ("efficiency", "convolution"):
            ceiling = content[section]["ceiling"]
            content[section] |= {
                "ceiling": {phase: round(share * _DOUBLE_UNITS, 4) for phase, share in ceiling.items()}
            }
    numbers = {key: sheet[key] for key in (*_NUMBERS, "float64")}
    if _PRODUCTS in sheet:
        measured: dict[str, Any] = dict(yaml_input(catalogue()[sheet[_PRODUCTS]], "compute profile"))
        scale = sheet["multiprocessors"] / measured["multiprocessors"]
        content["efficiency"] = _scaled(measured["efficiency"], scale)
        numbers["float64"] = sheet["float64"] | {"efficiency": _scaled(measured["float64"]["efficiency"], scale)}
    content = {"description": sheet["description"], "arithmetic": "float32"} | numbers | content
    if _CLOCK in sheet:
        content[_CLOCK] = sheet[_CLOCK]
    content["sources"] = [sheet["sheet"]]
    content["fit"] = {
        "method": "none: every parameter but the data sheet is a relative's",
        "held_out": "nothing",
        "errors": {},
        "transferred_from": sheet.get(_LIBRARY, donors[0]),
    }
    if "precisions" in sheet:
        # Of tensor cores since Ampere products were measured in bfloat16; other arithmetic of theirs takes these
        # where a profile is read.
        nearest = [sheet[_TENSOR], *donors] if _TENSOR in sheet else donors
        content["precisions"] = {
            arithmetic: _precision(sheet, arithmetic)
            | (_lent(donors, arithmetic, "efficiency", sheet) if arithmetic == "bfloat16" else {})
            | _lent_tensor_cores(sheet, arithmetic)
            | _lent(nearest, arithmetic, "fused", sheet)
            | ({_CLOCK: sheet[_CLOCK]} if _CLOCK in sheet else {})
            for arithmetic in sheet["precisions"]
        }
    return content


def _precision(sheet: dict[str, Any], arithmetic: str) -> dict[str, Any]:
    """Return the section of another arithmetic before calibration, which tensor cores compute if it is faster."""
    peak, element_bytes = sheet["precisions"][arithmetic], _ELEMENT_BYTES.get(arithmetic, 2)
    section: dict[str, Any] = {"peak_tflop_per_s": peak, "element_bytes": element_bytes}
    if peak > sheet["peak_tflop_per_s"] and (lent := _lent_tiles(sheet, arithmetic)):
        tiles = TileSection.model_validate(lent).value()
        section["tiles"] = tile_section(tiles.at_rate(sheet.get(_TILE_RATE, 1.0), sheet.get(_TILE_SHARE, 1.0)))
    return section


def _lent_tiles(sheet: dict[str, Any], arithmetic: str) -> dict[str, Any] | None:
    """Return the convolutions in tensor cores of the device that lends them, or None where half precision's count."""
    for lender in (sheet[_TILES], *([_OTHER_TILES] if arithmetic in _OWN_TILES else [])):
        known: dict[str, Any] = dict(yaml_input(catalogue()[lender], "compute profile"))
        if tiles := known["precisions"].get(arithmetic, {}).get("tiles"):
            own_kernels = lender == sheet[_TILES]
            return {key: value for key, value in tiles.items() if own_kernels or key not in _OWN_KERNELS}
    return None


def _lent_tensor_cores(sheet: dict[str, Any], arithmetic: str) -> dict[str, Any]:
    """Return the products of the measured tensor cores that are the nearest, for a device's own rate.

    A multiprocessor loads and stores as fast as its relative's, and computes at ``tensor_rate`` of its rate.  Of the
    relative's time for a FLOP, ``1 / share``, one part of 1 is arithmetic and the rest is not hidden by it: arithmetic
    takes ``1 / tensor_rate`` as long, the rest as long as before.
    """
    if _TENSOR not in sheet:
        return {}
    lender: dict[str, Any] = dict(yaml_input(catalogue()[sheet[_TENSOR]], "compute profile"))
    lent = lender["precisions"][arithmetic]
    if "efficiency" not in lent:
        return {}
    section = _scaled(lent["efficiency"], sheet["multiprocessors"] / lender["multiprocessors"])
    rate = sheet[_TENSOR_RATE]
    section["ceiling"] = {phase: round(_at_rate(share, rate), 4) for phase, share in section["ceiling"].items()}
    return {"efficiency": section}


def _at_rate(share: float, rate: float) -> float:
    """Return the share of the peak that kernels reach where arithmetic alone has another rate."""
    return 1 / (1 + (1 / share - 1) * rate)


def _lent(donors: Sequence[str], arithmetic: str, section: str, sheet: dict[str, Any]) -> dict[str, Any]:
    """Return a section of the nearest relative that has it in an arithmetic, for a device's multiprocessors."""
    for donor in donors:
        lender: dict[str, Any] = dict(yaml_input(catalogue()[donor], "compute profile"))
        if lent := lender.get("precisions", {}).get(arithmetic, {}).get(section):
            scale = sheet["multiprocessors"] / lender["multiprocessors"]
            return {section: lent if section == "fused" else _scaled(lent, scale)}
    return {}


def _relatives(name: str) -> list[str]:
    """Return a device's relatives, the nearest first."""
    found: list[str] = []
    while (name := _sheets().get(name, {}).get("relative", name)) not in found:
        found.append(name)
    return found


def _scaled(section: dict[str, Any], scale: float) -> dict[str, Any]:
    """Return a section of a relative for another number of multiprocessors."""
    half: dict[str, Any] = {}
    for key, value in section["half_sizes"].items():
        if key == "output_elements":
            half[key] = round(value * scale, 1)
        elif isinstance(value, dict):
            half[key] = value | {"output_elements": round(value["output_elements"] * scale, 1)}
        else:
            half[key] = value
    return section | {"half_sizes": half}
