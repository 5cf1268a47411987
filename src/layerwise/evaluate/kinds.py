"""How each kind of task is evaluated: which rows are scored, which settings decide, how figures are resampled."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from layerwise.data import Rows, Task, TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.evaluate.protocol import Protocol
from layerwise.evaluate.retrieval import SearchTask, score_retrieval, search_task
from layerwise.evaluate.scoring import is_random, score_task
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


@dataclass(frozen=True)
class Kind:
    """A kind with one protocol, mteb's: its test rows are scored, whatever is chosen for other kinds.

    Args:
        redraws: Headline figure, without its depth -> its value on resamples of the rows.
    """

    redraws: Mapping[str, Redraw]
    searchable: ClassVar[bool] = False  # whether layers can be searched split by split, by the protocol "lc"

    def settings(self, task: Task, protocol: Protocol) -> dict[str, Any]:  # noqa: ARG002 - other kinds need it
        """What decides the outcome of a task besides its rows and the model."""
        return {"protocol": "mteb", "metric": task.metric}

    def scored(self, rows: TaskRows, protocol: Protocol) -> Rows:
        """The rows that a score is of."""
        if protocol.split != "test":
            raise InputError(f"--split {protocol.split} is for STS; task {rows.task.name!r} is scored on its test rows")
        return _rows_of(rows, "test")

    def split(self, task: Task, protocol: Protocol) -> str:  # noqa: ARG002 - other kinds need it
        """What the stamp calls the rows."""
        return "test" if task.splits else "all rows"

    def headline(self, task: Task, protocol: Protocol) -> str:  # noqa: ARG002 - other kinds need it
        """The name of the headline figure."""
        return task.metric

    def aggregation(self, protocol: Protocol) -> str | None:  # noqa: ARG002 - other kinds need it
        """How subsets are averaged, for the stamp; None where there is one way."""
        return None

    def problem(self, rows: TaskRows, protocol: Protocol) -> Problem:
        """The texts to embed, and the score of their vectors."""
        self.scored(rows, protocol)
        return prepare(rows)


class GradedPairs(Kind):
    """STS, by the protocol's split and average of subsets."""

    searchable = True

    def settings(self, task: Task, protocol: Protocol) -> dict[str, Any]:  # noqa: ARG002 - as Kind
        """The split; by "lc" the seeds of its random splits."""
        if protocol.name == "lc":
            return {"protocol": "lc", "seeds": list(protocol.seeds)}
        return {"protocol": "sts", "split": protocol.split}

    def scored(self, rows: TaskRows, protocol: Protocol) -> Rows:
        """The protocol's split, or all rows."""
        return _all_rows(rows) if protocol.name == "lc" else _rows_of(rows, protocol.split)

    def split(self, task: Task, protocol: Protocol) -> str:
        """As the protocol says."""
        if protocol.name == "lc":
            return "random splits of all rows"
        return protocol.split if task.splits else "all rows"

    def headline(self, task: Task, protocol: Protocol) -> str:
        """With the name of the average, where it is not over all pairs."""
        plain = protocol.aggregation == "all" or protocol.name == "lc"
        return task.metric if plain else f"{task.metric}_{protocol.aggregation}"

    def aggregation(self, protocol: Protocol) -> str | None:
        """The protocol's."""
        return None if protocol.name == "lc" else protocol.aggregation

    def problem(self, rows: TaskRows, protocol: Protocol) -> Problem:
        """Of the scored rows."""
        return _RowProblem(rows.pick(self.scored(rows, protocol)), protocol)


