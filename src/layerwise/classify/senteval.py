"""SentEval's transfer tasks: the accuracy of a classifier on fixed sentence vectors, by its three protocols.

- A task without splits (MR, CR, SUBJ, MPQA): ten stratified folds test in turn; ten inner folds of the others choose
  the setting for each test. The score is the mean of the folds' accuracies.
- A task with train and test (TREC, MRPC): ten folds of the training rows choose.
- A task with train, dev and test (SST, probing): the dev rows choose; training rows alone train.

As in SentEval, accuracies are rounded to hundredths of a point before the best setting is taken, and of equal ones the
first in the grid is, which with the grids here is the smallest.
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
"""SentEval's settings: C of a logistic regression, weight decay of an MLP."""


@dataclass(frozen=True)
class SentEvalProtocol:
    """How a task is evaluated; the defaults are SentEval's.

    Args:
        classifier: "logistic", or "mlp" for a hidden layer of 50 sigmoids.
        folds: Tests of a task without splits.
        inner: Folds that choose where there are no dev rows.
        grid: The settings to choose from; without it SentEval's for the kind of task.
        seed: Of the folds, and of an MLP.
    """

    classifier: str = "logistic"
    folds: int = 10
    inner: int = 10
    grid: tuple[float, ...] | None = None
    seed: int = 1111

    def __post_init__(self) -> None:
        CLASSIFIERS[self.classifier]  # an unknown one is refused
        for name in ("folds", "inner"):
            if getattr(self, name) < 2:
                raise InputError(f"{name} is {getattr(self, name)}; it must be 2 or more")
        if self.grid is not None and not (len(self.grid) and all(0 < value < np.inf for value in self.grid)):
            raise InputError(f"grid is {self.grid}; it must hold one setting or more, each above 0")
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}; it must be from 0 to 4294967295")

    def settings(self, kind: str) -> tuple[float, ...]:
        """To choose from, in a task of this kind."""
        return self.grid or GRIDS[self.classifier][kind]


@dataclass(frozen=True)
class ClassResult:
    """What a task gave. Accuracies and F1 are shares, from 0 to 1."""

    accuracy: float
    """The mean of the tests' accuracies."""
    by_fold: tuple[float, ...]
    chosen: tuple[float, ...]
    """The setting of each test."""
    dev: tuple[float, ...]
    """The accuracy by which it was chosen."""
    f1: float | None
    """Of the second class, over all tested rows; None where there are not two classes."""
    rows: NDArray[np.int64]
    """The rows that were tested, ascending, (tested,); without splits that is all of them."""
    predictions: Array
    """What was predicted for them, in the values of the labels, (tested,)"""
    correct: NDArray[np.bool_]
    """Whether it was right, (tested,): what a paired comparison of two results needs."""
    kind: str
    sizes: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: all but what there is for each row."""
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
        features: (n, width), taken as float32; of pairs of sentences see `pair_features`.
        labels: (n,) numbers or texts.
        protocol: How; without it SentEval's logistic regression.
        splits: "train", "test" and maybe "dev" -> row numbers. Without it all rows are tested, by folds.
        device: Where to compute.
    """
    protocol = protocol or SentEvalProtocol()
    vectors, answers = _checked(features, labels)
    classes, codes = _coded(answers, None if splits is None else splits.get("train"))
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
    return _result(plan, classes, answers, predicted, [settings[number] for number in chosen], dev)


def pair_features(left: ArrayLike, right: ArrayLike) -> NDArray[np.float32]:
    """SentEval's features of pairs: |u - v| and u · v, side by side. (n, width), (n, width) -> (n, 2 · width)"""
    u, v = np.asarray(left, dtype=np.float32), np.asarray(right, dtype=np.float32)
    if u.ndim != 2 or u.shape != v.shape:
        raise InputError(f"left {u.shape} and right {v.shape} must both be (pairs, width)")
    return np.concatenate([abs(u - v), u * v], axis=1)


