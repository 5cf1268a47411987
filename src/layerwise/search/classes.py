"""Layers for a classification task: BERT-LC's search by logistic regression, under the paper's protocol.

Random splits hold out 15 % of the rows to report. In the rest, ten random folds (82 % train, 18 % score) choose the
layers; a classifier of the chosen set is then trained on the whole rest and scored on the reporting rows, and so is one
of the last layer. Splits are not stratified: the paper says random. Rows with the same text stay on one side.

The regressions of the folds, for all sets and splits, are solved together by `fit_like_saga`. The reported ones use
scikit-learn's SAGA itself, with the paper's C = 10, tolerance 0.01 and 200 epochs.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.classify import fit_like_saga, sets_at_once
from layerwise.data import TaskRows
from layerwise.encoder import pick_device
from layerwise.errors import InputError
from layerwise.evidence import Fold, Rows, Splits, draw_folds, draw_nested_splits, fixed_splits, item_scores
from layerwise.extras import require
from layerwise.mixes import Mean, Mix
from layerwise.search.problems import Progress, Scores, no_progress
from layerwise.search.scored import Redraw, Scored, Scorer, SplitChoice, Stability, chosen_views
from layerwise.search.sources import Views
from layerwise.search.spaces import Space, layers_of, mask_of
from layerwise.search.table import ScoreTable
from layerwise.search.view_cost import Prices
from layerwise.threads import share

SIZES = tuple(2.0**-halvings for halvings in range(9))  # the paper's figure 1: from all training rows to 1/256 of them
LARGE = 13  # layers above which the paper searches sets of up to 3 layers instead of 4


@dataclass(frozen=True)
class ClassProtocol:
    """The options of splits and regressions; the defaults are the paper's for base models.

    Args:
        outer: The number of random splits into reporting rows and the rest.
        test: The share of the reporting rows, rounded up as in scikit-learn.
        inner: The number of random folds of the rest, which choose the layers.
        dev: The share of the rest that scores a set of layers, rounded up.
        C: scikit-learn's C of the regressions.
        tolerance: SAGA's tolerance.
        epochs: SAGA's maximum number of epochs.
        seed: The seed of the splits and of SAGA.
    """

    outer: int = 10
    test: float = 0.15
    inner: int = 10
    dev: float = 0.18
    C: float = 10.0
    tolerance: float = 0.01
    epochs: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        checks: dict[str, Callable[[float], bool]] = {
            "1 or more": lambda value: value >= 1,
            "a share of the rows, between 0 and 1": lambda value: 0 < value < 1,
            "above 0": lambda value: 0 < value < math.inf,
            "0 or more": lambda value: value >= 0,
        }
        names = (("outer", "inner", "epochs"), ("test", "dev"), ("C", "tolerance"), ("seed",))
        for (condition, is_valid), group in zip(checks.items(), names, strict=True):
            for name in group:
                if not is_valid(getattr(self, name)):
                    raise InputError(f"{name} is {getattr(self, name)}; it must be {condition}")

    def splits(self, rows: int, *, size: float = 1.0, texts: Sequence[Sequence[str]] | None = None) -> Splits:
        """Random splits with their folds; `size` is the share of the choosing rows that is used."""
        return draw_nested_splits(
            rows, self.outer, self.seed, test=self.test, inner=self.inner, dev=self.dev, size=size, texts=texts
        )


@dataclass(frozen=True, eq=False)
class ClassRows:
    """The checked rows of a classification task: their views by token pooling, on the solver's device, and classes."""

    views: Mapping[str, Tensor]
    pair_views: Mapping[str, Tensor] | None
    labels: Tensor
    classes: NDArray[Any]

    @classmethod
    def of(
        cls,
        views: Mapping[str, Views],
        labels: Any,
        pair_views: Mapping[str, Views] | None = None,
        device: str | torch.device | None = None,
    ) -> Self:
        """Check views (n, layers, width) by pooling and labels (n,).

        With the views of the second sentences of pairs u, v, the features of a pair are [|u - v|; u * v], as in
        SentEval.
        """
        labels = np.asarray(labels)
        for pooling, array in views.items():
            if np.ndim(array) != 3:
                raise InputError(f"views have the shape {np.shape(array)}; expected (rows, layers, width)")
            if labels.shape != np.shape(array)[:1]:
                raise InputError(f"{len(array)} rows of views but labels of shape {labels.shape}: the lengths differ")
            if pair_views is not None and np.shape(pair_views[pooling]) != np.shape(array):
                shapes = np.shape(pair_views[pooling]), np.shape(array)
                raise InputError(f"pair_views have the shape {shapes[0]} but views {shapes[1]}: they must agree")
        classes, codes = np.unique(labels, return_inverse=True)
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise InputError(f"label {int(np.flatnonzero(~np.isfinite(labels))[0])} is not a finite number")
        if len(classes) < 2:
            raise InputError(f"{len(labels)} rows of {len(classes)} class: a classification needs 2 classes or more")
        target = pick_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        left = _to_device(views, "views", target)
        right = None if pair_views is None else _to_device(pair_views, "pair_views", target)
        return cls(left, right, torch.as_tensor(codes, device=target), classes)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def layers(self) -> int:
        """The number of layers."""
        return next(iter(self.views.values())).shape[1]

    def features(self, mixes: Sequence[Mix]) -> Tensor:
        """The features of each set: (sets, n, width), twice the width for pairs"""

        def means(views: Mapping[str, Tensor]) -> Tensor:
            return torch.stack([views[mix.pooling][:, list(mix.layers)].mean(1) for mix in mixes])

        if self.pair_views is None:
            return means(self.views)
        u, v = means(self.views), means(self.pair_views)
        return torch.cat([(u - v).abs(), u * v], -1)

    def mixes(self, space: Space | None) -> list[Mean]:
        """The sets to choose from; of up to 4 layers (3 of large models) without a space."""
        space = space or Space(largest=4 if self.layers <= LARGE else 3)
        space.count(self.layers)
        masks = [mask for block in space.masks(self.layers, 4096) for mask in block]
        return [Mean.of(*layers_of(mask), pooling=pooling) for pooling in self.views for mask in masks]


