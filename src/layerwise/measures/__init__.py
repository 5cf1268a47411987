"""Measures of a model's layers and of trainings: one file each, with its maths, its value and its figures.

Most are taken on a `ModelOnPairs`; `MEASURES` has all of them by name.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.measures.attention import AttentionWeights as AttentionWeights
    from layerwise.measures.attention import measure_attention as measure_attention
    from layerwise.measures.changes import ModelChanges as ModelChanges
    from layerwise.measures.changes import measure_changes as measure_changes
    from layerwise.measures.chosen import FEWEST_PAIRS as FEWEST_PAIRS
    from layerwise.measures.chosen import ChosenLayers as ChosenLayers
    from layerwise.measures.chosen import Curve as Curve
    from layerwise.measures.chosen import MixScore as MixScore
    from layerwise.measures.chosen import measure_chosen_layers as measure_chosen_layers
    from layerwise.measures.cka import layer_cka as layer_cka
    from layerwise.measures.cka import linear_cka as linear_cka
    from layerwise.measures.cka import measure_cka as measure_cka
    from layerwise.measures.geometry import Geometry as Geometry
    from layerwise.measures.geometry import alignment as alignment
    from layerwise.measures.geometry import anisotropy as anisotropy
    from layerwise.measures.geometry import measure_geometry as measure_geometry
    from layerwise.measures.geometry import uniformity as uniformity
    from layerwise.measures.measure import SECTIONS as SECTIONS
    from layerwise.measures.measure import Figure as Figure
    from layerwise.measures.measure import LayerColumn as LayerColumn
    from layerwise.measures.measure import Measure as Measure
    from layerwise.measures.measure import MeasureValue as MeasureValue
    from layerwise.measures.measure import Values as Values
    from layerwise.measures.model_on_pairs import POOLINGS as POOLINGS
    from layerwise.measures.model_on_pairs import ModelOnPairs as ModelOnPairs
    from layerwise.measures.names import short_names as short_names
    from layerwise.measures.negatives import LayerNegatives as LayerNegatives
    from layerwise.measures.negatives import measure_negatives as measure_negatives
    from layerwise.measures.pairs import TextPairs as TextPairs
    from layerwise.measures.pairs import load_pairs as load_pairs
    from layerwise.measures.projection import Projection as Projection
    from layerwise.measures.projection import measure_projection as measure_projection
    from layerwise.measures.registry import MEASURES as MEASURES
    from layerwise.measures.registry import all_measures as all_measures
    from layerwise.measures.registry import measures_of as measures_of
    from layerwise.measures.registry import scalar_measures as scalar_measures
    from layerwise.measures.scores import LayerScores as LayerScores
    from layerwise.measures.scores import measure_layer_scores as measure_layer_scores
    from layerwise.measures.setsim import SetSim as SetSim
    from layerwise.measures.setsim import layer_similarity as layer_similarity
    from layerwise.measures.setsim import measure_setsim as measure_setsim
    from layerwise.measures.similarities import PairSimilarities as PairSimilarities
    from layerwise.measures.similarities import measure_pair_similarities as measure_pair_similarities
    from layerwise.measures.spectra import effective_rank as effective_rank
    from layerwise.measures.spectra import measure_spectra as measure_spectra
    from layerwise.measures.spectra import spectrum as spectrum
    from layerwise.measures.tokens import TokenMatrices as TokenMatrices
    from layerwise.measures.tokens import measure_token_matrices as measure_token_matrices
    from layerwise.measures.tokens import token_cosines as token_cosines
    from layerwise.measures.toksim import TokSim as TokSim
    from layerwise.measures.toksim import measure_toksim as measure_toksim
    from layerwise.measures.toksim import token_similarities as token_similarities
    from layerwise.measures.toksim import token_similarity as token_similarity
    from layerwise.measures.training import TrainingCurve as TrainingCurve
    from layerwise.measures.training import join_seeds as join_seeds
    from layerwise.measures.training import training_curve as training_curve
    from layerwise.measures.training import training_curves as training_curves

_HOMES = {
    ".attention": ("AttentionWeights", "measure_attention"),
    ".changes": ("ModelChanges", "measure_changes"),
    ".chosen": ("FEWEST_PAIRS", "ChosenLayers", "Curve", "MixScore", "measure_chosen_layers"),
    ".cka": ("layer_cka", "linear_cka", "measure_cka"),
    ".geometry": ("Geometry", "alignment", "anisotropy", "measure_geometry", "uniformity"),
    ".measure": ("SECTIONS", "Figure", "LayerColumn", "Measure", "MeasureValue", "Values"),
    ".model_on_pairs": ("POOLINGS", "ModelOnPairs"),
    ".names": ("short_names",),
    ".negatives": ("LayerNegatives", "measure_negatives"),
    ".pairs": ("TextPairs", "load_pairs"),
    ".projection": ("Projection", "measure_projection"),
    ".registry": ("MEASURES", "all_measures", "measures_of", "scalar_measures"),
    ".scores": ("LayerScores", "measure_layer_scores"),
    ".setsim": ("SetSim", "layer_similarity", "measure_setsim"),
    ".similarities": ("PairSimilarities", "measure_pair_similarities"),
    ".spectra": ("effective_rank", "measure_spectra", "spectrum"),
    ".tokens": ("TokenMatrices", "measure_token_matrices", "token_cosines"),
    ".toksim": ("TokSim", "measure_toksim", "token_similarities", "token_similarity"),
    ".training": ("TrainingCurve", "join_seeds", "training_curve", "training_curves"),
}
__getattr__, __dir__, __all__ = door(__name__, {name: home for home, names in _HOMES.items() for name in names})
