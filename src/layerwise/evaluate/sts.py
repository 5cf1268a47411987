"""Graded pairs: correlations of cosine similarity with the grades, over all pairs and by subset.

Papers report three averages of the same similarities: "all" (one correlation over all pairs of a year), the mean of
the subsets' correlations, and that mean weighted by the subsets' sizes ("wmean"). All of them are always given.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import pearsonr, spearmanr

from layerwise.errors import InputError
from layerwise.evaluate.outcomes import Figures, Outcome
from layerwise.evaluate.pairs import Vectors, cosine, flat

AGGREGATIONS = ("all", "mean", "wmean")


def score_sts(left: Vectors, right: Vectors, gold: Vectors, subsets: Sequence[str] = ()) -> Outcome:
    """Correlations × 100 of pairs' cosine with their grades: (n, d), (n, d), n grades and, where there are, subsets."""
    grades = np.asarray(gold, dtype=np.float64)
    if not len(left) == len(right) == len(grades):
        raise InputError(f"{len(left)} and {len(right)} embeddings for {len(grades)} scores: the lengths differ")
    if len(grades) < 2 or np.ptp(grades) == 0:
        raise InputError(f"{len(grades)} pairs, {len(np.unique(grades))} different scores: a correlation needs 2")
    similarities = cosine(left, right)
    whole = correlations(similarities, grades)
    parts, sizes = {}, {}
    names = np.asarray(subsets, dtype=object)
    for name in dict.fromkeys(subsets):
        own = names == name
        parts[name], sizes[name] = correlations(similarities[own], grades[own]), int(own.sum())
    figures = dict(whole)
    for metric, score in whole.items():
        values = [part[metric] for part in parts.values()] or [score]
        figures[f"{metric}_mean"] = float(np.mean(values))
        figures[f"{metric}_wmean"] = float(np.average(values, weights=list(sizes.values()) or [1]))
    details = {"subsets": {name: {**part, "rows": sizes[name]} for name, part in parts.items()}} if parts else {}
    return Outcome(figures, items=similarities, gold=grades, details=details)


def correlations(similarities: Vectors, grades: Vectors) -> Figures:
    """Spearman's (ties by average ranks) and Pearson's, × 100; NaN where either side is constant."""
    if len(grades) < 2 or np.ptp(grades) == 0 or flat(similarities):
        return {"spearman": float("nan"), "pearson": float("nan")}
    rank, linear = spearmanr(similarities, grades).statistic, pearsonr(similarities, grades).statistic
    return {"spearman": 100 * float(rank), "pearson": 100 * float(linear)}
