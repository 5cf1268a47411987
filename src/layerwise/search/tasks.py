"""Search layers for tasks of any kind: for one task by its metric, or one set of layers for several tasks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from layerwise.errors import InputError
from layerwise.model import LayerModel
from layerwise.search.choose import Choice
from layerwise.search.joint_problem import JointProblem, rows_of_tasks
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

FEW_SETS = 2**7  # sets from which a beam is used, if sets are scored one by one
NARROW = 4  # the width of that beam
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
        model: The model whose layers are searched, with its normalisation, without its heads.
        task: `SearchTask.of(rows)`.
        poolings: The token poolings to search; those of the model's mix by default.
        search: The space, method, splits and seed. If sets have to be scored one by one, the method "auto" is
            exhaustive for at most 127 sets, else a beam search.
        watch: Shows a progress bar of the sets.
        show_progress_bar: Show a progress bar while encoding.
    """
    start, search = time.perf_counter(), _unfitted(search)
    (problems,) = _problems(model, [task], poolings, search, show_progress_bar)
    encoded = time.perf_counter()
    _fit(search, problems, task.split(search), task.rows.task.metric, task.unit, watch, exact=task.is_exact)
    seconds = {"views": encoded - start, "search": time.perf_counter() - encoded}
    notes = model_notes(model, search)
    prompts = _prompts(model, [task])
    return SearchResult(model, task.rows, search, task.texts_of, None, "not asked for", seconds, prompts, notes)


@dataclass(frozen=True)
class JointResult:
    """One set of layers for several tasks, compared with the choice of each single task.

    Args:
        searched: The model whose layers were searched.
        tasks: The tasks, in the order of the weights.
        weights: The weights of the tasks, which sum to 1.
        search: The fitted search for all tasks; its scores are the weighted means of the tasks'.
        singles: The fitted search for each single task, on the same rows.
        seconds: The time of views and search.
        prompts: The prefixes of the texts.
        notes: Notes about the model.
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
        """The model to use: of the layers for all tasks, or of the last layer."""
        return model_to_use(self.searched, self.search, self.how, "+".join(self.names), self._texts_of)

    @property
    def names(self) -> list[str]:
        """The names of the tasks."""
        return [task.name for task in self.tasks]

    @property
    def how(self) -> str:
        """How the layers were chosen, for the model card."""
        counts = ", ".join(f"{name} {weight:.2g}" for name, weight in zip(self.names, self.weights, strict=True))
        return f"the best of {len(self.search.table_):,} sets by the weighted mean of {counts}. {self.verdict}"

    @property
    def choices(self) -> dict[str, Choice]:
        """The best set of each single task, the best of all tasks, and the last layer."""
        singles = {name: search.best_ for name, search in zip(self.names, self.singles, strict=True)}
        return singles | {JOINT: self.search.best_, LAST: self.search.last_}

    @property
    def unseen(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Scores of every choice on the test rows of every task, mean of the splits: (choices, tasks)"""
        mixes = [choice.mix for choice in self.choices.values()]
        return np.stack([search.unseen_scores(mixes).mean(1) for search in self.singles], axis=1)

    @property
    def regrets(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The loss of each choice on each task against the choice of that task: (choices, tasks)

        On unseen rows another choice may beat the task's: then the regret is negative.
        """
        scores = self.unseen
        regrets: np.ndarray[Any, np.dtype[np.float64]] = np.diagonal(scores)[None, :] - scores
        return regrets

    @property
    def warnings(self) -> list[str]:
        """Caveats about the result."""
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
        parts = rows_of_tasks(rows, [task.units for task in self.tasks])
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
        model: The model whose layers are searched.
        tasks: Two or more tasks, each with rows that choose and rows that report.
        weights: The weights of the tasks; equal by default.
        poolings: As for `search_task`.
        search: As for `search_task`.
        watch: Shows a progress bar of the sets.
        show_progress_bar: Show a progress bar while encoding.
    """
    start, search = time.perf_counter(), _unfitted(search)
    weights = check_weights(tasks, weights)
    by_task = _problems(model, tasks, poolings, search, show_progress_bar)
    encoded = time.perf_counter()
    parts, exact = [task.split(search) for task in tasks], all(task.is_exact for task in tasks)
    singles = []
    for task, problems, task_parts in zip(tasks, by_task, parts, strict=True):
        single = _unfitted(search)
        what = f"Searching for {task.name}"
        _fit(single, problems, task_parts, task.rows.task.metric, task.unit, watch, exact=task.is_exact, what=what)
        singles.append(single)
    joint: dict[str, Problem] = {
        pooling: JointProblem.of([problems[pooling] for problems in by_task], weights) for pooling in by_task[0]
    }
    joint_parts = _join_parts(parts, [task.units for task in tasks])
    _fit(search, joint, joint_parts, "weighted mean", "rows", watch, exact=exact, what="Searching for all")
    seconds = {"views": encoded - start, "search": time.perf_counter() - encoded}
    normalized = tuple(float(weight / sum(weights)) for weight in weights)
    notes, prompts = model_notes(model, search), _prompts(model, tasks)
    return JointResult(model, tuple(tasks), normalized, search, tuple(singles), seconds, prompts, notes)


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


def _problems(
    model: LayerModel, tasks: Sequence[SearchTask], poolings: Sequence[str], search: LayerSearch, bar: bool
) -> list[dict[str, Problem]]:
    """The problems of each task, by token pooling."""
    names, device = poolings or model.mix.poolings, str(search.device)
    return [task.problems(model, names, device=device, show_progress_bar=bar) for task in tasks]


def _unfitted(search: LayerSearch | None) -> LayerSearch:
    """A copy of the options, so that the caller's object stays as it is."""
    return LayerSearch() if search is None else LayerSearch(**search.get_params())


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
    """Fit; the method "auto" depends on whether sets are scored one by one."""
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


def _join_parts(parts: Sequence[list[Part]], units: Sequence[int]) -> list[Part]:
    """Combine the splits of each task into splits of the concatenated rows."""
    starts = np.cumsum([0, *units])[:-1]
    return [
        (
            np.concatenate([of_task[number][0] + start for of_task, start in zip(parts, starts, strict=True)]),
            np.concatenate([of_task[number][1] + start for of_task, start in zip(parts, starts, strict=True)]),
        )
        for number in range(min(map(len, parts)))
    ]


def _prompts(model: LayerModel, tasks: Sequence[SearchTask]) -> tuple[str, str]:
    """The prefixes of the texts of both sides."""
    has_queries = any(task.unit == "queries" for task in tasks)
    return (model.prompt("query"), model.prompt("document")) if has_queries else (model.prompt(), model.prompt())
