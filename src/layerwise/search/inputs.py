"""What a search is given: a task's rows, checked before any model is loaded, and their problems by token pooling.

If a task declares dev and test rows, dev chooses and test reports; otherwise its test rows are split at random.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.data import KINDS, TaskRows, relevant_passages
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.evidence import Rows, Split, Splits, draw_splits, fixed_splits
from layerwise.kinds import Clustering, Problem, prepare
from layerwise.model import Head, LayerModel
from layerwise.registry import check_known
from layerwise.search.encode import CachedViews
from layerwise.search.heads import HeadPairs
from layerwise.search.kind_problem import KindProblem
from layerwise.search.metrics import AnyMetric, as_metric, check_gold
from layerwise.search.problems import PairProblem, SetProblem
from layerwise.search.retrieval import RetrievalMetric, RetrievalProblem
from layerwise.search.sources import PairGrams, PairSource, Views

_EXACT = ("cosine_ap",)  # metrics of pairs with a fast form for all sets at once
_BY_QUERY = ("reranking", "retrieval")
Sides = tuple[dict[str, Array], dict[str, Array]]


@dataclass(frozen=True, eq=False)
class SearchTask:
    """A task whose rows were read and checked, before any model is loaded.

    Args:
        rows: The rows that choose and report.
        metric: The metric of the search, the task's or another.
        parts: The declared split, if there is one: rows that choose, rows that report.
        problem: The problem, for the kinds of mteb; None for graded pairs, and for queries without a corpus.
        units: The number of pairs, queries or rows that can be split.
    """

    rows: TaskRows
    metric: AnyMetric
    parts: list[Split] | None
    problem: Problem | None
    units: int

    @classmethod
    def of(
        cls,
        rows: TaskRows,
        *,
        metric: AnyMetric | None = None,
        role: str | None = None,
        fixed: bool = True,
        limit: int | None = None,
        seed: int = 0,
    ) -> "SearchTask":
        """Prepare the rows of a task.

        Args:
            rows: The rows of a task of any kind but classification.
            metric: A metric other than the task's.
            role: Only use the rows of this role.
            fixed: Let dev rows choose and test rows report if the task declares both.
            limit: The maximum number of pairs, queries or rows, which are drawn at random.
            seed: The seed of that draw.
        """
        if rows.task.kind == "classification":
            raise InputError(
                f"task {rows.task.name!r} is a classification, whose layers are searched by a protocol of its own: "
                f'search it alone, or declare it as kind = "fewshot"'
            )
        chosen = metric or rows.task.metric
        by_query = isinstance(chosen, str) and RetrievalMetric.parse(chosen) is not None
        if is_searched_by_grams(rows) or (rows.task.kind == "sts" and by_query):
            return cls._of_pairs(rows, chosen, role, fixed and limit is None, limit, seed)
        if isinstance(metric, str):
            check_known(metric, KINDS[rows.task.kind].metrics, f"metric of {rows.task.kind}")
            rows = replace(rows, task=rows.task.model_copy(update={"metric": metric}))
        return cls._of_kind(rows, role, fixed and limit is None, limit, seed)

    @classmethod
    def _of_pairs(
        cls, rows: TaskRows, metric: AnyMetric, role: str | None, fixed: bool, limit: int | None, seed: int
    ) -> "SearchTask":
        pairs, parts = _pairs_to_search(rows, role, fixed)
        pairs = pairs if limit is None else pairs.limited(limit, seed=seed)
        task = cls(pairs, metric, parts, None, len(pairs))
        if not task.is_retrieval:
            check_gold(pairs.labels, as_metric(metric))
            return task
        queries = as_retrieval(pairs)[0]
        if not queries:
            raise InputError("no row is relevant, for no score is above 0; a query needs a relevant passage")
        return replace(task, units=len(queries))

    @classmethod
    def _of_kind(cls, rows: TaskRows, role: str | None, fixed: bool, limit: int | None, seed: int) -> "SearchTask":
        task, roles = rows.task, _roles(rows, role)
        for one in roles:
            rows.of_role(one)
        tested = [rows.splits[one] for one in roles]
        train = {"train": rows.splits["train"]} if task.declaration.drawn_from_train and "train" in rows.splits else {}
        joined = _limited(replace(rows, splits=train | {"test": np.concatenate(tested)}), limit, seed)
        problem = prepare(joined)
        if problem.redraw is None:
            raise InputError(
                f"task {task.name!r}: {task.metric} cannot be resampled, so layers are not searched by it; give "
                f"another metric: {', '.join(name for name in KINDS[task.kind].metrics if name != task.metric)}"
            )
        if isinstance(problem, Clustering) and len(problem.sets) > 1:
            raise InputError(
                f"task {task.name!r} has {len(problem.sets)} sets that are clustered apart; layers are searched for "
                f"one: only = {joined.subsets[0]!r}"
            )
        parts = [_declared(joined, tested, problem)] if len(tested) > 1 and fixed else None
        return cls(joined, task.metric, parts, problem, len(problem))

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.rows.task.name

    @property
    def is_retrieval(self) -> bool:
        """Whether the units are queries whose candidates are the other rows' passages."""
        is_named = isinstance(self.metric, str) and RetrievalMetric.parse(self.metric) is not None
        return self.problem is None and is_named

    @property
    def unit(self) -> str:
        """The unit that is split: "pairs", "queries" or "rows"."""
        return self.problem.unit if self.problem is not None else "queries" if self.is_retrieval else "pairs"

    @property
    def unit_texts(self) -> Sequence[Sequence[str]] | None:
        """The sentences of each unit, which choose or report together; None where they cannot be told apart.

        Those of a query are itself and, where the candidates are the rows' passages, its relevant ones: other
        candidates are shared by all queries.
        """
        if self.problem is None and not self.is_retrieval:
            return list(zip(self.rows.left, self.rows.right, strict=True))
        if self.problem is None:
            queries, passages, relevant = as_retrieval(self.rows)
            return [(query, *(passages[p] for p in relevant[n])) for n, query in enumerate(queries)]
        if self.unit == "queries":
            queries = list(self.problem.texts.get("query", ()))
            return [(query,) for query in queries] if len(queries) == self.units else None
        tested = self.rows.of_role("test")
        rights = tested.right or [""] * len(tested)
        pairs = [tuple(filter(None, pair)) for pair in zip(tested.left, rights, strict=True)]
        return pairs if len(pairs) == self.units else None

    def texts_of(self, units: Rows) -> list[str]:
        """The texts of units."""
        if self.problem is not None:
            return self.problem.pick(np.unique(units)).unit_texts()
        texts = self.unit_texts or []
        return [text for unit in units for text in texts[unit]]

    def splits(self, dev: int | float, n: int, seed: int) -> Splits:
        """The declared split without reporting units that share a sentence with a choosing one, or random splits."""
        try:
            if self.parts is None:
                return draw_splits(self.units, dev, n, seed, texts=self.unit_texts, unit=self.unit)
            gold = None if self.problem is not None or self.is_retrieval else self.rows.labels
            return fixed_splits(self.parts, texts=self.unit_texts, gold=gold, units=self.units, unit=self.unit)
        except InputError as error:
            raise InputError(f"{self.rows.source}: {error}") from error

    def prompts(self, model: LayerModel) -> tuple[str, str]:
        """The prefixes of the texts of both sides: a model's prompts of queries and documents, or its default one."""
        by_query = self.is_retrieval or (self.problem is not None and self.unit == "queries")
        return (model.prompt("query"), model.prompt("document")) if by_query else (model.prompt(), model.prompt())

    def problems(
        self,
        model: LayerModel,
        poolings: Sequence[str],
        encode: CachedViews,
        *,
        head: Head | None = None,
        device: str | torch.device = "cpu",
    ) -> dict[str, SetProblem]:
        """A problem for each token pooling, from the views of the model's layers, which are cached on disk."""
        if self.problem is None or self.metric in _EXACT:
            pairs = self.rows if self.problem is None else self.rows.of_role("test")
            left, right, gold = as_retrieval(pairs) if self.is_retrieval else (pairs.left, pairs.right, pairs.labels)
            sides = zip(self.prompts(model), (left, right), strict=True)
            prompted = [[prompt + text for text in side] for prompt, side in sides]
            first, second = encode.sides(prompted[0], prompted[1], poolings)
            return make_problems(first, second, gold, self.metric, head=head, device=device)
        by_role = {
            role: encode([model.prompt(role or None) + text for text in texts], list(poolings))
            for role, texts in self.problem.texts.items()
        }
        return {
            pooling: KindProblem(
                self.problem, {role: views[pooling] for role, views in by_role.items()}, self.rows.task.metric,
                model.normalize,
            )
            for pooling in poolings
        }  # fmt: skip


