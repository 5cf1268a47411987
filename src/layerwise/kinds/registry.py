"""The kinds by name."""

from collections.abc import Callable

from layerwise.data import TaskRows
from layerwise.kinds.bitext import Bitext
from layerwise.kinds.clustering import Clustering
from layerwise.kinds.corpus import CorpusSearch
from layerwise.kinds.fewshot import FewShot
from layerwise.kinds.pair_classification import PairClassification
from layerwise.kinds.problem import Divisible
from layerwise.kinds.reranking import Reranking
from layerwise.registry import Registry

PROBLEMS: Registry[Callable[[TaskRows], Divisible]] = Registry("kind")
PROBLEMS.register("bitext")(Bitext.of)
PROBLEMS.register("clustering")(Clustering.of)
PROBLEMS.register("fewshot")(FewShot.of)
PROBLEMS.register("pair-classification")(PairClassification.of)
PROBLEMS.register("reranking")(Reranking.of)
PROBLEMS.register("retrieval")(CorpusSearch.of)


def prepare(rows: TaskRows) -> Divisible:
    """The problem of a task's test rows."""
    return PROBLEMS[rows.task.kind](rows)
