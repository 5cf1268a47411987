"""Correlations on many resamples of the same pairs, without drawing or sorting them again.

A resample is how often it holds each pair. Ranks then follow from one order of the pairs and running sums of the
counts, so that thousands of resamples cost a few passes over an array.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.floating[Any]]
Redraw = Callable[[Numbers, Numbers, Numbers], Numbers]
_DIGITS = 12  # similarities that agree in so many digits are equal


def counts_of(draws: Sequence[NDArray[np.integer[Any]]], pairs: int) -> Numbers:
    """How often each resample holds each pair: (draws, pairs)"""
    return np.stack([np.bincount(draw, minlength=pairs) for draw in draws]).astype(np.float64)


def redraw_spearman(similarities: Numbers, gold: Numbers, counts: Numbers) -> Numbers:
    """Spearman's correlation on resamples: (pairs,), (pairs,), (draws, pairs) -> (draws,)"""
    ranks = (average_ranks(np.round(similarities, _DIGITS), counts), average_ranks(gold, counts))
    return _correlation(*ranks, counts)


def redraw_pearson(similarities: Numbers, gold: Numbers, counts: Numbers) -> Numbers:
    """Pearson's correlation on resamples: (pairs,), (pairs,), (draws, pairs) -> (draws,)"""
    return _correlation(similarities[None], gold[None], counts)


def average_ranks(values: Numbers, counts: Numbers) -> Numbers:
    """The rank of each pair in each resample, ties by their average: (pairs,), (draws, pairs) -> (draws, pairs)"""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    group = np.cumsum(np.r_[False, ordered[1:] != ordered[:-1]])
    sizes = np.add.reduceat(counts[:, order], begins, axis=1)
    ends = np.cumsum(sizes, axis=1)
    ranks = np.empty_like(counts)
    ranks[:, order] = (ends - (sizes - 1) / 2)[:, group]
    return ranks


def _correlation(one: Numbers, other: Numbers, counts: Numbers) -> Numbers:
    """Weighted by the counts; NaN where either is constant in a resample, or nothing is in it."""
    total = np.maximum(counts.sum(1, keepdims=True), 1)  # a resample may have none of these pairs
    a = one - (one * counts).sum(1, keepdims=True) / total
    b = other - (other * counts).sum(1, keepdims=True) / total
    product, left, right = ((x * y * counts).sum(1) for x, y in ((a, b), (a, a), (b, b)))
    flat = (left <= 1e-20 * counts.sum(1)) | (right <= 1e-20 * counts.sum(1))
    found: Numbers = np.where(flat, np.nan, product / np.sqrt(np.where(flat, 1.0, left * right)))
    return found
