"""The rows of a task as a problem, which is texts to embed and the score of their vectors; how scores are resampled."""

from collections.abc import Mapping
from dataclasses import dataclass

from layerwise.data import Task, TaskRows
from layerwise.encoder import Array
from layerwise.evaluate.kinds import kind_of, without_depth
from layerwise.evaluate.protocol import Protocol
from layerwise.evaluate.retrieval import SearchTask, score_retrieval, search_task
from layerwise.evaluate.scoring import score_task
from layerwise.kinds import (
    Bitext,
    Clustering,
    CorpusSearch,
    FewShot,
    Outcome,
    PairClassification,
    Problem,
    Redraw,
    Reranking,
    prepare,
    redraw_mean,
)
from layerwise.registry import Registry
from layerwise.search import redraw_pearson, redraw_spearman

# Kind -> headline figure, without its depth -> its value on resamples of the rows
REDRAWS: Registry[Mapping[str, Redraw]] = Registry("kind")
REDRAWS.register("sts")({"spearman": redraw_spearman, "pearson": redraw_pearson})
REDRAWS.register("classification")({"accuracy": redraw_mean})
REDRAWS.register("retrieval")(CorpusSearch.redraws)
REDRAWS.register("reranking")(Reranking.redraws)
REDRAWS.register("clustering")(Clustering.redraws)
REDRAWS.register("fewshot")(FewShot.redraws)
REDRAWS.register("bitext")(Bitext.redraws)
REDRAWS.register("pair-classification")(PairClassification.redraws)


def problem_of(rows: TaskRows, protocol: Protocol) -> Problem:
    """The texts to embed, and the score of their vectors."""
    task = rows.task
    role = kind_of(task).scored(task, rows.splits, protocol)
    if task.kind == "sts":
        return _RowProblem(rows if role is None else rows.pick(rows.splits[role]), protocol)
    if task.kind == "classification":
        return _RowProblem(rows, protocol)
    if task.kind == "retrieval" and task.corpus is None:
        return _SearchProblem(search_task(rows), protocol, task)
    return prepare(rows)


def redraw_of(kind: str, metric: str) -> Redraw | None:
    """Return the function that computes a headline figure on resamples; None if there is none.

    Results that were written before there were many kinds name none: there the metric says it.
    """
    kinds = [REDRAWS[name] for name in ([kind] if kind in REDRAWS else REDRAWS)]
    return next((redraws[name] for redraws in kinds if (name := without_depth(metric)) in redraws), None)


@dataclass(frozen=True, eq=False)
class _RowProblem:
    """Rows whose texts have no role."""

    rows: TaskRows
    protocol: Protocol

    @property
    def texts(self) -> dict[str, list[str]]:
        return {"": self.rows.texts}

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        return score_task(self.rows, vectors[""], self.protocol)


@dataclass(frozen=True, eq=False)
class _SearchProblem:
    """Queries and passages have their prompts; duplicates, whose queries are all in the corpus, the default one."""

    search: SearchTask
    protocol: Protocol
    task: Task

    @property
    def texts(self) -> dict[str, list[str]]:
        corpus = [self.search.texts[row] for row in self.search.corpus]
        if self.task.duplicates:
            return {"": corpus}
        return {"query": [self.search.texts[row] for row in self.search.queries], "document": corpus}

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        passages = vectors["" if self.task.duplicates else "document"]
        queries = passages[self.search.own] if self.task.duplicates else vectors["query"]
        return score_retrieval(
            queries,
            passages,
            self.search.relevant,
            own=self.search.own,
            setting=self.protocol.search,
            metric=without_depth(self.task.metric),
        )
