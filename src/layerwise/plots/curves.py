"""Scores by layer (SG-BERT fig. 1, LayerAttPooler fig. 1 and 2) and by training step (SSCL fig. 6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from layerwise.errors import InputError
from layerwise.plots.checked import Numbers, as_long, known, named, numbers, whole_layers
from layerwise.plots.ends import End, label_ends, legend, name_lines
from layerwise.plots.look import (
    LIGHT,
    LINE,
    MARKERS,
    SINGLE,
    Drawing,
    Theme,
    dress,
    finish,
    layer_ticks,
    new_drawing,
    new_panels,
    number,
    place_parts,
)

SCORE = "Spearman × 100"


@dataclass(frozen=True)
class MarkedMix:
    """A mix that a figure marks: its score, and the layers that it is made of."""

    score: float
    layers: tuple[int, ...] = ()
    name: str = "best mix"


def layer_curves(
    *,
    scores: Mapping[str, ArrayLike],
    last: str | None = None,
    best: MarkedMix | None = None,
    measure: str = SCORE,
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """The score of every layer, a curve for each pooling (or model).

    Args:
        scores: Name -> (layers,), layer 0 first; NaN where there is no score.
        last: The curve whose last layer is marked, being what the model gives as it is.
        best: The mix that search found: a line at its score, with a dot on each of its layers.
        measure: What the scores are.
        title: Above the figure.
        theme: LIGHT or DARK.
    """
    curves = named("scores", scores)
    drawing = new_drawing(theme, title=title)
    (panel,) = new_panels(drawing, 1)
    dress(panel, theme, x="layer", y=measure)
    lines = draw_curves(drawing, panel, curves)
    ends = curve_ends(curves, theme)
    if last is not None:
        place = list(curves).index(known("last", last, curves))
        value = _mark_last(panel, curves[last], theme.colour(place))
        ends[place] = End(value, f"{last}, last layer {value:.1f}", theme.colour(place))
    handles: list[Line2D] = list(lines)
    if best is not None:
        handles.append(_mark_best(drawing, panel, best, theme))
        ends.append(End(best.score, f"{best.name} {best.score:.1f}", theme.ink))
    layer_axis(panel, max(map(len, curves.values())), 13)
    name_lines(drawing, panel, ends, handles)
    return finish(drawing, f"{measure} by layer: {', '.join(curves)}")


def layer_curves_by_model(
    *,
    scores: Mapping[str, Mapping[str, ArrayLike]],
    last: str | None = None,
    best: Mapping[str, MarkedMix] | None = None,
    measure: str = SCORE,
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """The score of every layer, a panel for each model and a curve for each pooling.

    Args:
        scores: Model -> pooling -> (layers,); every model with the same poolings.
        last: The pooling whose last layer is marked.
        best: Model -> its best mix.
        measure: What the scores are.
        title: Above the figure.
        theme: LIGHT or DARK.
    """
    models = {name: named(f"scores of {name!r}", curves) for name, curves in scores.items()}
    if not models or len({tuple(curves) for curves in models.values()}) > 1:
        raise InputError("scores: expected at least one model, and the same poolings of every model")
    poolings = next(iter(models.values()))
    for name in best or {}:
        known("best", name, models)
    drawing = new_drawing(theme, size=(max(SINGLE[0], 0.5 + 2.75 * len(models)), 3.5), title=title)
    panels = new_panels(drawing, len(models), share_y=True)
    lines: list[Line2D] = []
    ends: list[list[End]] = []
    for place, (panel, (name, curves)) in enumerate(zip(panels, models.items(), strict=True)):
        dress(panel, theme, x="layer", y=measure if place == 0 else "", title=name)
        panel.tick_params(left=place == 0)
        lines = draw_curves(drawing, panel, curves, of=f"{name}, ")
        layer_axis(panel, max(map(len, curves.values())), 7)
        ends.append([])
        if last is not None:
            value = _mark_last(panel, curves[known("last", last, curves)], theme.colour([*curves].index(last)))
            ends[-1].append(End(value, f"last {value:.1f}", theme.colour([*curves].index(last))))
        if best and name in best:
            _mark_best(drawing, panel, best[name], theme, of=f"{name}, ")
            ends[-1].append(End(best[name].score, f"best {best[name].score:.1f}", theme.ink))
    handles, names = _legend_of_marks(lines, list(poolings), last, next(iter((best or {}).values()), None), theme)
    legend(drawing, handles, names)
    place_parts(drawing)
    for panel, own in zip(panels, ends, strict=True):
        label_ends(drawing, panel, own, force=True)
    return finish(drawing, f"{measure} by layer and token pooling of {', '.join(models)}")


def convergence(
    *,
    steps: Mapping[str, ArrayLike],
    scores: Mapping[str, ArrayLike],
    measure: str = "dev score",
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """The score by training step, a line for each run: mean over the seeds, and a band from the least to the most.

    Args:
        steps: Run -> (n,), where the score was taken.
        scores: Run -> (n,) or (seeds, n).
        measure: What the scores are.
        title: Above the figure.
        theme: LIGHT or DARK.
    """
    places = named("steps", steps, gaps=False)
    drawing = new_drawing(theme, title=title)
    (panel,) = new_panels(drawing, 1)
    dress(panel, theme, x="training step", y=measure)
    means, lines = {}, []
    if list(scores) != list(places):
        raise InputError(f"scores are of {', '.join(scores)}, steps of {', '.join(places)}; name the same runs")
    for order, (run, values) in enumerate(scores.items()):
        dimensions = (len(places[run]),) if np.ndim(values) == 1 else (None, len(places[run]))
        seeds = np.atleast_2d(numbers(f"scores of {run!r}", values, shape=dimensions))
        means[run] = seeds.mean(0)
        colour = theme.colour(order)
        if len(seeds) > 1:
            panel.fill_between(places[run], seeds.min(0), seeds.max(0), color=colour, alpha=0.18, linewidth=0)
        (line,) = panel.plot(places[run], means[run], color=colour, linewidth=LINE, marker=MARKERS[order], markersize=4)
        spans = [f" ({number(low)} to {number(high)})" for low, high in zip(seeds.min(0), seeds.max(0), strict=True)]
        told = zip(places[run], means[run], spans if len(seeds) > 1 else [""] * len(means[run]), strict=True)
        drawing.say(line, [f"{run}, step {step:g}: {number(mean)}{span}" for step, mean, span in told])
        lines.append(line)
    ends = [End(float(mean[-1]), run, theme.colour(order)) for order, (run, mean) in enumerate(means.items())]
    name_lines(drawing, panel, ends, lines)
    return finish(drawing, f"{measure} by training step: {', '.join(means)}")


def draw_curves(
    drawing: Drawing, panel: Axes, curves: Mapping[str, Numbers], *, of: str = "", first: int = 0, where: str = "layer"
) -> list[Line2D]:
    """A line with markers for each curve, whose points say where they are."""
    lines = []
    for order, (name, values) in enumerate(curves.items()):
        places = np.arange(first, first + len(values))
        size = 5.0 if len(values) <= 30 else 3.0
        (line,) = panel.plot(places, values, color=drawing.theme.colour(order), linewidth=LINE,
                             marker=MARKERS[order], markersize=size, markeredgewidth=0)  # fmt: skip
        told = zip(places, values, strict=True)
        drawing.say(line, [f"{of}{name}, {where} {place}: {number(value)}" for place, value in told if value == value])
        lines.append(line)
    return lines


def curve_ends(curves: Mapping[str, Numbers], theme: Theme) -> list[End]:
    """Names at the last point that is there."""
    found = []
    for order, (name, values) in enumerate(curves.items()):
        found.append(End(float(values[~np.isnan(values)][-1]), name, theme.colour(order)))
    return found


def layer_axis(panel: Axes, count: int, most: int, *, first: int = 0) -> None:
    """Whole numbers under the panel, and a little room at both ends."""
    panel.set_xticks([tick for tick in layer_ticks(count, most) if tick >= first])
    panel.set_xlim(first - 0.4, max(count - 1, first) + 0.4)


def _mark_last(panel: Axes, values: Numbers, colour: str) -> float:
    """A ring around the last layer."""
    value = float(values[-1])
    if np.isnan(value):
        raise InputError("last: the last layer has no score (NaN), so it can't be marked; leave `last` out")
    panel.plot([len(values) - 1], [value], marker="o", markersize=11, markerfacecolor="none", markeredgewidth=LINE,
               markeredgecolor=colour, linestyle="none", clip_on=False)  # fmt: skip
    return value


def _mark_best(drawing: Drawing, panel: Axes, best: MarkedMix, theme: Theme, *, of: str = "") -> Line2D:
    """A line at the score of the mix, with a dot on each layer that it takes."""
    score = float(numbers("best", [best.score])[0])
    panel.axhline(score, color=theme.ink, linewidth=1.2, linestyle=(0, (4, 2.5)))
    count = max(len(line.get_ydata()) for line in panel.lines)  # type: ignore[arg-type]
    layers = whole_layers("best", best.layers, count)
    (dots,) = panel.plot(layers, [score] * len(layers), color=theme.ink, linestyle="none", marker="o", markersize=5)
    drawing.say(dots, [f"{of}{best.name}, with layer {layer}: {number(score)}" for layer in layers])
    return Line2D([], [], color=theme.ink, linewidth=1.2, linestyle=(0, (2.5, 1.5)), marker="o", markersize=4)


def _legend_of_marks(
    lines: Sequence[Line2D], names: Sequence[str], last: str | None, best: MarkedMix | None, theme: Theme
) -> tuple[list[Line2D], list[str]]:
    as_long("lines", lines, len(names), "names")
    handles, texts = list(lines), [f"{name} of tokens" if name in ("mean", "max") else name for name in names]
    if last is not None:
        colour = theme.colour(list(names).index(last))
        handles.append(Line2D([], [], linestyle="none", marker="o", markersize=9, markerfacecolor="none",
                              markeredgecolor=colour, markeredgewidth=LINE))  # fmt: skip
        texts.append("last layer")
    if best is not None:
        handles.append(Line2D([], [], color=theme.ink, linewidth=1.2, linestyle=(0, (2.5, 1.5)), marker="o",
                              markersize=4))  # fmt: skip
        texts.append(f"{best.name}, dots on its layers")
    return handles, texts