def make_problems(
    left: Mapping[str, Views],
    right: Mapping[str, Views],
    gold: object,
    metric: AnyMetric,
    *,
    head: Head | None = None,
    device: str | torch.device = "cpu",
) -> dict[str, SetProblem]:
    """A problem for each token pooling: the views of both sides with the grades and the metric."""
    if set(left) != set(right):
        raise InputError(f"The two sides' poolings differ: {', '.join(left)} and {', '.join(right)}")
    return {name: _problem(left[name], right[name], gold, metric, head, device) for name in left}


def is_searched_by_grams(rows: TaskRows) -> bool:
    """Whether a task is of graded pairs, or of queries whose candidates are the other rows' passages."""
    return rows.task.kind == "sts" or (rows.task.kind == "retrieval" and rows.task.corpus is None)


def as_retrieval(pairs: TaskRows) -> tuple[list[str], list[str], list[Mapping[int, float]]]:
    """The first texts as queries, the second texts as candidates, and the relevance grades of each query.

    If the task declares a corpus, its texts are the candidates.
    """
    candidates = {text: number for number, text in enumerate(dict.fromkeys(pairs.corpus.values() or pairs.right))}
    grades = pairs.labels or [1.0] * len(pairs)
    relevance = relevant_passages(zip(pairs.left, pairs.right, grades, strict=True), candidates)
    return list(relevance), list(candidates), list(relevance.values())


