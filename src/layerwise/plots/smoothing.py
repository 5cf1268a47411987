"""Measures by layer: over-smoothing (SSCL fig. 1 and 4), geometry, spectra."""

from collections.abc import Mapping

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike

from layerwise.errors import InputError
from layerwise.plots.checks import Numbers, check_numbers, check_series
from layerwise.plots.curves import curve_ends, draw_curves, layer_axis
from layerwise.plots.labels import legend, name_lines
from layerwise.plots.style import (
    LIGHT,
    LINE,
    MARKERS,
    Drawing,
    Theme,
    finish,
    format_number,
    new_drawing,
    new_panel,
    new_panels,
    style_axes,
)
from layerwise.registry import check_known

_MIN_SHARE = 1e-6  # of the variance
_DASHES = (0, (4, 2.5))


def smoothing_curves(
    *, setsim: Mapping[str, ArrayLike], toksim: Mapping[str, ArrayLike], title: str = "", theme: Theme = LIGHT
) -> Drawing:
    """SetSim and TokSim by layer, with a curve for each model in both panels.

    Args:
        setsim: The cosine of a sentence in layers i and i + 1 by model, drawn at i + 1: (layers - 1,)
        toksim: The mean cosine of a sentence's tokens by model: (layers,)
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    sets, tokens = check_series("setsim", setsim), check_series("toksim", toksim)
    drawing = new_drawing(theme, size=(8.6, 3.4), title=title)
    left, right = new_panels(drawing, 2)
    style_axes(left, theme, x="layer", y="cosine to the layer below", title="SetSim: adjacent layers")
    style_axes(right, theme, x="layer", y="cosine of tokens", title="TokSim: tokens of a sentence")
    lines = draw_curves(drawing, left, sets, first=1, where="SetSim of layer")
    token_lines = draw_curves(drawing, right, tokens, where="TokSim of layer")
    count = max(map(len, tokens.values()))
    for panel in (left, right):
        layer_axis(panel, max(count, max(map(len, sets.values())) + 1), 13)
    if list(sets) == list(tokens):
        _add_legend(drawing, lines, list(sets))
    else:
        legend(
            drawing,
            [*lines, *token_lines],
            [f"SetSim, {name}" for name in sets] + [f"TokSim, {name}" for name in tokens],
        )
    return finish(drawing, f"SetSim and TokSim by layer: {', '.join(sets)}")


def geometry_by_layer(
    *,
    measures: Mapping[str, Mapping[str, ArrayLike]],
    mix: Mapping[str, Mapping[str, float]] | None = None,
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """A small panel for each measure, with a curve for each model.

    Args:
        measures: The values by measure, such as anisotropy, and model; all measures have the same models: (layers,)
        mix: The values of the models' mixes by measure and model, drawn as horizontal lines.
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    panels_of: dict[str, dict[str, Numbers]] = {name: check_series(name, curves) for name, curves in measures.items()}
    if not panels_of or len({tuple(curves) for curves in panels_of.values()}) > 1:
        raise InputError("measures: expected at least one measure, and the same models of every measure")
    columns = min(2, len(panels_of))
    rows = -(-len(panels_of) // columns)
    drawing = new_drawing(theme, size=(8.6 if columns > 1 else 5.8, 0.5 + 2.4 * rows), title=title)
    panels = new_panels(drawing, columns, rows=rows)
    lines: list[Line2D] = []
    for place, (panel, (measure, curves)) in enumerate(zip(panels, panels_of.items(), strict=False)):
        style_axes(panel, theme, x="layer" if place >= len(panels_of) - columns else "", title=measure)
        lines = draw_curves(drawing, panel, curves, where=f"{measure}, layer")
        layer_axis(panel, max(map(len, curves.values())), 13)
    for panel in panels[len(panels_of) :]:
        panel.set_visible(False)
    names = list(next(iter(panels_of.values())))
    for measure, levels in (mix or {}).items():
        check_known(measure, panels_of, "measure")
        panel = panels[list(panels_of).index(measure)]
        for model, level in levels.items():
            check_known(model, names, "model")
            colour = theme.colour(names.index(model))
            panel.axhline(float(check_numbers("mix", [level])[0]), color=colour, linewidth=1.2, linestyle=_DASHES)
    if mix:
        _add_legend(drawing, [*lines, Line2D([], [], color=theme.muted, linestyle=_DASHES)], [*names, "its own mix"])
    else:
        _add_legend(drawing, lines, names)
    return finish(drawing, f"{', '.join(panels_of)} by layer: {', '.join(names)}")


def spectra(*, shares: Mapping[str, ArrayLike], title: str = "", theme: Theme = LIGHT) -> Drawing:
    """The share of the variance by principal direction, on logarithmic axes, with a line for each model.

    Args:
        shares: The shares of each model, descending; those below a millionth are rounding errors: (directions,)
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    positive = check_series("shares", shares, gaps=False)
    curves = check_series(
        "shares", {name: np.where(values > _MIN_SHARE, values, np.nan) for name, values in positive.items()}
    )
    drawing, panel = new_panel(theme, title=title, x="principal direction", y="share of variance", grid="both")
    panel.set(xscale="log", yscale="log")
    lines = []
    for order, (name, values) in enumerate(curves.items()):
        marked = np.unique(np.geomspace(1, len(values), 24).round().astype(int)) - 1
        (line,) = panel.plot(np.arange(1, len(values) + 1), values, color=theme.colour(order), linewidth=LINE)
        (dots,) = panel.plot(marked + 1, values[marked], color=theme.colour(order), linestyle="none",
                             marker=MARKERS[order], markersize=4)  # fmt: skip
        points = [place for place in marked if not np.isnan(values[place])]
        drawing.label_points(dots, [f"{name}, direction {place + 1}: {100 * values[place]:.3g} %" for place in points])
        lines.append(line)
    panel.minorticks_off()
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_major_formatter(FuncFormatter(_percent))
    name_lines(drawing, panel, curve_ends(curves, theme), lines)
    return finish(drawing, f"Share of variance by principal direction: {', '.join(curves)}")


def _percent(value: float, _: object = None) -> str:
    return f"{format_number(100 * value)} %"


def _add_legend(drawing: Drawing, lines: list[Line2D], names: list[str]) -> None:
    """Add one legend for panels of the same models, unless there is only one."""
    if len(names) > 1:
        legend(drawing, lines, names)
