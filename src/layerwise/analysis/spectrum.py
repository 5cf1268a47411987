"""How many directions embeddings use: shares of variance, and the effective rank (Roy & Vetterli 2007)."""

import torch
from torch import Tensor

from layerwise.analysis.centred import centred


def spectrum(embeddings: Tensor) -> Tensor:
    """The shares of variance by principal direction, falling, with a sum of 1. (n, d) -> (min(n, d),)

    Of the centred rows, as in PCA; NaN where all rows are the same.
    """
    variances = _singular_values(embeddings).square()
    return variances / variances.sum()


def effective_rank(embeddings: Tensor) -> Tensor:
    """exp of the entropy of the singular values, made to add up to 1 (Roy & Vetterli 2007). (n, d) -> scalar

    Of the centred rows, which the definition leaves open: otherwise the mean alone would fill a direction. The singular
    values themselves are taken, as there, not their squares. From 1 (all on a line) to min(n - 1, d) (all directions
    used alike); NaN where all rows are the same.
    """
    return rank_of_spectrum(spectrum(embeddings))


def rank_of_spectrum(shares: Tensor) -> Tensor:
    """The effective rank of what has these shares of variance by direction. (directions,) -> scalar"""
    values = shares.sqrt()  # as the singular values, but for a factor that goes out
    entropy: Tensor = torch.special.entr(values / values.sum()).sum()
    return entropy.exp()


def _singular_values(embeddings: Tensor) -> Tensor:
    """Of the centred rows, falling, in float64: (n, d) -> (min(n, d),)

    By the smaller Gram matrix, several times cheaper than a decomposition of the rows. What lies below its rounding is
    0: hundreds of such values would add up to directions that nobody uses.
    """
    around = centred("embeddings", embeddings).double()
    squares: Tensor = torch.linalg.eigvalsh(around.T @ around if len(around) > around.shape[1] else around @ around.T)
    least = torch.finfo(squares.dtype).eps * max(around.shape) * squares[-1]
    return squares.masked_fill(squares < least, 0).sqrt().flip(0)
