"""Measures over models and their views: what each layer is worth, how alike layers and tokens are.

`Material` is a model on some pairs; each measure is a function of it that gives a small value with arrays, and is known
by its name in `MEASURES`.
"""

from layerwise.measures.alike import LayersAlike, layers_alike
from layerwise.measures.attention import LayerWeightsTaken, LengthGroup, attention_over_layers
from layerwise.measures.before_after import BeforeAfter, Change, before_after, changes_between
from layerwise.measures.chosen import ChosenLayers, Curve, MixScore, chosen_layers
from layerwise.measures.curves import Series, TrainingCurve, joined_seeds, training_curve, training_curves
from layerwise.measures.geometry import Geometry, Spectra, geometry, geometry_and_spectra, spectra
from layerwise.measures.material import POOLINGS, Material
from layerwise.measures.measure import MEASURES, Measure, Measured, add_measure
from layerwise.measures.names import told_apart
from layerwise.measures.negatives import LayerNegatives, NegativeChoice, layer_negatives
from layerwise.measures.pairs import TextPairs, pairs_of
from layerwise.measures.projection import Projection, projection
from layerwise.measures.scores import LayerScores, PairSimilarities, layer_scores, pair_similarities
from layerwise.measures.smoothing import SetSim, Smoothing, TokSim, setsim, smoothing, token_similarities, toksim
from layerwise.measures.tokens import TokenMatrices, token_matrices

__all__ = [
    "MEASURES",
    "POOLINGS",
    "BeforeAfter",
    "Change",
    "ChosenLayers",
    "Curve",
    "Geometry",
    "LayerNegatives",
    "LayerScores",
    "LayerWeightsTaken",
    "LayersAlike",
    "LengthGroup",
    "Material",
    "Measure",
    "Measured",
    "MixScore",
    "NegativeChoice",
    "PairSimilarities",
    "Projection",
    "Series",
    "SetSim",
    "Smoothing",
    "Spectra",
    "TextPairs",
    "TokSim",
    "TokenMatrices",
    "TrainingCurve",
    "add_measure",
    "attention_over_layers",
    "before_after",
    "changes_between",
    "chosen_layers",
    "geometry",
    "geometry_and_spectra",
    "joined_seeds",
    "layer_negatives",
    "layer_scores",
    "layers_alike",
    "pair_similarities",
    "pairs_of",
    "projection",
    "setsim",
    "smoothing",
    "spectra",
    "token_matrices",
    "token_similarities",
    "toksim",
    "told_apart",
    "training_curve",
    "training_curves",
]
