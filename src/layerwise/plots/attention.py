"""Attention over layers: the mean weights, and those of short against long sentences (LayerAttPooler fig. 3)."""

from collections.abc import Mapping

from numpy.typing import ArrayLike

from layerwise.plots.checked import named
from layerwise.plots.curves import curve_ends, draw_curves, layer_axis
from layerwise.plots.ends import name_lines
from layerwise.plots.look import FONT, LIGHT, SMALL, Drawing, Theme, dress, finish, new_drawing, new_panels


def attention_weights(*, weights: Mapping[str, ArrayLike], title: str = "", theme: Theme = LIGHT) -> Drawing:
    """The weight of each layer, a curve for each group of sentences, and a level where all layers weigh the same.

    Args:
        weights: Group -> (layers,), such as "all", "short" and "long".
        title: Above the figure.
        theme: LIGHT or DARK.
    """
    curves = named("weights", weights, gaps=False, same=True)
    layers = len(next(iter(curves.values())))
    drawing = new_drawing(theme, title=title)
    (panel,) = new_panels(drawing, 1)
    dress(panel, theme, x="layer", y="mean weight")
    lines = draw_curves(drawing, panel, curves)
    panel.axhline(1 / layers, color=theme.muted, linewidth=1.2, linestyle=(0, (1, 2)))
    panel.annotate("evenly", (0.0, 1 / layers), (6, 3), xycoords=panel.get_yaxis_transform(), color=theme.muted,
                   textcoords="offset points", fontsize=SMALL, family=FONT)  # fmt: skip
    panel.set_ylim(bottom=0)
    layer_axis(panel, layers, 13)
    name_lines(drawing, panel, curve_ends(curves, theme), lines)
    return finish(drawing, f"Weights over {layers} layers: {', '.join(curves)}")
