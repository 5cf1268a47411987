"""Stores of vectors behind one protocol: today an exact search over what `layerwise embed` writes."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.index.exact import ExactIndex
    from layerwise.index.protocol import Hits, VectorIndex

__getattr__, __dir__, __all__ = door(__name__, __file__)
