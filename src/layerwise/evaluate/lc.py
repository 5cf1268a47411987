"""BERT-LC's protocol "lc": all rows split at random, with fixed layers or with layers that are searched in each split.

Of graded pairs 350 choose and the others report, 5 times; of classes 85 % train and 15 % test, 10 times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.kinds import Outcome, RowProblem
from layerwise.kinds.problem import mean_and_sd
from layerwise.metrics import Figures, Numbers, correlations, cosine
from layerwise.mixes import parse_mix
from layerwise.search import LARGE, LayerSearch, TransferProtocol, TransferSearch, fixed_accuracies, random_splits

DEV_PAIRS, SPLITS = 350, 5
Views = Mapping[str, Array]  # by token pooling: (texts, layers + 1, width)


@dataclass(frozen=True, eq=False)
class RandomSplits:
    """The rows of a problem, scored split by split."""

    problem: RowProblem
    seeds: Sequence[int]

    @property
    def texts(self) -> Mapping[str, Sequence[str]]:
        """The texts of the problem."""
        return self.problem.texts

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """The outcome for fixed layers, (texts, width): mean and standard deviation over the splits."""
        score = _fixed_classes if self.problem.task.has_classes else _fixed_pairs
        return score(self.problem, vectors, self.seeds)

    def search(self, embed: Callable[[Sequence[str], Sequence[str]], Views], poolings: Sequence[str]) -> Outcome:
        """The outcome of the layers that each split chooses, on rows that had no part in it.

        Args:
            embed: Texts and token poolings to views.
            poolings: To choose from; for classes one.
        """
        classes = self.problem.task.has_classes
        if classes and len(poolings) > 1:
            raise InputError(f"layers for classes are searched by one token pooling, not by {', '.join(poolings)}")
        search = _searched_classes if classes else _searched_pairs
        return search(self.problem, embed(self.texts[""], poolings), self.seeds)


def _fixed_pairs(problem: RowProblem, vectors: Mapping[str, Array], seeds: Sequence[int]) -> Outcome:
    gold = np.asarray(problem.labels, dtype=np.float64)
    similarities = cosine(*problem.pair_sides(vectors))
    parts = [test for seed in seeds for _, test in random_splits(len(gold), DEV_PAIRS, SPLITS, seed)]
    figures, sd = mean_and_sd([correlations(similarities[test], gold[test]) for test in parts])
    return Outcome(figures, similarities, gold, sd, {"splits": len(parts), "dev_pairs": DEV_PAIRS})


def _searched_pairs(problem: RowProblem, views: Views, seeds: Sequence[int]) -> Outcome:
    sides = {pooling: problem.pair_sides({"": layers}) for pooling, layers in views.items()}
    left, right = ({pooling: pair[side] for pooling, pair in sides.items()} for side in (0, 1))
    return search_splits(left, right, np.asarray(problem.labels, dtype=np.float64), seeds=seeds)


def search_splits(left: Views, right: Views, gold: Numbers, *, seeds: Sequence[int]) -> Outcome:
    """Score the best layers of each split's 350 pairs on its others. Views by pooling: (pairs, layers + 1, width)"""
    scores: list[Figures] = []
    chosen = []
    for seed in seeds:
        search = LayerSearch(dev=DEV_PAIRS, splits=SPLITS, seed=seed).fit(left, right, gold)
        for (_, test), split in zip(search.parts_, search.report_.splits, strict=True):
            mix = parse_mix(split.mix)
            similarities = cosine(mix(left[mix.pooling][test]), mix(right[mix.pooling][test]))
            scores.append(correlations(similarities, gold[test]))
            chosen.append(str(mix))
    figures, sd = mean_and_sd(scores)
    details = {"splits": len(scores), "dev_pairs": DEV_PAIRS, "chosen": chosen}
    return Outcome(figures, items=np.empty(0), sd=sd, details=details)


def _fixed_classes(problem: RowProblem, vectors: Mapping[str, Array], seeds: Sequence[int]) -> Outcome:
    left, right = problem.sides(vectors)
    pairs = None if right is None else right[:, None]
    shares = [
        share
        for seed in seeds
        for share in fixed_accuracies(
            left[:, None], problem.labels, (0,), pair_views=pairs, protocol=TransferProtocol(seed=seed)
        )
    ]
    return _accuracies(shares, {})


def _searched_classes(problem: RowProblem, views: Views, seeds: Sequence[int]) -> Outcome:
    (layers,) = views.values()
    left, right = problem.sides({"": layers})
    largest = 4 if left.shape[1] <= LARGE else 3
    searches = [TransferSearch(protocol=TransferProtocol(seed=seed, largest=largest)) for seed in seeds]
    splits = [
        split for search in searches for split in search.fit(left, problem.labels, pair_views=right).report_.splits
    ]
    return _accuracies([split.test for split in splits], {"chosen": [list(split.layers) for split in splits]})


def _accuracies(shares: Sequence[float], details: dict[str, list[list[int]]]) -> Outcome:
    figures, sd = mean_and_sd([{"accuracy": 100 * share} for share in shares])
    return Outcome(figures, items=np.empty(0), sd=sd, details=details)
