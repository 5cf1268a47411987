"""Token similarity matrices of several layers, side by side (SSCL fig. 5)."""

from collections.abc import Sequence

from numpy.typing import ArrayLike

from layerwise.errors import InputError
from layerwise.plots.checked import as_long, numbers
from layerwise.plots.heatmaps import cells, colour_bar
from layerwise.plots.look import LIGHT, Drawing, Theme, clean, dress, finish, new_drawing, new_panels, short

_MOST_TOKENS = 40
_PANELS_IN_A_ROW = 3


def token_matrices(
    *, tokens: Sequence[str], matrices: ArrayLike, layers: Sequence[int | str], title: str = "", theme: Theme = LIGHT
) -> Drawing:
    """The cosines of a sentence's tokens, a matrix for each layer, all on one scale.

    Args:
        tokens: t texts; at most 40, or nobody could read them.
        matrices: (k, t, t)
        layers: k numbers, or names such as "SimCSE, layer 12".
        title: Above the figure.
        theme: LIGHT or DARK.
    """
    if len(tokens) > _MOST_TOKENS:
        raise InputError(f"{len(tokens)} tokens can't be read in one figure; give a sentence of at most {_MOST_TOKENS}")
    values = numbers("matrices", matrices, shape=(None, len(tokens), len(tokens)))
    as_long("layers", layers, len(values), "matrices")
    columns = 2 if len(values) == 4 else min(_PANELS_IN_A_ROW, len(values))
    rows = -(-len(values) // columns)
    side = max(1.6, 0.17 * len(tokens))
    drawing = new_drawing(theme, size=(1.6 + side * columns, 0.9 + (side + 0.3) * rows), title=title)
    panels = new_panels(drawing, columns, rows=rows)
    limits = (min(0.0, float(values.min())), float(values.max()))
    texts = [short(token, 14) for token in tokens]
    for place, (panel, matrix, layer) in enumerate(zip(panels, values, layers, strict=False)):
        name = f"layer {layer}" if isinstance(layer, int) else clean(layer)
        dress(panel, theme, title=name, grid=None, ticks=False)
        cells(drawing, panel, matrix, limits, lambda one, other: f"{texts[one]} and {texts[other]}")
        under = place + columns >= len(values)
        panel.set_xticks(range(len(texts)), texts if under else [""] * len(texts), rotation=90)
        panel.set_yticks(range(len(texts)), texts if place % columns == 0 else [""] * len(texts))
    for panel in panels[len(values) :]:
        panel.set_visible(False)
    colour_bar(drawing, panels[: len(values)], limits, "cosine")
    return finish(drawing, f"Cosines of the tokens {' '.join(texts)} in {len(values)} layers")
