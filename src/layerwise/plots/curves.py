"""Curves by layer (SG-BERT fig. 1, LayerAttPooler fig. 1, 2 and 3) and by training step (SSCL fig. 6)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from layerwise.errors import InputError
from layerwise.plots.checks import Numbers, check_layers, check_length, check_numbers, check_series
from layerwise.plots.labels import End, label_ends, legend, name_lines
from layerwise.plots.style import (
    FONT,
    LIGHT,
    LINE,
    MARKERS,
    SINGLE,
    SMALL,
    Drawing,
    Theme,
    finish,
    format_number,
    lay_out,
    layer_ticks,
    new_drawing,
    new_panel,
    new_panels,
    style_axes,
)
from layerwise.registry import check_known

SCORE = "Spearman × 100"


@dataclass(frozen=True)
class MarkedMix:
    """A mix to mark in a figure: its score and its layers."""

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
    """The score of every layer, with a curve for each pooling (or model).

    Args:
        scores: The scores of each curve from layer 0, NaN for missing ones: (layers,) by name.
        last: The curve whose last layer is marked as the unchanged model.
        best: The mix that a search chose, drawn as a line at its score with a dot on each of its layers.
        measure: The name of the scores.
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    curves = check_series("scores", scores)
    drawing, panel = new_panel(theme, title=title, x="layer", y=measure)
    lines = draw_curves(drawing, panel, curves)
    ends = curve_ends(curves, theme)
    if last is not None:
        check_known(last, curves, "curve")
        place = list(curves).index(last)
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
    """The score of every layer, with a panel for each model and a curve for each pooling.

    Args:
        scores: The scores by model and pooling, which are the same for all models: (layers,) each.
        last: The pooling whose last layer is marked.
        best: The best mix of each model.
        measure: The name of the scores.
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    models = {name: check_series(f"scores of {name!r}", curves) for name, curves in scores.items()}
    if not models or len({tuple(curves) for curves in models.values()}) > 1:
        raise InputError("scores: expected at least one model, and the same poolings of every model")
    poolings = next(iter(models.values()))
    for name in best or {}:
        check_known(name, models, "model")
    drawing = new_drawing(theme, size=(max(SINGLE[0], 0.5 + 2.75 * len(models)), 3.5), title=title)
    panels = new_panels(drawing, len(models), share_y=True)
    lines: list[Line2D] = []
    ends: list[list[End]] = []
    for place, (panel, (name, curves)) in enumerate(zip(panels, models.items(), strict=True)):
        style_axes(panel, theme, x="layer", y=measure if place == 0 else "", title=name)
        panel.tick_params(left=place == 0)
        lines = draw_curves(drawing, panel, curves, of=f"{name}, ")
        layer_axis(panel, max(map(len, curves.values())), 7)
        ends.append([])
        if last is not None:
            check_known(last, curves, "curve")
            value = _mark_last(panel, curves[last], theme.colour([*curves].index(last)))
            ends[-1].append(End(value, f"last {value:.1f}", theme.colour([*curves].index(last))))
        if best and name in best:
            _mark_best(drawing, panel, best[name], theme, of=f"{name}, ")
            ends[-1].append(End(best[name].score, f"best {best[name].score:.1f}", theme.ink))
    handles, names = _legend_of_marks(lines, list(poolings), last, next(iter((best or {}).values()), None), theme)
    legend(drawing, handles, names)
    lay_out(drawing)
    for panel, labels in zip(panels, ends, strict=True):
        label_ends(drawing, panel, labels, force=True)
    return finish(drawing, f"{measure} by layer and token pooling of {', '.join(models)}")


def convergence(
    *,
    steps: Mapping[str, ArrayLike],
    scores: Mapping[str, ArrayLike],
    measure: str = "dev score",
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """The score by training step, with a line per run: the mean over seeds, and a band from minimum to maximum.

    Args:
        steps: The evaluation steps of each run: (n,)
        scores: The scores of each run: (n,) or (seeds, n)
        measure: The name of the scores.
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    places = check_series("steps", steps, gaps=False)
    drawing, panel = new_panel(theme, title=title, x="training step", y=measure)
    means, lines = {}, []
    if list(scores) != list(places):
        raise InputError(f"scores are of {', '.join(scores)}, steps of {', '.join(places)}; name the same runs")
    for order, (run, values) in enumerate(scores.items()):
        dimensions = (len(places[run]),) if np.ndim(values) == 1 else (None, len(places[run]))
        seeds = np.atleast_2d(check_numbers(f"scores of {run!r}", values, shape=dimensions))
        means[run] = seeds.mean(0)
        colour = theme.colour(order)
        if len(seeds) > 1:
            panel.fill_between(places[run], seeds.min(0), seeds.max(0), color=colour, alpha=0.18, linewidth=0)
        (line,) = panel.plot(places[run], means[run], color=colour, linewidth=LINE, marker=MARKERS[order], markersize=4)
        spans = [
            f" ({format_number(low)} to {format_number(high)})"
            for low, high in zip(seeds.min(0), seeds.max(0), strict=True)
        ]
        points = zip(places[run], means[run], spans if len(seeds) > 1 else [""] * len(means[run]), strict=True)
        drawing.label_points(
            line, [f"{run}, step {step:g}: {format_number(mean)}{span}" for step, mean, span in points]
        )
        lines.append(line)
    ends = [End(float(mean[-1]), run, theme.colour(order)) for order, (run, mean) in enumerate(means.items())]
    name_lines(drawing, panel, ends, lines)
    return finish(drawing, f"{measure} by training step: {', '.join(means)}")


