"""Colours stay apart for the common kinds of colour vision."""

import re
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest

from reports.style.palette import (
    COMMUNICATION,
    COMPUTE,
    CONFIGURATIONS,
    GRADIENT_SYNC,
    IDLE,
    MARK,
    PLAIN,
    SERIES,
    kind_colours,
)

# Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009: severity 1.0, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
SOURCES = (".py", ".js", ".css", ".html")
WHITE = np.array([0.9505, 1.0, 1.089])
KINDS = (
    "forward",
    "activation_gradient",
    "weight_gradient",
    "update",
    "compress",
    "decompress",
    "transfer",
    "collective",
)


def lab(colour, vision):
    """CIE L*a*b* of an sRGB colour as the given kind of vision sees it."""
    channel = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
    ratio = XYZ @ np.clip(np.array(vision) @ linear, 0, 1) / WHITE
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize(
    "colours", [list(kind_colours(KINDS).values()), [COMPUTE, COMMUNICATION, IDLE, MARK], [PLAIN, *SERIES[:5]]]
)
def test_colours_of_one_picture_stay_apart(vision, colours):
    seen = [lab(colour, VISION[vision]) for colour in colours]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) >= 18


def test_no_series_or_configuration_looks_like_another():
    assert len({PLAIN, *SERIES}) == 1 + len(SERIES)
    assert len({COMPUTE, COMMUNICATION, GRADIENT_SYNC, *CONFIGURATIONS}) == 3 + len(CONFIGURATIONS)


def test_colours_stand_in_the_palette_alone():
    """Beside it, only the style sheet has colours: grounds, inks and lines, which differ by theme."""
    folder = files("reports")
    texts = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.suffix in SOURCES}
    assert folder / "style" / "palette.py" in texts
    found = {path.name for path, text in texts.items() if re.search(r"#[0-9a-fA-F]{6}\b", text)}
    assert found == {"palette.py", "page.css"}


def test_unknown_kinds_get_colours_of_their_own():
    colours = kind_colours(("forward", "checkpoint", "offload", "forward"))
    assert len(set(colours.values())) == len(colours) == 3
