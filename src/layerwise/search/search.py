"""Search: an estimator, in scikit-learn's conventions, of the best embedding that a model already contains."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from layerwise.data import RowSource, TaskRows, are_texts, tasks_of, text_of
from layerwise.encoder import Prompt, named_prompt, parse_pooling, prompts_for
from layerwise.errors import InputError, ModelError
from layerwise.evidence import Splits, check_resamples, check_seed, draw_splits, fixed_splits, join_splits
from layerwise.mixes import SCALES, Mean, Remove
from layerwise.model import Head, LayerModel
from layerwise.parameters import Parameters
from layerwise.postprocess import FittedOn
from layerwise.progress import is_watched, watch
from layerwise.registry import check_known
from layerwise.search.alike import ALIKE, alike_and_unlike
from layerwise.search.classes import ClassProtocol, ClassRows, ClassScorer, task_splits
from layerwise.search.encode import CachedViews, view_poolings
from layerwise.search.graded_pairs import GradedPairs
from layerwise.search.inputs import SearchTask, is_searched_by_grams, make_problems, only_head
from layerwise.search.joint_problem import JointProblem
from layerwise.search.metrics import FEWEST_PAIRS, AnyMetric, as_metric
from layerwise.search.problems import PairProblem, SetProblem
from layerwise.search.retrieval import RetrievalMetric
from layerwise.search.scored import Scored, Scorer
from layerwise.search.selection import CENTRES, Searched, Selection
from layerwise.search.selection_facts import TaskChoiceFacts, TaskFacts, TasksFacts
from layerwise.search.sets import BEAM_WIDTH, METHODS, SetScorer
from layerwise.search.sources import Views
from layerwise.search.spaces import Space
from layerwise.search.unlabelled import (
    ALL,
    CRITERIA,
    DROPOUT,
    GUARDED,
    KNOWN_CRITERIA,
    PAIRS,
    Criteria,
    DropoutViews,
    GuardedProblem,
    Proposal,
    dropout_metric,
    dropout_passes,
    no_splits,
    sample_of,
    two_passes,
    without_labels,
)
from layerwise.search.view_cost import prices_of
from layerwise.search.view_fit import FIT_ON, Corpus
from layerwise.search.views import ViewOptions, ViewScorer
from layerwise.texts import unique_texts

Model = LayerModel | str | os.PathLike[str] | Callable[[], LayerModel]
ByPooling = Views | Mapping[str, Views]
Texts = Sequence[Sequence[str]]  # the sentences of each unit
_UNLABELLED_SENTENCES = 512  # that are encoded twice with dropout for the choice beside the scored one
_VIEW_PARAMETERS = ("prompts", "scale", "remove", "fit_on", "max_cost", "max_passes")


class Search(Parameters):
    """Searches layers, prompts and token poolings of a model for its best embedding.

    Some units (pairs, queries, rows) choose and the others report. Without prompts, scale or `remove`, sets of layers
    are searched, every one of them where that is possible; with any of them, sets of views, by a beam.

    Args:
        space: The sets of layers to choose from, a `Space` or its text such as "up to 4; without 0"; all by default.
        method: "exhaustive", "beam" or "greedy" search of sets; "auto" is exhaustive for at most 2^26 sets; "weights"
            optimises continuous layer weights from the best set.
        metric: "spearman", "pearson", "cosine_ap", "cosine_accuracy" (labels 0 and 1), "mrr@10", "recall@5", "ndcg@10"
            or any other cut-off, or a function of (similarities, scores), which several threads may call at once. By
            default the task's, for pairs "spearman".
        prompts: Prompts of the views: "auto" for all that suit the model, or names or `Prompt`s.
        poolings: Token poolings, such as "mean" or "last in eol"; those of the model's mix by default, and for views
            "all" for those that suit the model. A set of layers has one of them.
        scale: "unit" normalises every view to length 1 before averaging (the default for views); "none" does not.
        remove: The forms of each view: how many principal components are removed in addition to the mean; 0 removes
            the mean only, None nothing. Several forms are searched one by one and together.
        fit_on: The text on which means and components are fitted: "corpus" (the choosing sentences if there is none),
            "pairs" for the choosing sentences, "either" for the one that scores better on the choosing pairs.
        signed: Whether unchanged views may have negative weights, which removes what they share with the others.
        max_views: The maximum number of views in a set, before bagging.
        beam_width: The number of sets of each size that a beam keeps; 32 for layers, 8 for views.
        n_bootstraps: The number of resamples of the choosing pairs. Each selects views again, and a view's weight is
            the number of resamples that selected it. 0 keeps the best set with equal weights.
        n_prompts: The number of prompts that pass the screening, each with its two best poolings.
        screen_pairs: The number of choosing pairs used for the screening; all of them by default.
        max_cost: The maximum cost of an embedding, in passes through all blocks.
        max_passes: The maximum number of passes, one per prompt.
        head: Whether the model's head (one linear layer) is applied to every set.
        criterion: Choose without labels, by "dropout" (two passes), "pairs" (the two columns), "neighbours" (lines),
            "repetition" or "deletion" (of words), or "all" (the last three must agree), the default for plain texts.
        weights: Of several tasks, what each counts; equal by default.
        dev: The number of units (or, below 1, their share) that choose; the others report. By default the task's dev
            rows, or half. "all" lets all choose and none report, for a choice that is scored elsewhere.
        splits: The number of random splits; the paper's protocol is `dev=350, splits=5`. 1 by default, 10 for classes.
        parts: Fixed splits instead: the choosing and the reporting units of each.
        role: Only use a task's rows of this role: "train", "dev" or "test".
        limit: The maximum number of units, drawn at random.
        seed: The seed of splits and resamples.
        n_resamples: The number of resamples of the paired bootstrap.
        device: The device of the search; a GPU that the model is on, else the CPU.

    Attributes:
        selection_: What was chosen, what that gains and how sure it is.
        verdict_: Which mix to use.

    >>> random = np.random.default_rng(0)
    >>> left = random.normal(size=(200, 4, 8))
    >>> noise, scores = random.normal(size=(200, 4, 8)), random.random(200)
    >>> noise[:, 2] *= scores[:, None]
    >>> Search().fit_views(left, left + noise, -scores).selection_.chosen.mix
    Mean('2 @ mean')
    """

    def __init__(
        self,
        *,
        space: Space | str = "all",
        method: str = "auto",
        metric: AnyMetric | None = None,
        prompts: str | Sequence[str | Prompt] | None = None,
        poolings: str | Sequence[str] = (),
        scale: str | None = None,
        remove: Sequence[Remove] | None = None,
        fit_on: str | None = None,
        signed: bool = True,
        max_views: int = 8,
        beam_width: int | None = None,
        n_bootstraps: int = 30,
        n_prompts: int = 16,
        screen_pairs: int | None = None,
        max_cost: float | None = None,
        max_passes: int | None = None,
        head: bool = False,
        criterion: str | None = None,
        weights: Sequence[float] = (),
        dev: int | float | str | None = None,
        splits: int | None = None,
        parts: Sequence[tuple[Any, Any]] | None = None,
        role: str | None = None,
        limit: int | None = None,
        seed: int = 0,
        n_resamples: int = 2000,
        device: str | torch.device | None = None,
    ) -> None:
        self.space = space
        self.method = method
        self.metric = metric
        self.prompts = prompts
        self.poolings = poolings
        self.scale = scale
        self.remove = remove
        self.fit_on = fit_on
        self.signed = signed
        self.max_views = max_views
        self.beam_width = beam_width
        self.n_bootstraps = n_bootstraps
        self.n_prompts = n_prompts
        self.screen_pairs = screen_pairs
        self.max_cost = max_cost
        self.max_passes = max_passes
        self.head = head
        self.criterion = criterion
        self.weights = weights
        self.dev = dev
        self.splits = splits
        self.parts = parts
        self.role = role
        self.limit = limit
        self.seed = seed
        self.n_resamples = n_resamples
        self.device = device

    def fit(self, model: Model, data: Any, *, corpus: Sequence[str] | str | Path | None = None) -> Self:
        """Search a model. Data and options are checked before a model is loaded.

        Args:
            model: A model, its folder or name, or a function that loads it.
            data: A file of scored pairs, a task or task file of any kind, or rows in memory (a pandas or polars frame,
                a `datasets.Dataset`, tuples or dicts); several tasks as a list; or plain texts without labels.
            corpus: The text on which means and components of views are fitted, or its file.
        """
        self._check()
        if are_texts(data) and (self.criterion or not all(map(_is_source, data))):
            return self._fit_text(model, [list(data), list(data)], "texts in memory", self.criterion or ALL)
        tasks = tasks_of(data, scored=self.criterion is None)
        if self.criterion is not None:
            if len(tasks) > 1:
                raise InputError("a search without labels takes one file or task; give one")
            rows = tasks[0] if self.role is None else tasks[0].of_role(self.role)
            rows = rows if self.limit is None else rows.limited(self.limit, seed=self.seed)
            return self._fit_text(model, [rows.left, rows.right or rows.left], rows.source, self.criterion)
        if len(tasks) > 1 or len(self.weights):
            return self._fit_tasks(model, tasks)
        if tasks[0].task.kind == "classification":
            return self._fit_classes(model, tasks[0])
        if self._searches_views:
            return self._fit_view_pairs(model, tasks[0], corpus)
        return self._fit_task(model, tasks[0])

    def fit_views(
        self, left: ByPooling, right: ByPooling, scores: object = None, *, texts: Texts | None = None
    ) -> Self:
        """Search views of pairs: (pairs, layers, width) of both sides, or a mapping from token poolings to them.

        Without scores, the two sentences of a row count as similar (two dropout passes, adjacent sentences), those of
        different rows as dissimilar, and nothing reports. Pairs that share one of `texts`, the sentences of each pair,
        choose or report together.
        """
        self._check_arrays()
        first, second = by_pooling(left), by_pooling(right)
        if scores is None:
            return self._fit_guarded(first, second, Searched(space=str(self._space)), "")
        metric = self.metric or "spearman"
        if isinstance(metric, str) and RetrievalMetric.parse(metric):
            raise InputError(f"{metric} ranks passages of queries, not pairs; call fit_queries")
        problems = make_problems(first, second, scores, metric, device=self._device())
        return self._fit_problems(problems, _metric_name(metric), "pairs", texts)

    def fit_queries(
        self, queries: ByPooling, passages: ByPooling, relevant: object, *, texts: Texts | None = None
    ) -> Self:
        """Search views of queries and passages: (texts, layers, width) each, or a mapping from token poolings.

        `relevant` has for each query the index of its passage, a list of indices, or a mapping from them to grades.
        """
        self._check_arrays()
        metric = self.metric or "ndcg@10"
        if not isinstance(metric, str) or RetrievalMetric.parse(metric) is None:
            raise InputError(f"queries are ranked by mrr@10, recall@5, ndcg@10 or another cut-off, not by {metric}")
        sides = by_pooling(queries), by_pooling(passages)
        problems = make_problems(*sides, relevant, metric, device=self._device())
        return self._fit_problems(problems, metric, "queries", texts)

    def fit_classes(
        self, views: ByPooling, labels: Any, *, pair_views: ByPooling | None = None, texts: Texts | None = None
    ) -> Self:
        """Search views (rows, layers, width) of texts of classes, by a logistic regression.

        With the views of the second sentences of pairs u, v, the features of a pair are [|u - v|; u * v].
        """
        method = None if self.method == "auto" else self.method
        metric = None if self.metric == "accuracy" else self.metric
        self._check_arrays(method=method, metric=metric, dev=self.dev, parts=self.parts)
        pairs = None if pair_views is None else by_pooling(pair_views)
        rows = ClassRows.of(by_pooling(views), labels, pairs, self.device)
        protocol = ClassProtocol(outer=self.splits or 10, seed=self.seed)
        splits = protocol.splits(len(rows), texts=texts)
        return self._fit_class_rows(rows, splits, protocol, Searched(), pooling=None)

    def fit_problems(self, problems: Mapping[str, SetProblem], *, metric: str, unit: str) -> Self:
        """Search prepared problems, one for each token pooling: anything that scores sets of layers."""
        self._check_arrays()
        return self._fit_problems(problems, metric, unit, None)

    def fit_scorer(self, scorer: Scorer, searched: Searched | None = None, **options: Any) -> Self:
        """Select by a scorer; `options` are as for `Selection`."""
        searched = searched or Searched()
        selection = Selection(scorer, searched, seed=self.seed, n_resamples=self.n_resamples, **options)
        if "search" not in selection.seconds:
            selection.seconds["search"] = time.perf_counter() - searched.started - selection.seconds.get("views", 0.0)
        self.selection_ = selection
        return self

    @property
    def verdict_(self) -> Any:
        """Which mix to use."""
        return self.selection_.verdict

    @property
    def _space(self) -> Space:
        return self.space if isinstance(self.space, Space) else Space.parse(self.space)

    @property
    def _searches_views(self) -> bool:
        return any(getattr(self, name) is not None for name in _VIEW_PARAMETERS)

    def _names(self) -> list[str]:
        """The token poolings as they are given."""
        return [self.poolings] if isinstance(self.poolings, str) else list(self.poolings)

    def _check(self) -> None:
        """Refuse parameters that cannot be, alone or together."""
        self.__dict__.pop("selection_", None)
        check_known(self.method, METHODS, "method")
        check_seed(self.seed)
        _ = self._space
        if self.beam_width is not None and self.beam_width < 1:
            raise InputError(f"beam_width {self.beam_width} is not possible; give at least 1")
        for name in self._names():
            if name != "all":
                parse_pooling(name)
        if "all" in self._names() and not (self._searches_views or self.criterion == ALL):
            raise InputError("poolings all is for a search of views; give prompts or a scale too, or name poolings")
        if isinstance(self.dev, str) and self.dev != "all":
            raise InputError(f"dev is {self.dev!r}; give a number of units, a share below 1, or all")
        if not isinstance(self.dev, str) and self.dev is not None and not self.dev > 0:
            raise InputError(f"dev {self.dev} is not possible: some must choose; give a number, or a share below 1")
        if self.splits is not None and self.splits < 1:
            raise InputError(f"{self.splits} splits are not possible; 1 or more are")
        check_resamples(self.n_resamples)
        if self.parts is not None:
            self._refuse("is for random splits; leave it out with parts", dev=self.dev, splits=self.splits)
        if self.criterion is not None:
            check_known(self.criterion, KNOWN_CRITERIA, "criterion")
            self._refuse(
                f"is for scored data; leave it out with criterion {self.criterion}",
                metric=self.metric, dev=self.dev, splits=self.splits, parts=self.parts,
            )  # fmt: skip
            if self.method == "weights":
                raise InputError("Layer weights need pairs with scores or labels; take another method")
        if self._searches_views or self.criterion == ALL:
            self._check_views()

    def _check_arrays(self, **unused: object) -> None:
        """Refuse what views without their model cannot have."""
        self._check()
        names = (*_VIEW_PARAMETERS, "criterion", "role", "limit")
        self._refuse(
            "is for the texts of a model; call fit, or leave it out",
            **{name: getattr(self, name) for name in names},
            poolings=self.poolings or None,
            head=self.head or None,
            weights=self.weights if len(self.weights) else None,
        )
        self._refuse("is for pairs; leave it out of a search for classes", **unused)

    def _check_views(self) -> None:
        asked = next((name for name in _VIEW_PARAMETERS if getattr(self, name) is not None), f"criterion {ALL}")
        check_known(self.scale or "unit", SCALES, "scale")
        self._options_of_views()
        self._refuse(
            f"is for sets of layers; leave it out with {asked}",
            method=None if self.method == "auto" else self.method,
            space=None if self._space == Space() else self.space,
            head=self.head or None,
        )
        if self.criterion == PAIRS:
            raise InputError(
                "criterion pairs is for sets of layers; views are chosen by neighbours, repetition, deletion, dropout "
                "or all"
            )
        if self.fit_on is not None:
            check_known(self.fit_on, FIT_ON, "fit_on")
            if self.remove is None:
                raise InputError(
                    f"fit_on {self.fit_on} is the text that remove is fitted on; give remove too, such as mean"
                )

    def _refuse(self, why: str, **given: object) -> None:
        for name, value in given.items():
            if value is not None:
                raise InputError(f"{name} {why}")

    def _check_corpus(self, corpus: object) -> None:
        if corpus is not None and self.remove is None:
            raise InputError("corpus is the text that remove is fitted on; give remove too, such as mean")
        if corpus is None and self.fit_on not in (None, "pairs"):
            raise InputError(f"fit_on {self.fit_on} needs a text; give corpus too")
        if corpus is not None and self.fit_on == "pairs":
            raise InputError("fit_on pairs has no use for a corpus; leave one of them out, or give fit_on either")

    def _device(self, model: LayerModel | None = None) -> torch.device:
        if self.device is not None:
            return torch.device(self.device)
        is_on_gpu = model is not None and model.encoder.device.type == "cuda"
        return model.encoder.device if model is not None and is_on_gpu else torch.device("cpu")

    def _fit_problems(self, problems: Mapping[str, SetProblem], metric: str, unit: str, texts: Texts | None) -> Self:
        units = len(next(iter(problems.values())))
        if self.parts is not None:
            splits = fixed_splits(self.parts, texts=texts, units=units, unit=unit)
        elif self.dev == "all":
            splits = no_splits(units)
        else:
            splits = draw_splits(units, self._dev, self.splits or 1, self.seed, texts=texts, unit=unit)
        return self._fit_sets(problems, splits, metric, unit, Searched(space=str(self._space)))

    @property
    def _dev(self) -> int | float:
        return 0.5 if self.dev is None or isinstance(self.dev, str) else self.dev

    def _fit_sets(
        self,
        problems: Mapping[str, SetProblem],
        splits: Splits,
        metric: str,
        unit: str,
        searched: Searched,
        *,
        pooling: str | None = None,
        **options: Any,
    ) -> Self:
        return self.fit_scorer(self._set_scorer(problems, splits, metric, unit, pooling), searched, **options)

    def _set_scorer(
        self, problems: Mapping[str, SetProblem], splits: Splits, metric: str, unit: str, pooling: str | None
    ) -> SetScorer:
        scorer = SetScorer(
            problems,
            splits,
            metric,
            unit,
            space=self._space,
            method=self.method,
            beam_width=BEAM_WIDTH if self.beam_width is None else self.beam_width,
            pooling=pooling,
            seed=self.seed,
        )
        with watch("Searching", scorer.sets_to_score) as scorer.progress:
            _ = scorer.choices
        return scorer

    def _fit_task(self, model: Model, rows: TaskRows) -> Self:
        """Sets of layers for a task of any kind but classification, by its own metric."""
        self._refuse_for_kind(rows)
        task = self._prepared(rows)
        if self.method == "weights" and task.is_retrieval:
            raise InputError("Layer weights need pairs with scores or labels; take another method")
        if self.head and task.is_retrieval:
            raise InputError("A head is searched with pair metrics, not with those of queries; leave it out")
        splits = self._task_splits(task)
        loaded, start = self._load(model), time.perf_counter()
        encode = CachedViews(loaded.encoder, show_progress_bar=is_watched())
        names = self._names() or list(loaded.mix.poolings)
        head = only_head(loaded) if self.head else None
        problems = task.problems(loaded, names, encode, head=head, device=self._device(loaded))
        searched = Searched(
            model=loaded,
            source=rows.source,
            texts_of=task.texts_of,
            space=str(self._space),
            options={"method": self.method, "head": self.head},
            prompts=task.prompts(loaded),
            notes=model_notes(loaded, keeps_heads=self.head),
            seconds={"views": time.perf_counter() - start},
            started=start,
            keep_heads=self.head,
        )
        metric, pooling = _metric_name(task.metric), next(iter(loaded.mix.poolings))
        return self._fit_sets(problems, splits, metric, task.unit, searched, pooling=pooling)

    def _prepared(self, rows: TaskRows) -> SearchTask:
        fixed = self.dev is None and self.splits is None
        with _naming(rows):
            return SearchTask.of(
                rows, metric=self.metric, role=self.role, fixed=fixed, limit=self.limit, seed=self.seed
            )

    def _refuse_for_kind(self, rows: TaskRows) -> None:
        if is_searched_by_grams(rows):
            return
        if self._searches_views or self.head:
            what = "head" if self.head else next(n for n in _VIEW_PARAMETERS if getattr(self, n) is not None)
            raise InputError(f"{what} is for scored pairs, not for a task of {rows.task.kind}; leave it out")

    def _task_splits(self, task: SearchTask) -> Splits:
        if self.parts is not None:
            return fixed_splits(self.parts, texts=task.unit_texts, units=task.units, unit=task.unit)
        if self.dev == "all":
            return no_splits(task.units)
        with _naming(task.rows):
            return task.splits(self._dev, self.splits or 1, self.seed)

    def _fit_tasks(self, model: Model, tasks: Sequence[TaskRows]) -> Self:
        """One set of layers for several tasks: the best by the weighted mean of their metrics."""
        if self.metric is not None:
            raise InputError("metric is for one task; several are searched by the metrics that they declare")
        if self._searches_views or self.head:
            raise InputError("prompts, scale, remove and head are for one task of scored pairs, not for several")
        prepared = [self._prepared(rows) for rows in tasks]
        weights = check_weights(prepared, self.weights)
        by_task = [self._task_splits(task) for task in prepared]
        texts = [task.unit_texts for task in prepared]
        known = None if any(one is None for one in texts) else [unit for one in texts for unit in one or ()]
        joint_splits = join_splits(by_task, texts=known, unit="rows")
        loaded, start = self._load(model), time.perf_counter()
        encode = CachedViews(loaded.encoder, show_progress_bar=is_watched())
        names, device = self._names() or list(loaded.mix.poolings), self._device(loaded)
        pooling = next(iter(loaded.mix.poolings))
        problems = [task.problems(loaded, names, encode, device=device) for task in prepared]
        seconds = {"views": time.perf_counter() - start}
        singles = [
            self._set_scorer(problem, splits, _metric_name(task.metric), task.unit, pooling)
            for task, splits, problem in zip(prepared, by_task, problems, strict=True)
        ]
        joint: dict[str, SetProblem] = {
            name: JointProblem.of([problem[name] for problem in problems], weights) for name in problems[0]
        }
        scorer = self._set_scorer(joint, joint_splits, "weighted mean", "rows", pooling)
        by_query = any(task.unit == "queries" for task in prepared)
        prompts = (loaded.prompt("query"), loaded.prompt("document")) if by_query else (loaded.prompt(),) * 2
        searched = Searched(
            model=loaded,
            source="+".join(task.name for task in prepared),
            texts_of=_texts_of_all(prepared),
            space=str(self._space),
            options={"method": self.method},
            prompts=prompts,
            notes=model_notes(loaded),
            seconds=seconds,
            started=start,
        )
        return self.fit_scorer(scorer, searched, tasks=_task_facts(prepared, weights, singles, scorer))

    def _fit_classes(self, model: Model, rows: TaskRows) -> Self:
        """Sets of layers for a classification task, by logistic regression on fixed embeddings."""
        name = rows.task.name
        if self.metric not in (None, "accuracy") or rows.task.metric != "accuracy":
            raise InputError(
                f"task {name!r} has classes, for which layers are searched by accuracy, not by another metric"
            )
        if self._searches_views:
            raise InputError(f"task {name!r} has no graded pairs, by which views of prompts are searched")
        method = None if self.method == "auto" else self.method
        self._refuse(
            f"is for pairs, but task {name!r} has classes; leave it out",
            method=method,
            dev=self.dev,
            parts=self.parts,
            role=self.role,
            limit=self.limit,
            head=self.head or None,
        )
        protocol = ClassProtocol(outer=self.splits or 10, seed=self.seed)
        splits = task_splits(rows, protocol)
        loaded, start = self._load(model), time.perf_counter()
        encode = CachedViews(loaded.encoder, loaded.prompt(), show_progress_bar=is_watched())
        names = self._names() or [next(iter(loaded.mix.poolings))]
        left, right = encode.sides(rows.left, rows.right or rows.left, names)
        prepared = ClassRows.of(left, rows.labels, right if rows.right else None, self.device)
        texts = [tuple(filter(None, pair)) for pair in zip(rows.left, rows.right or [""] * len(rows), strict=True)]
        searched = Searched(
            model=loaded,
            source=name,
            texts_of=lambda units: [text for unit in units for text in texts[unit]],
            space="sets of the paper" if self._space == Space() else str(self._space),
            options={"inner": protocol.inner},
            prompts=(loaded.prompt(),) * 2,
            notes=model_notes(loaded),
            seconds={"views": time.perf_counter() - start},
            started=start,
        )
        return self._fit_class_rows(prepared, splits, protocol, searched, pooling=next(iter(loaded.mix.poolings)))

    def _fit_class_rows(
        self, rows: ClassRows, splits: Splits, protocol: ClassProtocol, searched: Searched, *, pooling: str | None
    ) -> Self:
        space = None if self._space == Space() else self._space
        scorer = ClassScorer(rows, splits, protocol, space, pooling)
        with watch("Searching", len(scorer.mixes)) as scorer.progress:
            _ = scorer.choices
        return self.fit_scorer(scorer, searched)

    def _fit_view_pairs(self, model: Model, rows: TaskRows, corpus: Sequence[str] | str | Path | None) -> Self:
        """Sets of views by scored pairs."""
        if rows.task.kind != "sts" or (isinstance(self.metric, str) and RetrievalMetric.parse(self.metric)):
            raise InputError(f"task {rows.task.name!r} has no graded pairs, by which views of prompts are searched")
        self._check_corpus(corpus)
        task = self._prepared(rows)
        splits = self._task_splits(task)
        texts, source = _corpus_of(corpus)
        loaded, start = self._load(model), time.perf_counter()
        encode = CachedViews(loaded.encoder, loaded.prompt(), show_progress_bar=is_watched())
        pairs = GradedPairs.of(
            task.rows.left,
            task.rows.right,
            task.rows.labels,
            metric=as_metric(task.metric),
            encode=encode,
            device=self._device(loaded),
        )
        scorer = self._view_scorer(
            loaded, pairs, splits, None if texts is None else Corpus(texts, encode, pairs.device)
        )
        record = None if texts is None else FittedOn.of(texts, source=source, what=CENTRES)
        seen = 0
        if record is not None and self.fit_on != "pairs":
            seen = int(record.seen(list(dict.fromkeys(task.texts_of(splits[0].test)))).sum())
        searched = Searched(
            model=loaded,
            source=rows.source,
            texts_of=task.texts_of,
            corpus=record,
            space="views",
            options=self._view_facts(),
            prompts=(loaded.prompt(),) * 2,
            notes=model_notes(loaded),
            seen_sentences=seen,
        )
        self.fit_scorer(scorer, searched)
        _ = self.selection_.verdict, self.selection_.cheaper, self.selection_.stability  # which takes views, too
        seconds = {"views": encode.seconds, "search": time.perf_counter() - start - encode.seconds}
        self.selection_.seconds |= seconds
        return self

    def _view_options(self, model: LayerModel) -> ViewOptions:
        prompts: Iterable[Prompt] = ()
        if self.prompts == "auto":
            prompts = prompts_for(model.tokenizer)
        elif self.prompts is not None:
            names = [self.prompts] if isinstance(self.prompts, str) else self.prompts
            prompts = [named_prompt(one) if isinstance(one, str) else one for one in names]
        poolings = (str(parse_pooling(name)) for name in view_poolings(model, self._names(), prompts))
        return replace(self._options_of_views(), poolings=tuple(dict.fromkeys(poolings)))

    def _options_of_views(self) -> ViewOptions:
        """The options of a search of views without the poolings, which depend on the model."""
        return ViewOptions(
            scale=self.scale or "unit",  # type: ignore[arg-type] # checked
            remove=tuple(dict.fromkeys((None,) if self.remove is None else self.remove)),
            fit_on=self.fit_on or "corpus",
            signed=self.signed,
            max_views=self.max_views,
            beam_width=8 if self.beam_width is None else self.beam_width,
            n_bootstraps=self.n_bootstraps,
            n_prompts=self.n_prompts,
            screen_pairs=self.screen_pairs,
            max_cost=self.max_cost,
            max_passes=self.max_passes,
        )

    def _view_facts(self) -> dict[str, Any]:
        names = ("signed", "max_views", "n_bootstraps", "n_prompts", "screen_pairs", "max_cost", "max_passes")
        shown = {
            "scale": self.scale or "unit",
            "remove": list(self.remove or (None,)),
            "fit_on": self.fit_on or "corpus",
        }
        return shown | {name: getattr(self, name) for name in names}

    def _view_scorer(
        self, model: LayerModel, pairs: GradedPairs, splits: Splits, corpus: Corpus | None = None, **changes: Any
    ) -> ViewScorer:
        options = replace(self._view_options(model), **changes)
        options.check_width(model.encoder.width)
        baseline = next(iter(model.mix.poolings))
        prompted = [model.prompt() + text for text in pairs.left]
        prices = prices_of(model.encoder, [*options.poolings, baseline], prompted)
        scorer = ViewScorer(pairs, splits, options, prices, baseline, corpus, self.seed)
        with watch("Searching", None) as scorer.progress:
            _ = scorer.choices
        return scorer

    def _fit_text(self, model: Model, sides: Sequence[Sequence[str]], source: str, criterion: str) -> Self:
        """Choose without labels, by pairs that are built from text."""
        left, right = sides
        if len(left) < FEWEST_PAIRS:
            raise InputError(
                f"{source}: {len(left)} sentences are too few to choose layers by; give {FEWEST_PAIRS} or more"
            )
        if self._searches_views or criterion == ALL:
            return self._fit_text_views(model, left, source, criterion)
        loaded, start = self._load(model), time.perf_counter()
        head = only_head(loaded) if self.head else None
        names, bar = self._names() or list(loaded.mix.poolings), is_watched()
        encode = CachedViews(loaded.encoder, loaded.prompt(), show_progress_bar=bar)
        if criterion == DROPOUT:
            prompted = [loaded.prompt() + text for text in left]
            views = dropout_passes(loaded.encoder, prompted, names, show_progress_bar=bar)
        else:
            drawn = np.random.default_rng(self.seed)
            first, second = (left, right) if criterion == PAIRS else ALIKE[criterion](left, drawn)
            views = encode.sides(first, second, names)
        searched = self._text_searched(loaded, source, unique_texts(left, right)[0], str(self._space), criterion)
        searched = replace(
            searched, seconds={"views": time.perf_counter() - start}, started=start, keep_heads=self.head
        )
        return self._fit_guarded(*views, searched, criterion, head)

    def _fit_guarded(
        self,
        left: Mapping[str, Views],
        right: Mapping[str, Views],
        searched: Searched,
        criterion: str,
        head: Head | None = None,
    ) -> Self:
        """Choose sets that separate similar from dissimilar pairs."""
        similar = len(next(iter(left.values())))
        metric = self.metric or GUARDED
        sides = without_labels(left, right, seed=self.seed)
        named = "separation" if metric == GUARDED else metric
        problems = make_problems(*sides, named, head=head, device=self._device(searched.model))
        if metric == GUARDED:
            problems = {name: GuardedProblem(one) for name, one in problems.items() if isinstance(one, PairProblem)}
        scorer = self._set_scorer(problems, no_splits(len(sides[2])), _metric_name(metric), "pairs", None)
        proposal = Proposal(criterion, scorer.best.mix, {criterion: scorer.best.dev})
        criteria = Criteria(criterion, (proposal,), {criterion: scorer.last.dev})
        return self.fit_scorer(scorer, searched, labelled=similar, has_labels=False, criteria=criteria)

    def _fit_text_views(self, model: Model, texts: Sequence[str], source: str, criterion: str) -> Self:
        """Choose views by one criterion, or by all that must agree."""
        loaded, start = self._load(model), time.perf_counter()
        bar, baseline = is_watched(), next(iter(loaded.mix.poolings))
        encode = CachedViews(loaded.encoder, loaded.prompt(), show_progress_bar=bar)
        twice = DropoutViews(loaded.encoder, loaded.prompt(), show_progress_bar=bar)
        device = self._device(loaded)
        scorers: dict[str, ViewScorer] = {}
        for name in CRITERIA if criterion == ALL else (criterion,):
            sample = sample_of(texts, name)
            if name == DROPOUT:
                pairs = two_passes(sample, seed=self.seed)
                last = Mean.of(loaded.encoder.depth, pooling=baseline)
                metric = dropout_metric(pairs, twice, last, device)  # its guard holds for the best set only
            else:
                pairs, metric = alike_and_unlike(name, sample, seed=self.seed), as_metric("separation")
            encoder = twice if name == DROPOUT else encode
            graded = GradedPairs.of(*pairs, metric=metric, encode=encoder, device=device)
            splits = no_splits(len(graded))
            n_bootstraps = 0 if name == DROPOUT else self.n_bootstraps
            scorers[name] = self._view_scorer(loaded, graded, splits, signed=False, n_bootstraps=n_bootstraps)
        last_mix = next(iter(scorers.values())).last.mix
        proposals = tuple(
            Proposal(name, scorer.best.mix, {other: one.score(scorer.best.mix) for other, one in scorers.items()})
            for name, scorer in scorers.items()
        )
        criteria = Criteria(criterion, proposals, {name: scorer.score(last_mix) for name, scorer in scorers.items()})
        agreed = criteria.agreed
        scorer = scorers[agreed.criterion if agreed else next(iter(scorers))]
        searched = self._text_searched(loaded, source, unique_texts(texts)[0], "views", criterion)
        seconds = encode.seconds + twice.seconds
        searched = replace(searched, seconds={"views": seconds, "search": time.perf_counter() - start - seconds})
        return self.fit_scorer(scorer, searched, labelled=len(texts), has_labels=False, criteria=criteria)

    def _text_searched(
        self, model: LayerModel, source: str, texts: Sequence[str], space: str, criterion: str
    ) -> Searched:
        options = self._view_facts() if space == "views" else {"method": self.method, "head": self.head}
        return Searched(
            model=model,
            source=f"{source}, by {criterion}",
            texts_of=lambda _units: texts,
            space=space,
            options=options,
            prompts=(model.prompt(),) * 2,
            notes=model_notes(model, keeps_heads=self.head),
        )

    def _load(self, model: Model) -> LayerModel:
        loaded = model if isinstance(model, LayerModel) else model() if callable(model) else LayerModel.load(model)
        self._space.bits(loaded.encoder.depth + 1)  # refuses layers that the model has not, before any text is read
        return loaded


def without_scores(selection: Selection, rows: TaskRows) -> Scored | None:
    """What dropout chooses from the same texts without their scores, scored on the reporting units.

    None, with a warning, for a model or space where it cannot choose.
    """
    model, scorer = selection.searched.model, selection.scorer
    if model is None or not isinstance(scorer, SetScorer):
        return None
    unique, _ = unique_texts(rows.left, rows.right)
    order = np.random.default_rng(selection.seed).permutation(len(unique))[:_UNLABELLED_SENTENCES]
    search = Search(space=scorer.space, poolings=list(scorer.problems), criterion=DROPOUT, seed=selection.seed)
    try:
        chosen = search.fit(model, [unique[place] for place in order]).selection_.chosen
    except (ModelError, InputError) as error:
        selection.warnings.append(f"nothing is chosen without labels: {error}")
        return None
    return Scored(chosen.mix, chosen.dev, float(scorer.unseen_scores([chosen.mix]).mean()), chosen.cost)


def by_pooling(views: ByPooling) -> dict[str, Views]:
    """Views by the name of their token pooling; a single array is of mean pooling."""
    if not isinstance(views, Mapping):
        return {"mean": _array(views)}
    if not views:
        raise InputError("No views: give an array, or a mapping from token poolings to arrays")
    for pooling in views:
        parse_pooling(pooling)
    return {pooling: _array(array) for pooling, array in views.items()}


def check_weights(tasks: Sequence[SearchTask], weights: Sequence[float]) -> list[float]:
    """The weights of two or more tasks, whose names must differ; equal if there are none."""
    if len(tasks) < 2:
        raise InputError(f"{len(tasks)} task; layers for several tasks need 2 or more")
    names = [task.name for task in tasks]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"task {duplicate!r} is given twice; give each task once, with a weight")
    values = list(weights) or [1.0] * len(tasks)
    if len(values) != len(tasks):
        raise InputError(f"{len(values)} weights for {len(tasks)} tasks ({', '.join(names)}); give one for each")
    if not all(np.isfinite(weight) and weight > 0 for weight in values):
        raise InputError(f"weights are {values}; they must be above 0: leave out a task that does not count")
    return values


def model_notes(model: LayerModel, *, keeps_heads: bool = False) -> tuple[str, ...]:
    """Notes on differences between the searched embeddings and the model's, or in how they are compared."""
    notes = []
    if not model.mix.is_plain:
        notes.append(f"sets of layers are searched, so the model's mix {model.mix} is left out")
    if model.heads and not keeps_heads:
        notes.append(f"the model's {len(model.heads)} head(s) after the mix are left out")
    if model.truncate_dim is not None:
        notes.append(
            f"whole embeddings are searched, so the model's truncation to {model.truncate_dim} dimensions is left out"
        )
    if model.similarity_fn_name != "cosine" and not model.normalize:
        notes.append(f"layers are chosen by cosine, but the model compares by {model.similarity_fn_name}")
    return tuple(notes)