def attention_weights(*, weights: Mapping[str, ArrayLike], title: str = "", theme: Theme = LIGHT) -> Drawing:
    """The weight of each layer, with a curve for each group of sentences, and a line at equal weights.

    Args:
        weights: The weights of each group, such as "all", "short" and "long": (layers,)
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    curves = check_series("weights", weights, gaps=False, same=True)
    layers = len(next(iter(curves.values())))
    drawing, panel = new_panel(theme, title=title, x="layer", y="mean weight")
    lines = draw_curves(drawing, panel, curves)
    panel.axhline(1 / layers, color=theme.muted, linewidth=1.2, linestyle=(0, (1, 2)))
    panel.annotate("evenly", (0.0, 1 / layers), (6, 3), xycoords=panel.get_yaxis_transform(), color=theme.muted,
                   textcoords="offset points", fontsize=SMALL, family=FONT)  # fmt: skip
    panel.set_ylim(bottom=0)
    layer_axis(panel, layers, 13)
    name_lines(drawing, panel, curve_ends(curves, theme), lines)
    return finish(drawing, f"Weights over {layers} layers: {', '.join(curves)}")


def draw_curves(
    drawing: Drawing, panel: Axes, curves: Mapping[str, Numbers], *, of: str = "", first: int = 0, where: str = "layer"
) -> list[Line2D]:
    """Draw each curve as a line with markers and a label for each point."""
    lines = []
    for order, (name, values) in enumerate(curves.items()):
        places = np.arange(first, first + len(values))
        size = 5.0 if len(values) <= 30 else 3.0
        (line,) = panel.plot(places, values, color=drawing.theme.colour(order), linewidth=LINE,
                             marker=MARKERS[order], markersize=size, markeredgewidth=0)  # fmt: skip
        points = [(place, value) for place, value in zip(places, values, strict=True) if not np.isnan(value)]
        drawing.label_points(line, [f"{of}{name}, {where} {place}: {format_number(value)}" for place, value in points])
        lines.append(line)
    return lines


def curve_ends(curves: Mapping[str, Numbers], theme: Theme) -> list[End]:
    """The names of the curves at their last points."""
    return [
        End(float(values[~np.isnan(values)][-1]), name, theme.colour(order))
        for order, (name, values) in enumerate(curves.items())
    ]


def layer_axis(panel: Axes, count: int, max_ticks: int, *, first: int = 0) -> None:
    """Set integer ticks on the x axis, and a margin at both ends."""
    panel.set_xticks([tick for tick in layer_ticks(count, max_ticks) if tick >= first])
    panel.set_xlim(first - 0.4, max(count - 1, first) + 0.4)


def _mark_last(panel: Axes, values: Numbers, colour: str) -> float:
    """Draw a ring around the last layer."""
    value = float(values[-1])
    if np.isnan(value):
        raise InputError("last: the last layer has no score (NaN), so it cannot be marked; leave `last` out")
    panel.plot([len(values) - 1], [value], marker="o", markersize=11, markerfacecolor="none", markeredgewidth=LINE,
               markeredgecolor=colour, linestyle="none", clip_on=False)  # fmt: skip
    return value


def _mark_best(drawing: Drawing, panel: Axes, best: MarkedMix, theme: Theme, *, of: str = "") -> Line2D:
    """Draw a line at the score of the mix, with a dot on each of its layers."""
    score = float(check_numbers("best", [best.score])[0])
    panel.axhline(score, color=theme.ink, linewidth=1.2, linestyle=(0, (4, 2.5)))
    count = max(len(line.get_ydata()) for line in panel.lines)  # type: ignore[arg-type]
    layers = check_layers("best", best.layers, count)
    (dots,) = panel.plot(layers, [score] * len(layers), color=theme.ink, linestyle="none", marker="o", markersize=5)
    drawing.label_points(dots, [f"{of}{best.name}, with layer {layer}: {format_number(score)}" for layer in layers])
    return Line2D([], [], color=theme.ink, linewidth=1.2, linestyle=(0, (2.5, 1.5)), marker="o", markersize=4)


def _legend_of_marks(
    lines: Sequence[Line2D], names: Sequence[str], last: str | None, best: MarkedMix | None, theme: Theme
) -> tuple[list[Line2D], list[str]]:
    check_length("lines", lines, len(names), "names")
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
