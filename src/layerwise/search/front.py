"""Quality against cost: the best set within every number of blocks, and the cheapest that is as good as what is used.

Of several splits, each one's own pairs choose its set of at most so many blocks, and its other pairs report it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layerwise.search.choose import Choice, Problems, pick
from layerwise.search.select import Gain, SplitChoice, bootstrap_gain
from layerwise.search.table import ScoredSet
from layerwise.search.verdict import Verdict, gain_in_words, name_layers

POINT = 0.01  # a set that surely loses less is as good


@dataclass(frozen=True)
class BestWithin:
    """The best set of at most so many blocks, with means of the splits; and what each split chose of so many."""

    choice: Choice
    by_split: tuple[Choice, ...] = ()

    @property
    def blocks(self) -> int:
        """How many blocks run."""
        return self.choice.layers[-1]


@dataclass(frozen=True)
class Cheaper:
    """A set that runs fewer blocks than what the verdict says to use, and is as good.

    Args:
        choice: The set.
        instead_of: The blocks of what the verdict says to use.
        against: Its gain over that on unseen rows, whose interval lies above minus one point.
    """

    choice: Choice
    instead_of: int
    against: Gain

    @property
    def blocks(self) -> int:
        """How many blocks run."""
        return self.choice.layers[-1]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"mix": str(self.choice.mix), "blocks": self.blocks, "against": asdict(self.against)}

    def __str__(self) -> str:
        many = f"{self.blocks} block{'s' * (self.blocks != 1)}"
        return f"{name_layers(self.choice)}, {many} instead of {self.instead_of}, {gain_in_words(self.against)}"


def best_within(front: Sequence[ScoredSet], problems: Problems, splits: Sequence[SplitChoice]) -> list[BestWithin]:
    """The front with its scores on unseen rows, where splits left some."""
    reporting = [pick(problems, split.test) for split in splits]
    found = []
    for best in front:
        by_split = []
        for split, unseen in zip(splits, reporting, strict=True):
            own = [one for one in split.front if one.layers[-1] <= best.layers[-1]] or [best]
            choice = Choice(own[-1].mix, own[-1].score)
            by_split.append(Choice(choice.mix, choice.dev, choice.on(unseen)))
        test = float(np.mean([choice.test for choice in by_split])) if by_split else None
        found.append(BestWithin(Choice(best.mix, best.score, test), tuple(by_split)))
    return found


def cheaper_set(
    front: Sequence[BestWithin],
    problems: Problems,
    splits: Sequence[SplitChoice],
    verdict: Verdict,
    *,
    seed: int,
    resamples: int,
) -> Cheaper | None:
    """The set of the fewest blocks that surely loses less than a point against what the verdict says to use."""
    used, chosen = verdict.use, verdict.use is verdict.chosen
    for within in front:
        loss = (used.test or 0.0) - (within.choice.test or 0.0)
        if within.blocks >= used.layers[-1] or not loss < POINT:
            continue
        choices = [
            (mine, split.best if chosen else used, split.test)
            for mine, split in zip(within.by_split, splits, strict=True)
        ]
        against = bootstrap_gain(problems, choices, seed=seed, resamples=resamples)
        if against.low > -POINT:
            return Cheaper(within.choice, used.layers[-1], against)
    return None
