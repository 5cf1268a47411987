"""Comparisons of two models: their layer curves and their measures."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from layerwise.errors import InputError
from layerwise.plots.checks import check_length, check_numbers, check_series
from layerwise.plots.curves import SCORE, curve_ends, draw_curves, layer_axis
from layerwise.plots.labels import legend, name_lines
from layerwise.plots.style import (
    FONT,
    LIGHT,
    SMALL,
    Drawing,
    Theme,
    finish,
    format_number,
    new_panel,
    shorten,
)


def before_after_curves(
    *, scores: Mapping[str, ArrayLike], measure: str = SCORE, title: str = "", theme: Theme = LIGHT
) -> Drawing:
    """The score by layer of two models, with the area between them filled: (layers,) each."""
    curves = check_series("scores", scores)
    if len(curves) != 2:
        raise InputError(f"scores: {len(curves)} model(s) came; before and after are two")
    (before, first), (after, second) = curves.items()
    drawing, panel = new_panel(theme, title=title, x="layer", y=measure)
    common = min(len(first), len(second))
    panel.fill_between(
        np.arange(common), first[:common], second[:common], color=theme.colour(1), alpha=0.12, linewidth=0
    )
    lines = draw_curves(drawing, panel, curves)
    layer_axis(panel, max(map(len, curves.values())), 13)
    name_lines(drawing, panel, curve_ends(curves, theme), lines)
    return finish(drawing, f"{measure} by layer, {before} and {after}")


def dumbbells(
    *,
    measures: Sequence[str],
    before: ArrayLike,
    after: ArrayLike,
    names: tuple[str, str] = ("before", "after"),
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """The measures of two models, one per row, scaled to the range of both values and 0, so that lengths are relative.

    Args:
        measures: The names of n measures.
        before: The values of the first model: (n,)
        after: The values of the second model: (n,)
        names: The names of the two models.
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    first, second = check_numbers("before", before), check_numbers("after", after)
    check_length("before", first, len(measures), "measures")
    check_length("after", second, len(measures), "measures")
    drawing, panel = new_panel(theme, size=(6.6, 0.9 + 0.36 * len(first)), title=title, grid=None, ticks=False)
    low, high = np.minimum(0, np.minimum(first, second)), np.maximum(0, np.maximum(first, second))
    span = np.where(high > low, high - low, 1)
    left, right = (first - low) / span, (second - low) / span
    rows = np.arange(len(first))
    panel.hlines(rows, 0, 1, color=theme.grid, linewidth=0.8)
    panel.hlines(rows, np.minimum(left, right), np.maximum(left, right), color=theme.muted, linewidth=2.4)
    handles: list[Line2D] = []
    for order, (name, places, values) in enumerate(((names[0], left, first), (names[1], right, second))):
        (dots,) = panel.plot(places, rows, linestyle="none", marker="os"[order], markersize=8,
                             color=theme.colour(order))  # fmt: skip
        drawing.label_points(
            dots,
            [f"{name}, {measure}: {format_number(value)}" for measure, value in zip(measures, values, strict=True)],
        )
        handles.append(dots)
    for row in rows:
        panel.annotate(f"{format_number(first[row])} → {format_number(second[row])}", (1, row), (10, 0), va="center",
                       textcoords="offset points", color=theme.ink, fontsize=SMALL, family=FONT)  # fmt: skip
    panel.set_yticks(rows, [shorten(measure, 36) for measure in measures])
    panel.tick_params(axis="y", labelcolor=theme.ink)
    panel.set(xticks=[], xlim=(-0.02, 1.03), ylim=(len(first) - 0.5, -0.5))
    panel.spines[:].set_visible(False)
    legend(drawing, handles, [shorten(name, 30) for name in names])
    return finish(drawing, f"Measures of {names[0]} and {names[1]}")
