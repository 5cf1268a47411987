"""Results of searches: scores by number of layers, omitted layer and dev pairs (BERT-LC fig. 1 to 4), chosen layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from layerwise.errors import InputError
from layerwise.plots.checks import Numbers, check_layers, check_length, check_numbers, check_series
from layerwise.plots.curves import SCORE, layer_axis
from layerwise.plots.labels import End, name_lines
from layerwise.plots.style import (
    FONT,
    LIGHT,
    LINE,
    MARKERS,
    SMALL,
    Drawing,
    Theme,
    finish,
    format_number,
    layer_ticks,
    new_panel,
)
from layerwise.registry import check_known

_MAX_LABELLED_BARS = 13  # bars up to which each has a number above it


class LineOptions(TypedDict, total=False):
    """The options of line plots: standard deviations for bands, the name of the scores, the title, the theme."""

    sd: Mapping[str, ArrayLike] | None
    measure: str
    title: str
    theme: Theme


def score_by_size(
    *, sizes: Sequence[int], scores: Mapping[str, ArrayLike], last: float | None = None, **options: Unpack[LineOptions]
) -> Drawing:
    """The score of the best set of each size; `last` is the last layer's, drawn as a horizontal line."""
    places = check_numbers("sizes", list(sizes))
    return _line_plot(
        places, scores, ("last layer", last), x="layers in the set", label=lambda place: f"{place:g} layers",
        ticks=_ticks(places, 13), **options,
    )  # fmt: skip


def score_without_layer(
    *, layers: Sequence[int], scores: Mapping[str, ArrayLike], full: float | None = None, **options: Unpack[LineOptions]
) -> Drawing:
    """The score of the best set without a layer; `full` is the best of all sets, drawn as a horizontal line."""
    places = check_numbers("layers", list(layers))
    return _line_plot(
        places, scores, ("none left out", full), x="left-out layer", label=lambda place: f"without layer {place:g}",
        ticks=_ticks(places, 13), **options,
    )  # fmt: skip


def score_by_pairs(
    *, pairs: Sequence[int], scores: Mapping[str, ArrayLike], last: float | None = None, **options: Unpack[LineOptions]
) -> Drawing:
    """The score of the choice of a number of dev pairs, on a logarithmic axis; bands are one standard deviation."""
    places = check_numbers("pairs", list(pairs))
    if places.min() <= 0:
        raise InputError(f"pairs: {places.min():g} cannot be on a logarithmic axis; give numbers above 0")
    return _line_plot(
        places, scores, ("last layer", last), x="dev pairs that choose", label=lambda place: f"{place:,.0f} pairs",
        ticks=_ticks(places, 7), log=True, **options,
    )  # fmt: skip


def layers_chosen(*, shares: ArrayLike, best: Sequence[int] = (), title: str = "", theme: Theme = LIGHT) -> Drawing:
    """The share of random halves of the pairs that choose each layer; the layers of the best set are highlighted."""
    heights = 100 * check_numbers("shares", shares)
    if heights.min() < 0 or heights.max() > 100:
        invalid = heights[(heights < 0) | (heights > 100)][0] / 100
        raise InputError(f"shares: {invalid:g} is no share; give numbers from 0 to 1")
    chosen = check_layers("best", best, len(heights))
    drawing, panel = new_panel(theme, title=title, x="layer", y="chosen in % of halves")
    for layer, height in enumerate(heights):
        highlighted = layer in chosen or not chosen
        colour = theme.colour(0) if highlighted else theme.muted
        (bar,) = panel.bar([layer], [height], width=0.72, color=colour, alpha=1 if highlighted else 0.4, linewidth=0)
        drawing.label_points(
            bar, [f"layer {layer}: chosen in {height:.0f} %" + (", in the best set" if layer in chosen else "")]
        )
        if len(heights) <= _MAX_LABELLED_BARS:
            panel.annotate(f"{height:.0f}", (layer, height), (0, 2), textcoords="offset points", ha="center",
                           va="bottom", color=theme.ink, fontsize=SMALL, family=FONT)  # fmt: skip
    layer_axis(panel, len(heights), 13)
    panel.set_xlim(-0.6, len(heights) - 0.4)
    panel.set_ylim(0, 108)
    panel.set_yticks([0, 25, 50, 75, 100])
    note = f"; the best set has {', '.join(map(str, chosen))}" if chosen else ""
    return finish(drawing, f"How often each layer is chosen{note}")


