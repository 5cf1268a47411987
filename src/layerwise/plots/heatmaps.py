"""Matrices as coloured cells: layers against layers (CKA), sentences against layers (attention)."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from numpy.typing import ArrayLike

from layerwise.plots.checked import Numbers, as_long, numbers
from layerwise.plots.look import (
    FONT,
    LIGHT,
    SMALL,
    TEXT,
    THIN,
    Drawing,
    Theme,
    clean,
    dress,
    finish,
    layer_ticks,
    new_drawing,
    new_panels,
    number,
    short,
)

_MOST_SENTENCES = 40  # that can be read beside the map


def layer_likeness(
    *, matrix: ArrayLike, names: tuple[str, str] = ("layer", "layer"), title: str = "", theme: Theme = LIGHT
) -> Drawing:
    """How alike the layers are (linear CKA, 0 to 1), of one model or of one against another. (L, M)"""
    values = numbers("matrix", matrix, shape=(None, None))
    drawing = new_drawing(theme, size=(5.2, 4.5), title=title)
    (panel,) = new_panels(drawing, 1)
    dress(panel, theme, x=names[1], y=names[0], grid=None, ticks=False)
    cells(drawing, panel, values, (min(0.0, float(values.min())), 1.0),
          lambda row, column: f"layers {row} and {column}")  # fmt: skip
    panel.set_xticks(layer_ticks(values.shape[1], 13))
    panel.set_yticks(layer_ticks(values.shape[0], 13))
    colour_bar(drawing, [panel], (min(0.0, float(values.min())), 1.0), "CKA")
    return finish(drawing, "How alike the layers are: linear CKA of every two")


def attention_map(*, weights: ArrayLike, sentences: Sequence[str], title: str = "", theme: Theme = LIGHT) -> Drawing:
    """The weight that each sentence gives to each layer (LayerAttPooler fig. 3). (n, L), n texts

    Sentences come in the order given (such as by length); beyond 40 their texts are left to the hover.
    """
    values = numbers("weights", weights, shape=(None, None))
    as_long("sentences", sentences, len(values), "rows of weights")
    named = len(values) <= _MOST_SENTENCES
    height = 1.3 + (0.19 * len(values) if named else 5.0)
    drawing = new_drawing(theme, size=(8.6 if named else 5.8, max(2.4, height)), title=title)
    (panel,) = new_panels(drawing, 1)
    dress(panel, theme, x="layer", y="" if named else f"{len(values)} sentences", grid=None, ticks=False)
    limits = (float(min(0.0, values.min())), float(values.max()))
    cells(
        drawing, panel, values, limits, lambda row, layer: f"{short(sentences[row], 48)}, layer {layer}", square=False
    )
    panel.set_xticks(layer_ticks(values.shape[1], 13))
    panel.set_yticks(range(len(values)) if named else [], [short(text, 44) for text in sentences] if named else [])
    colour_bar(drawing, [panel], limits, "weight")
    return finish(drawing, f"Weights over {values.shape[1]} layers of {len(values)} sentences")


def cells(
    drawing: Drawing,
    panel: Axes,
    values: Numbers,
    limits: tuple[float, float],
    say: Callable[[int, int], str],
    *,
    square: bool = True,
) -> None:
    """A cell for each value, the first row on top, with thin gaps of the paper's colour."""
    rows, columns = values.shape
    mesh = panel.pcolormesh(
        np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5, values, cmap=drawing.theme.heat_map,
        norm=_norm(limits), edgecolors=drawing.theme.paper, linewidth=0.5,
    )  # fmt: skip
    places = [(row, column) for row in range(rows) for column in range(columns)]
    drawing.say(mesh, [f"{say(*place)}: {number(values[place])}" for place in places])
    panel.set_xlim(-0.5, columns - 0.5)
    panel.set_ylim(rows - 0.5, -0.5)
    panel.set_aspect("equal" if square else "auto")
    panel.spines[:].set_visible(False)


def colour_bar(drawing: Drawing, panels: Sequence[Axes], limits: tuple[float, float], name: str) -> None:
    """What the colours mean, in as many steps as there are colours."""
    theme = drawing.theme
    source = ScalarMappable(norm=_norm(limits), cmap=theme.heat_map)
    bar = drawing.colorbar(source, ax=list(panels), shrink=0.85, aspect=26, pad=0.02)
    bar.ax.set_facecolor("none")
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=theme.muted, labelsize=SMALL, labelfontfamily=FONT, length=0, width=THIN)
    bar.set_label(clean(name), color=theme.ink, fontsize=TEXT, family=FONT)


def _norm(limits: tuple[float, float]) -> Normalize:
    low, high = limits
    return Normalize(low, high if high > low else low + 1)
