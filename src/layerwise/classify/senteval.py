"""SentEval's transfer tasks: the accuracy of a classifier on fixed sentence vectors, by its three protocols.

- A task without splits (MR, CR, SUBJ, MPQA): ten stratified folds are tested in turn; ten inner folds of the others
  choose the setting for each test. The score is the mean of the folds' accuracies.
- A task with train and test (TREC, MRPC): ten folds of the training rows choose.
- A task with train, dev and test (SST, probing): the dev rows choose; only the training rows train.

As in SentEval, accuracies are rounded to hundredths of a point before the best setting is chosen; of equal ones, the
first in the grid wins, which is the smallest in these grids.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

import layerwise.classify.mlp  # noqa: F401 - registers "mlp"
from layerwise.classify.classifiers import CLASSIFIERS, ClassRows, GridClassifier
from layerwise.classify.plan import Codes, Plan, kfold_plan, split_plan
from layerwise.errors import InputError

log = logging.getLogger(__name__)

Array = NDArray[np.generic]

_KINDS = ("kfold", "train-test", "train-dev-test")
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "logistic": dict(
        zip(_KINDS, (tuple(2.0**t for t in range(*ends)) for ends in ((-2, 4), (-1, 6), (-2, 4))), strict=True)
    ),
    "mlp": dict.fromkeys(_KINDS, tuple(10.0**t for t in range(-5, -1))),
}
"""SentEval's settings: C of the logistic regression, weight decay of the MLP."""


@dataclass(frozen=True)
class SentEvalProtocol:
    """The options of an evaluation; the defaults are SentEval's.

    Args:
        classifier: "logistic", or "mlp" for a hidden layer of 50 sigmoids.
        folds: The number of test folds of a task without splits.
        inner: The number of folds that choose if there are no dev rows.
        grid: The settings to choose from; by default SentEval's for the kind of task.
        seed: The seed of the folds, and of an MLP.
    """

    classifier: str = "logistic"
    folds: int = 10
    inner: int = 10
    grid: tuple[float, ...] | None = None
    seed: int = 1111

    def __post_init__(self) -> None:
        CLASSIFIERS[self.classifier]  # refuses an unknown name
        for name in ("folds", "inner"):
            if getattr(self, name) < 2:
                raise InputError(f"{name} is {getattr(self, name)}; it must be 2 or more")
        if self.grid is not None and not (len(self.grid) and all(0 < value < np.inf for value in self.grid)):
            raise InputError(f"grid is {self.grid}; it must hold one setting or more, each above 0")
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}; it must be from 0 to 4294967295")

    def settings(self, kind: str) -> tuple[float, ...]:
        """The settings to choose from for a kind of task."""
        return self.grid or GRIDS[self.classifier][kind]


@dataclass(frozen=True)
class ClassResult:
    """The result of a task. Accuracies and F1 are from 0 to 1."""

    accuracy: float
    """The mean of the tests' accuracies."""
    by_fold: tuple[float, ...]
    chosen: tuple[float, ...]
    """The setting of each test."""
    dev: tuple[float, ...]
    """The accuracy that chose the setting of each test."""
    f1: float | None
    """F1 of the second class, over all tested rows; None unless there are two classes."""
    rows: NDArray[np.int64]
    """The tested rows, ascending, (tested,); all rows if there are no splits."""
    predictions: Array
    """Their predicted labels, (tested,)"""
    correct: NDArray[np.bool_]
    """Whether each prediction is correct, (tested,), for paired comparisons of results."""
    kind: str
    sizes: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the values of single rows."""
        return {name: value for name, value in asdict(self).items() if name not in ("rows", "predictions", "correct")}


def evaluate_classes(
    features: ArrayLike,
    labels: ArrayLike | Sequence[str],
    protocol: SentEvalProtocol | None = None,
    splits: Mapping[str, ArrayLike] | None = None,
    *,
    device: str | torch.device = "cpu",
) -> ClassResult:
    """Accuracy of a classifier on fixed features.

    A class that only test rows have is never predicted: such rows count as errors, and a warning says so.

    Args:
        features: (n, width), converted to float32; for pairs of sentences see `pair_features`.
        labels: (n,) numbers or texts.
        protocol: The options; by default SentEval's logistic regression.
        splits: The row numbers of "train", "test" and optionally "dev". By default all rows are tested, by folds.
        device: The device of the computation.
    """
    protocol = protocol or SentEvalProtocol()
    vectors, targets = _check_inputs(features, labels)
    classes, codes = _encode_labels(targets, None if splits is None else splits.get("train"))
    if splits is None:
        plan = kfold_plan(codes, folds=protocol.folds, inner=protocol.inner, seed=protocol.seed)
    else:
        plan = split_plan(codes, splits, inner=protocol.inner, seed=protocol.seed)
    _check_training(plan, codes, classes)
    settings = protocol.settings(plan.kind)
    rows = ClassRows(
        torch.as_tensor(vectors, device=device),
        torch.as_tensor(codes, device=device),
        len(classes),
        settings,
        protocol.seed,
    )
    classifier = CLASSIFIERS[protocol.classifier](rows)
    chosen, dev = _choose(plan, classifier, device)
    predicted = _test(plan, classifier, chosen, device)
    return _result(plan, classes, targets, predicted, [settings[number] for number in chosen], dev)


def pair_features(left: ArrayLike, right: ArrayLike) -> NDArray[np.float32]:
    """SentEval's features of pairs: |u - v| and u · v, concatenated. (n, width), (n, width) -> (n, 2 · width)"""
    u, v = np.asarray(left, dtype=np.float32), np.asarray(right, dtype=np.float32)
    if u.ndim != 2 or u.shape != v.shape:
        raise InputError(f"left {u.shape} and right {v.shape} must both be (pairs, width)")
    return np.concatenate([abs(u - v), u * v], axis=1)


