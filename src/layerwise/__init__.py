"""Sentence embeddings from every layer of a transformer encoder.

>>> from layerwise import LayerEncoder
>>> views = LayerEncoder().encode_layers(["A cat sat.", "It rained."])
>>> views.shape
(2, 7, 384)

The names below are imported on first use, so that `import layerwise` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from layerwise.version import __version__

if TYPE_CHECKING:
    from layerwise.encoder.cache import ViewCache
    from layerwise.encoder.layer_encoder import LayerEncoder
    from layerwise.errors import LayerwiseError
    from layerwise.mixes import LayerConcat, LayerMix, LayerSet, LayerWeights, parse_mix
    from layerwise.model.head import Head
    from layerwise.model.layer_model import LayerModel
    from layerwise.search.layer_search import LayerSearch

_HOMES = {
    "Head": "layerwise.model.head",
    "LayerConcat": "layerwise.mixes",
    "LayerEncoder": "layerwise.encoder.layer_encoder",
    "LayerMix": "layerwise.mixes",
    "LayerModel": "layerwise.model.layer_model",
    "LayerSearch": "layerwise.search.layer_search",
    "LayerSet": "layerwise.mixes",
    "LayerWeights": "layerwise.mixes",
    "LayerwiseError": "layerwise.errors",
    "ViewCache": "layerwise.encoder.cache",
    "parse_mix": "layerwise.mixes",
}

__all__ = [
    "Head",
    "LayerConcat",
    "LayerEncoder",
    "LayerMix",
    "LayerModel",
    "LayerSearch",
    "LayerSet",
    "LayerWeights",
    "LayerwiseError",
    "ViewCache",
    "__version__",
    "parse_mix",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'layerwise' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