def _task_facts(
    tasks: Sequence[SearchTask], weights: Sequence[float], singles: Sequence[SetScorer], joint: SetScorer
) -> TasksFacts:
    """What the choice of each task, of all and the last layer are worth on each task's unseen units."""
    shares = np.array(weights) / sum(weights)
    mixes = {task.name: single.best.mix for task, single in zip(tasks, singles, strict=True)}
    mixes |= {"all tasks": joint.best.mix, "last layer": joint.last.mix}
    unseen = np.stack([single.unseen_scores(list(mixes.values())).mean(1) for single in singles], axis=1)
    regrets = np.diagonal(unseen)[None, :] - unseen  # negative where another choice is better on unseen units
    return TasksFacts(
        tasks=tuple(
            TaskFacts(
                task=task.name,
                metric=single.metric,
                weight=float(share),
                unit=task.unit,
                choosing=len(single.splits[0].dev),
                reporting=len(single.splits[0].test),
            )
            for task, share, single in zip(tasks, shares, singles, strict=True)
        ),
        choices=tuple(
            TaskChoiceFacts(
                name=name,
                mix=str(mix),
                unseen=unseen[row].tolist(),
                regrets=regrets[row].tolist(),
                mean=float(unseen[row] @ shares),
                mean_regret=float(regrets[row] @ shares),
            )
            for row, (name, mix) in enumerate(mixes.items())
        ),
    )


