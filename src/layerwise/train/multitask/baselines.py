"""Baselines on the same rows: the most frequent class, and the untrained encoder."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder import LayerEncoder
from layerwise.metrics import cosine
from layerwise.model import LayerModel
from layerwise.muted import muted
from layerwise.train.multitask.metrics import task_metric
from layerwise.train.multitask.rows import RoleRows, TrainingTask

MAJORITY, FROZEN = "majority class", "frozen embeddings"
_MOST_TRAIN, _MOST_SCORED = 5000, 2000  # rows: encoding a whole training set would take as long as an epoch
_EPOCHS = 1000  # of the logistic regression, at most
Baselines = dict[str, dict[str, dict[str, float]]]  # by role, "task/metric" and baseline


def score_baselines(encoder: LayerEncoder, tasks: Sequence[TrainingTask]) -> Baselines:
    """Score without training, on the dev and test rows of every task.

    Classes: by the most frequent class of train, and a logistic regression on embeddings of the last layer's mean.
    Scores of pairs: by their cosine. At most 5,000 rows of train and 2,000 of dev and test are sampled evenly.
    """
    model = LayerModel(encoder, "last @ mean")
    scores: Baselines = {}
    with muted("layerwise.encoder.streaming"):
        for task in tasks:
            for role, by_name in _score_task(model, task).items():
                scores.setdefault(role, {})[f"{task.name}/{task.setup.task.metric}"] = by_name
    return scores


def _score_task(model: LayerModel, task: TrainingTask) -> dict[str, dict[str, float]]:
    metric = task.setup.task.metric
    scored = {role: _sample_evenly(rows, _MOST_SCORED) for role, rows in task.parts.items() if role != "train"}
    if not task.labels:
        return {
            role: {FROZEN: task_metric(metric, rows.targets, _cosines(model, rows))} for role, rows in scored.items()
        }
    train = _sample_evenly(task.parts["train"], _MOST_TRAIN)
    majority = np.bincount(task.parts["train"].targets, minlength=len(task.labels)).argmax()
    predict = _fit(_features(model, train), train.targets)
    results = {}
    for role, rows in scored.items():
        by_majority = np.full(len(rows), majority)
        results[role] = {
            MAJORITY: _class_score(metric, rows.targets, by_majority, len(task.labels)),
            FROZEN: _class_score(metric, rows.targets, predict(_features(model, rows)), len(task.labels)),
        }
    return results


def _sample_evenly(rows: RoleRows, limit: int) -> RoleRows:
    """Sample at most `limit` rows, evenly over the file."""
    if len(rows) <= limit:
        return rows
    indices = np.linspace(0, len(rows) - 1, limit).astype(np.intp)
    return RoleRows(tuple(tuple(column[row] for row in indices) for column in rows.columns), rows.targets[indices])


def _features(model: LayerModel, rows: RoleRows) -> NDArray[np.float32]:
    """Compute embeddings of texts; for pairs [|u - v|; u * v], as in SentEval."""
    sides = [model.encode(column) for column in rows.columns]
    if len(sides) == 1:
        return np.asarray(sides[0])
    left, right = sides
    return np.hstack([np.abs(left - right), left * right])


def _cosines(model: LayerModel, rows: RoleRows) -> NDArray[np.floating]:
    left, right = (np.asarray(model.encode(column)) for column in rows.columns)
    return cosine(left, right)


def _fit(
    features: NDArray[np.float32], targets: NDArray[np.int64]
) -> Callable[[NDArray[np.float32]], NDArray[np.int64]]:
    """Fit a logistic regression on standardised features; return a function from features to class numbers."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regression = make_pipeline(StandardScaler(), LogisticRegression(max_iter=_EPOCHS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression.fit(features, targets)
    return regression.predict  # type: ignore[no-any-return]


def _class_score(metric: str, targets: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> float:
    return task_metric(metric, targets, np.eye(classes)[predicted])
