"""Kinds of tasks, one file each: the texts to embed and the figures computed from their vectors.

`prepare(rows)` returns a `Problem`; embed its texts and `score` the vectors. Figures equal mteb's on the same vectors.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.kinds.bitext import Bitext
    from layerwise.kinds.clustering import Clustering, redraw_v_measure
    from layerwise.kinds.corpus import CorpusSearch
    from layerwise.kinds.fewshot import FewShot
    from layerwise.kinds.pair_classification import PairClassification, redraw_average_precision
    from layerwise.kinds.problem import Divisible, Figures, Outcome, Problem, Redraw, over_seeds, redraw_mean
    from layerwise.kinds.rankings import ranked_scores
    from layerwise.kinds.registry import PROBLEMS, prepare
    from layerwise.kinds.reranking import Reranking

__getattr__, __dir__, __all__ = door(__name__, __file__)
