"""The classifiers of SentEval's protocol: their interface, and the logistic regression."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from layerwise.classify.grid import Guide
from layerwise.classify.problems import Rows, predictions
from layerwise.registry import Registry


class GridClassifier(Protocol):
    """A classifier with one hyperparameter, trained on many folds and settings at once."""

    def accuracies(self, train: Tensor, scored: Tensor) -> Tensor:
        """Train each fold with each setting, and score on other rows: (folds, n) both -> (folds, settings)"""
        ...

    def predictions(self, train: Tensor, setting: Tensor, dev: Tensor | None) -> Tensor:
        """Train each fold with its setting, by index (folds,), and predict the class of every row: (folds, n)

        `dev`, (n,) bool, are rows for early stopping.
        """
        ...


@dataclass(frozen=True)
class ClassRows:
    """The rows and options of a classifier."""

    features: Tensor
    """(n, width)"""
    labels: Tensor
    """(n,) integers from 0; -1 for a class that no training row has."""
    classes: int
    settings: tuple[float, ...]
    """The settings to choose from."""
    seed: int


CLASSIFIERS: Registry[Callable[[ClassRows], GridClassifier]] = Registry("classifier")


@CLASSIFIERS.register("logistic")
class LogisticClassifier:
    """Logistic regression, solved to its optimum, by C; see `grid`."""

    def __init__(self, task: ClassRows) -> None:
        self.rows = Rows.of(task.features, task.labels, task.classes)
        self.cs = sorted(task.settings)
        self._number = torch.tensor([self.cs.index(value) for value in task.settings], device=task.labels.device)
        self._guide: tuple[Tensor, Guide] | None = None

    def accuracies(self, train: Tensor, scored: Tensor) -> Tensor:
        """The accuracies of every fold and C: (folds, settings)"""
        fold = torch.arange(len(train), device=train.device).repeat_interleave(len(self._number))
        predicted = self._predictions(train, fold, self._number.repeat(len(train)))
        accuracies = torch.stack(
            [(row == self.rows.labels)[held].double().mean() for row, held in zip(predicted, scored[fold], strict=True)]
        )
        return accuracies.view(len(train), -1)

    def predictions(self, train: Tensor, setting: Tensor, dev: Tensor | None) -> Tensor:  # noqa: ARG002
        """The predicted class of every row; without early stopping, `dev` is not used."""
        return self._predictions(train, torch.arange(len(train), device=train.device), self._number[setting])

    def _predictions(self, train: Tensor, fold: Tensor, c: Tensor) -> Tensor:
        pool = train.any(0)
        guide = self._cached_guide(pool)
        weights = guide.fit(train[:, pool], fold, c).weights
        return predictions(self.rows.features, weights, guide.problems(train[:, pool], fold, c).absent)

    def _cached_guide(self, pool: Tensor) -> Guide:
        """The guide of these rows, which is cached: the refit uses the same rows as the folds."""
        if self._guide is None or not torch.equal(self._guide[0], pool):
            rows = (
                self.rows
                if bool(pool.all())
                else Rows(self.rows.features[pool], self.rows.labels[pool], self.rows.classes)
            )
            self._guide = pool, Guide.of(rows, self.cs)
        return self._guide[1]
