"""The search for the best embedding that a model contains: `Search` finds it, `Selection` says what it is worth.

A scorer lists what can be chosen and scores it: sets of layers exactly (`SetScorer`), sets of views of prompts and
poolings by a beam (`ViewScorer`), sets for classes by nested folds (`ClassScorer`).
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.search.ablations import (
        Ablation,
        by_size,
        by_size_and_without,
        by_training_size,
        fixed_mixes,
        random_sets,
        without_each,
    )
    from layerwise.search.alike import ALIKE
    from layerwise.search.classes import (
        ClassProtocol,
        ClassRows,
        ClassScorer,
        task_splits,
        training_size_ablation,
    )
    from layerwise.search.encode import CachedViews, view_poolings
    from layerwise.search.inputs import SearchTask, as_retrieval, make_problems
    from layerwise.search.kind_problem import KindProblem
    from layerwise.search.metrics import as_metric, check_gold
    from layerwise.search.retrieval import RetrievalMetric
    from layerwise.search.scored import Scored, Scorer, Stability
    from layerwise.search.search import Search, without_scores
    from layerwise.search.selection import Cheaper, Searched, Selection
    from layerwise.search.selection_facts import Facts, Number, SelectionFacts
    from layerwise.search.sets import METHODS, SetScorer
    from layerwise.search.spaces import Space, layers_of
    from layerwise.search.table import ScoreTable, check_table_path
    from layerwise.search.unlabelled import HITS, KNOWN_CRITERIA, Criteria, Proposal
    from layerwise.search.view_cost import Cost, Prices, prices_of
    from layerwise.search.views import ViewScorer

__getattr__, __dir__, __all__ = door(__name__, __file__)