def _check_inputs(features: ArrayLike, labels: ArrayLike | Sequence[str]) -> tuple[NDArray[np.float32], Array]:
    vectors, targets = np.ascontiguousarray(features, dtype=np.float32), np.asarray(labels)
    if vectors.ndim != 2 or not vectors.size:
        raise InputError(f"features have the shape {vectors.shape}; expected (rows, width)")
    if targets.shape != (len(vectors),):
        raise InputError(f"{len(vectors)} rows of features but labels of shape {targets.shape}: the lengths differ")
    bad = ~np.isfinite(vectors).all(1)
    if bad.any():
        raise InputError(f"row {int(bad.argmax())} of features has NaN or infinite numbers; every row must be finite")
    if targets.dtype.kind == "f" and not np.isfinite(targets).all():
        raise InputError(f"label {int((~np.isfinite(targets)).argmax())} is not a finite number")
    return vectors, targets


def _encode_labels(targets: Array, train: ArrayLike | None) -> tuple[Array, Codes]:
    """The sorted classes, and the index of every row's class; -1 for a class that no training row has."""
    rows = np.arange(len(targets)) if train is None else np.asarray(train)
    is_valid = rows.dtype.kind in "iu" and rows.size and rows.min() >= 0 and rows.max() < len(targets)
    classes = np.unique(targets[rows] if is_valid else targets)  # `split_plan` refuses invalid splits
    codes = np.searchsorted(classes, targets).clip(max=len(classes) - 1)
    return classes, np.where(classes[codes] == targets, codes, -1).astype(np.int64)


def _check_training(plan: Plan, codes: Codes, classes: Array) -> None:
    if len(classes) < 2:
        raise InputError(f"the training rows are all of class {classes[0]}: a classification needs 2 classes")
    for fold in plan.folds:
        for train, _ in ((fold.train, fold.test), *fold.inner):
            if len(np.unique(codes[train])) < 2:
                raise InputError(
                    f"the {int(train.sum())} training rows of a fold are all of class {classes[codes[train][0]]}: "
                    f"give more rows of the other classes, or ask for fewer folds"
                )
    unknown = int(sum((codes[fold.test] < 0).sum() for fold in plan.folds))
    if unknown:
        log.warning("%d tested rows are of classes that no training row has; they count as errors", unknown)


def _choose(plan: Plan, classifier: GridClassifier, device: str | torch.device) -> tuple[list[int], list[float]]:
    """The index of each fold's setting, and the accuracy that chose it."""
    pairs = [pair for fold in plan.folds for pair in fold.inner]
    train, scored = (torch.as_tensor(np.stack(masks), device=device) for masks in zip(*pairs, strict=True))
    accuracies = classifier.accuracies(train, scored).cpu().numpy()
    means = accuracies.reshape(len(plan.folds), -1, accuracies.shape[1]).mean(1)
    chosen = np.round(100 * means, 2).argmax(1)
    return chosen.tolist(), means[np.arange(len(chosen)), chosen].tolist()


def _test(plan: Plan, classifier: GridClassifier, chosen: list[int], device: str | torch.device) -> Codes:
    """The class predicted for every row by the fold that tests it, -1 for rows that are not tested: (n,)"""
    train = torch.as_tensor(np.stack([fold.train for fold in plan.folds]), device=device)
    dev = None if plan.dev is None else torch.as_tensor(plan.dev, device=device)
    by_fold = classifier.predictions(train, torch.tensor(chosen, device=device), dev).cpu().numpy()
    codes = np.full(by_fold.shape[1], -1, dtype=np.int64)
    for fold, predicted in zip(plan.folds, by_fold, strict=True):
        codes[fold.test] = predicted[fold.test]
    return codes


def _result(
    plan: Plan, classes: Array, targets: Array, codes: Codes, chosen: list[float], dev: list[float]
) -> ClassResult:
    rows = np.flatnonzero(codes >= 0)
    predicted = classes[codes.clip(min=0)]
    correct = predicted == targets
    by_fold = tuple(float(correct[fold.test].mean()) for fold in plan.folds)
    return ClassResult(
        accuracy=float(np.mean(by_fold)),
        by_fold=by_fold,
        chosen=tuple(chosen),
        dev=tuple(dev),
        f1=_f1(predicted[rows] == classes[1], targets[rows] == classes[1]) if len(classes) == 2 else None,
        rows=rows,
        predictions=predicted[rows],
        correct=correct[rows],
        kind=plan.kind,
        sizes=plan.sizes,
    )


def _f1(predicted: NDArray[np.bool_], true: NDArray[np.bool_]) -> float:
    true_positives = int((predicted & true).sum())
    return 2 * true_positives / max(1, int(predicted.sum() + true.sum()))