class Classes(Kind):
    """Classification by a classifier on fixed embeddings, under SentEval's protocol or BERT-LC's."""

    searchable = True

    def settings(self, task: Task, protocol: Protocol) -> dict[str, Any]:
        """The protocol, and the seeds where something is random."""
        seeds = {"seeds": list(protocol.seeds)} if is_random(task, protocol) else {}
        return {"protocol": protocol.name, **seeds}

    def scored(self, rows: TaskRows, protocol: Protocol) -> Rows:
        """The test rows, or all where they are folded or split at random."""
        if protocol.name == "lc":
            if rows.task.metric == "f1":
                raise InputError(
                    f"task {rows.task.name!r}: the protocol 'lc' gives accuracies, not f1; use another protocol"
                )
            return _all_rows(rows)
        if protocol.split == "test" and rows.task.splits and "train" not in rows.splits:
            raise InputError(f"task {rows.task.name!r} has no train rows; it has {', '.join(rows.splits)}")
        return super().scored(rows, protocol)

    def split(self, task: Task, protocol: Protocol) -> str:
        """As the protocol says."""
        if protocol.name == "lc":
            return "random splits of all rows"
        return "test" if task.splits else "folds of all rows"

    def problem(self, rows: TaskRows, protocol: Protocol) -> Problem:
        """Of all rows."""
        self.scored(rows, protocol)
        return _RowProblem(rows, protocol)


class FewShots(Kind):
    """Classes from a few rows of each."""

    def settings(self, task: Task, protocol: Protocol) -> dict[str, Any]:
        """With the number of rows."""
        return super().settings(task, protocol) | {"shots": task.shots}


class Search(Kind):
    """Retrieval: in a corpus of its own by mteb's protocol, else among the rows' passages or duplicates, by FAISS."""

    def settings(self, task: Task, protocol: Protocol) -> dict[str, Any]:
        """How the corpus is searched."""
        if task.corpus is not None:
            return super().settings(task, protocol)
        metric = {} if task.metric == "mrr@10" else {"metric": task.metric}
        return {"protocol": "search", "search": protocol.facts()["search"], **metric}

    def headline(self, task: Task, protocol: Protocol) -> str:
        """At the depth of the search."""
        return task.metric if task.corpus is not None else f"{_plain(task.metric)}@{protocol.search.depth}"

    def problem(self, rows: TaskRows, protocol: Protocol) -> Problem:
        """Queries and passages."""
        if rows.task.corpus is not None:
            return super().problem(rows, protocol)
        self.scored(rows, protocol)
        return _SearchProblem(search_task(rows), protocol, rows.task)


EVALUATED: Registry[Kind] = Registry("kind")
EVALUATED.register("sts")(GradedPairs({"spearman": redraw_spearman, "pearson": redraw_pearson}))
EVALUATED.register("classification")(Classes({"accuracy": redraw_mean}))
EVALUATED.register("retrieval")(Search(CorpusSearch.redraws))
EVALUATED.register("reranking")(Kind(Reranking.redraws))
EVALUATED.register("clustering")(Kind(Clustering.redraws))
EVALUATED.register("fewshot")(FewShots(FewShot.redraws))
EVALUATED.register("bitext")(Kind(Bitext.redraws))
EVALUATED.register("pair-classification")(Kind(PairClassification.redraws))


def kind_of(task: Task) -> Kind:
    """How a task is evaluated."""
    return EVALUATED[task.kind]


def redraw_of(kind: str, metric: str) -> Redraw | None:
    """How a headline figure is computed on resamples; None where it cannot be.

    Results that were written before there were many kinds name none: there the metric says it.
    """
    kinds = [EVALUATED[name] for name in ([kind] if kind in EVALUATED else EVALUATED)]
    return next((found for one in kinds if (found := one.redraws.get(_plain(metric))) is not None), None)


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
            metric=_plain(self.task.metric),
        )


def _all_rows(rows: TaskRows) -> Rows:
    """Every row, where rows of different splits may be mixed."""
    if not rows.task.mixable:
        raise InputError(
            f"task {rows.task.name!r} cannot be split at random, as the protocol 'lc' does: {rows.task.note}; "
            f"leave it out, or use another protocol"
        )
    return np.arange(len(rows))


def _rows_of(rows: TaskRows, split: str) -> Rows:
    if split not in rows.splits:
        raise InputError(f"task {rows.task.name!r} has no {split} rows; it has {', '.join(rows.splits)}")
    return rows.splits[split]


def _plain(metric: str) -> str:
    """The metric without its depth: mrr@10 is mrr."""
    return metric.partition("@")[0]
