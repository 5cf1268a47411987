"""Measures of a model's layers and of trainings: one file each, with its maths, its value and its figures.

Most are taken on a `ModelOnPairs`; `MEASURES` has all of them by name.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.measures.attention import AttentionWeights, measure_attention
    from layerwise.measures.changes import ModelChanges, measure_changes
    from layerwise.measures.chosen import (
        FEWEST_PAIRS,
        ChosenLayers,
        Curve,
        MixScore,
        measure_chosen_layers,
        reporting_rows,
    )
    from layerwise.measures.cka import layer_cka, linear_cka, measure_cka
    from layerwise.measures.geometry import Geometry, alignment, anisotropy, measure_geometry, uniformity
    from layerwise.measures.measure import SECTIONS, Figure, LayerColumn, Measure, MeasureValue, Values
    from layerwise.measures.model_on_pairs import POOLINGS, ModelOnPairs
    from layerwise.measures.names import short_names
    from layerwise.measures.negatives import LayerNegatives, measure_negatives
    from layerwise.measures.projection import Projection, measure_projection
    from layerwise.measures.registry import MEASURES, all_measures, measures_of, scalar_measures
    from layerwise.measures.scores import LayerScores, measure_layer_scores
    from layerwise.measures.setsim import SetSim, layer_similarity, measure_setsim
    from layerwise.measures.similarities import PairSimilarities, measure_pair_similarities
    from layerwise.measures.spectra import effective_rank, measure_spectra, spectrum
    from layerwise.measures.tokens import TokenMatrices, measure_token_matrices, token_cosines
    from layerwise.measures.toksim import TokSim, measure_toksim, token_similarities, token_similarity
    from layerwise.measures.training import TrainingCurve, join_seeds, training_curve, training_curves

__getattr__, __dir__, __all__ = door(__name__, __file__)