def _checked(features: ArrayLike, labels: ArrayLike | Sequence[str]) -> tuple[NDArray[np.float32], Array]:
    vectors, answers = np.ascontiguousarray(features, dtype=np.float32), np.asarray(labels)
    if vectors.ndim != 2 or not vectors.size:
        raise InputError(f"features have the shape {vectors.shape}; expected (rows, width)")
    if answers.shape != (len(vectors),):
        raise InputError(f"{len(vectors)} rows of features but labels of shape {answers.shape}: the lengths differ")
    bad = ~np.isfinite(vectors).all(1)
    if bad.any():
        raise InputError(f"row {int(bad.argmax())} of features has NaN or infinite numbers; every row must be finite")
    if answers.dtype.kind == "f" and not np.isfinite(answers).all():
        raise InputError(f"label {int((~np.isfinite(answers)).argmax())} is not a finite number")
    return vectors, answers


def _coded(answers: Array, train: ArrayLike | None) -> tuple[Array, Codes]:
    """The classes, ascending, and every row's number among them; -1 for a class that no training row has."""
    rows = np.arange(len(answers)) if train is None else np.asarray(train)
    known = rows.dtype.kind in "iu" and rows.size and rows.min() >= 0 and rows.max() < len(answers)
    classes = np.unique(answers[rows] if known else answers)  # bad splits are refused where they are read
    codes = np.searchsorted(classes, answers).clip(max=len(classes) - 1)
    return classes, np.where(classes[codes] == answers, codes, -1).astype(np.int64)


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
    strange = int(sum((codes[fold.test] < 0).sum() for fold in plan.folds))
    if strange:
        log.warning("%d tested rows are of classes that no training row has; they count as errors", strange)


def _choose(plan: Plan, classifier: GridClassifier, device: str | torch.device) -> tuple[list[int], list[float]]:
    """Of each fold the number of its setting, and the accuracy that chose it."""
    pairs = [pair for fold in plan.folds for pair in fold.inner]
    train, scored = (torch.as_tensor(np.stack(masks), device=device) for masks in zip(*pairs, strict=True))
    accuracies = classifier.accuracies(train, scored).cpu().numpy()
    of_folds = accuracies.reshape(len(plan.folds), -1, accuracies.shape[1]).mean(1)
    chosen = np.round(100 * of_folds, 2).argmax(1)
    return chosen.tolist(), of_folds[np.arange(len(chosen)), chosen].tolist()


def _test(plan: Plan, classifier: GridClassifier, chosen: list[int], device: str | torch.device) -> Codes:
    """The class predicted for every row by the fold that tests it, -1 for rows that are not tested: (n,)"""
    train = torch.as_tensor(np.stack([fold.train for fold in plan.folds]), device=device)
    dev = None if plan.dev is None else torch.as_tensor(plan.dev, device=device)
    every = classifier.predictions(train, torch.tensor(chosen, device=device), dev).cpu().numpy()
    codes = np.full(every.shape[1], -1, dtype=np.int64)
    for fold, predicted in zip(plan.folds, every, strict=True):
        codes[fold.test] = predicted[fold.test]
    return codes


def _result(
    plan: Plan, classes: Array, answers: Array, codes: Codes, chosen: list[float], dev: list[float]
) -> ClassResult:
    rows = np.flatnonzero(codes >= 0)
    predicted = classes[codes.clip(min=0)]
    right = predicted == answers
    by_fold = tuple(float(right[fold.test].mean()) for fold in plan.folds)
    return ClassResult(
        accuracy=float(np.mean(by_fold)),
        by_fold=by_fold,
        chosen=tuple(chosen),
        dev=tuple(dev),
        f1=_f1(predicted[rows] == classes[1], answers[rows] == classes[1]) if len(classes) == 2 else None,
        rows=rows,
        predictions=predicted[rows],
        correct=right[rows],
        kind=plan.kind,
        sizes=plan.sizes,
    )


def _f1(predicted: NDArray[np.bool_], true: NDArray[np.bool_]) -> float:
    both = int((predicted & true).sum())
    return 2 * both / max(1, int(predicted.sum() + true.sum()))
