"""What a search says: scores by number of layers, left-out layer and dev pairs (BERT-LC fig. 1 to 4), chosen layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from layerwise.errors import InputError
from layerwise.plots.checked import Numbers, as_long, known, named, numbers, whole_layers
from layerwise.plots.curves import SCORE, layer_axis
from layerwise.plots.ends import End, name_lines
from layerwise.plots.look import (
    FONT,
    LIGHT,
    LINE,
    MARKERS,
    SMALL,
    Drawing,
    Theme,
    dress,
    finish,
    layer_ticks,
    new_drawing,
    new_panels,
    number,
)

_ROOM_FOR_SHARES = 13  # bars that have a number above them


class Shown(TypedDict, total=False):
    """How lines over an axis are shown: bands of one standard deviation either way, what is measured, title, theme."""

    sd: Mapping[str, ArrayLike] | None
    measure: str
    title: str
    theme: Theme


def score_by_size(
    *, sizes: Sequence[int], scores: Mapping[str, ArrayLike], last: float | None = None, **shown: Unpack[Shown]
) -> Drawing:
    """The score of the best set of so many layers; `last` is the last layer's, drawn as a level."""
    places = numbers("sizes", list(sizes))
    return _by_place(
        places, scores, ("last layer", last), x="layers in the set", say=lambda place: f"{place:g} layers",
        ticks=_thinned(places, 13), **shown,
    )  # fmt: skip


def score_without_layer(
    *, layers: Sequence[int], scores: Mapping[str, ArrayLike], full: float | None = None, **shown: Unpack[Shown]
) -> Drawing:
    """The score of the best set that lacks a layer; `full` is the best with none left out, drawn as a level."""
    places = numbers("layers", list(layers))
    return _by_place(
        places, scores, ("none left out", full), x="left-out layer", say=lambda place: f"without layer {place:g}",
        ticks=_thinned(places, 13), **shown,
    )  # fmt: skip


def score_by_pairs(
    *, pairs: Sequence[int], scores: Mapping[str, ArrayLike], last: float | None = None, **shown: Unpack[Shown]
) -> Drawing:
    """The score of what so many dev pairs choose, on a logarithmic axis; bands are one standard deviation wide."""
    places = numbers("pairs", list(pairs))
    if places.min() <= 0:
        raise InputError(f"pairs: {places.min():g} can't stand on a logarithmic axis; give numbers above 0")
    return _by_place(
        places, scores, ("last layer", last), x="dev pairs that choose", say=lambda place: f"{place:,.0f} pairs",
        ticks=_thinned(places, 7), log=True, **shown,
    )  # fmt: skip


def layers_chosen(*, shares: ArrayLike, best: Sequence[int] = (), title: str = "", theme: Theme = LIGHT) -> Drawing:
    """How often random halves of the pairs choose each layer, from 0 to 1; the layers of the best set stand out."""
    heights = 100 * numbers("shares", shares)
    if heights.min() < 0 or heights.max() > 100:
        wrong = heights[(heights < 0) | (heights > 100)][0] / 100
        raise InputError(f"shares: {wrong:g} is no share; give numbers from 0 to 1")
    chosen = whole_layers("best", best, len(heights))
    drawing = new_drawing(theme, title=title)
    (panel,) = new_panels(drawing, 1)
    dress(panel, theme, x="layer", y="chosen in % of halves")
    for layer, height in enumerate(heights):
        stands_out = layer in chosen or not chosen
        colour = theme.colour(0) if stands_out else theme.muted
        (bar,) = panel.bar([layer], [height], width=0.72, color=colour, alpha=1 if stands_out else 0.4, linewidth=0)
        drawing.say(
            bar, [f"layer {layer}: chosen in {height:.0f} %" + (", in the best set" if layer in chosen else "")]
        )
        if len(heights) <= _ROOM_FOR_SHARES:
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
    """The score of a training by which layer is its negative (SSCL fig. 3), ± sd; `without` is that of none."""
    places, means = numbers("layers", list(layers)), numbers("mean", mean)
    as_long("mean", means, len(places), "layers")
    drawing = new_drawing(theme, title=title)
    (panel,) = new_panels(drawing, 1)
    dress(panel, theme, x="layer taken as the negative", y=measure)
    spread = np.zeros(len(means)) if sd is None else numbers("sd", sd, shape=(len(means),))
    if sd is not None:
        panel.vlines(places, means - spread, means + spread, color=theme.colour(0), linewidth=LINE, alpha=0.55)
    (line,) = panel.plot(places, means, color=theme.colour(0), marker="o", markersize=6, linewidth=0.9)
    ranges = [f" ± {number(width)}" if sd is not None else "" for width in spread]
    told = zip(places, means, ranges, strict=True)
    drawing.say(line, [f"layer {place:g}: {number(value)}{width}" for place, value, width in told])
    panel.set_xticks(_thinned(places, 13))
    panel.set_xlim(places.min() - 0.5, places.max() + 0.5)
    ends = _level(panel, "no layer negatives", without, theme)
    name_lines(drawing, panel, ends, [panel.lines[-1]] * len(ends))
    return finish(drawing, f"{measure} by the layer taken as the negative")


