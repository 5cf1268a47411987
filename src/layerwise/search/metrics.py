"""Scores of many sets of layers at once: similarities (sets, pairs) to scores (sets,).

A metric is prepared once with the grades or labels and then called with blocks of similarities, on any device. It may
use the block as scratch space.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from layerwise.errors import InputError
from layerwise.metrics import EQUAL, Numbers, Redraw, average_ranks, redraw_pearson, redraw_spearman
from layerwise.registry import Registry, unknown
from layerwise.search.sorting import Sorted, Ties, numbers_of_ties, sort_carrying, sum_of_ties

Gold = NDArray[np.floating[Any]]
BatchMetric = Callable[[Tensor], Tensor]
UserMetric = Callable[[NDArray[np.float64], Gold], float]
FEWEST_PAIRS = 5


@dataclass(frozen=True)
class Metric:
    """A score by name.

    Attributes:
        prepare: Prepares the metric for grades on a device.
        binary: Whether grades must be 0 and 1.
        redraw: Computes its values on many resamples, if there is a fast way.
        prepare_counted: Prepares the metric for grades with counts, if that is faster than repeating them.
        smooth: Whether no single pair changes it much.
    """

    name: str
    prepare: Callable[[Gold, torch.device], BatchMetric]
    binary: bool = False
    redraw: Redraw | None = None
    prepare_counted: Callable[[Gold, Numbers, torch.device], BatchMetric] | None = None
    smooth: bool = False

    def __call__(self, gold: Gold, device: torch.device | str = "cpu") -> BatchMetric:
        """The metric for these pairs."""
        return self.prepare(gold, torch.device(device))

    def resampled(
        self, gold: Gold, rows: NDArray[np.intp], device: torch.device | str = "cpu"
    ) -> tuple[NDArray[np.intp], BatchMetric]:
        """The rows of a resample that the metric takes, unique if it counts them, and the metric prepared for them."""
        if self.prepare_counted is None:
            return rows, self(gold[rows], device)
        unique_rows, counts = np.unique(rows, return_counts=True)
        return unique_rows, self.prepare_counted(gold[unique_rows], counts.astype(np.float64), torch.device(device))


AnyMetric = str | Metric | UserMetric
METRICS: Registry[Metric] = Registry("metric")


def as_metric(metric: "str | Metric | UserMetric") -> Metric:
    """A metric by its name, or a user's function of (similarities, grades)."""
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str) and metric not in METRICS:
        raise unknown("metric", metric, METRICS, more="; for retrieval mrr@10, recall@5, ndcg@10 or another cut-off")
    if isinstance(metric, str):
        return METRICS[metric]
    if not callable(metric):
        raise InputError(f"A metric is a name ({', '.join(METRICS)}) or a function, not {metric!r}")
    return Metric(getattr(metric, "__name__", "function"), _prepare_function(metric))


def check_gold(gold: object, metric: Metric) -> Gold:
    """Convert grades to numbers and check them."""
    try:
        values = np.asarray(gold, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"The scores are not numbers: {error}") from error
    if values.ndim != 1:
        raise InputError(f"Scores have the shape {values.shape}; expected one number for each pair")
    if len(values) < FEWEST_PAIRS:
        raise InputError(
            f"{len(values)} pairs are too few to choose layers by; give at least {2 * FEWEST_PAIRS}: {FEWEST_PAIRS} to "
            f"choose and as many to report"
        )
    if not np.isfinite(values).all():
        place = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InputError(f"Score {place} is {values[place]}, not a finite number; mend or drop it")
    if np.ptp(values) == 0:
        raise InputError(f"All {len(values)} scores are {values[0]:g}: constant scores say nothing about layers")
    if metric.binary and not np.isin(values, (0, 1)).all():
        place = int(np.flatnonzero(~np.isin(values, (0, 1)))[0])
        raise InputError(f"Score {place} is {values[place]:g}, but {metric.name} needs labels 0 and 1")
    return values


def check_seed(seed: int) -> None:
    """Refuse a negative seed, as NumPy's generators do."""
    if seed < 0:
        raise InputError(f"The seed {seed} is negative; it must be 0 or more")


def spearman(gold: Gold, device: torch.device) -> BatchMetric:
    """Spearman's rank correlation, ties by average ranks; NaN where all similarities are equal."""
    doubled = np.rint(2 * rankdata(gold)).astype(np.int64)  # average ranks may be halves
    n, bits = len(gold), int(doubled.max()).bit_length()
    ranks = torch.from_numpy(doubled).to(device)
    places = torch.arange(n, dtype=torch.float64, device=device) - (n - 1) / 2
    spread = float(np.square(doubled - doubled.mean()).sum())

    def score(similarities: Tensor) -> Tensor:
        ordered = sort_carrying(similarities, ranks, bits)
        product, variance = ordered.carried @ places, torch.full_like(ordered.carried[:, 0], n**3 - n)
        if ordered.tied is not None:
            more, less = Ties.of(ordered.tied).correction(ordered.carried)
            product, variance = product + more, variance - less
        return product / (variance / 12 * spread).sqrt()

    return score


