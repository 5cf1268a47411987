"""How good a predictor is on the rows of a role: a score a task, all of them as one, and who is taken for whom."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.files import plain_json
from layerwise.multitask.metrics import confusion, overall, task_metric
from layerwise.multitask.rows import RoleRows, TrainingTask
from layerwise.muted import muted
from layerwise.predict import Predictor, predicted_classes

OVERALL = "overall"
_DRAW = 0  # the seed: every training looks at the same rows


@dataclass(frozen=True)
class Report:
    """Scores by "task/metric", their overall score, and a confusion matrix for each task of classes.

    The overall score is None where a task has no rows of the role: one of some of them would mislead. A correlation is
    not defined where all outputs are equal: it is 0 here, so that training goes on from there. Where outputs are not
    finite, the model has diverged: its score and the overall one are NaN, and no confusion is counted.
    """

    scores: dict[str, float]
    overall: float | None
    confusions: dict[str, NDArray[np.int64]]

    def figures(self) -> dict[str, float]:
        """Every score and the overall one, by which steps are compared: 0, the lowest there is, in place of NaN."""
        if self.overall is None:
            return self.scores
        return {**self.scores, OVERALL: 0.0 if math.isnan(self.overall) else self.overall}

    def facts(self) -> dict[str, Any]:
        """For JSON, which has null where a score is NaN."""
        scores = self.scores if self.overall is None else {**self.scores, OVERALL: self.overall}
        facts: dict[str, Any] = plain_json({"scores": scores, "confusions": self.confusions})
        return facts


def report(predictor: Predictor, tasks: Sequence[TrainingTask], role: str = "dev") -> Report:
    """Score every task that has rows of this role."""
    scores: dict[str, float] = {}
    confusions: dict[str, NDArray[np.int64]] = {}
    for task in tasks:
        if role not in task.parts:
            continue
        rows, name, metric = task.parts[role], task.name, task.setup.task.metric
        with muted("layerwise.encoder.streaming"):  # texts are cut to the task's length at every look
            outputs = predictor.outputs(name, rows.columns)
        finite = bool(np.isfinite(outputs).all())
        scores[f"{name}/{metric}"] = _score(task, rows, outputs) if finite else math.nan
        if task.labels and finite:
            confusions[name] = confusion(rows.targets, predicted_classes(outputs), len(task.labels))
    whole = all(role in task.parts for task in tasks)
    return Report(scores, overall(scores) if whole else None, confusions)


def _score(task: TrainingTask, rows: RoleRows, outputs: NDArray[np.float32]) -> float:
    score = task_metric(task.setup.task.metric, rows.targets, outputs)
    return 0.0 if math.isnan(score) else score


def with_fewer_dev_rows(task: TrainingTask, limit: int) -> TrainingTask:
    """The task with at most so many of its dev rows, drawn once for all and in the file's order; 0: all of them.

    Rows that happen to have one score are refused: every look would find a correlation of 0.
    """
    rows = task.parts["dev"]
    if not limit or len(rows) <= limit:
        return task
    drawn = np.sort(np.random.default_rng(_DRAW).choice(len(rows), size=limit, replace=False))
    targets = rows.targets[drawn]
    if not task.setup.task.has_classes and np.ptp(targets) == 0:
        raise InputError(
            f"{task.setup.task.file}: [dev] limit {limit} draws rows whose every score is {targets[0]:g}; a "
            f"correlation needs different ones; raise it (task {task.name!r} has {len(rows)} dev rows), or set 0"
        )
    columns = tuple(tuple(column[row] for row in drawn.tolist()) for column in rows.columns)
    return replace(task, parts=task.parts | {"dev": RoleRows(columns, targets)})
