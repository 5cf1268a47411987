"""Graded pairs: correlations of cosine similarity with the grades, over all pairs, by subset, and by random splits.

Papers report three averages of the same similarities: "all" (one correlation over all pairs of a year), the mean of
the subsets' correlations, and that mean weighted by the subsets' sizes ("wmean"). All of them are always computed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.kinds import Figures, Outcome
from layerwise.mixes import parse_mix
from layerwise.search import LayerSearch, random_splits

Vectors = NDArray[np.floating[Any]]
DEV_PAIRS, SPLITS = 350, 5  # of BERT-LC's protocol
_ROUNDING = 1e-12  # similarities that differ by less are equal


def cosine(left: Vectors, right: Vectors) -> Vectors:
    """Row by row: (n, d), (n, d) -> (n,), in float64."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    dots, left_squares, right_squares = (np.einsum("nd,nd->n", x, y) for x, y in ((a, b), (a, a), (b, b)))
    lengths = np.sqrt(left_squares * right_squares)  # one root, so that equal vectors have exactly 1
    similarity: Vectors = dots / np.maximum(lengths, np.finfo(np.float64).tiny)
    if not np.isfinite(similarity).all():
        row = int(np.flatnonzero(~np.isfinite(similarity))[0])
        raise InputError(f"pair {row} has an embedding with NaN or infinite numbers; a score of it would mean nothing")
    return similarity


def flat(similarity: Vectors) -> bool:
    """Whether all pairs are equally similar, but for rounding."""
    return bool(np.ptp(similarity) <= _ROUNDING)


def spearman(left: Vectors, right: Vectors, gold: Vectors) -> float:
    """Spearman's rank correlation of the pairs' cosine with their grades, ties by average ranks.

    NaN where all pairs are equally similar (such as the first token of layer 0, the same in every sentence).
    """
    if not len(left) == len(right) == len(gold):
        raise InputError(f"{len(left)} and {len(right)} embeddings for {len(gold)} scores: the lengths differ")
    if len(gold) < 2 or np.ptp(gold) == 0:
        raise InputError(f"{len(gold)} pairs with {len(set(gold))} different scores: a correlation needs 2 or more")
    if not np.isfinite(gold).all():
        raise InputError(f"score {int(np.flatnonzero(~np.isfinite(gold))[0])} is not a finite number")
    similarity = cosine(left, right)
    return float("nan") if flat(similarity) else float(spearmanr(similarity, gold).statistic)


def score_sts(left: Vectors, right: Vectors, gold: Vectors, subsets: Sequence[str] = ()) -> Outcome:
    """Compute correlations × 100 of pairs' cosines with their grades: (n, d), (n, d), n grades and optional subsets."""
    grades = np.asarray(gold, dtype=np.float64)
    if not len(left) == len(right) == len(grades):
        raise InputError(f"{len(left)} and {len(right)} embeddings for {len(grades)} scores: the lengths differ")
    if len(grades) < 2 or np.ptp(grades) == 0:
        raise InputError(f"{len(grades)} pairs, {len(np.unique(grades))} different scores: a correlation needs 2")
    similarities = cosine(left, right)
    overall = correlations(similarities, grades)
    parts, sizes = {}, {}
    names = np.asarray(subsets, dtype=object)
    for name in dict.fromkeys(subsets):
        members = names == name
        parts[name], sizes[name] = correlations(similarities[members], grades[members]), int(members.sum())
    figures = dict(overall)
    for metric, score in overall.items():
        values = [part[metric] for part in parts.values()] or [score]
        figures[f"{metric}_mean"] = float(np.mean(values))
        figures[f"{metric}_wmean"] = float(np.average(values, weights=list(sizes.values()) or [1]))
    details = {"subsets": {name: {**part, "rows": sizes[name]} for name, part in parts.items()}} if parts else {}
    return Outcome(figures, items=similarities, gold=grades, details=details)


def correlations(similarities: Vectors, grades: Vectors) -> Figures:
    """Compute Spearman's (ties by average ranks) and Pearson's correlation × 100; NaN if either side is constant."""
    if len(grades) < 2 or np.ptp(grades) == 0 or flat(similarities):
        return {"spearman": float("nan"), "pearson": float("nan")}
    rank, linear = spearmanr(similarities, grades).statistic, pearsonr(similarities, grades).statistic
    return {"spearman": 100 * float(rank), "pearson": 100 * float(linear)}


def score_splits(left: Vectors, right: Vectors, gold: Vectors, *, seeds: Sequence[int]) -> Outcome:
    """Score a fixed mix on the reporting pairs of each split: mean and standard deviation over the splits."""
    similarities = cosine(left, right)
    scores = []
    for seed in seeds:
        for _, test in random_splits(len(gold), DEV_PAIRS, SPLITS, seed):
            scores.append(correlations(similarities[test], gold[test]))
    return _outcome(scores, similarities, gold, {})


def search_splits(
    left: Mapping[str, Array], right: Mapping[str, Array], gold: Vectors, *, seeds: Sequence[int]
) -> Outcome:
    """Score the best layers of each split's 350 pairs on its others. Views by pooling: (pairs, layers + 1, width)"""
    scores, chosen = [], []
    for seed in seeds:
        search = LayerSearch(dev=DEV_PAIRS, splits=SPLITS, seed=seed).fit(left, right, gold)
        for (_, test), split in zip(search.parts_, search.report_.splits, strict=True):
            mix = parse_mix(split.mix)
            similarities = cosine(mix(left[mix.pooling][test]), mix(right[mix.pooling][test]))
            scores.append(correlations(similarities, gold[test]))
            chosen.append(str(mix))
    return _outcome(scores, np.empty(0), gold, {"chosen": chosen})


def _outcome(scores: list[dict[str, float]], items: Vectors, gold: Vectors, details: dict[str, list[str]]) -> Outcome:
    values = {name: [score[name] for score in scores] for name in scores[0]}
    return Outcome(
        {name: float(np.mean(of_splits)) for name, of_splits in values.items()},
        items=items,
        gold=gold if len(items) else np.empty(0),
        sd={name: float(np.std(of_splits, ddof=1)) for name, of_splits in values.items()},
        details={"splits": len(scores), "dev_pairs": DEV_PAIRS, **details},
    )
