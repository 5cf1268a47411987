"""Figures from plain arrays: `save_figure(layer_curves(scores={"mean": [48.7, 50.8, 45.0]}), "a.svg")`."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.plots.changes import before_after_curves as before_after_curves
    from layerwise.plots.changes import dumbbells as dumbbells
    from layerwise.plots.curves import MarkedMix as MarkedMix
    from layerwise.plots.curves import attention_weights as attention_weights
    from layerwise.plots.curves import convergence as convergence
    from layerwise.plots.curves import layer_curves as layer_curves
    from layerwise.plots.curves import layer_curves_by_model as layer_curves_by_model
    from layerwise.plots.heatmaps import attention_map as attention_map
    from layerwise.plots.heatmaps import layer_likeness as layer_likeness
    from layerwise.plots.heatmaps import token_matrices as token_matrices
    from layerwise.plots.points import pair_map as pair_map
    from layerwise.plots.save import inline_svg as inline_svg
    from layerwise.plots.save import save_figure as save_figure
    from layerwise.plots.search import layer_negatives as layer_negatives
    from layerwise.plots.search import layers_chosen as layers_chosen
    from layerwise.plots.search import score_by_pairs as score_by_pairs
    from layerwise.plots.search import score_by_size as score_by_size
    from layerwise.plots.search import score_without_layer as score_without_layer
    from layerwise.plots.smoothing import geometry_by_layer as geometry_by_layer
    from layerwise.plots.smoothing import smoothing_curves as smoothing_curves
    from layerwise.plots.smoothing import spectra as spectra
    from layerwise.plots.style import DARK as DARK
    from layerwise.plots.style import LIGHT as LIGHT
    from layerwise.plots.style import Drawing as Drawing
    from layerwise.plots.style import Theme as Theme
    from layerwise.plots.svg import theme_css as theme_css

_HOMES = {
    ".changes": ("before_after_curves", "dumbbells"),
    ".curves": ("MarkedMix", "attention_weights", "convergence", "layer_curves", "layer_curves_by_model"),
    ".heatmaps": ("attention_map", "layer_likeness", "token_matrices"),
    ".points": ("pair_map",),
    ".save": ("inline_svg", "save_figure"),
    ".search": ("layer_negatives", "layers_chosen", "score_by_pairs", "score_by_size", "score_without_layer"),
    ".smoothing": ("geometry_by_layer", "smoothing_curves", "spectra"),
    ".style": ("DARK", "LIGHT", "Drawing", "Theme"),
    ".svg": ("theme_css",),
}
__getattr__, __dir__, __all__ = door(__name__, {name: home for home, names in _HOMES.items() for name in names})
