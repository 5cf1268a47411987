"""Searches for tasks of any kind: one task by its own metric, or one set of layers for several tasks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np

from layerwise.errors import InputError
from layerwise.model import LayerModel
from layerwise.search.choose import Choice
from layerwise.search.joint_problem import JointProblem
from layerwise.search.layer_search import LayerSearch
from layerwise.search.prepared_task import SearchTask
from layerwise.search.problems import Problem, Rows
from layerwise.search.run import (
    SearchResult,
    Watch,
    choice_facts,
    model_notes,
    model_to_use,
    unwatched,
)
from layerwise.search.select import Part
from layerwise.search.spaces import Space
from layerwise.search.verdict import Verdict

FEW_SETS = 2**7  # sets up to which all are scored one by one; of more a beam visits some
NARROW = 4  # its width
JOINT, LAST = "all tasks", "last layer"


def search_task(
    model: LayerModel,
    task: SearchTask,
    poolings: Sequence[str] = (),
    search: LayerSearch | None = None,
    watch: Watch = unwatched,
    *,
    show_progress_bar: bool = False,
) -> SearchResult:
    """The best layers for a task of any kind but classification, by its own metric.

    Args:
        model: Whose layers are searched; its normalising is part of what is scored, its heads are not.
        task: `SearchTask.of(rows)`.
        poolings: Token poolings to search; those of the model's mix without it.
        search: Space, method, splits and seed. With the method "auto", sets that have to be scored one by one are
            all scored up to 127 of them; of more a beam visits some.
        watch: Shows how many sets are done.
        show_progress_bar: While encoding.
    """
    began, search = time.perf_counter(), search or LayerSearch()
    (problems,) = _problems(model, [task], poolings, search, show_progress_bar)
    seen = time.perf_counter()
    _fit(search, problems, task.split(search), task.rows.task.metric, task.unit, watch, exact=task.is_exact)
    seconds = {"views": seen - began, "search": time.perf_counter() - seen}
    notes = model_notes(model, search)
    prompts = _prompts(model, [task])
    return SearchResult(model, task.rows, search, task.texts_of, None, "not asked for", seconds, prompts, notes)


@dataclass(frozen=True)
class JointResult:
    """One set of layers for several tasks, and what each task's own choice is worth on the others.

    Args:
        searched: The model whose layers were searched.
        tasks: In the order of the weights.
        weights: What each task counts; they sum to 1.
        search: The fitted search for all tasks; its scores are the weighted means of the tasks'.
        singles: The fitted search for each task alone, on the same rows.
        seconds: How long views and search took.
        prompts: What was put before the texts.
        notes: About the model.
    """

    searched: LayerModel
    tasks: tuple[SearchTask, ...]
    weights: tuple[float, ...]
    search: LayerSearch
    singles: tuple[LayerSearch, ...]
    seconds: dict[str, float]
    prompts: tuple[str, str]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Which layers to use for all tasks."""
        return self.search.verdict_

    @property
    def model(self) -> LayerModel:
        """The model to use: that of the layers for all tasks, or that of the last layer."""
        return model_to_use(self.searched, self.search, self.how, "+".join(self.names), self._texts_of)

    @property
    def names(self) -> list[str]:
        """Of the tasks."""
        return [task.name for task in self.tasks]

    @property
    def how(self) -> str:
        """How the layers were chosen, for the model card."""
        counts = ", ".join(f"{name} {weight:.2g}" for name, weight in zip(self.names, self.weights, strict=True))
        return f"the best of {len(self.search.table_):,} sets by the weighted mean of {counts}. {self.verdict}"

    @property
    def choices(self) -> dict[str, Choice]:
        """The best set of each task alone, that of all tasks, and the last layer."""
        alone = {name: search.best_ for name, search in zip(self.names, self.singles, strict=True)}
        return alone | {JOINT: self.search.best_, LAST: self.search.last_}

    @property
    def unseen(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Every choice on the rows of every task that did not choose, mean of the splits: (choices, tasks)"""
        mixes = [choice.mix for choice in self.choices.values()]
        return np.stack([search.unseen_scores(mixes).mean(1) for search in self.singles], axis=1)

    @property
    def regrets(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """What each choice loses on each task against the task's own choice: (choices, tasks)

        On unseen rows a task's own choice may be beaten by another: then the regret is below 0.
        """
        scores = self.unseen
        regrets: np.ndarray[Any, np.dtype[np.float64]] = np.diagonal(scores)[None, :] - scores
        return regrets

    @property
    def warnings(self) -> list[str]:
        """What a careful reader should know."""
        return [*self.search.warnings_, *self.notes]

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Scores are from 0 to 1; `regrets` are in the order of `tasks`, `mean` is weighted."""
        search, report, unseen, regrets = self.search, self.search.report_, self.unseen, self.regrets
        gain = report.gain
        return {
            "verdict": self.verdict.as_dict(),
            "best": choice_facts(search.best_),
            "last": choice_facts(search.last_),
            "gain": {"mean": gain.mean, "low": gain.low, "high": gain.high, "p_value": gain.p_value},
            "tasks": [
                {"task": task.name, "metric": task.rows.task.metric, "weight": weight, "unit": task.unit}
                | {"choose": len(single.parts_[0][0]), "report": len(single.parts_[0][1])}
                for task, weight, single in zip(self.tasks, self.weights, self.singles, strict=True)
            ],
            "choices": {
                name: {"mix": str(choice.mix), "layers": list(choice.layers), "pooling": choice.pooling}
                | {"unseen": unseen[row].tolist(), "regrets": regrets[row].tolist()}
                | {"mean": float(unseen[row] @ self.weights), "mean_regret": float(regrets[row] @ self.weights)}
                for row, (name, choice) in enumerate(self.choices.items())
            },
            "subsets": len(search.table_),
            "seconds": self.seconds,
            "protocol": {"space": str(search.space_), "splits": len(report.splits), "seed": search.seed},
            "prompts": list(self.prompts),
            "warnings": self.warnings,
        }

    def _texts_of(self, rows: Rows) -> list[str]:
        starts = np.cumsum([0, *(task.units for task in self.tasks)])
        parts = [rows[(rows >= start) & (rows < end)] - start for start, end in pairwise(starts)]
        return list(chain(*(task.texts_of(part) for task, part in zip(self.tasks, parts, strict=True))))


def search_tasks(
    model: LayerModel,
    tasks: Sequence[SearchTask],
    weights: Sequence[float] = (),
    poolings: Sequence[str] = (),
    search: LayerSearch | None = None,
    watch: Watch = unwatched,
    *,
    show_progress_bar: bool = False,
) -> JointResult:
    """One set of layers for several tasks: the best by the weighted mean of their metrics.

    Args:
        model: Whose layers are searched.
        tasks: Two or more, each with rows of its own that choose and report.
        weights: What each task counts; 1 each without it.
        poolings: As for `search_task`.
        search: As for `search_task`.
        watch: Shows how many sets are done.
        show_progress_bar: While encoding.
    """
    began, search = time.perf_counter(), search or LayerSearch()
    counts = check_weights(tasks, weights)
    by_task = _problems(model, tasks, poolings, search, show_progress_bar)
    seen = time.perf_counter()
    parts, exact = [task.split(search) for task in tasks], all(task.is_exact for task in tasks)
    singles = []
    for task, problems, own in zip(tasks, by_task, parts, strict=True):
        alone = LayerSearch(**search.get_params())
        what = f"Searching for {task.name}"
        _fit(alone, problems, own, task.rows.task.metric, task.unit, watch, exact=task.is_exact, what=what)
        singles.append(alone)
    joint: dict[str, Problem] = {
        pooling: JointProblem.of([problems[pooling] for problems in by_task], counts) for pooling in by_task[0]
    }
    together = _joined_parts(parts, [task.units for task in tasks])
    _fit(search, joint, together, "weighted mean", "rows", watch, exact=exact, what="Searching for all")
    seconds = {"views": seen - began, "search": time.perf_counter() - seen}
    normal = tuple(float(weight / sum(counts)) for weight in counts)
    notes, prompts = model_notes(model, search), _prompts(model, tasks)
    return JointResult(model, tuple(tasks), normal, search, tuple(singles), seconds, prompts, notes)


def check_weights(tasks: Sequence[SearchTask], weights: Sequence[float]) -> list[float]:
    """A weight for each of two or more tasks, each of another name."""
    if len(tasks) < 2:
        raise InputError(f"{len(tasks)} task; layers for several tasks need 2 or more")
    names = [task.name for task in tasks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"task {twice!r} is given twice; give each task once, with a weight")
    counts = list(weights) or [1.0] * len(tasks)
    if len(counts) != len(tasks):
        raise InputError(f"{len(counts)} weights for {len(tasks)} tasks ({', '.join(names)}); give one for each")
    if not all(np.isfinite(weight) and weight > 0 for weight in counts):
        raise InputError(f"weights are {counts}; they must be above 0: leave out a task that does not count")
    return counts


def _problems(
    model: LayerModel, tasks: Sequence[SearchTask], poolings: Sequence[str], search: LayerSearch, bar: bool
) -> list[dict[str, Problem]]:
    """Of each task: token pooling -> its problem."""
    pooled, device = poolings or model.mix.poolings, str(search.device)
    return [task.problems(model, pooled, device=device, show_progress_bar=bar) for task in tasks]


def _fit(
    search: LayerSearch,
    problems: dict[str, Problem],
    parts: list[Part],
    metric: str,
    unit: str,
    watch: Watch,
    *,
    exact: bool,
    what: str = "Searching",
) -> None:
    """Fit with a method that fits the cost of a set."""
    layers = next(iter(problems.values())).layers
    if search.method == "weights" and not exact:
        raise InputError("layer weights are searched for pairs with scores or labels; take another --method")
    if search.method == "auto" and not exact:
        space = search.space if isinstance(search.space, Space) else Space.parse(search.space or "all")
        search.method = "exhaustive" if space.count(layers) < FEW_SETS else "beam"
        search.beam_width = NARROW
    search.parts = parts
    with watch(what, search.sets_to_score(layers, len(problems))) as progress:
        search.progress = progress
        search.fit_problems(problems, metric=metric, unit=unit)


def _joined_parts(parts: Sequence[list[Part]], units: Sequence[int]) -> list[Part]:
    """Splits of each task as splits of all their rows, one task after the other."""
    starts = np.cumsum([0, *units])[:-1]
    return [
        (
            np.concatenate([own[number][0] + start for own, start in zip(parts, starts, strict=True)]),
            np.concatenate([own[number][1] + start for own, start in zip(parts, starts, strict=True)]),
        )
        for number in range(min(map(len, parts)))
    ]


def _prompts(model: LayerModel, tasks: Sequence[SearchTask]) -> tuple[str, str]:
    """What comes before the texts of either side."""
    asked = any(task.unit == "queries" for task in tasks)
    return (model.prompt("query"), model.prompt("document")) if asked else (model.prompt(), model.prompt())
