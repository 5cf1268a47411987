"""Kinds of tasks, one file each: the texts to embed and the figures computed from their vectors, by a `Protocol`.

`prepare(rows)` returns a `Problem`; embed its texts and `score` the vectors. Figures equal mteb's on the same vectors.
What a kind is stands in `layerwise.data.KINDS`; importing these files needs no torch.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.kinds.classification import Classification
    from layerwise.kinds.clustering import Clustering
    from layerwise.kinds.pairs import GradedPairs, score_sts
    from layerwise.kinds.passages import PassageSearch, faiss_module, score_retrieval
    from layerwise.kinds.problem import Outcome, Problem, RowProblem, over_seeds, prepare, problem_class
    from layerwise.kinds.protocol import PROTOCOLS, Protocol, SearchSetting
    from layerwise.kinds.retrieval import CorpusSearch, Retrieval

__getattr__, __dir__, __all__ = door(__name__, __file__)
