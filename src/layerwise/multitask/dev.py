"""How good a predictor is on the rows of a role: a score a task, all of them as one, and who is taken for whom."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.multitask.metrics import confusion, overall, predicted_classes, task_metric
from layerwise.multitask.predictor import Predictor
from layerwise.multitask.rows import LabelledRows, LabelledTask
from layerwise.muted import muted

OVERALL = "overall"
_DRAW = 0  # the seed: every training looks at the same rows


@dataclass(frozen=True)
class Report:
    """Scores by "task/metric", their overall score, and a confusion matrix for each task of classes.

    The overall score is None where a task has no rows of the role: one of some of them would mislead.
    A correlation is not defined where all outputs are equal: it is 0 here, so that training goes on from there.
    """

    scores: dict[str, float]
    overall: float | None
    confusions: dict[str, NDArray[np.int64]]

    def figures(self) -> dict[str, float]:
        """Every score and the overall one, where there is one."""
        return self.scores if self.overall is None else {**self.scores, OVERALL: self.overall}

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"scores": self.figures(), "confusions": {name: m.tolist() for name, m in self.confusions.items()}}


def report(predictor: Predictor, tasks: Sequence[LabelledTask], role: str = "dev") -> Report:
    """Score every task that has rows of this role."""
    scores: dict[str, float] = {}
    confusions: dict[str, NDArray[np.int64]] = {}
    for task in tasks:
        if role not in task.parts:
            continue
        rows, name, metric = task.parts[role], task.settings.name, task.settings.metric
        with muted("layerwise.encoder.stream"):  # texts are cut to the task's length at every look
            outputs = predictor.outputs(name, rows.columns)
        score = task_metric(metric, rows.targets, outputs)
        scores[f"{name}/{metric}"] = 0.0 if math.isnan(score) else score
        if task.labels:
            confusions[name] = confusion(rows.targets, predicted_classes(outputs), len(task.labels))
    whole = all(role in task.parts for task in tasks)
    return Report(scores, overall(scores) if whole else None, confusions)


def with_fewer_dev_rows(task: LabelledTask, limit: int) -> LabelledTask:
    """The task with at most so many of its dev rows, drawn once for all and in the file's order; 0: all of them."""
    rows = task.parts["dev"]
    if not limit or len(rows) <= limit:
        return task
    drawn = np.sort(np.random.default_rng(_DRAW).choice(len(rows), size=limit, replace=False))
    columns = tuple(tuple(column[row] for row in drawn.tolist()) for column in rows.columns)
    return replace(task, parts=task.parts | {"dev": LabelledRows(columns, rows.targets[drawn])})
