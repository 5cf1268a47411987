"""Heat maps: layers (CKA), sentences by layers (attention), views by layers, tokens (SSCL 5)."""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from numpy.typing import ArrayLike

from layerwise.errors import InputError
from layerwise.plots.checks import Numbers, check_layers, check_length, check_numbers
from layerwise.plots.style import (
    FONT,
    LIGHT,
    SMALL,
    TEXT,
    THIN,
    Drawing,
    Theme,
    finish,
    format_number,
    layer_ticks,
    new_drawing,
    new_panel,
    new_panels,
    printable,
    shorten,
    style_axes,
)
from layerwise.registry import check_known

_MAX_SENTENCES = 40  # that are readable beside the map
_MAX_TOKENS = 40
_MAX_COLUMNS = 3


def layer_likeness(
    *, matrix: ArrayLike, names: tuple[str, str] = ("layer", "layer"), title: str = "", theme: Theme = LIGHT
) -> Drawing:
    """The similarity of layers (linear CKA, 0 to 1), within a model or between two: (L, M)"""
    values = check_numbers("matrix", matrix, shape=(None, None))
    drawing, panel = new_panel(theme, size=(5.2, 4.5), title=title, x=names[1], y=names[0], grid=None, ticks=False)
    cells(drawing, panel, values, (min(0.0, float(values.min())), 1.0),
          lambda row, column: f"layers {row} and {column}")  # fmt: skip
    panel.set_xticks(layer_ticks(values.shape[1], 13))
    panel.set_yticks(layer_ticks(values.shape[0], 13))
    colour_bar(drawing, [panel], (min(0.0, float(values.min())), 1.0), "CKA")
    return finish(drawing, "How alike the layers are: linear CKA of every two")


def attention_map(*, weights: ArrayLike, sentences: Sequence[str], title: str = "", theme: Theme = LIGHT) -> Drawing:
    """The weight of each layer for each sentence (LayerAttPooler fig. 3). (n, L), n texts

    Sentences are drawn in their order; with more than 40, their texts are in tooltips only.
    """
    values = check_numbers("weights", weights, shape=(None, None))
    check_length("sentences", sentences, len(values), "rows of weights")
    is_labelled = len(values) <= _MAX_SENTENCES
    height = 1.3 + (0.19 * len(values) if is_labelled else 5.0)
    drawing, panel = new_panel(
        theme,
        size=(8.6 if is_labelled else 5.8, max(2.4, height)),
        title=title,
        x="layer",
        y="" if is_labelled else f"{len(values)} sentences",
        grid=None,
        ticks=False,
    )
    limits = (float(min(0.0, values.min())), float(values.max()))
    cells(
        drawing, panel, values, limits, lambda row, layer: f"{shorten(sentences[row], 48)}, layer {layer}", square=False
    )
    panel.set_xticks(layer_ticks(values.shape[1], 13))
    panel.set_yticks(
        range(len(values)) if is_labelled else [], [shorten(text, 44) for text in sentences] if is_labelled else []
    )
    colour_bar(drawing, [panel], limits, "weight")
    return finish(drawing, f"Weights over {values.shape[1]} layers of {len(values)} sentences")


