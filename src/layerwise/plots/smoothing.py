"""What happens along the layers: over-smoothing (SSCL fig. 1 and 4), geometry, spectra."""

from collections.abc import Mapping

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike

from layerwise.errors import InputError
from layerwise.plots.checked import Numbers, known, named, numbers
from layerwise.plots.curves import curve_ends, draw_curves, layer_axis
from layerwise.plots.ends import legend, name_lines
from layerwise.plots.look import (
    LIGHT,
    LINE,
    MARKERS,
    Drawing,
    Theme,
    dress,
    finish,
    new_drawing,
    new_panels,
    number,
)

_LEAST = 1e-6  # of the variance
_DASHES = (0, (4, 2.5))


def smoothing_curves(
    *, setsim: Mapping[str, ArrayLike], toksim: Mapping[str, ArrayLike], title: str = "", theme: Theme = LIGHT
) -> Drawing:
    """SetSim and TokSim by layer, a curve for each model in both panels.

    Args:
        setsim: Model -> (layers - 1,), the cosine of a sentence in layers i and i + 1; drawn at i + 1.
        toksim: Model -> (layers,), the mean cosine of a sentence's tokens.
        title: Above the figure.
        theme: LIGHT or DARK.
    """
    sets, tokens = named("setsim", setsim), named("toksim", toksim)
    drawing = new_drawing(theme, size=(8.6, 3.4), title=title)
    left, right = new_panels(drawing, 2)
    dress(left, theme, x="layer", y="cosine to the layer below", title="SetSim: adjacent layers")
    dress(right, theme, x="layer", y="cosine of tokens", title="TokSim: tokens of a sentence")
    lines = draw_curves(drawing, left, sets, first=1, where="SetSim of layer")
    others = draw_curves(drawing, right, tokens, where="TokSim of layer")
    count = max(map(len, tokens.values()))
    for panel in (left, right):
        layer_axis(panel, max(count, max(map(len, sets.values())) + 1), 13)
    if list(sets) == list(tokens):
        _name_in_all(drawing, lines, list(sets))
    else:
        legend(
            drawing, [*lines, *others], [f"SetSim, {name}" for name in sets] + [f"TokSim, {name}" for name in tokens]
        )
    return finish(drawing, f"SetSim and TokSim by layer: {', '.join(sets)}")


def geometry_by_layer(
    *,
    measures: Mapping[str, Mapping[str, ArrayLike]],
    own: Mapping[str, Mapping[str, float]] | None = None,
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """Small panels, one for each measure, with a curve for each model.

    Args:
        measures: Such as anisotropy -> model -> (layers,); every measure with the same models.
        own: Measure -> model -> the value of what the model gives as it is, drawn as a level.
        title: Above the figure.
        theme: LIGHT or DARK.
    """
    given: dict[str, dict[str, Numbers]] = {name: named(name, curves) for name, curves in measures.items()}
    if not given or len({tuple(curves) for curves in given.values()}) > 1:
        raise InputError("measures: expected at least one measure, and the same models of every measure")
    columns = min(2, len(given))
    rows = -(-len(given) // columns)
    drawing = new_drawing(theme, size=(8.6 if columns > 1 else 5.8, 0.5 + 2.4 * rows), title=title)
    panels = new_panels(drawing, columns, rows=rows)
    lines: list[Line2D] = []
    for place, (panel, (measure, curves)) in enumerate(zip(panels, given.items(), strict=False)):
        dress(panel, theme, x="layer" if place >= len(given) - columns else "", title=measure)
        lines = draw_curves(drawing, panel, curves, where=f"{measure}, layer")
        layer_axis(panel, max(map(len, curves.values())), 13)
    for panel in panels[len(given) :]:
        panel.set_visible(False)
    names = list(next(iter(given.values())))
    for measure, levels in (own or {}).items():
        panel = panels[list(given).index(known("own", measure, given))]
        for model, level in levels.items():
            colour = theme.colour(names.index(known("own", model, given[measure])))
            panel.axhline(float(numbers("own", [level])[0]), color=colour, linewidth=1.2, linestyle=_DASHES)
    if own:
        _name_in_all(drawing, [*lines, Line2D([], [], color=theme.muted, linestyle=_DASHES)], [*names, "its own mix"])
    else:
        _name_in_all(drawing, lines, names)
    return finish(drawing, f"{', '.join(given)} by layer: {', '.join(names)}")


def spectra(*, shares: Mapping[str, ArrayLike], title: str = "", theme: Theme = LIGHT) -> Drawing:
    """Shares of the variance by principal direction, the largest first, on logarithmic axes; a line for each model.

    Args:
        shares: Name -> (directions,), descending; what is below a millionth is rounding and left out.
        title: Above the figure.
        theme: LIGHT or DARK.
    """
    given = named("shares", shares, gaps=False)
    curves = named("shares", {name: np.where(values > _LEAST, values, np.nan) for name, values in given.items()})
    drawing = new_drawing(theme, title=title)
    (panel,) = new_panels(drawing, 1)
    dress(panel, theme, x="principal direction", y="share of variance", grid="both")
    panel.set(xscale="log", yscale="log")
    lines = []
    for order, (name, values) in enumerate(curves.items()):
        every = np.unique(np.geomspace(1, len(values), 24).round().astype(int)) - 1
        (line,) = panel.plot(np.arange(1, len(values) + 1), values, color=theme.colour(order), linewidth=LINE)
        (dots,) = panel.plot(every + 1, values[every], color=theme.colour(order), linestyle="none",
                             marker=MARKERS[order], markersize=4)  # fmt: skip
        kept = [place for place in every if values[place] == values[place]]
        drawing.say(dots, [f"{name}, direction {place + 1}: {100 * values[place]:.3g} %" for place in kept])
        lines.append(line)
    panel.minorticks_off()
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_major_formatter(FuncFormatter(_percent))
    name_lines(drawing, panel, curve_ends(curves, theme), lines)
    return finish(drawing, f"Share of variance by principal direction: {', '.join(curves)}")


def _percent(value: float, _: object = None) -> str:
    return f"{number(100 * value)} %"


def _name_in_all(drawing: Drawing, lines: list[Line2D], names: list[str]) -> None:
    """One legend for panels that show the same models; a single one goes without."""
    if len(names) > 1:
        legend(drawing, lines, names)
