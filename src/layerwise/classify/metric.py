"""The curvature of a regression's objective, inverted: what makes a gradient step nearly Newton's.

With more than two classes only the blocks of each class with itself are kept, and beyond some classes one block, their
mean, stands for all: L-BFGS learns the rest on its way.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from layerwise.classify.problems import Rows, probabilities
from layerwise.threads import one_thread_each

_MOST_BLOCKS = 32
_SAMPLE = 32  # rows for each feature, at most, that measure the curvature: with 8, paths are up to five times as long


@dataclass(frozen=True)
class Metric:
    """(Cs, columns or 1, d, d): inverse curvatures, one for each C."""

    inverses: Tensor

    def double(self) -> Self:
        """The same in float64."""
        return type(self)(self.inverses.double())

    def __call__(self, slopes: Tensor, c: Tensor) -> Tensor:
        """Gradients (problems, columns, d) and the number of each one's C -> steps of the same shape"""
        steps = torch.empty_like(slopes)
        for number, blocks in enumerate(self.inverses):
            mine = (c == number).nonzero()[:, 0]
            if len(mine):
                steps[mine] = _apply(slopes[mine], blocks)
        return steps


def _apply(slopes: Tensor, blocks: Tensor) -> Tensor:
    """Plain products of two matrices, which are faster than batched ones. (p, columns, d), (blocks, d, d)"""
    if len(blocks) == 1:
        return (slopes.flatten(0, 1) @ blocks[0]).view_as(slopes)
    return torch.stack([slopes[:, column] @ block for column, block in enumerate(blocks)], 1)


def curvature(rows: Rows, weights: Tensor) -> Tensor:
    """Of the mean log loss of a sample of the rows, at these weights (columns, d): (columns or 1, d, d)"""
    n, d = rows.features.shape
    sample = rows.features[torch.linspace(0, n - 1, min(n, _SAMPLE * d), device=weights.device).long()]
    nowhere = torch.zeros(1, len(weights), 1, dtype=torch.bool, device=weights.device)
    chances = probabilities(weights @ sample.mT, nowhere)[0]
    spread = chances * (1 - chances)
    if len(spread) > _MOST_BLOCKS:
        spread = spread.mean(0, keepdim=True)
    return torch.stack([(sample.mT * share) @ sample for share in spread]) / len(sample)


def inverted(blocks: Tensor, penalty: float) -> Tensor:
    """The inverse of blocks of curvature with the penalty: (columns or 1, d, d) -> the same"""
    precise = blocks.double()
    added = torch.full_like(precise[0, 0], penalty)
    added[-1] = 0  # the intercept is free
    added += 1e-7 * precise.diagonal(dim1=1, dim2=2).mean()  # of rounding: the factors stay real
    with one_thread_each():  # OpenBLAS takes ten times as long with two
        return torch.cholesky_inverse(torch.linalg.cholesky(precise + torch.diag(added))).to(blocks.dtype)
