"""Sentence embeddings from every layer of a transformer encoder.

>>> from layerwise import LayerEncoder
>>> views = LayerEncoder().encode_layers(["A cat sat.", "It rained."])
>>> views.shape
(2, 7, 384)

The names below are imported on first use, so that `import layerwise` costs nothing.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.encoder import LayerEncoder, ViewCache
    from layerwise.errors import LayerwiseError
    from layerwise.mixes import Concat, Mean, Mix, View, parse_mix
    from layerwise.model import Head, LayerModel, LayerTransformer
    from layerwise.search import Search, Selection
    from layerwise.version import __version__

__getattr__, __dir__, __all__ = door(__name__, __file__)
