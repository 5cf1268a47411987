"""Pairs of text that should be alike, made of text without labels: words repeated, words deleted, neighbours.

ESimCSE repeats words so that length says nothing about meaning; deleting some leaves most of the meaning; sentences
that follow each other in a text are about the same thing. Sentences of different rows, drawn at random, are unlike.
"""

from collections.abc import Callable, Sequence

import numpy as np

from layerwise.errors import InputError
from layerwise.registry import Registry
from layerwise.search.metrics import FEWEST_PAIRS, check_seed

Pairs = tuple[list[str], list[str]]
Alike = Callable[[Sequence[str], np.random.Generator], Pairs]
ALIKE: Registry[Alike] = Registry("criterion")
_SHARE = 0.2  # of a text's words that are repeated or deleted
_UNLIKE = 5  # pairs of unlike sentences for each alike one


@ALIKE.register("repetition")
def repeated_words(texts: Sequence[str], random: np.random.Generator) -> Pairs:
    """Each text beside itself with some of its words said twice."""
    return _changed(
        texts, random, lambda words, picked: [word for n, word in enumerate(words) for _ in range(1 + picked[n])]
    )


@ALIKE.register("deletion")
def deleted_words(texts: Sequence[str], random: np.random.Generator) -> Pairs:
    """Each text beside itself without some of its words."""
    return _changed(texts, random, lambda words, picked: [word for n, word in enumerate(words) if not picked[n]])


@ALIKE.register("neighbours")
def neighbours(texts: Sequence[str], _random: np.random.Generator) -> Pairs:
    """Each text beside the one that follows it."""
    return list(texts[:-1]), list(texts[1:])


def alike_and_unlike(
    criterion: str, texts: Sequence[str], *, seed: int = 0
) -> tuple[list[str], list[str], list[float]]:
    """Alike pairs by a criterion, then unlike ones of the same texts, and labels 1 and 0 for them."""
    check_seed(seed)
    random = np.random.default_rng(seed)
    left, right = ALIKE[criterion](texts, random)
    size = len(left)
    if size < FEWEST_PAIRS:
        raise InputError(
            f"{len(texts)} sentences make {size} pairs by {criterion}, too few to choose views by; give at least "
            f"{FEWEST_PAIRS}, of two words or more"
        )
    first = np.tile(np.arange(size), _UNLIKE)
    second = (first + random.integers(2, size - 1, len(first))) % size  # never a row with itself or its neighbours
    unlike = [left[n] for n in first], [right[n] for n in second]
    return left + unlike[0], right + unlike[1], [1.0] * size + [0.0] * len(first)


def alike_texts(
    criterion: str, left: Sequence[str], right: Sequence[str], *, seed: int = 0
) -> tuple[list[str], list[str] | None]:
    """Text that is alike by a criterion: of `left` alone, of `left` and `right` for "pairs"; for "dropout" one side."""
    if criterion == "dropout":
        return list(left), None
    if criterion == "pairs":
        return list(left), list(right)
    return ALIKE[criterion](left, np.random.default_rng(seed))


def _changed(
    texts: Sequence[str], random: np.random.Generator, change: Callable[[list[str], list[bool]], list[str]]
) -> Pairs:
    """Texts of two words or more, beside what some of their words' change makes of them."""
    pairs = []
    for text in texts:
        words = text.split()
        if len(words) > 1:
            picked = np.zeros(len(words), dtype=bool)
            picked[random.permutation(len(words))[: max(1, round(_SHARE * len(words)))]] = True
            pairs.append((text, " ".join(change(words, picked.tolist()))))
    return [text for text, _ in pairs], [changed for _, changed in pairs]
