"""Continuous layer weights by optimisation, an alternative to sets.

Rank correlation has no gradient, so the optimised objective is the correlation of the cosines with the grades' ranks
(with the grades themselves for Pearson, with the labels for binary metrics), from several starts at once; the metric
itself then selects among the results and the starts. Weights are positive and sum to 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from layerwise.errors import InputError
from layerwise.search.problems import PairProblem, SetProblem

_STEPS, _RATE = 300, 0.1
_FLOOR = 1e-3  # the initial weight of a layer outside the starting set; smaller final weights are dropped


@dataclass(frozen=True)
class WeightsResult:
    """The weights of all layers with their score by the problem's metric."""

    weights: NDArray[np.float64]
    score: float


def search_weights(
    problem: SetProblem, starts: NDArray[np.floating[Any]], usable: Sequence[int] | None = None
) -> WeightsResult:
    """Optimise the weights of usable layers from several starts (rows, layers), which are weights or sets."""
    if not isinstance(problem, PairProblem):
        raise InputError("Layer weights need pairs with scores or labels, not retrieval; search for a set")
    shares = torch.from_numpy(np.asarray(starts, dtype=np.float64)).clamp_min(_FLOOR).to(problem.source.device)
    if usable is not None:
        unusable = [layer for layer in range(problem.layers) if layer not in set(usable)]
        shares[:, unusable] = 0.0  # a logit of minus infinity stays there
    logits = shares.log().requires_grad_()
    target = _target(problem).to(logits.device)
    optimiser = torch.optim.Adam([logits], lr=_RATE)
    for _ in range(_STEPS):
        optimiser.zero_grad()
        similarities = problem.source.similarities(logits.softmax(1))
        loss = -_correlation(similarities, target).nan_to_num().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        if logits.grad is not None:
            logits.grad.nan_to_num_(0.0)
        optimiser.step()
    optimised = logits.detach().softmax(1).cpu().numpy()
    optimised = np.where(optimised < _FLOOR, 0.0, optimised)
    rows = np.concatenate([optimised, starts])
    rows = rows / rows.sum(1, keepdims=True)
    scores = problem.scores(rows)
    best = int(np.nanargmax(scores))
    return WeightsResult(rows[best], float(scores[best]))


def _target(problem: PairProblem) -> Tensor:
    gold = rankdata(problem.gold) if problem.metric.name == "spearman" else problem.gold
    centred = torch.from_numpy(np.asarray(gold - gold.mean(), dtype=np.float64))
    unit: Tensor = centred / centred.norm()
    return unit


def _correlation(similarities: Tensor, target: Tensor) -> Tensor:
    """(rows, n), (n,) of mean 0 and length 1 -> (rows,)"""
    centred = similarities - similarities.mean(1, keepdim=True)
    correlation: Tensor = centred @ target / centred.norm(dim=1).clamp_min(1e-12)
    return correlation
