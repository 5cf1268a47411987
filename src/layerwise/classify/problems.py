"""Many logistic regressions on the same rows, which differ in training rows and C, with their batched gradients.

The objective is scikit-learn's divided by C times the number of training rows: mean log loss + ½‖w‖² / (C · rows), with
an unpenalised intercept. Two classes are binomial (one column of weights), more are multinomial (one column each).
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

_BLOCK = 2**20  # scores that are computed at once, to fit in a CPU's cache
_GPU_BLOCK = 2**26


@dataclass(frozen=True)
class Rows:
    """The data that all regressions share."""

    features: Tensor
    """(n, d): the features and a last column of ones."""
    labels: Tensor
    """(n,) integers from 0."""
    classes: int

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int) -> Self:
        """Append the column of ones to features (n, width)."""
        return cls(torch.cat([features, features.new_ones(len(features), 1)], 1), labels, classes)

    @property
    def columns(self) -> int:
        """The number of columns of weights."""
        return 1 if self.classes == 2 else self.classes

    @property
    def size(self) -> float:
        """The root mean square of the features, the unit of gradients."""
        return float(self.features[:, :-1].square().mean().sqrt()) or 1.0

    def double(self) -> Self:
        """The same in float64."""
        return replace(self, features=self.features.double())

    def targets(self, part: slice) -> Tensor:
        """The target probabilities: (columns, rows of the part)"""
        classes = torch.arange(1 if self.columns == 1 else 0, self.classes, device=self.labels.device)
        return (self.labels[part] == classes[:, None]).to(self.features.dtype)


@dataclass(frozen=True)
class Problems:
    """A batch of regressions. Their weights are (problems, columns, d), the intercept last."""

    rows: Rows
    folds: Tensor
    """(folds, n) of 0 and 1: the training rows."""
    fold: Tensor
    """(problems,): the fold of each problem."""
    penalty: Tensor
    """(problems, 1, 1): 1 / (C · rows)"""
    absent: Tensor
    """(problems, columns, 1) bool: classes without a training row."""

    @classmethod
    def of(cls, rows: Rows, folds: Tensor, fold: Tensor, c: Tensor) -> Self:
        """From folds (folds, n) bool, and the fold and C of every problem, (problems,) both."""
        present = torch.stack([folds[:, rows.labels == label].any(1) for label in range(rows.classes)], 1)[fold]
        absent = ~present if rows.columns > 1 else torch.zeros_like(present[:, :1])
        # scikit-learn has one column for two classes; with two columns the penalty is half as large
        doubled = 1 + (absent.any(1) & (present.sum(1) == 2)).to(c.dtype)
        penalty = doubled / (c * folds.sum(1)[fold])
        dtype = rows.features.dtype
        return cls(rows, folds.to(dtype), fold, penalty.to(dtype)[:, None, None], absent[..., None])

    def __getitem__(self, picked: Tensor) -> Self:
        """Select regressions."""
        return replace(self, fold=self.fold[picked], penalty=self.penalty[picked], absent=self.absent[picked])

    def gradient(self, weights: Tensor) -> Tensor:
        """The gradients at weights (problems, columns, d), in the same shape."""
        flat = weights.flatten(0, 1)
        gradient = torch.zeros_like(flat)
        for part in row_parts(self.rows.features, len(flat)):
            rows = self.rows.features[part]
            errors = probabilities(flat @ rows.mT, self.absent).sub_(self.rows.targets(part))
            errors.mul_(self.folds[self.fold, None, part])
            gradient.addmm_(errors.flatten(0, 1), rows)
        gradient = gradient.view_as(weights).div_(self.folds.sum(1)[self.fold, None, None])
        gradient[..., :-1] += self.penalty * weights[..., :-1]
        return gradient

    def centred(self, values: Tensor) -> Tensor:
        """Subtract the mean over classes, which does not change probabilities; 0 for absent classes."""
        if values.shape[1] == 1:
            return values
        values = values.masked_fill(self.absent, 0)
        mean = values.sum(1, keepdim=True) / (~self.absent).sum(1, keepdim=True)
        return values - mean * ~self.absent


def probabilities(scores: Tensor, absent: Tensor) -> Tensor:
    """Scores (problems · columns, n) -> (problems, columns, n); with one column, those of the second class."""
    scores = scores.view(*absent.shape[:2], -1)
    if absent.shape[1] == 1:
        return scores.sigmoid_()
    return scores.masked_fill_(absent, -torch.inf).softmax(1)


def row_parts(features: Tensor, columns: int) -> list[slice]:
    """Slices of the rows, for which the scores of `columns` columns fit in the cache."""
    step = max(256, (_GPU_BLOCK if features.is_cuda else _BLOCK) // columns)
    return [slice(start, start + step) for start in range(0, len(features), step)]


def predictions(features: Tensor, weights: Tensor, absent: Tensor) -> Tensor:
    """The class of every row by every regression: (n, d), (problems, columns, d) -> (problems, n)"""
    flat = weights.flatten(0, 1)
    classes = torch.empty(len(weights), len(features), dtype=torch.int64, device=features.device)
    for part in row_parts(features, len(flat)):
        scores = (flat @ features[part].mT).view(*absent.shape[:2], -1)
        is_binary = scores.shape[1] == 1
        classes[:, part] = (scores[:, 0] > 0).long() if is_binary else scores.masked_fill_(absent, -torch.inf).argmax(1)
    return classes
