"""Correlations of similarities with grades, and the one rule by which numbers are constant."""

import numpy as np

from layerwise.errors import InputError
from layerwise.metrics.numbers import Figures, Numbers

EQUAL = 1e-12  # numbers of about 1 in float64 that differ by less are equal
_DIGITS = 12  # the same, as digits
_EQUAL_SINGLE = 1e-6  # the same in float32


def is_constant(values: Numbers) -> bool:
    """Whether all values are equal, but for rounding of their type: 1e-12 in float64, 1e-6 in float32.

    The difference is relative to the largest value, and absolute below 1, as cosines are.
    """
    values = np.asarray(values)
    tolerance = _EQUAL_SINGLE if values.dtype in (np.float32, np.float16) else EQUAL
    return bool(np.ptp(values) <= tolerance * max(1.0, float(np.abs(values).max())))


def cosine(left: Numbers, right: Numbers) -> Numbers:
    """Row by row: (n, d), (n, d) -> (n,), in float64."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    dots, left_squares, right_squares = (np.einsum("nd,nd->n", x, y) for x, y in ((a, b), (a, a), (b, b)))
    lengths = np.sqrt(left_squares * right_squares)  # one root, so that equal vectors have exactly 1
    similarity: Numbers = dots / np.maximum(lengths, np.finfo(np.float64).tiny)
    if not np.isfinite(similarity).all():
        row = int(np.flatnonzero(~np.isfinite(similarity))[0])
        raise InputError(f"pair {row} has an embedding with NaN or infinite numbers; a score of it would mean nothing")
    return similarity


def spearman(values: Numbers, gold: Numbers) -> float:
    """Spearman's rank correlation, ties by average ranks; NaN where a side is constant or not finite. (n,), (n,)"""
    from scipy.stats import spearmanr

    return float(spearmanr(values, gold).statistic) if _vary(values, gold) else float("nan")


def pearson(values: Numbers, gold: Numbers) -> float:
    """Pearson's correlation; NaN where a side is constant or not finite. (n,), (n,)"""
    from scipy.stats import pearsonr

    return float(pearsonr(np.asarray(values, np.float64), gold).statistic) if _vary(values, gold) else float("nan")


def correlations(values: Numbers, gold: Numbers) -> Figures:
    """Spearman's and Pearson's correlation × 100."""
    return {"spearman": 100 * spearman(values, gold), "pearson": 100 * pearson(values, gold)}


def _vary(*sides: Numbers) -> bool:
    return all(len(values) > 1 and np.isfinite(values).all() and not is_constant(values) for values in sides)


# Resamples of the same pairs, without drawing or sorting them again: a resample is given by the count of each pair.
# Ranks then follow from one order of the pairs and cumulative sums of the counts, so that thousands of resamples cost a
# few passes over an array.


def redraw_spearman(similarities: Numbers, gold: Numbers, counts: Numbers) -> Numbers:
    """Spearman's correlation on resamples: (pairs,), (pairs,), (draws, pairs) -> (draws,)"""
    counts = np.ascontiguousarray(counts.T)  # a pair's counts are contiguous: pairs are sorted, not resamples
    ranks = (average_ranks(np.round(similarities, _DIGITS), counts), average_ranks(gold, counts))
    return _correlation(*ranks, counts)


def redraw_pearson(similarities: Numbers, gold: Numbers, counts: Numbers) -> Numbers:
    """Pearson's correlation on resamples: (pairs,), (pairs,), (draws, pairs) -> (draws,)"""
    return _correlation(similarities[:, None], gold[:, None], np.ascontiguousarray(counts.T))


def average_ranks(values: Numbers, counts: Numbers) -> Numbers:
    """The rank of each pair in each resample, ties by their average: (pairs,), (pairs, draws) -> (pairs, draws)"""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = np.r_[True, ordered[1:] != ordered[:-1]]
    sizes = counts[order] if begins.all() else np.add.reduceat(counts[order], np.flatnonzero(begins), axis=0)
    ends = np.cumsum(sizes, axis=0)
    ranks = np.empty_like(counts)
    ranks[order] = (ends - (sizes - 1) / 2)[np.cumsum(begins) - 1]
    return ranks


def _correlation(left: Numbers, right: Numbers, counts: Numbers) -> Numbers:
    """Pearson's correlation weighted by counts (pairs, draws); NaN for a resample that is constant or empty."""
    total = counts.sum(axis=0)
    nonzero = np.maximum(total, 1)  # a resample may have none of these pairs
    a, b = (values - _sum_products(values, counts) / nonzero for values in (left, right))
    weighted = a * counts
    product, a_squares, b_squares = _sum_products(weighted, b), _sum_products(weighted, a), _sum_products(b * counts, b)
    constant = (a_squares <= 1e-20 * total) | (b_squares <= 1e-20 * total)
    variances = np.where(constant, 1.0, a_squares * b_squares)
    redrawn: Numbers = np.where(constant, np.nan, product / np.sqrt(variances))
    return redrawn


def _sum_products(left: Numbers, right: Numbers) -> Numbers:
    """Sum products over pairs: (pairs, draws or 1), (pairs, draws) -> (draws,)"""
    sums: Numbers = np.einsum("ij,ij->j", np.broadcast_to(left, right.shape), right)
    return sums
