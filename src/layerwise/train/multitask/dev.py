"""Scores a predictor on the dev or test rows of its tasks: per-task scores, an overall score, confusion matrices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.files import plain_json
from layerwise.muted import muted
from layerwise.predict import Predictor, predicted_classes
from layerwise.train.multitask.metrics import confusion, overall, task_metric
from layerwise.train.multitask.rows import RoleRows, TrainingTask

OVERALL = "overall"
_SEED = 0  # every training evaluates the same rows


@dataclass(frozen=True)
class Report:
    """Scores by "task/metric", their overall score, and a confusion matrix for each task of classes.

    The overall score is None where a task has no rows of the role: a mean of the others would mislead. A correlation is
    not defined where all outputs are equal: it is 0 here, so that training continues. Where outputs are not finite, the
    model has diverged: the task's score and the overall score are NaN, and no confusion is counted.
    """

    scores: dict[str, float]
    overall: float | None
    confusions: dict[str, NDArray[np.int64]]

    def metrics(self) -> dict[str, float]:
        """Return all scores and the overall score, which selects the best step: 0, the minimum, instead of NaN."""
        if self.overall is None:
            return self.scores
        return {**self.scores, OVERALL: 0.0 if math.isnan(self.overall) else self.overall}

    def facts(self) -> dict[str, Any]:
        """Return the report for JSON, with null instead of NaN."""
        scores = self.scores if self.overall is None else {**self.scores, OVERALL: self.overall}
        facts: dict[str, Any] = plain_json({"scores": scores, "confusions": self.confusions})
        return facts


def score_tasks(predictor: Predictor, tasks: Sequence[TrainingTask], role: str = "dev") -> Report:
    """Score every task with rows of this role."""
    scores: dict[str, float] = {}
    confusions: dict[str, NDArray[np.int64]] = {}
    for task in tasks:
        if role not in task.parts:
            continue
        rows, name, metric = task.parts[role], task.name, task.setup.task.metric
        with muted("layerwise.encoder.streaming"):  # texts are truncated to the task's length at every evaluation
            outputs = predictor.outputs(name, rows.columns)
        finite = bool(np.isfinite(outputs).all())
        scores[f"{name}/{metric}"] = _score(task, rows, outputs) if finite else math.nan
        if task.labels and finite:
            confusions[name] = confusion(rows.targets, predicted_classes(outputs), len(task.labels))
    complete = all(role in task.parts for task in tasks)
    return Report(scores, overall(scores) if complete else None, confusions)


class TaskScorer:
    """Scores a student's predictor on dev rows during training, and on all rows afterwards.

    Args:
        predictor: The predictor, which shares the student's weights.
        tasks: The tasks with their rows.
        limit: Evaluate at most this many dev rows of a task during training; 0: all.
        bf16: Evaluate under autocast during training: float32 takes several times as long on a GPU.
    """

    def __init__(self, predictor: Predictor, tasks: Sequence[TrainingTask], *, limit: int, bf16: bool) -> None:
        self.predictor = predictor
        self.tasks = tuple(tasks)
        self.dev_tasks = [with_fewer_dev_rows(task, limit) for task in tasks]
        self.bf16 = bf16

    def __call__(self) -> dict[str, float]:
        """Return scores by "task/metric", and the overall score."""
        with torch.autocast(self.predictor.model.encoder.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            return score_tasks(self.predictor, self.dev_tasks).metrics()

    def reports(self) -> dict[str, Report]:
        """Return reports on all rows of "dev", and of "test" if any task has labelled test rows."""
        roles = ["dev", *(["test"] if any("test" in task.parts for task in self.tasks) else [])]
        return {role: score_tasks(self.predictor, self.tasks, role) for role in roles}


def _score(task: TrainingTask, rows: RoleRows, outputs: NDArray[np.float32]) -> float:
    score = task_metric(task.setup.task.metric, rows.targets, outputs)
    return 0.0 if math.isnan(score) else score


def with_fewer_dev_rows(task: TrainingTask, limit: int) -> TrainingTask:
    """Limit a task's dev rows to a sample by a fixed seed, in the file's order; 0: all of them.

    Raises if all scores of the sample are equal, as correlations would be undefined.
    """
    rows = task.parts["dev"]
    if not limit or len(rows) <= limit:
        return task
    drawn = np.sort(np.random.default_rng(_SEED).choice(len(rows), size=limit, replace=False))
    targets = rows.targets[drawn]
    if not task.setup.task.has_classes and np.ptp(targets) == 0:
        raise InputError(
            f"{task.setup.task.file}: [dev] limit {limit} draws rows whose every score is {targets[0]:g}; a "
            f"correlation needs different ones; raise it (task {task.name!r} has {len(rows)} dev rows), or set 0"
        )
    columns = tuple(tuple(column[row] for row in drawn.tolist()) for column in rows.columns)
    return replace(task, parts=task.parts | {"dev": RoleRows(columns, targets)})