def only_head(model: LayerModel) -> Head:
    """The model's only head, to search with; refuses a model with none or several."""
    if len(model.heads) != 1:
        count = "no head" if not model.heads else f"{len(model.heads)} heads"
        raise InputError(f"{model.encoder.name}: has {count} after its mix; --head needs just one, so leave it out")
    (head,) = model.heads
    if not isinstance(head, Head):
        raise InputError(f"{model.encoder.name}: its head is no linear layer, which --head needs; leave --head out")
    if head.linear.in_features != model.encoder.width:
        raise InputError(
            f"{model.encoder.name}: its head takes {head.linear.in_features} numbers, but a mean of layers has "
            f"{model.encoder.width}; leave --head out"
        )
    return head


def _problem(
    left: Views, right: Views, gold: object, metric: AnyMetric, head: Head | None, device: str | torch.device
) -> SetProblem:
    retrieval = RetrievalMetric.parse(metric) if isinstance(metric, str) else None
    if retrieval is not None:
        if head is not None:
            raise InputError(f"A head is searched with pair metrics, not with {retrieval.name}; leave it out")
        return RetrievalProblem.of(left, right, gold, retrieval, device=device)
    pair_metric = as_metric(metric)
    values = check_gold(gold, pair_metric)
    if not len(left) == len(right) == len(values):
        raise InputError(f"{len(left)} and {len(right)} sentences for {len(values)} scores: the lengths differ")
    source: PairSource = (
        PairGrams.of(left, right, device=device) if head is None else HeadPairs.of(left, right, head, device=device)
    )
    return PairProblem(source, values, pair_metric)


def _pairs_to_search(rows: TaskRows, role: str | None, fixed: bool) -> tuple[TaskRows, list[Split] | None]:
    """The rows to search of a task of pairs, and its declared split if there is one."""
    if rows.task.duplicates:
        raise InputError(
            f"task {rows.task.name!r} is of duplicates, whose texts are searched among themselves; layers are searched "
            f"for queries and passages, so give a task with duplicates = false"
        )
    if role is not None:
        return rows.of_role(role if rows.task.splits else "test"), None
    if not rows.task.splits:
        return rows, None
    if {"dev", "test"} <= rows.splits.keys() and rows.task.kind == "sts":
        dev, test = rows.splits["dev"], rows.splits["test"]
        part = Split(np.arange(len(dev)), np.arange(len(dev), len(dev) + len(test)))
        return rows.pick(np.concatenate([dev, test])), [part] if fixed else None
    return rows.of_role(next(one for one in ("test", "dev", "train") if one in rows.splits)), None


def _roles(rows: TaskRows, role: str | None) -> tuple[str, ...]:
    """The roles whose rows choose and report; few-shot tasks train on their train rows."""
    if role is not None:
        return (role if rows.task.splits else "test",)
    if {"dev", "test"} <= rows.splits.keys():
        return ("dev", "test")
    return (next((one for one in ("test", "dev", "train") if one in rows.splits), "test"),)


def _limited(rows: TaskRows, limit: int | None, seed: int) -> TaskRows:
    """At most `limit` tested rows, or queries with all of their rows."""
    if limit is None:
        return rows
    if limit < 2:
        raise InputError(f"a limit of {limit} is not possible; give 2 or more")
    tested = rows.splits["test"]
    names = (rows.left_ids or rows.left) if rows.task.kind in _BY_QUERY else range(len(rows))
    units = list(dict.fromkeys(names[row] for row in tested))
    if rows.task.kind == "reranking":  # queries with relevant candidates only, or none, would be left out
        kinds = {(names[row], rows.labels[row] > 0) for row in tested}
        units = [name for name in units if {(name, True), (name, False)} <= kinds]
    if len(units) <= limit:
        return rows
    drawn = np.random.default_rng(seed).choice(len(units), limit, replace=False)
    chosen = {units[place] for place in drawn}
    selected = np.array([row for row in tested if names[row] in chosen])
    return replace(
        rows, splits=rows.splits | {"test": selected}, drawn=f"{limit:,} of {len(units):,}, drawn with seed {seed}"
    )


def _declared(rows: TaskRows, tested: Sequence[NDArray[np.intp]], problem: Problem) -> Split:
    """The declared split, as the first (dev) and the last units (test) of a problem of both."""
    counts = [len(prepare(replace(rows, splits=rows.splits | {"test": part}))) for part in tested]
    if sum(counts) != len(problem):
        raise InputError(
            f"task {rows.task.name!r}: dev and test rows share {problem.unit}, so that one cannot report on the other; "
            f"give --split test, half of which chooses"
        )
    ends = list(accumulate(counts, initial=0))
    return Split(np.arange(*ends[:2]), np.arange(*ends[1:]))
