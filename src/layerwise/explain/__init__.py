"""Explain the cosine of two sentences exactly, as a sum over the words and layers of both.

`explain_pair(model, left, right)` returns the terms; it refuses models that are not linear in their token states.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.explain.linear import LINEAR_POOLINGS, check_linear
    from layerwise.explain.pair import (
        CONTEXTUAL,
        MOST_VIEWS,
        ExplainedText,
        Explanation,
        explain_pair,
        explain_pairs,
    )

__getattr__, __dir__, __all__ = door(__name__, __file__)
