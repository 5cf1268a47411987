"""Draw the figures of measures and reports from plain arrays.

`save_figure(layer_curves(scores={"mean": [48.7, 50.8, 45.0]}), "a.svg")` writes one to a file.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.plots.changes import before_after_curves, dumbbells
    from layerwise.plots.curves import MarkedMix, attention_weights, convergence, layer_curves, layer_curves_by_model
    from layerwise.plots.heatmaps import attention_map, layer_likeness, token_matrices, view_scores
    from layerwise.plots.points import pair_map
    from layerwise.plots.ranking import means_with_ties
    from layerwise.plots.save import inline_svg, save_figure
    from layerwise.plots.search import (
        gain_and_front,
        layer_negatives,
        layers_chosen,
        score_by_pairs,
        score_by_size,
        score_without_layer,
    )
    from layerwise.plots.smoothing import geometry_by_layer, smoothing_curves, spectra
    from layerwise.plots.style import DARK, LIGHT, Drawing, Theme
    from layerwise.plots.svg import theme_css

__getattr__, __dir__, __all__ = door(__name__, __file__)
