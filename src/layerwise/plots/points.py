"""Graded pairs of sentences as connected points in the plane (SG-BERT fig. 5)."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import ArrayLike

from layerwise.errors import InputError
from layerwise.plots.checks import Numbers, check_length, check_numbers
from layerwise.plots.heatmaps import colour_bar
from layerwise.plots.style import (
    LIGHT,
    Drawing,
    Theme,
    finish,
    format_number,
    new_drawing,
    new_panels,
    shorten,
    style_axes,
)

_AREA = 34  # square points


def pair_map(
    *,
    points: Mapping[str, ArrayLike],
    grades: ArrayLike,
    texts: Sequence[tuple[str, str]] | None = None,
    method: str = "t-SNE",
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """Pairs of points, coloured by grade: similar pairs should be close, dissimilar ones distant.

    Args:
        points: The points of each model, with a panel for each: (pairs, 2 sentences, 2 coordinates)
        grades: The grades of the pairs: (pairs,)
        texts: The sentences, for tooltips.
        method: The projection: t-SNE or PCA.
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    if not points:
        raise InputError("points: expected at least one model's, as a mapping from names to arrays")
    numbers = check_numbers("grades", grades)
    placed = {
        name: check_numbers(f"points of {name!r}", array, shape=(len(numbers), 2, 2)) for name, array in points.items()
    }
    if texts is not None:
        check_length("texts", texts, len(numbers), "pairs")
    limits = (float(numbers.min()), float(numbers.max()))
    drawing = new_drawing(theme, size=(1.2 + 4.0 * len(placed), 4.3), title=title)
    panels = new_panels(drawing, len(placed))
    for panel, (name, array) in zip(panels, placed.items(), strict=True):
        style_axes(panel, theme, x=method, title=name, grid=None, ticks=False)
        _draw_pairs(drawing, panel, array, numbers, limits, texts)
    colour_bar(drawing, panels, limits, "grade")
    return finish(drawing, f"{method} of {len(numbers)} graded pairs: {', '.join(placed)}")


def _draw_pairs(
    drawing: Drawing,
    panel: Axes,
    points: Numbers,
    grades: Numbers,
    limits: tuple[float, float],
    texts: Sequence[tuple[str, str]] | None,
) -> None:
    theme = drawing.theme
    panel.add_collection(LineCollection(list(points), colors=theme.muted, linewidths=0.8, alpha=0.7))
    dots = panel.scatter(
        points[..., 0].ravel(), points[..., 1].ravel(), c=np.repeat(grades, 2), cmap=theme.heat_map, vmin=limits[0],
        vmax=limits[1] if limits[1] > limits[0] else limits[0] + 1, s=_AREA, edgecolors=theme.muted, linewidths=0.8,
        zorder=3,
    )  # fmt: skip
    sides = [text for pair in texts for text in pair] if texts is not None else _numbered(len(grades))
    labelled = zip(sides, np.repeat(grades, 2), strict=True)
    drawing.label_points(dots, [f"{shorten(text, 100)}: grade {format_number(grade)}" for text, grade in labelled])
    panel.set(xticks=[], yticks=[])
    panel.spines[:].set_visible(False)
    panel.margins(0.06)
    panel.set_aspect("equal", adjustable="datalim")


def _numbered(pairs: int) -> list[str]:
    return [f"pair {pair}, {side}" for pair in range(pairs) for side in ("first", "second")]
