"""Measures over embeddings and layer views: over-smoothing, alignment, uniformity."""

from layerwise.analysis.geometry import alignment, uniformity
from layerwise.analysis.smoothing import layer_similarity, token_similarity

__all__ = ["alignment", "layer_similarity", "token_similarity", "uniformity"]
