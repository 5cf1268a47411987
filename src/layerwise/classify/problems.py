"""Many logistic regressions on the same rows: which rows each is trained on, its C, and the gradients of all of them.

An objective is scikit-learn's divided by C times the regression's rows: mean log loss + ½‖w‖² / (C · rows), with the
intercept free. Two classes are binomial (one column of weights), more are multinomial (a column for each class).
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

_BLOCK = 2**20  # scores made at a time: they stay in a processor's cache
_GPU_BLOCK = 2**26


@dataclass(frozen=True)
class Rows:
    """What all regressions share."""

    features: Tensor
    """(n, d): the features and a last column of ones."""
    labels: Tensor
    """(n,) whole numbers from 0."""
    classes: int

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, classes: int) -> Self:
        """Features (n, width) with the column of ones."""
        return cls(torch.cat([features, features.new_ones(len(features), 1)], 1), labels, classes)

    @property
    def columns(self) -> int:
        """Columns of weights."""
        return 1 if self.classes == 2 else self.classes

    @property
    def size(self) -> float:
        """The root mean square of the features, in which gradients are measured."""
        return float(self.features[:, :-1].square().mean().sqrt()) or 1.0

    def double(self) -> Self:
        """The same in float64."""
        return replace(self, features=self.features.double())

    def targets(self, part: slice) -> Tensor:
        """What probabilities should be: (columns, rows of the part)"""
        wanted = torch.arange(1 if self.columns == 1 else 0, self.classes, device=self.labels.device)
        return (self.labels[part] == wanted[:, None]).to(self.features.dtype)


@dataclass(frozen=True)
class Problems:
    """Some regressions. Their weights are (problems, columns, d), the intercept last."""

    rows: Rows
    folds: Tensor
    """(folds, n) of 0 and 1: the rows that train."""
    fold: Tensor
    """(problems,): the fold of each."""
    penalty: Tensor
    """(problems, 1, 1): 1 / (C · rows)"""
    absent: Tensor
    """(problems, columns, 1) bool: classes without a training row."""

    @classmethod
    def of(cls, rows: Rows, folds: Tensor, fold: Tensor, c: Tensor) -> Self:
        """Folds (folds, n) bool; of every problem its fold and its C, (problems,) both."""
        present = torch.stack([folds[:, rows.labels == label].any(1) for label in range(rows.classes)], 1)[fold]
        absent = ~present if rows.columns > 1 else torch.zeros_like(present[:, :1])
        # scikit-learn has one column for two classes; two columns share the norm, which halves the penalty
        doubled = 1 + (absent.any(1) & (present.sum(1) == 2)).to(c.dtype)
        penalty = doubled / (c * folds.sum(1)[fold])
        dtype = rows.features.dtype
        return cls(rows, folds.to(dtype), fold, penalty.to(dtype)[:, None, None], absent[..., None])

    def __getitem__(self, picked: Tensor) -> Self:
        """Some of the regressions."""
        return replace(self, fold=self.fold[picked], penalty=self.penalty[picked], absent=self.absent[picked])

    def gradient(self, weights: Tensor) -> Tensor:
        """(problems, columns, d) -> the same"""
        flat = weights.flatten(0, 1)
        slope = torch.zeros_like(flat)
        for part in row_parts(self.rows.features, len(flat)):
            rows = self.rows.features[part]
            errors = probabilities(flat @ rows.mT, self.absent).sub_(self.rows.targets(part))
            errors.mul_(self.folds[self.fold, None, part])
            slope.addmm_(errors.flatten(0, 1), rows)
        slope = slope.view_as(weights).div_(self.folds.sum(1)[self.fold, None, None])
        slope[..., :-1] += self.penalty * weights[..., :-1]
        return slope

    def centred(self, values: Tensor) -> Tensor:
        """Without what all classes have in common, which changes no probability; absent classes get 0."""
        if values.shape[1] == 1:
            return values
        values = values.masked_fill(self.absent, 0)
        mean = values.sum(1, keepdim=True) / (~self.absent).sum(1, keepdim=True)
        return values - mean * ~self.absent


def probabilities(scores: Tensor, absent: Tensor) -> Tensor:
    """Scores (problems · columns, n) -> (problems, columns, n); of the second class where there is one column."""
    scores = scores.view(*absent.shape[:2], -1)
    if absent.shape[1] == 1:
        return scores.sigmoid_()
    return scores.masked_fill_(absent, -torch.inf).softmax(1)


def row_parts(features: Tensor, columns: int) -> list[slice]:
    """Rows in parts: scores of a part, by so many columns, fit into the cache."""
    step = max(256, (_GPU_BLOCK if features.is_cuda else _BLOCK) // columns)
    return [slice(start, start + step) for start in range(0, len(features), step)]


def predictions(features: Tensor, weights: Tensor, absent: Tensor) -> Tensor:
    """The class of every row by every regression: (n, d), (problems, columns, d) -> (problems, n)"""
    flat = weights.flatten(0, 1)
    classes = torch.empty(len(weights), len(features), dtype=torch.int64, device=features.device)
    for part in row_parts(features, len(flat)):
        scores = (flat @ features[part].mT).view(*absent.shape[:2], -1)
        one = scores.shape[1] == 1
        classes[:, part] = (scores[:, 0] > 0).long() if one else scores.masked_fill_(absent, -torch.inf).argmax(1)
    return classes