def _texts_of_all(tasks: Sequence[SearchTask]) -> Callable[[Any], list[str]]:
    """A function from units, numbered one task after the other, to their texts."""
    starts = np.cumsum([0, *(task.units for task in tasks)])

    def texts_of(units: Any) -> list[str]:
        parts = [units[(units >= start) & (units < end)] - start for start, end in pairwise(starts)]
        return [text for task, part in zip(tasks, parts, strict=True) for text in task.texts_of(part)]

    return texts_of


@contextmanager
def _naming(rows: TaskRows) -> Iterator[None]:
    """Let errors about rows begin with the name of their file or task."""
    try:
        yield
    except InputError as error:
        named = str(error).startswith((f"task {rows.task.name!r}", f"{rows.source}:"))
        raise error if named else InputError(f"{rows.source}: {error}") from error


def _metric_name(metric: AnyMetric) -> str:
    if isinstance(metric, str) and (metric == GUARDED or RetrievalMetric.parse(metric) or "_" in metric):
        return metric
    return metric if isinstance(metric, str) else as_metric(metric).name


def _corpus_of(corpus: Sequence[str] | str | Path | None) -> tuple[list[str] | None, str]:
    """The texts of a corpus and its name."""
    if corpus is None:
        return None, ""
    if not isinstance(corpus, str | Path):
        return list(corpus), "text"
    rows = RowSource.of(str(corpus), ("text",))
    texts = [text for row in rows if (text := text_of(rows, row, 0)).strip()]
    if len(texts) < 2:
        raise InputError(f"{corpus}: {len(texts)} sentences are too few to fit on; give thousands")
    return texts, Path(corpus).name


def _is_source(text: str) -> bool:
    """Whether a text of a list names a file or task, so that the list is one of several tasks."""
    return len(text) < 200 and (Path(text).suffix in (".toml", ".csv", ".tsv", ".jsonl", ".parquet") or " " not in text)


def _array(views: Views) -> Views:
    return views if isinstance(views, torch.Tensor) else np.asarray(views)
