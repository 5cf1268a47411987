"""BERT-LC's protocol "lc": all rows split at random, with fixed layers or with layers that are searched in each split.

Of graded pairs 350 choose and the others report, 5 times; of classes 85 % train and 15 % test, 10 times.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.evidence import draw_splits
from layerwise.kinds import Outcome, RowProblem
from layerwise.kinds.problem import mean_and_sd
from layerwise.metrics import Figures, Numbers, correlations, cosine
from layerwise.search import ClassProtocol, ClassRows, ClassScorer, Search

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
    parts = [test for seed in seeds for _, test in draw_splits(len(gold), DEV_PAIRS, SPLITS, seed)]
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
        for choice in Search(dev=DEV_PAIRS, splits=SPLITS, seed=seed).fit_views(left, right, gold).selection_.choices:
            mix, test = choice.best.mix, choice.split.test
            similarities = cosine(mix(left[mix.pooling][test]), mix(right[mix.pooling][test]))
            scores.append(correlations(similarities, gold[test]))
            chosen.append(str(mix))
    figures, sd = mean_and_sd(scores)
    details = {"splits": len(scores), "dev_pairs": DEV_PAIRS, "chosen": chosen}
    return Outcome(figures, items=np.empty(0), sd=sd, details=details)


def _class_scorers(problem: RowProblem, views: Array, seeds: Sequence[int], *, fixed: bool) -> Iterator[ClassScorer]:
    """A scorer for each seed, of views (texts, layers, width)."""
    left, right = problem.sides({"": views})
    rows = ClassRows.of({"mean": left}, problem.labels, None if right is None else {"mean": right})
    for seed in seeds:
        protocol = ClassProtocol(seed=seed)
        yield ClassScorer(rows, protocol.splits(len(rows)), protocol, may_lack_classes=fixed)


def _fixed_classes(problem: RowProblem, vectors: Mapping[str, Array], seeds: Sequence[int]) -> Outcome:
    scorers = _class_scorers(problem, vectors[""][:, None], seeds, fixed=True)
    return _accuracies([float(share) for one in scorers for share in one.unseen_scores([one.last_mix])[0]], {})


def _searched_classes(problem: RowProblem, views: Views, seeds: Sequence[int]) -> Outcome:
    (layers,) = views.values()
    scorers = _class_scorers(problem, layers, seeds, fixed=False)
    best = [choice.best for scorer in scorers for choice in scorer.choices]
    return _accuracies([one.test or 0.0 for one in best], {"chosen": [list(one.layers) for one in best]})


def _accuracies(shares: Sequence[float], details: dict[str, list[list[int]]]) -> Outcome:
    figures, sd = mean_and_sd([{"accuracy": 100 * share} for share in shares])
    return Outcome(figures, items=np.empty(0), sd=sd, details=details)
