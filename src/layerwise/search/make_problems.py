"""Views and grades to what is searched: a problem for each token pooling."""

from collections.abc import Mapping

import numpy as np
import torch

from layerwise.encoder.pooling import POOLINGS
from layerwise.errors import InputError
from layerwise.model.head import Head
from layerwise.search.heads import HeadPairs
from layerwise.search.metrics import Metric, UserMetric, as_metric, check_gold
from layerwise.search.problems import PairProblem, Problem
from layerwise.search.relevance import RetrievalMetric
from layerwise.search.retrieval import RetrievalProblem
from layerwise.search.sources import PairGrams, PairSource, Views
from layerwise.search.unlabelled import GUARDED, GuardedProblem

AnyMetric = str | Metric | UserMetric


def by_pooling(views: Views | Mapping[str, Views]) -> dict[str, Views]:
    """Views by the name of their token pooling; an array alone is of the mean."""
    if not isinstance(views, Mapping):
        return {"mean": _array(views)}
    if not views:
        raise InputError("No views: give an array, or a mapping from token poolings to arrays")
    for pooling in views:
        POOLINGS[pooling]
    return {pooling: _array(array) for pooling, array in views.items()}


def metric_name(metric: AnyMetric) -> str:
    """The name of any metric."""
    if metric == GUARDED:
        return GUARDED
    retrieval = retrieval_metric(metric)
    return retrieval.name if retrieval else as_metric(metric).name


def retrieval_metric(metric: AnyMetric | None) -> RetrievalMetric | None:
    """The metric, where it is one of retrieval."""
    return RetrievalMetric.parse(metric) if isinstance(metric, str) else None


def make_problems(
    left: Mapping[str, Views],
    right: Mapping[str, Views],
    gold: object,
    metric: AnyMetric,
    *,
    head: Head | None = None,
    device: str | torch.device = "cpu",
) -> dict[str, Problem]:
    """For each token pooling, the views of both sides with the grades and the metric."""
    if set(left) != set(right):
        raise InputError(f"The two sides' poolings differ: {', '.join(left)} and {', '.join(right)}")
    return {name: _problem(left[name], right[name], gold, metric, head, device) for name in left}


def _problem(
    left: Views, right: Views, gold: object, metric: AnyMetric, head: Head | None, device: str | torch.device
) -> Problem:
    retrieval = retrieval_metric(metric)
    if retrieval is not None:
        if head is not None:
            raise InputError("A head is searched with pair metrics, not with retrieval")
        return RetrievalProblem.of(left, right, gold, retrieval, device=device)
    guarded = metric == GUARDED
    by = as_metric("separation" if guarded else metric)
    values = check_gold(gold, by)
    if not len(left) == len(right) == len(values):
        raise InputError(f"{len(left)} and {len(right)} sentences for {len(values)} scores: the lengths differ")
    source: PairSource = (
        PairGrams.of(left, right, device=device) if head is None else HeadPairs.of(left, right, head, device=device)
    )
    pairs = PairProblem(source, values, by)
    return GuardedProblem(pairs) if guarded else pairs


def _array(views: Views) -> Views:
    return views if isinstance(views, torch.Tensor) else np.asarray(views)
