"""Sentence embeddings from every layer of a transformer encoder.

>>> from layerwise import LayerEncoder
>>> views = LayerEncoder().encode_layers(["A cat sat.", "It rained."])
>>> views.shape
(2, 7, 384)

The names below are imported on first use, so that `import layerwise` costs nothing.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door
from layerwise.version import __version__ as __version__

if TYPE_CHECKING:
    from layerwise.encoder import LayerEncoder as LayerEncoder
    from layerwise.encoder import ViewCache as ViewCache
    from layerwise.errors import LayerwiseError as LayerwiseError
    from layerwise.mixes import LayerConcat as LayerConcat
    from layerwise.mixes import LayerMix as LayerMix
    from layerwise.mixes import LayerSet as LayerSet
    from layerwise.mixes import LayerWeights as LayerWeights
    from layerwise.mixes import parse_mix as parse_mix
    from layerwise.model import Head as Head
    from layerwise.model import LayerModel as LayerModel
    from layerwise.search import LayerSearch as LayerSearch

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "Head": ".model",
        "LayerConcat": ".mixes",
        "LayerEncoder": ".encoder",
        "LayerMix": ".mixes",
        "LayerModel": ".model",
        "LayerSearch": ".search",
        "LayerSet": ".mixes",
        "LayerWeights": ".mixes",
        "LayerwiseError": ".errors",
        "ViewCache": ".encoder",
        "__version__": ".version",
        "parse_mix": ".mixes",
    },
)
