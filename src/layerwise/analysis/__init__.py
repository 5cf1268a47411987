"""Measures over embeddings and layer views: over-smoothing, alignment, uniformity, spectra, likeness of layers."""

from layerwise.analysis.alike import cka, layer_cka
from layerwise.analysis.geometry import alignment, anisotropy, uniformity
from layerwise.analysis.smoothing import layer_similarity, token_cosines, token_similarity
from layerwise.analysis.spectrum import effective_rank, spectrum

__all__ = [
    "alignment",
    "anisotropy",
    "cka",
    "effective_rank",
    "layer_cka",
    "layer_similarity",
    "spectrum",
    "token_cosines",
    "token_similarity",
    "uniformity",
]
