"""Figures in one look, from plain arrays: `save_figure(layer_curves(scores={"mean": [48.7, 50.8, 45.0]}), "a.svg")`."""

from layerwise.plots.attention import attention_weights
from layerwise.plots.changes import before_after_curves, dumbbells
from layerwise.plots.curves import MarkedMix, convergence, layer_curves, layer_curves_by_model
from layerwise.plots.heatmaps import attention_map, layer_likeness
from layerwise.plots.look import DARK, LIGHT, Drawing, Theme
from layerwise.plots.page_theme import theme_css
from layerwise.plots.points import pair_map
from layerwise.plots.search import (
    layer_negatives,
    layers_chosen,
    score_by_pairs,
    score_by_size,
    score_without_layer,
)
from layerwise.plots.smoothing import geometry_by_layer, smoothing_curves, spectra
from layerwise.plots.tokens import token_matrices
from layerwise.plots.write import inline_svg, save_figure

__all__ = [
    "DARK",
    "LIGHT",
    "Drawing",
    "MarkedMix",
    "Theme",
    "attention_map",
    "attention_weights",
    "before_after_curves",
    "convergence",
    "dumbbells",
    "geometry_by_layer",
    "inline_svg",
    "layer_curves",
    "layer_curves_by_model",
    "layer_likeness",
    "layer_negatives",
    "layers_chosen",
    "pair_map",
    "save_figure",
    "score_by_pairs",
    "score_by_size",
    "score_without_layer",
    "smoothing_curves",
    "spectra",
    "theme_css",
    "token_matrices",
]