def view_scores(
    *,
    scores: Mapping[str, ArrayLike],
    chosen: Collection[tuple[str, int]] = (),
    measure: str = "Spearman × 100",
    rows: str = "prompts and poolings",
    title: str = "",
    theme: Theme = LIGHT,
) -> Drawing:
    """The score of every view: a row for each prompt and token pooling, or for each task, a column for each layer.

    Args:
        scores: The scores of each row, NaN for missing ones: (layers,)
        chosen: The views to mark with dots, as (row, layer).
        measure: The name of the scores.
        rows: The name of the rows.
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    names = list(scores)
    lines = [check_numbers(f"scores of {name!r}", scores[name], gaps=True) for name in names]
    for name, line in zip(names, lines, strict=True):
        check_length(f"scores of {name!r}", line, len(lines[0]), f"layers of {names[0]!r}")
    values = check_numbers("scores", lines, shape=(None, None), gaps=True)
    for name, layer in chosen:
        check_known(name, names, "pooling")
        check_layers("chosen", [layer], values.shape[1])
    drawing, panel = new_panel(
        theme, size=(8.6, max(2.4, 1.3 + 0.19 * len(names))), title=title, x="layer", y="", grid=None, ticks=False
    )
    limits = (float(max(0.0, np.nanmin(values))), float(np.nanmax(values)))
    cells(drawing, panel, values, limits, lambda row, layer: f"{names[row]}, layer {layer}", square=False)
    if chosen:
        places, layers = [names.index(name) for name, _ in chosen], [layer for _, layer in chosen]
        panel.scatter(layers, places, s=14, color=theme.ink, edgecolors=theme.paper, linewidths=0.8, zorder=3)
    panel.set_xticks(layer_ticks(values.shape[1], 13))
    panel.set_yticks(range(len(names)), [shorten(name, 44) for name in names])
    colour_bar(drawing, [panel], limits, measure)
    return finish(drawing, f"{measure} of {len(names)} {rows} by layer; {len(chosen)} views are marked")


def token_matrices(
    *, tokens: Sequence[str], matrices: ArrayLike, layers: Sequence[int | str], title: str = "", theme: Theme = LIGHT
) -> Drawing:
    """The cosines of a sentence's tokens, with a matrix for each layer, all on one scale.

    Args:
        tokens: The texts of t tokens, at most 40.
        matrices: The cosines in each layer: (k, t, t)
        layers: The numbers of the k layers, or names such as "SimCSE, layer 12".
        title: The title of the figure.
        theme: LIGHT or DARK.
    """
    if len(tokens) > _MAX_TOKENS:
        raise InputError(f"{len(tokens)} tokens cannot be read in one figure; give a sentence of at most {_MAX_TOKENS}")
    values = check_numbers("matrices", matrices, shape=(None, len(tokens), len(tokens)))
    check_length("layers", layers, len(values), "matrices")
    columns = 2 if len(values) == 4 else min(_MAX_COLUMNS, len(values))
    rows = -(-len(values) // columns)
    side = max(1.6, 0.17 * len(tokens))
    drawing = new_drawing(theme, size=(1.6 + side * columns, 0.9 + (side + 0.3) * rows), title=title)
    panels = new_panels(drawing, columns, rows=rows)
    limits = (min(0.0, float(values.min())), float(values.max()))
    texts = [shorten(token, 14) for token in tokens]
    for place, (panel, matrix, layer) in enumerate(zip(panels, values, layers, strict=False)):
        name = f"layer {layer}" if isinstance(layer, int) else printable(layer)
        style_axes(panel, theme, title=name, grid=None, ticks=False)
        cells(drawing, panel, matrix, limits, lambda row, column: f"{texts[row]} and {texts[column]}")
        is_bottom = place + columns >= len(values)
        panel.set_xticks(range(len(texts)), texts if is_bottom else [""] * len(texts), rotation=90)
        panel.set_yticks(range(len(texts)), texts if place % columns == 0 else [""] * len(texts))
    for panel in panels[len(values) :]:
        panel.set_visible(False)
    colour_bar(drawing, panels[: len(values)], limits, "cosine")
    return finish(drawing, f"Cosines of the tokens {' '.join(texts)} in {len(values)} layers")


def cells(
    drawing: Drawing,
    panel: Axes,
    values: Numbers,
    limits: tuple[float, float],
    label: Callable[[int, int], str],
    *,
    square: bool = True,
) -> None:
    """Draw a cell for each value, the first row on top, with thin gaps in the background colour."""
    rows, columns = values.shape
    mesh = panel.pcolormesh(
        np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5, values, cmap=drawing.theme.heat_map,
        norm=_norm(limits), edgecolors=drawing.theme.paper, linewidth=0.5,
    )  # fmt: skip
    places = [(row, column) for row in range(rows) for column in range(columns)]
    drawing.label_points(mesh, [f"{label(*place)}: {format_number(values[place])}" for place in places])
    panel.set_xlim(-0.5, columns - 0.5)
    panel.set_ylim(rows - 0.5, -0.5)
    panel.set_aspect("equal" if square else "auto")
    panel.spines[:].set_visible(False)


def colour_bar(drawing: Drawing, panels: Sequence[Axes], limits: tuple[float, float], name: str) -> None:
    """Add the colour bar of the panels."""
    theme = drawing.theme
    source = ScalarMappable(norm=_norm(limits), cmap=theme.heat_map)
    bar = drawing.colorbar(source, ax=list(panels), shrink=0.85, aspect=26, pad=0.02)
    bar.ax.set_facecolor("none")
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=theme.muted, labelsize=SMALL, labelfontfamily=FONT, length=0, width=THIN)
    bar.set_label(printable(name), color=theme.ink, fontsize=TEXT, family=FONT)


def _norm(limits: tuple[float, float]) -> Normalize:
    low, high = limits
    return Normalize(low, high if high > low else low + 1)
