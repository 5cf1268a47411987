"""Prepare a task of any kind for a search: its rows, pairs or queries, its splits, and its problems.

If a task declares dev and test rows, dev chooses and test reports; otherwise its test rows are split at random.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from layerwise.data import KINDS, TaskRows
from layerwise.errors import InputError
from layerwise.kinds import Clustering, prepare
from layerwise.kinds import Problem as KindOfProblem
from layerwise.model import LayerModel
from layerwise.registry import check_known
from layerwise.search.kind_problem import KindProblem
from layerwise.search.layer_search import LayerSearch, make_problems
from layerwise.search.metrics import as_metric, check_gold
from layerwise.search.problems import Problem, Rows
from layerwise.search.request import as_retrieval
from layerwise.search.run import encode_sides, texts_of_pairs, texts_of_queries
from layerwise.search.select import Part, random_splits
from layerwise.search.task_search import rows_to_search

_EXACT = ("cosine_ap",)  # metrics of pairs with a fast form for all sets at once
_BY_QUERY = ("reranking", "retrieval")


@dataclass(frozen=True, eq=False)
class SearchTask:
    """A task whose rows were read and checked, before any model is loaded.

    Args:
        rows: The rows that choose and report.
        parts: The declared split, if there is one: rows that choose, rows that report.
        problem: The problem, for the kinds of mteb; None for graded pairs, and for queries without a corpus.
        units: The number of pairs, queries or rows that can be split.
    """

    rows: TaskRows
    parts: list[Part] | None
    problem: KindOfProblem | None
    units: int

    @classmethod
    def of(
        cls,
        rows: TaskRows,
        *,
        metric: str | None = None,
        split: str | None = None,
        fixed: bool = True,
        limit: int | None = None,
        seed: int = 0,
    ) -> "SearchTask":
        """Prepare the rows of a task.

        Args:
            rows: The rows of a task of any kind but "classification", which `search_classes` searches.
            metric: A metric other than the task's.
            split: Only use the rows of this role.
            fixed: Let dev rows choose and test rows report if the task declares both.
            limit: The maximum number of pairs, queries or rows, which are drawn at random.
            seed: The seed of that draw.
        """
        if rows.task.kind == "classification":
            raise InputError(
                f"task {rows.task.name!r} is a classification, whose layers are searched by a protocol of its own: "
                f'search it alone, or declare it as kind = "fewshot"'
            )
        if metric is not None:
            check_known(metric, KINDS[rows.task.kind].metrics, f"metric of {rows.task.kind}")
            rows = replace(rows, task=rows.task.model_copy(update={"metric": metric}))
        if is_searched_by_grams(rows):
            return cls._of_pairs(rows, split=split, fixed=fixed and limit is None, limit=limit, seed=seed)
        return cls._of_kind(rows, split=split, fixed=fixed and limit is None, limit=limit, seed=seed)

    @classmethod
    def _of_pairs(cls, rows: TaskRows, *, split: str | None, fixed: bool, limit: int | None, seed: int) -> "SearchTask":
        pairs, parts = rows_to_search(rows, split=split, fixed=fixed)
        pairs = pairs if limit is None else pairs.limited(limit, seed=seed)
        if pairs.task.kind == "retrieval":
            return cls(pairs, parts, None, len(as_retrieval(pairs)[0]))
        check_gold(pairs.labels, as_metric(pairs.task.metric))
        return cls(pairs, parts, None, len(pairs))

    @classmethod
    def _of_kind(cls, rows: TaskRows, *, split: str | None, fixed: bool, limit: int | None, seed: int) -> "SearchTask":
        task, roles = rows.task, _roles(rows, split)
        for role in roles:
            rows.of_role(role)
        tested = [rows.splits[role] for role in roles]
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
        return cls(joined, parts, problem, len(problem))

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.rows.task.name

    @property
    def unit(self) -> str:
        """The unit that is split: "pairs", "queries" or "rows"."""
        if self.problem is not None:
            return self.problem.unit
        return "queries" if self.rows.task.kind == "retrieval" else "pairs"

    @property
    def is_exact(self) -> bool:
        """Whether all sets are scored at once, by Gram matrices."""
        return self.problem is None or self.rows.task.metric in _EXACT

    @property
    def texts_of(self) -> Callable[[Rows], list[str]]:
        """A function from units to their texts."""
        if self.problem is not None:
            return partial(_texts_of_units, self.problem)
        return partial(texts_of_queries if self.rows.task.kind == "retrieval" else texts_of_pairs, self.rows)

    def split(self, search: LayerSearch) -> list[Part]:
        """The declared split, or random splits by the options of the search."""
        if self.parts is not None:
            return self.parts
        try:
            return random_splits(self.units, 0.5 if search.dev is None else search.dev, search.splits, search.seed)
        except InputError as error:
            raise InputError(f"task {self.name!r}: {error}") from error

    def problems(
        self, model: LayerModel, poolings: Sequence[str], *, device: str = "cpu", show_progress_bar: bool = False
    ) -> dict[str, Problem]:
        """A problem for each token pooling, from the views of the model's layers, which are cached on disk."""
        metric, bar = self.rows.task.metric, show_progress_bar
        if self.problem is None or metric in _EXACT:
            pairs = self.rows if self.problem is None else self.rows.of_role("test")
            retrieval = pairs.task.kind == "retrieval"
            left, right, gold = as_retrieval(pairs) if retrieval else (pairs.left, pairs.right, pairs.labels)
            prompts = [model.prompt(role) for role in (("query", "document") if retrieval else (None, None))]
            sides = [[prompt + text for text in side] for prompt, side in zip(prompts, (left, right), strict=True)]
            views = encode_sides(model.encoder, sides[0], sides[1], poolings, show_progress_bar=bar)
            return make_problems(*views, gold, metric, device=device)
        by_role = {
            role: model.encoder.encode_layers(
                [model.prompt(role or None) + text for text in texts], list(poolings), cache=True, show_progress_bar=bar
            )
            for role, texts in self.problem.texts.items()
        }
        return {
            pooling: KindProblem(
                self.problem, {role: views[pooling] for role, views in by_role.items()}, metric, model.normalize
            )
            for pooling in poolings
        }


def is_searched_by_grams(rows: TaskRows) -> bool:
    """Whether a task is of graded pairs, or of queries whose candidates are the other rows' passages."""
    return rows.task.kind == "sts" or (rows.task.kind == "retrieval" and rows.task.corpus is None)


def _roles(rows: TaskRows, split: str | None) -> tuple[str, ...]:
    """The roles whose rows choose and report; few-shot tasks train on their train rows."""
    if split is not None:
        return (split if rows.task.splits else "test",)
    if {"dev", "test"} <= rows.splits.keys():
        return ("dev", "test")
    return (next((role for role in ("test", "dev", "train") if role in rows.splits), "test"),)


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


def _declared(rows: TaskRows, tested: Sequence[NDArray[np.intp]], problem: KindOfProblem) -> Part:
    """The declared split, as the first (dev) and the last units (test) of a problem of both."""
    counts = [len(prepare(replace(rows, splits=rows.splits | {"test": part}))) for part in tested]
    if sum(counts) != len(problem):
        raise InputError(
            f"task {rows.task.name!r}: dev and test rows share {problem.unit}, so that one cannot report on the other; "
            f"give --split test, half of which chooses"
        )
    ends = list(accumulate(counts, initial=0))
    return np.arange(*ends[:2]), np.arange(*ends[1:])


def _texts_of_units(problem: KindOfProblem, units: Rows) -> list[str]:
    return problem.pick(np.unique(units)).unit_texts()
