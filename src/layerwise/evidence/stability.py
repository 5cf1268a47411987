"""Stability of a choice: how often complementary random halves of the units choose the same."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.evidence.resamples import check_seed
from layerwise.evidence.splits import divide

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Agreement:
    """What halves of the units choose.

    Args:
        shares: The share of the halves that choose each element, most often first.
        agreement: The Jaccard index of what two complementary halves choose, on average.
        choices: What each half chooses, the two complementary ones next to each other.
    """

    shares: dict[Hashable, float]
    agreement: float
    choices: tuple[frozenset[Hashable], ...]


def draw_halves(units: int, n: int, seed: int, *, groups: Rows | None = None) -> list[Rows]:
    """Draw `n` divisions into complementary halves of equal size; a list of 2 n, the two of a division in succession.

    Groups of units that share sentences stay in one half; halves then differ in size as far as these require.
    """
    check_seed(seed)
    random = np.random.default_rng(seed)
    halves: list[Rows] = []
    for _ in range(n):
        first, second = divide(random.permutation(units), groups, units // 2)
        is_divided = groups is None or len(np.unique(groups)) == units
        halves += [first, second[: units // 2] if is_divided else second]
    return halves


def halves_agreement(choices: Sequence[Iterable[Hashable] | None], *, unit: str = "pairs") -> Agreement:
    """Summarise what complementary halves choose, given in succession; None or nothing for a half that cannot choose.

    A division counts only if both halves choose.

    >>> agreement = halves_agreement([{1, 2}, {2}, {2}, {2}])
    >>> agreement.shares, agreement.agreement
    ({2: 1.0, 1: 0.25}, 0.75)
    """
    sets = [frozenset(choice or ()) for choice in choices]
    pairs = [(first, second) for first, second in zip(sets[::2], sets[1::2], strict=True) if first and second]
    if not pairs:
        raise InputError(f"Halves of the {unit} cannot choose: their scores are all equal; give more {unit}")
    agreement = float(np.mean([len(first & second) / len(first | second) for first, second in pairs]))
    chosen = tuple(chain.from_iterable(pairs))
    counts = Counter(chain.from_iterable(chosen))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    return Agreement({name: count / len(chosen) for name, count in ordered}, agreement, chosen)
