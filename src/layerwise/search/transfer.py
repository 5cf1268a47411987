"""Layers for a classification task: BERT-LC's search by logistic regression, under the paper's protocol.

Outer random splits hold out 15 % of the rows for the test. In the rest, ten random inner splits (82 % train, 18 % dev)
choose the layers; a classifier of the chosen set is then trained on the whole rest and scored on the test rows, and so
is one of the last layer. Splits are not stratified: the paper says random.

The inner regressions, for all sets and splits, are solved together by `fit_like_saga`. The reported ones use
scikit-learn's SAGA itself, with the paper's C = 10, tolerance 0.01 and 200 epochs.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.classify import fit_like_saga, sets_at_once
from layerwise.encoder import pick_device
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.parameters import Parameters
from layerwise.search.problems import Progress
from layerwise.search.sources import Views
from layerwise.search.transfer_protocol import (
    Layers,
    OuterSplit,
    Rows,
    TransferProtocol,
    TransferReport,
    TransferSplit,
    bootstrap_accuracies,
    draw_splits,
)
from layerwise.threads import share

Sets = Iterable[Sequence[int]]
SIZES = tuple(2.0**-halvings for halvings in range(9))  # the paper's figure 1: from all training rows to 1/256 of them


class TransferSearch(Parameters):
    """The best layers for a classification task.

    Args:
        protocol: The options of splits and regressions.
        sets: The sets of layers to choose from; all sets of up to `protocol.largest` layers by default.
        splits: Fixed splits instead of random ones, each with `protocol.inner` inner splits.
        device: The device of the solver, such as "cuda"; by default a GPU if there is one.
        progress: Called with the number of sets just scored.

    Attributes:
        layers_: The set with the best mean accuracy over all inner splits, with which to build a model.
        splits_: The choice of each outer split.
        report_: Their test accuracies compared with the last layer's.
        table_: The mean accuracy of each set over all inner splits.
        classes_: The labels, sorted.

    >>> random = np.random.default_rng(0)
    >>> labels = random.integers(0, 2, 200)
    >>> views = random.normal(size=(200, 3, 4))
    >>> views[:, 1] += labels[:, None]
    >>> TransferSearch(protocol=TransferProtocol(outer=2, inner=3), device="cpu").fit(views, labels).layers_
    (1,)
    """

    def __init__(
        self,
        *,
        protocol: TransferProtocol | None = None,
        sets: Sets | None = None,
        splits: Sequence[OuterSplit] | None = None,
        device: str | torch.device | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.protocol = protocol
        self.sets = sets
        self.splits = splits
        self.device = device
        self.progress = progress

    def fit(self, views: Views, labels: Any, *, pair_views: Views | None = None) -> Self:
        """Choose layers.

        Args:
            views: The views of the rows' sentences: (n, layers, width)
            labels: The rows' classes: (n,)
            pair_views: The views of the second sentences if rows are pairs, in the same shape. The features of a pair
                u, v are then [|u - v|; u * v], as in SentEval.
        """
        protocol = self.protocol or TransferProtocol()
        task = TransferTask.of(views, pair_views, labels, self.device)
        candidates = _candidates(self.sets, task.layers, protocol)
        splits = draw_splits(len(task.labels), protocol) if self.splits is None else list(self.splits)
        _check_classes(task, splits)
        correct = _count_correct(task, candidates, splits, protocol, self.progress)
        report = _report(task, candidates, splits, protocol, correct)
        total = correct.sum(1)
        scored = sum(len(rows) for split in splits for _, rows in split.inner)
        self.table_ = {layers: int(count) / scored for layers, count in zip(candidates, total, strict=False)}
        self.layers_ = _best(candidates, total)
        self.report_, self.splits_, self.classes_ = report, report.splits, task.classes
        return self


def fixed_accuracies(
    views: Views,
    labels: Any,
    layers: Layers,
    *,
    pair_views: Views | None = None,
    protocol: TransferProtocol | None = None,
) -> list[float]:
    """Test accuracies of fixed layers, one for each outer split, without a search."""
    protocol = protocol or TransferProtocol()
    task = TransferTask.of(views, pair_views, labels, "cpu")
    jobs = [(split, layers) for split in draw_splits(len(task.labels), protocol)]
    return [float(correct.mean()) for correct in _test_all(task, jobs, protocol)]


def training_size_ablation(
    views: Views,
    labels: Any,
    *,
    pair_views: Views | None = None,
    sizes: Sequence[float] = SIZES,
    protocol: TransferProtocol | None = None,
    sets: Sets | None = None,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> dict[float, TransferReport]:
    """The paper's experiment with little data: training rows are reduced to each size, test rows are not.

    The outer splits are the protocol's. The rows of a smaller size are a subset of those of a larger one. Training rows
    may lack a class, which is then never predicted. Other arguments are as for `TransferSearch`.
    """
    protocol = protocol or TransferProtocol()
    if not sizes or not all(0 < size <= 1 for size in sizes):
        raise InputError(f"sizes are {tuple(sizes)}; they are shares of the rows that train, above 0 and at most 1")
    task = TransferTask.of(views, pair_views, labels, device)
    candidates = _candidates(sets, task.layers, protocol)
    drawn = [draw_splits(len(task.labels), protocol, size=size) for size in sizes]
    correct = _count_correct(task, candidates, [split for splits in drawn for split in splits], protocol, progress)
    parts = zip(sizes, drawn, np.split(correct, len(sizes), axis=1), strict=True)
    return {size: _report(task, candidates, splits, protocol, part) for size, splits, part in parts}


@dataclass(frozen=True)
class TransferTask:
    """The checked rows of a classification task, on the device of the solver."""

    views: Tensor
    pair_views: Tensor | None
    labels: Tensor
    classes: NDArray[Any]

    @classmethod
    def of(cls, views: Views, pairs: Views | None, labels: Any, device: str | torch.device | None) -> Self:
        """Check views (n, layers, width) and labels (n,)."""
        views, labels = np.asarray(views), np.asarray(labels)
        if views.ndim != 3:
            raise InputError(f"views have the shape {views.shape}; expected (rows, layers, width)")
        if labels.shape != views.shape[:1]:
            raise InputError(f"{len(views)} rows of views but labels of shape {labels.shape}: the lengths differ")
        if pairs is not None and np.shape(pairs) != views.shape:
            raise InputError(f"pair_views have the shape {np.shape(pairs)} but views {views.shape}: they must agree")
        classes, codes = np.unique(labels, return_inverse=True)
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise InputError(f"label {int(np.flatnonzero(~np.isfinite(labels))[0])} is not a finite number")
        if len(classes) < 2:
            raise InputError(f"{len(labels)} rows of {len(classes)} class: a classification needs 2 classes or more")
        target = pick_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        second = None if pairs is None else _to_device(np.asarray(pairs), "pair_views", target)
        return cls(_to_device(views, "views", target), second, torch.as_tensor(codes, device=target), classes)

    @property
    def layers(self) -> int:
        """The number of layers."""
        return self.views.shape[1]

    def features(self, sets: Sequence[Layers]) -> Tensor:
        """The features of each set: (sets, n, width), twice the width for pairs"""
        u = torch.stack([self.views[:, list(layers)].mean(1) for layers in sets])
        if self.pair_views is None:
            return u
        v = torch.stack([self.pair_views[:, list(layers)].mean(1) for layers in sets])
        return torch.cat([(u - v).abs(), u * v], -1)


def _to_device(views: NDArray[Any], name: str, device: torch.device) -> Tensor:
    """Move views to the device as float32; refuses rows that are not finite."""
    finite = np.isfinite(views).all((1, 2))
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise InputError(f"row {row} of {name} has NaN or infinite numbers; leave it out or encode it again")
    return torch.as_tensor(np.array(views, dtype=np.float32), device=device)


def fold_masks(parts: Sequence[Rows], labels: Tensor) -> Tensor:
    """A mask of the rows of each fold: (folds, n)"""
    mask = np.zeros((len(parts), len(labels)), dtype=np.bool_)
    for fold, rows in zip(mask, parts, strict=True):
        fold[rows] = True
    return torch.as_tensor(mask, device=labels.device)


def layer_sets(layers: int, protocol: TransferProtocol) -> list[Layers]:
    """Every set of up to `protocol.largest` layers."""
    sizes = range(1, min(protocol.largest, layers) + 1)
    return [chosen for size in sizes for chosen in combinations(range(layers), size)]


def _candidates(sets: Sets | None, layers: int, protocol: TransferProtocol) -> list[Layers]:
    """The sets to choose from, without duplicates, as sorted layer numbers from 0."""
    if sets is None:
        return layer_sets(layers, protocol)
    candidates: dict[Layers, None] = {}
    for layer_set in map(tuple, sets):
        if not layer_set:
            raise InputError("a set of layers is empty; give it at least one layer")
        for layer in layer_set:
            if not -layers <= layer < layers:
                raise InputError(f"There is no layer {layer} in set {layer_set}: there are layers 0 to {layers - 1}")
        candidates[tuple(sorted({int(layer) % layers for layer in layer_set}))] = None
    if not candidates:
        raise InputError("sets is empty; give at least one set of layers")
    return list(candidates)


def _check_classes(task: TransferTask, splits: Sequence[OuterSplit]) -> None:
    """Refuse training parts that lack a class."""
    codes = task.labels.cpu().numpy()
    for number, split in enumerate(splits):
        for trained, _ in split.inner:
            counts = np.bincount(codes[trained], minlength=len(task.classes))
            if not counts.all():
                rare = int(np.flatnonzero(counts == 0)[0])
                raise InputError(
                    f"class {task.classes[rare].item()!r} ({(codes == rare).sum()} of {len(codes)} rows) is in no "
                    f"training row of an inner split of split {number}; give more rows of it, or leave it out"
                )


def _count_correct(
    task: TransferTask,
    candidates: Sequence[Layers],
    splits: Sequence[OuterSplit],
    protocol: TransferProtocol,
    progress: Progress | None,
) -> NDArray[np.int64]:
    """The correct answers over the inner splits of each candidate, and of the last layer: (sets + 1, splits)"""
    folds = [fold for split in splits for fold in split.inner]
    trained, scored = (fold_masks([fold[part] for fold in folds], task.labels) for part in (0, 1))
    sets = [*candidates, (task.layers - 1,)]
    n, width = task.features(sets[:1])[0].shape
    batch = sets_at_once(n, width, len(folds), len(task.classes), task.labels.device)
    options = {"c": protocol.C, "tolerance": protocol.tolerance}
    counts = []
    for start in range(0, len(sets), batch):
        features = task.features(sets[start : start + batch])
        fits = fit_like_saga(features, task.labels, trained, epochs=protocol.epochs, **options)
        correct = [((fits[i].predict(rows) == task.labels) & scored).sum(-1) for i, rows in enumerate(features)]
        counts.append(torch.stack(correct).reshape(len(correct), len(splits), protocol.inner).sum(-1).cpu().numpy())
        if progress and start < len(candidates):
            progress(min(batch, len(candidates) - start))
    return np.concatenate(counts)


def _best(candidates: Sequence[Layers], correct: NDArray[np.int64]) -> Layers:
    """The set with the most correct answers; of equal ones the set of fewer layers, then of lower layers."""
    scored = zip(candidates, correct, strict=False)
    return min(scored, key=lambda item: (-item[1], len(item[0]), max(item[0]), item[0]))[0]


def _report(
    task: TransferTask,
    candidates: Sequence[Layers],
    splits: Sequence[OuterSplit],
    protocol: TransferProtocol,
    correct: NDArray[np.int64],
) -> TransferReport:
    """Choose by the inner splits, train on the rest, and test."""
    last = (task.layers - 1,)
    chosen = [_best(candidates, correct[:, number]) for number in range(len(splits))]
    tested = _test_all(task, [*zip(splits, chosen, strict=True), *((split, last) for split in splits)], protocol)
    row_of = {layers: row for row, layers in enumerate(candidates)}
    results = []
    for number, (split, layers) in enumerate(zip(splits, chosen, strict=True)):
        scored = sum(len(rows) for _, rows in split.inner)
        dev, last_dev = (int(correct[row, number]) / scored for row in (row_of[layers], -1))
        test, last_test = (
            float(correct_rows.mean()) for correct_rows in (tested[number], tested[number + len(splits)])
        )
        results.append(TransferSplit(layers, dev, test, last_dev, last_test))
    answers = zip([split.test for split in splits], tested, tested[len(splits) :], strict=False)
    interval = bootstrap_accuracies(len(task.labels), list(answers), seed=protocol.seed)
    return TransferReport.of(results, interval, len(splits[0].rest), protocol)


def _test_all(
    task: TransferTask, jobs: Sequence[tuple[OuterSplit, Layers]], protocol: TransferProtocol
) -> list[NDArray[np.bool_]]:
    """Which test rows of each job are classified correctly, by scikit-learn's SAGA on all cores."""
    require("evaluate", "the search for classification", "sklearn")
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    labels, answers = task.labels.cpu().numpy(), [np.empty(0, dtype=np.bool_)] * len(jobs)

    def test(number: int) -> None:
        split, layers = jobs[number]
        features = task.features([layers])[0].cpu().numpy()
        trained = labels[split.rest]
        if len(set(trained)) == 1:
            answers[number] = labels[split.test] == trained[0]
            return
        options = {"C": protocol.C, "tol": protocol.tolerance, "max_iter": protocol.epochs}
        model = LogisticRegression(solver="saga", random_state=protocol.seed, **options)
        model.fit(features[split.rest], trained)
        answers[number] = model.predict(features[split.test]) == labels[split.test]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the protocol stops after a number of epochs
        share(range(len(jobs)), test)
    return answers
