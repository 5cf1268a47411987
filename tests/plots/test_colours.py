"""Colours that can be seen on their paper, and told apart by people who see two kinds of colour."""

from itertools import combinations

import numpy as np
import pytest

from layerwise.plots import DARK, LIGHT
from layerwise.plots.style import MARKERS

VISION = {  # Machado, Oliveira & Fernandes 2009, severity 1, on linear RGB
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.95047, 1, 1.08883])
themes = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    ratio = XYZ @ rgb / WHITE
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def luminance(colour: str) -> float:
    return float(XYZ[1] @ linear(colour))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@themes
@pytest.mark.parametrize("vision", VISION)
def test_every_two_series_can_be_told_apart(theme, vision):
    seen = [lab(np.clip(VISION[vision] @ linear(colour), 0, 1)) for colour in theme.series]
    differences = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in combinations(range(8), 2)}
    assert min(differences.values()) > 15, min(differences, key=differences.get)
    assert len(set(MARKERS)) == len(theme.series) == 8


@themes
def test_text_and_lines_stand_out_from_the_paper(theme):
    assert contrast(theme.ink, theme.paper) >= 7
    assert contrast(theme.muted, theme.paper) >= 4.5
    assert all(contrast(colour, theme.paper) >= 3 for colour in theme.series)
    assert contrast(theme.grid, theme.paper) < 2


@themes
def test_the_scale_goes_from_the_paper_away_step_by_step_and_no_colour_means_two_things(theme):
    away = [abs(luminance(colour) - luminance(theme.paper)) for colour in theme.heat]
    assert (np.diff(away) > 0).all()
    colours = [theme.paper, theme.ink, theme.muted, theme.grid, *theme.series, *theme.heat]
    assert len(set(colours)) == len(colours)
