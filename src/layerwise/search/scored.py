"""A mix with its scores, what one split chose, and how often halves choose the same views."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.evidence import Rows, Split, Splits, halves_agreement
from layerwise.mixes import Mix
from layerwise.search.view_cost import Cost

Redraw = Callable[[Sequence[Rows]], NDArray[np.floating[Any]]]  # draws of units -> (draws, mixes)


@dataclass(frozen=True)
class Scored:
    """A mix with its scores: on the units that chose it (`dev`) and on others (`test`), if there are any.

    `by_split` holds what each split chose where the scores are means over several splits.
    """

    mix: Mix
    dev: float
    test: float | None = None
    cost: Cost | None = None
    by_split: tuple["Scored", ...] = ()

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of the mix."""
        return self.mix.layers

    @property
    def pooling(self) -> str:
        """The token pooling of the mix, the first of several."""
        return self.mix.pooling

    @property
    def blocks(self) -> int:
        """The number of blocks that run, over all passes."""
        return self.layers[-1] if self.cost is None else sum(self.cost.blocks)

    @classmethod
    def mean(cls, mix: Mix, by_split: Sequence["Scored"], cost: Cost | None = None) -> "Scored":
        """A mix with the mean scores of what each split chose."""
        tests = [np.nan if scored.test is None else scored.test for scored in by_split]
        test = None if all(scored.test is None for scored in by_split) else float(np.mean(tests))
        return cls(mix, float(np.mean([scored.dev for scored in by_split])), test, cost, tuple(by_split))


@dataclass(frozen=True)
class SplitChoice:
    """What the choosing units of a split chose, and the last layer, scored on both parts of the split."""

    best: Scored
    last: Scored
    split: Split


class ChosenView(NamedTuple):
    """A view that a half of the units chose, with its name, such as "26 @ mean in echo"."""

    name: str
    pooling: str
    layer: int


@dataclass(frozen=True)
class Stability:
    """The share of random halves of the choosing units that choose each view, token pooling and layer.

    `agreement` is the Jaccard index of the views of two complementary halves, on average.
    """

    views: Mapping[str, float]
    poolings: Mapping[str, float]
    layers: Mapping[int, float]
    agreement: float

    @classmethod
    def of(cls, choices: Sequence[Iterable[ChosenView] | None], *, unit: str = "pairs") -> Self:
        """Summarise what complementary halves choose, given in succession; None for a half that cannot choose."""
        agreed = halves_agreement(choices, unit=unit)

        def shares(names: Callable[[Any], Hashable]) -> dict[Any, float]:
            counts = Counter(chain.from_iterable({names(view) for view in half} for half in agreed.choices))
            ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
            return {name: count / len(agreed.choices) for name, count in ordered}

        layers = dict(sorted(shares(lambda view: view.layer).items()))
        return cls(shares(lambda view: view.name), shares(lambda view: view.pooling), layers, agreed.agreement)


def chosen_views(mix: Mix) -> list[ChosenView]:
    """The views of a set of layers."""
    return [ChosenView(f"{layer} @ {mix.pooling}", mix.pooling, layer) for layer in mix.layers]


class Scorer(ABC):
    """What a search chooses from: it scores mixes on units (pairs, queries, rows) and on resamples of them.

    Attributes:
        metric: The name of the scores.
        unit: The unit of what is split, such as "pairs".
        splits: Which units choose and which report.
    """

    metric: str
    unit: str
    splits: Splits

    @property
    def may_keep(self) -> bool:
        """Whether the baseline is among what may be chosen."""
        return True

    @property
    def smooth(self) -> bool:
        """Whether no single unit changes a score much, so that the jackknife is valid."""
        return True

    @property
    def are_means(self) -> bool:
        """Whether scores are means over units of values from 0 to 1."""
        return False

    @property
    def starts(self) -> int:
        """The number of random seeds over which a score is averaged; 1 where none matters."""
        return 1

    @property
    def singles(self) -> Mapping[str, NDArray[np.float64]] | None:
        """The score of every layer of each pooling alone, if it was screened; NaN where all texts are alike."""
        return None

    @property
    def fitted_on(self) -> str | None:
        """The text on which means and components were fitted, "pairs" or "corpus"; None if nothing is removed."""
        return None

    @property
    def near_copies(self) -> int:
        """The number of reporting units with a sentence that is nearly a choosing one."""
        return 0

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def candidates(self) -> str:
        """How many sets or views there are to choose from, in words."""

    @property
    @abstractmethod
    def choices(self) -> Sequence[SplitChoice]:
        """What each split chooses."""

    @property
    @abstractmethod
    def table(self) -> Sequence[Scored]:
        """What was scored on the choosing units, best first."""

    @property
    @abstractmethod
    def best(self) -> Scored:
        """The best mix over all splits, with mean scores."""

    @property
    @abstractmethod
    def last(self) -> Scored:
        """The last layer, with mean scores."""

    @property
    def baseline(self) -> Scored:
        """The last layer, or the highest one that may be chosen."""
        return self.last

    @property
    @abstractmethod
    def front(self) -> Sequence[Scored]:
        """The best mixes by cost, each better than all cheaper ones."""

    @property
    @abstractmethod
    def stability(self) -> Stability | None:
        """What halves of the choosing units choose; None where that cannot be told."""

    @abstractmethod
    def score(self, mix: Mix, rows: Rows) -> float:
        """The score of a mix on some units."""

    @abstractmethod
    def redraw(self, number: int, mixes: Sequence[Mix]) -> Redraw:
        """A function from draws of units to the scores of mixes on them, for a split: draws -> (draws, mixes)"""