def counted_spearman(gold: Gold, counts: Numbers, device: torch.device) -> BatchMetric:
    """Spearman's correlation of pairs with counts: that of a resample which contains each pair so often."""
    n = float(counts.sum())
    middle, bits = (n + 1) / 2, max(1, (len(gold) - 1).bit_length())
    gold_ranks = average_ranks(gold, counts[:, None])[:, 0] - middle
    spread = float((counts * gold_ranks**2).sum())
    places, multiplicities, weighted = (
        torch.from_numpy(values).to(device) for values in (np.arange(len(gold)), counts, counts * gold_ranks)
    )

    def score(similarities: Tensor) -> Tensor:
        ordered = sort_carrying(similarities, places, bits)
        order = ordered.carried.long()
        sizes = multiplicities[order]
        groups = sizes if ordered.tied is None else sum_of_ties(sizes, ordered.tied)
        ranks = groups.cumsum(1) - (groups - 1) / 2 - middle  # the average rank of ties
        if ordered.tied is not None:
            ranks = ranks.gather(1, numbers_of_ties(ordered.tied))
        product = (ranks * weighted[order]).sum(1)
        variance = (n**3 - n - (groups**3 - groups).sum(1)) / 12
        return product / (variance * spread).sqrt()

    return score


def pearson(gold: Gold, device: torch.device) -> BatchMetric:
    """Pearson's correlation; NaN where all similarities are equal."""
    centred = torch.from_numpy(gold - gold.mean()).to(device, torch.float64)
    centred = centred / centred.norm()

    def score(similarities: Tensor) -> Tensor:
        deviations = similarities - similarities.mean(1, keepdim=True)
        lengths = deviations.norm(dim=1)
        return torch.where(lengths > EQUAL * similarities.shape[1] ** 0.5, deviations @ centred / lengths, torch.nan)

    return score


def average_precision(gold: Gold, device: torch.device) -> BatchMetric:
    """The mean precision at the recall of each positive pair, as in scikit-learn: ties share a threshold."""
    labels = torch.from_numpy(gold.astype(np.int64)).to(device)
    places = torch.arange(1, len(gold) + 1, dtype=torch.float64, device=device)

    def score(similarities: Tensor) -> Tensor:
        ends, hits = _from_the_top(sort_carrying(similarities, labels, 1))
        hits_at_ends = torch.where(ends, hits, 0.0).cummax(1).values
        previous = torch.cat([torch.zeros_like(hits_at_ends[:, :1]), hits_at_ends[:, :-1]], dim=1)
        new_hits = torch.where(ends, hits - previous, 0.0)
        return (new_hits * hits / places).sum(1) / hits[:, -1]

    return score


def best_accuracy(gold: Gold, device: torch.device) -> BatchMetric:
    """The accuracy at the best threshold for these pairs."""
    labels = torch.from_numpy(gold.astype(np.int64)).to(device)
    places = torch.arange(1, len(gold) + 1, dtype=torch.float64, device=device)
    negatives = float((gold == 0).sum())

    def score(similarities: Tensor) -> Tensor:
        ends, hits = _from_the_top(sort_carrying(similarities, labels, 1))
        correct = torch.where(ends, 2 * hits - places, 0.0) + negatives
        return correct.amax(1).clamp_min(negatives) / len(gold)

    return score


def separation(gold: Gold, device: torch.device) -> BatchMetric:
    """The distance between the similarities of positive and other pairs in standard deviations (d'), without labels.

    It combines alignment (positive pairs close) and uniformity (others spread) in one scale-free number.
    """
    positive, other = (torch.from_numpy(np.flatnonzero(gold == label)).to(device) for label in (1, 0))

    def score(similarities: Tensor) -> Tensor:
        close, far = similarities[:, positive], similarities[:, other]
        spread = ((close.var(1) + far.var(1)) / 2).sqrt()
        return torch.where(spread > EQUAL, (close.mean(1) - far.mean(1)) / spread, torch.nan)

    return score


def align_uniform(gold: Gold, device: torch.device) -> BatchMetric:
    """Minus the sum of Wang and Isola's alignment of positive pairs and uniformity of others, on unit vectors."""
    positive, other = (torch.from_numpy(np.flatnonzero(gold == label)).to(device) for label in (1, 0))

    def score(similarities: Tensor) -> Tensor:
        alignment = 2 - 2 * similarities[:, positive].mean(1)
        uniformity = torch.exp(-4 * (1 - similarities[:, other])).mean(1).log()
        return -(alignment + uniformity)

    return score


def _from_the_top(ordered: Sorted) -> tuple[Tensor, Tensor]:
    """In descending order: which pairs are the last of their ties, and the cumulative positives. (rows, n) twice"""
    begins = torch.ones_like(ordered.carried, dtype=torch.bool)
    if ordered.tied is not None:
        begins[:, 1:] = ~ordered.tied
    return begins.flip(1), ordered.carried.flip(1).cumsum(1)


def _prepare_function(function: UserMetric) -> Callable[[Gold, torch.device], BatchMetric]:
    def prepare(gold: Gold, device: torch.device) -> BatchMetric:
        def score(similarities: Tensor) -> Tensor:
            rows = similarities.cpu().numpy()
            return torch.tensor([float(function(row, gold)) for row in rows], dtype=torch.float64, device=device)

        return score

    return prepare


def counts_of(draws: Sequence[NDArray[np.integer[Any]]], pairs: int) -> Numbers:
    """The count of each pair in each resample: (draws, pairs)"""
    return np.stack([np.bincount(draw, minlength=pairs) for draw in draws]).astype(np.float64)


for _metric in (
    Metric("spearman", spearman, redraw=redraw_spearman, prepare_counted=counted_spearman, smooth=True),
    Metric("pearson", pearson, redraw=redraw_pearson, smooth=True),
    Metric("cosine_ap", average_precision, binary=True),
    Metric("cosine_accuracy", best_accuracy, binary=True),
    Metric("separation", separation, binary=True),
    Metric("align-uniform", align_uniform, binary=True),
):
    METRICS.register(_metric.name)(_metric)