@dataclass(eq=False)
class ClassScorer(Scorer):
    """Scores sets of layers by the accuracy of a logistic regression.

    Args:
        rows: The rows of the task.
        splits: Which rows choose, with their folds, and which report.
        protocol: The options of the regressions.
        space: The sets to choose from; those of the paper without it.
        pooling: The token pooling of the last layer, one of the rows'.
        may_lack_classes: Whether training rows may lack a class, which is then never predicted.
        progress: Called with the number of sets just scored.
    """

    rows: ClassRows
    splits: Splits
    protocol: ClassProtocol = field(default_factory=ClassProtocol)
    space: Space | None = None
    pooling: str | None = None
    may_lack_classes: bool = False
    progress: Progress = no_progress
    metric: str = field(default="accuracy", init=False)
    unit: str = field(default="rows", init=False)

    def __post_init__(self) -> None:
        pooling = self.pooling if self.pooling in self.rows.views else next(iter(self.rows.views))
        self.mixes = self.rows.mixes(self.space)
        self.last_mix = Mean.of(self.rows.layers - 1, pooling=pooling or "mean")
        self._correct: dict[tuple[int, Mix], NDArray[np.bool_]] = {}
        if not self.may_lack_classes:
            self._check_classes()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def candidates(self) -> str:
        """Such as "377 sets"."""
        return f"{len(self.mixes):,} sets"

    @cached_property
    def choices(self) -> list[SplitChoice]:
        """What the folds of each split choose, with accuracies on its reporting rows."""
        chosen = [self._best_of(self._counts[:-1, number]) for number in range(len(self.splits))]
        self._classify([(number, mix) for number, best in enumerate(chosen) for mix in (best, self.last_mix)])
        return [
            SplitChoice(self._scored(best, number), self._scored(self.last_mix, number), split)
            for number, (best, split) in enumerate(zip(chosen, self.splits, strict=True))
        ]

    @cached_property
    def table(self) -> ScoreTable:
        """The mean accuracy of each set over all folds, best first."""
        scored = sum(len(fold.dev) for folds in self.splits.folds for fold in folds)
        shares = dict(zip(self.mixes, self._counts.sum(1) / scored, strict=False))
        parts = {}
        for pooling in self.rows.views:
            rows = sorted((mask_of(mix.layers), share) for mix, share in shares.items() if mix.pooling == pooling)
            masks, scores = zip(*rows, strict=True)
            parts[pooling] = np.array(masks, dtype=np.uint64), np.array(scores)
        return ScoreTable(parts)

    @cached_property
    def best(self) -> Scored:
        """The set with the best mean accuracy over all folds; scores are means of what each split chose."""
        mix = self._best_of(self._counts[:-1].sum(1))
        return Scored.mean(mix, [choice.best for choice in self.choices], self._prices.of_mix(mix))

    @cached_property
    def last(self) -> Scored:
        """The last layer."""
        return Scored.mean(self.last_mix, [choice.last for choice in self.choices], self._prices.of_mix(self.last_mix))

    @property
    def are_means(self) -> bool:
        """Accuracies are means over rows."""
        return True

    @property
    def may_keep(self) -> bool:
        """Whether the last layer is among the sets."""
        return self.space is None or self.space.highest_single(self.rows.layers) == self.rows.layers - 1

    @property
    def front(self) -> list[Scored]:
        """The best sets by highest layer, with accuracies of the folds only: no other set is trained on the rest."""
        return [Scored(row.mix, row.dev, cost=self._prices.of_mix(row.mix)) for row in self.table.front()]

    @property
    def stability(self) -> Stability | None:
        """What the splits choose, each compared with the next: folds of halves would be too small. None for one."""
        choices = [chosen_views(choice.best.mix) for choice in self.choices]
        pairs = [half for pair in pairwise(choices) for half in pair]
        return Stability.of(pairs, unit="splits") if pairs else None

    def score(self, mix: Mix, rows: Rows) -> float:
        """Refuse: an accuracy needs rows to train on."""
        raise InputError(f"{mix} has accuracies by split only; {len(rows)} rows alone do not train a classifier")

    def redraw(self, number: int, mixes: Sequence[Mix]) -> Redraw:
        """A function from draws of reporting rows to the accuracies of mixes on them: draws -> (draws, mixes)"""
        self._classify([(number, mix) for mix in mixes])
        items = np.full((len(self), len(mixes)), np.nan)
        for column, mix in enumerate(mixes):
            items[self.splits[number].test, column] = self._correct[number, mix]
        return item_scores(items)

    def unseen_scores(self, mixes: Sequence[Mix]) -> Scores:
        """Accuracies of any sets on the reporting rows of each split: (mixes, splits)"""
        jobs = [(number, mix) for mix in mixes for number in range(len(self.splits))]
        self._classify(jobs)
        return np.array([self._correct[job].mean() for job in jobs]).reshape(len(mixes), len(self.splits))

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        """The correct answers over the folds of each set, and of the last layer: (sets + 1, splits)"""
        folds = [fold for folds in self.splits.folds for fold in folds]
        trained, scored = (
            _masks([getattr(fold, part) for fold in folds], self.rows.labels) for part in ("train", "dev")
        )
        sets: list[Mix] = [*self.mixes, self.last_mix]
        n, width = self.rows.features(sets[:1])[0].shape
        batch = sets_at_once(n, width, len(folds), len(self.rows.classes), self.rows.labels.device)
        protocol = self.protocol
        counts = []
        for start in range(0, len(sets), batch):
            features = self.rows.features(sets[start : start + batch])
            fits = fit_like_saga(
                features, self.rows.labels, trained, c=protocol.C, tolerance=protocol.tolerance, epochs=protocol.epochs
            )
            right = [((fits[i].predict(one) == self.rows.labels) & scored).sum(-1) for i, one in enumerate(features)]
            by_split = torch.split(torch.stack(right), [len(part) for part in self.splits.folds], dim=1)
            counts.append(torch.stack([part.sum(-1) for part in by_split], dim=1).cpu().numpy())
            self.progress(max(0, min(batch, len(self.mixes) - start)))
        return np.concatenate(counts)

    @property
    def _prices(self) -> Prices:
        return Prices(self.rows.layers - 1)

    def _scored(self, mix: Mix, number: int) -> Scored:
        row = self.mixes.index(mix) if mix in self.mixes else -1
        scored = sum(len(fold.dev) for fold in self.splits.folds[number])
        return Scored(mix, int(self._counts[row, number]) / scored, float(self._correct[number, mix].mean()))

    def _best_of(self, correct: NDArray[np.int64]) -> Mean:
        """The set with the most correct answers; of equal ones the set of fewer layers, then of lower layers."""
        scored = zip(self.mixes, correct, strict=True)
        return min(scored, key=lambda item: (-item[1], len(item[0].layers), item[0].layers[-1], item[0].layers))[0]

    def _classify(self, jobs: Iterable[tuple[int, Mix]]) -> None:
        """Find which reporting rows of each split are classified correctly, by scikit-learn's SAGA on all cores."""
        require("evaluate", "the search for classification", "sklearn")
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        missing = [job for job in dict.fromkeys(jobs) if job not in self._correct]
        labels, protocol = self.rows.labels.cpu().numpy(), self.protocol

        def test(job: tuple[int, Mix]) -> None:
            split, mix = self.splits[job[0]], job[1]
            trained = labels[split.dev]
            if len(set(trained)) == 1:
                self._correct[job] = labels[split.test] == trained[0]
                return
            features = self.rows.features([mix])[0].cpu().numpy()
            options = {"C": protocol.C, "tol": protocol.tolerance, "max_iter": protocol.epochs}
            model = LogisticRegression(solver="saga", random_state=protocol.seed, **options)
            model.fit(features[split.dev], trained)
            self._correct[job] = model.predict(features[split.test]) == labels[split.test]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the protocol stops after a number of epochs
            share(missing, test)

    def _check_classes(self) -> None:
        """Refuse training parts that lack a class."""
        codes = self.rows.labels.cpu().numpy()
        for number, folds in enumerate(self.splits.folds):
            for fold in folds:
                counts = np.bincount(codes[fold.train], minlength=len(self.rows.classes))
                if not counts.all():
                    rare = int(np.flatnonzero(counts == 0)[0])
                    raise InputError(
                        f"class {self.rows.classes[rare].item()!r} ({(codes == rare).sum()} of {len(codes)} rows) is "
                        f"in no training row of an inner split of split {number}; give more rows of it, or leave it out"
                    )


