"""Quality against cost: the best set for every number of blocks, and the cheapest set as good as the recommended one.

In each split, the dev pairs choose the set of at most so many blocks, and the test pairs report its score.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layerwise.search.choose import Choice, Problems, pick
from layerwise.search.select import Gain, SplitChoice, bootstrap_gain
from layerwise.search.table import ScoredSet
from layerwise.search.verdict import Verdict, gain_in_words, name_layers

POINT = 0.01  # a set that loses less, by its interval, is as good


@dataclass(frozen=True)
class BestWithin:
    """The best set of at most so many blocks, with mean scores over the splits, and the choice of each split."""

    choice: Choice
    by_split: tuple[Choice, ...] = ()

    @property
    def blocks(self) -> int:
        """The number of blocks that run."""
        return self.choice.layers[-1]


@dataclass(frozen=True)
class Cheaper:
    """A set that runs fewer blocks than the recommended one and is as good.

    Args:
        choice: The set.
        instead_of: The number of blocks of the recommended set.
        against: Its gain over the recommended set on unseen rows; the interval lies above minus one point.
    """

    choice: Choice
    instead_of: int
    against: Gain

    @property
    def blocks(self) -> int:
        """The number of blocks that run."""
        return self.choice.layers[-1]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"mix": str(self.choice.mix), "blocks": self.blocks, "against": asdict(self.against)}

    def __str__(self) -> str:
        blocks = f"{self.blocks} block{'s' * (self.blocks != 1)}"
        return f"{name_layers(self.choice)}, {blocks} instead of {self.instead_of}, {gain_in_words(self.against)}"


def best_within(front: Sequence[ScoredSet], problems: Problems, splits: Sequence[SplitChoice]) -> list[BestWithin]:
    """The front with its scores on unseen rows, if there are splits."""
    reporting = [pick(problems, split.test) for split in splits]
    results = []
    for best in front:
        by_split = []
        for split, unseen in zip(splits, reporting, strict=True):
            affordable = [scored for scored in split.front if scored.layers[-1] <= best.layers[-1]] or [best]
            choice = Choice(affordable[-1].mix, affordable[-1].score)
            by_split.append(Choice(choice.mix, choice.dev, choice.on(unseen)))
        test = float(np.mean([choice.test for choice in by_split])) if by_split else None
        results.append(BestWithin(Choice(best.mix, best.score, test), tuple(by_split)))
    return results


def cheaper_set(
    front: Sequence[BestWithin],
    problems: Problems,
    splits: Sequence[SplitChoice],
    verdict: Verdict,
    *,
    seed: int,
    resamples: int,
) -> Cheaper | None:
    """The set of the fewest blocks that loses less than a point against the recommended one, by its interval."""
    used, chosen = verdict.use, verdict.use is verdict.chosen
    for within in front:
        loss = (used.test or 0.0) - (within.choice.test or 0.0)
        if within.blocks >= used.layers[-1] or not loss < POINT:
            continue
        choices = [
            (choice, split.best if chosen else used, split.test)
            for choice, split in zip(within.by_split, splits, strict=True)
        ]
        against = bootstrap_gain(problems, choices, seed=seed, resamples=resamples)
        if against.low > -POINT:
            return Cheaper(within.choice, used.layers[-1], against)
    return None