def layer_negatives(
    *,
    layers: Sequence[int],
    mean: ArrayLike,
    sd: ArrayLike | None = None,
    without: float | None = None,
    measure: str = SCORE,
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """The score of training runs by the layer taken as negative (SSCL fig. 3), ± sd; `without` is the score of none."""
    places, means = check_numbers("layers", list(layers)), check_numbers("mean", mean)
    check_length("mean", means, len(places), "layers")
    drawing, panel = new_panel(theme, title=title, x="layer taken as the negative", y=measure)
    spread = np.zeros(len(means)) if sd is None else check_numbers("sd", sd, shape=(len(means),))
    if sd is not None:
        panel.vlines(places, means - spread, means + spread, color=theme.colour(0), linewidth=LINE, alpha=0.55)
    (line,) = panel.plot(places, means, color=theme.colour(0), marker="o", markersize=6, linewidth=0.9)
    ranges = [f" ± {format_number(width)}" if sd is not None else "" for width in spread]
    points = zip(places, means, ranges, strict=True)
    drawing.label_points(line, [f"layer {place:g}: {format_number(value)}{width}" for place, value, width in points])
    panel.set_xticks(_ticks(places, 13))
    panel.set_xlim(places.min() - 0.5, places.max() + 0.5)
    ends = _horizontal_line(panel, "no layer negatives", without, theme)
    name_lines(drawing, panel, ends, [panel.lines[-1]] * len(ends))
    return finish(drawing, f"{measure} by the layer taken as the negative")


def _line_plot(
    places: Numbers,
    scores: Mapping[str, ArrayLike],
    level: tuple[str, float | None],
    *,
    x: str,
    label: Callable[[float], str],
    ticks: list[float],
    log: bool = False,
    sd: Mapping[str, ArrayLike] | None = None,
    measure: str = SCORE,
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """Lines over an axis, with bands of ± one standard deviation."""
    curves = check_series("scores", scores, shape=(len(places),))
    for name in sd or {}:
        check_known(name, curves, "curve")
    spreads = {name: check_numbers(f"sd of {name!r}", values, shape=(len(places),), gaps=True)
               for name, values in (sd or {}).items()}  # fmt: skip
    drawing, panel = new_panel(theme, title=title, x=x, y=measure)
    lines: list[Line2D] = []
    ends: list[End] = []
    for order, (name, values) in enumerate(curves.items()):
        colour, spread = theme.colour(order), spreads.get(name, np.full(len(values), np.nan))
        if np.isfinite(spread).any():
            panel.fill_between(places, values - spread, values + spread, color=colour, alpha=0.18, linewidth=0)
        (line,) = panel.plot(places, values, color=colour, linewidth=LINE, marker=MARKERS[order], markersize=5)
        ranges = [f" ± {format_number(width)}" if width == width else "" for width in spread]
        points = [point for point in zip(places, values, ranges, strict=True) if not np.isnan(point[1])]
        drawing.label_points(
            line, [f"{name}, {label(place)}: {format_number(value)}{width}" for place, value, width in points]
        )
        lines.append(line)
        ends.append(End(float(values[~np.isnan(values)][-1]), name, colour))
    if log:
        panel.set_xscale("log")
        panel.minorticks_off()
    panel.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    if len(curves) == 1 and level[1] is None:  # one line needs no name
        ends = []
    level_ends = _horizontal_line(panel, *level, theme)
    name_lines(drawing, panel, ends + level_ends, [*lines[: len(ends)], *[panel.lines[-1]] * len(level_ends)])
    return finish(drawing, f"{measure} by {x}: {', '.join(curves)}")


def _horizontal_line(panel: Axes, name: str, value: float | None, theme: Theme) -> list[End]:
    """Draw a horizontal line for comparison."""
    if value is None:
        return []
    height = float(check_numbers(name, [value])[0])
    panel.axhline(height, color=theme.muted, linewidth=1.2, linestyle=(0, (4, 2.5)))
    return [End(height, f"{name} {height:.1f}", theme.muted)]


def _ticks(places: Numbers, max_ticks: int) -> list[float]:
    """At most `max_ticks` of the places, including the last if possible."""
    ordered = np.unique(places)
    return [float(ordered[place]) for place in layer_ticks(len(ordered), max_ticks)]


def gain_and_front(
    *,
    gain: tuple[float, float, float] | None,
    costs: Sequence[float],
    scores: Sequence[float],
    last: tuple[float, float],
    cost: str = "blocks",
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """The gain over the last layer with its interval, and the best score within a cost, of a search.

    Args:
        gain: The gain × 100 and the ends of its interval; None without labels, which leaves the first panel out.
        costs: The costs of the front's points.
        scores: Their scores × 100.
        last: The cost and the score × 100 of the last layer.
        cost: What costs are counted in.
        title: The title of the figure.
        theme: The colours.
    """
    places, values = check_numbers("costs", list(costs)), check_numbers("scores", list(scores))
    check_length("scores", values, len(places), "costs")
    drawing, panel = new_panel(theme, title=title, x=cost, y=SCORE)
    panel.plot(places, values, color=theme.colour(0), marker="o", linewidth=LINE, label="best within the cost")
    panel.plot(*last, color=theme.colour(1), marker="s", linestyle="", label="last layer")
    words = f"the best set within each cost of {len(places)}, and the last layer"
    if gain is not None:
        mean, low, high = gain
        label = f"gain on unseen units {mean:+.1f} [{low:+.1f}, {high:+.1f}]"
        spread = [[mean - low], [high - mean]]
        panel.errorbar([last[0]], [last[1] + mean], yerr=spread, color=theme.colour(2), capsize=4, fmt="d", label=label)
        words += f"; {label}"
    panel.legend(frameon=False, fontsize=SMALL, labelcolor=theme.ink)
    return finish(drawing, words)