def task_splits(rows: TaskRows, protocol: ClassProtocol) -> Splits:
    """The declared split of a task, without reporting rows whose text chose, or random splits.

    Train rows train and dev rows score; random folds of train do where there is no dev split.
    """
    texts = [tuple(filter(None, pair)) for pair in zip(rows.left, rows.right or [""] * len(rows), strict=True)]
    if not rows.task.splits:
        return protocol.splits(len(rows), texts=texts)
    for role in ("train", "test"):
        rows.of_role(role)
    train, dev = rows.splits["train"], rows.splits.get("dev")
    rest = train if dev is None else np.concatenate([train, dev])
    splits = fixed_splits([(rest, rows.splits["test"])], texts=texts, units=len(rows), unit="rows")
    if dev is not None:
        return replace(splits, folds=((Fold(train, dev),),))
    folds = draw_folds(train, protocol.inner, protocol.dev, np.random.default_rng([protocol.seed, 0]))
    return replace(splits, folds=(folds,))


def training_size_ablation(
    rows: ClassRows,
    *,
    sizes: Sequence[float] = SIZES,
    protocol: ClassProtocol | None = None,
    space: Space | None = None,
) -> dict[float, ClassScorer]:
    """The paper's experiment with little data: choosing rows are reduced to each size, reporting rows are not.

    The choosing rows of a smaller size are a subset of those of a larger one.
    """
    protocol = protocol or ClassProtocol()
    if not sizes or not all(0 < size <= 1 for size in sizes):
        raise InputError(f"sizes are {tuple(sizes)}; they are shares of the rows that train, above 0 and at most 1")
    splits = {size: protocol.splits(len(rows), size=size) for size in sizes}
    return {
        size: ClassScorer(rows, of_size, protocol, space, may_lack_classes=True) for size, of_size in splits.items()
    }


def _to_device(views: Mapping[str, Views], name: str, device: torch.device) -> dict[str, Tensor]:
    """Move views of token poolings to the device as float32; refuses rows that are not finite."""
    moved = {}
    for pooling, of_pooling in views.items():
        array = np.array(of_pooling, dtype=np.float32)
        finite = np.isfinite(array).all((1, 2))
        if not finite.all():
            row = int(np.flatnonzero(~finite)[0])
            raise InputError(f"row {row} of {name} has NaN or infinite numbers; leave it out or encode it again")
        moved[pooling] = torch.as_tensor(array, device=device)
    return moved


def _masks(parts: Sequence[Rows], labels: Tensor) -> Tensor:
    """A mask of the rows of each fold: (folds, n)"""
    mask = np.zeros((len(parts), len(labels)), dtype=np.bool_)
    for fold, rows in zip(mask, parts, strict=True):
        fold[rows] = True
    return torch.as_tensor(mask, device=labels.device)