def _by_place(
    places: Numbers,
    scores: Mapping[str, ArrayLike],
    level: tuple[str, float | None],
    *,
    x: str,
    say: Callable[[float], str],
    ticks: list[float],
    log: bool = False,
    sd: Mapping[str, ArrayLike] | None = None,
    measure: str = SCORE,
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """Lines over an axis, with bands of one standard deviation either way."""
    curves = named("scores", scores, shape=(len(places),))
    spreads = {known("sd", name, curves): numbers(f"sd of {name!r}", values, shape=(len(places),), gaps=True)
               for name, values in (sd or {}).items()}  # fmt: skip
    drawing = new_drawing(theme, title=title)
    (panel,) = new_panels(drawing, 1)
    dress(panel, theme, x=x, y=measure)
    lines: list[Line2D] = []
    ends: list[End] = []
    for order, (name, values) in enumerate(curves.items()):
        colour, spread = theme.colour(order), spreads.get(name, np.full(len(values), np.nan))
        if np.isfinite(spread).any():
            panel.fill_between(places, values - spread, values + spread, color=colour, alpha=0.18, linewidth=0)
        (line,) = panel.plot(places, values, color=colour, linewidth=LINE, marker=MARKERS[order], markersize=5)
        ranges = [f" ± {number(width)}" if width == width else "" for width in spread]
        told = [entry for entry in zip(places, values, ranges, strict=True) if entry[1] == entry[1]]
        drawing.say(line, [f"{name}, {say(place)}: {number(value)}{width}" for place, value, width in told])
        lines.append(line)
        ends.append(End(float(values[~np.isnan(values)][-1]), name, colour))
    if log:
        panel.set_xscale("log")
        panel.minorticks_off()
    panel.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    if len(curves) == 1 and level[1] is None:  # one line needs no name
        ends = []
    level_ends = _level(panel, *level, theme)
    name_lines(drawing, panel, ends + level_ends, [*lines[: len(ends)], *[panel.lines[-1]] * len(level_ends)])
    return finish(drawing, f"{measure} by {x}: {', '.join(curves)}")


def _level(panel: Axes, name: str, value: float | None, theme: Theme) -> list[End]:
    """A horizontal line to compare with."""
    if value is None:
        return []
    height = float(numbers(name, [value])[0])
    panel.axhline(height, color=theme.muted, linewidth=1.2, linestyle=(0, (4, 2.5)))
    return [End(height, f"{name} {height:.1f}", theme.muted)]


def _thinned(places: Numbers, most: int) -> list[float]:
    """Some of the places, with the last: what fits under the axis."""
    ordered = np.unique(places)
    kept = layer_ticks(len(ordered), most)
    return [float(ordered[place]) for place in kept]
