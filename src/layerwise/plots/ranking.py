"""A ranking of runs by their means, with the intervals of their differences from the best."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from layerwise.plots.checks import Numbers, check_length, check_numbers
from layerwise.plots.labels import legend
from layerwise.plots.style import LIGHT, Drawing, Theme, finish, format_number, new_panel, shorten_middle

_MAX_LENGTH = 44  # characters of a name


def means_with_ties(
    *,
    names: Sequence[str],
    means: ArrayLike,
    by_rows: ArrayLike | None = None,
    by_tasks: ArrayLike | None = None,
    measure: str = "mean score × 100",
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """The mean of each run, the best first, with the interval of its difference from the best.

    A run whose interval reaches the line of the best is tied with it, and its marker is filled.

    Args:
        names: The names of n runs.
        means: Their means: (n,)
        by_rows: The intervals of the differences by resampled rows (thick lines), NaN for missing ones: (n, 2)
        by_tasks: The intervals by resampled tasks (thin lines): (n, 2)
        measure: The name of the means.
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    values = check_numbers("means", means)
    check_length("means", values, len(names), "names")
    best = float(values.max())
    intervals = {
        label: check_numbers(label, ends, shape=(len(values), 2), gaps=True) + best
        for label, ends in (("rows", by_rows), ("tasks", by_tasks))
        if ends is not None
    }
    drawing, panel = new_panel(theme, size=(6.6, 1.2 + 0.34 * len(values)), title=title, x=measure, grid="x")
    panel.axvline(best, color=theme.muted, linewidth=1.2, linestyle=(0, (4, 2.5)))
    handles = [
        panel.hlines(
            np.arange(len(values)), *ends.T, color=theme.colour(0), linewidth=3.4 if label == "rows" else 1.2, alpha=0.6
        )
        for label, ends in intervals.items()
    ]
    _draw_means(drawing, panel, names, values, intervals)
    panel.set_yticks(np.arange(len(values)), [shorten_middle(name, _MAX_LENGTH) for name in names])
    panel.tick_params(axis="y", labelcolor=theme.ink, length=0)
    panel.set_ylim(len(values) - 0.5, -0.5)
    if handles:
        legend(drawing, handles, [f"95 % against the best, other {label}" for label in intervals])
    return finish(drawing, f"{measure}, the best first: {', '.join(names)}")


def _draw_means(
    drawing: Drawing, panel: Axes, names: Sequence[str], values: Numbers, intervals: dict[str, Numbers]
) -> None:
    theme, best = drawing.theme, float(values.max())
    for row, (name, value) in enumerate(zip(names, values, strict=True)):
        tied = [label for label, ends in intervals.items() if ends[row, 1] >= best]
        filled = bool(tied) or value == best
        colour = theme.colour(0) if filled else theme.muted
        (dot,) = panel.plot(
            [value], [row], marker="o", markersize=7, linestyle="none", color=colour,
            markerfacecolor=colour if filled else theme.paper,
        )  # fmt: skip
        words = f", tied with the best by {' and '.join(tied)}" if tied and value < best else ""
        drawing.label_points(dot, [f"{name}: {format_number(value)}{words}"])
