"""Similar pairs built from unlabelled text: by word repetition, word deletion or adjacent sentences.

Word repetition (ESimCSE) makes length uninformative; word deletion preserves most of the meaning; adjacent sentences
of a text share a topic. Dissimilar pairs are sentences of different rows, drawn at random.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.registry import Registry
from layerwise.search.metrics import FEWEST_PAIRS, check_seed

Pairs = tuple[list[str], list[str]]
Alike = Callable[[Sequence[str], np.random.Generator], Pairs]
ALIKE: Registry[Alike] = Registry("criterion")
_CHANGED_SHARE = 0.2  # of a text's words that are repeated or deleted
_NEGATIVES = 5  # dissimilar pairs per similar pair


@ALIKE.register("repetition")
def repeated_words(texts: Sequence[str], random: np.random.Generator) -> Pairs:
    """Each text paired with itself, with some of its words repeated."""
    return _changed(
        texts, random, lambda words, picked: [word for n, word in enumerate(words) for _ in range(1 + picked[n])]
    )


@ALIKE.register("deletion")
def deleted_words(texts: Sequence[str], random: np.random.Generator) -> Pairs:
    """Each text paired with itself, without some of its words."""
    return _changed(texts, random, lambda words, picked: [word for n, word in enumerate(words) if not picked[n]])


@ALIKE.register("neighbours")
def neighbours(texts: Sequence[str], _random: np.random.Generator) -> Pairs:
    """Each text paired with the next one."""
    return list(texts[:-1]), list(texts[1:])


def alike_and_unlike(
    criterion: str, texts: Sequence[str], *, seed: int = 0
) -> tuple[list[str], list[str], list[float]]:
    """Similar pairs by a criterion, then dissimilar pairs of the same texts, with labels 1 and 0."""
    check_seed(seed)
    random = np.random.default_rng(seed)
    left, right = ALIKE[criterion](texts, random)
    size = len(left)
    if size < FEWEST_PAIRS:
        raise InputError(
            f"{len(texts)} sentences make {size} pairs by {criterion}, too few to choose views by; give at least "
            f"{FEWEST_PAIRS}, of two words or more"
        )
    first, second = negative_rows(size, random)
    labels = [1.0] * size + [0.0] * len(first)
    return left + [left[n] for n in first], right + [right[n] for n in second], labels


def negative_rows(size: int, random: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The two rows of each dissimilar pair, `_NEGATIVES` pairs per row: never a row with itself or its neighbours."""
    first = np.tile(np.arange(size), _NEGATIVES)
    return first, (first + random.integers(2, size - 1, len(first))) % size


def _changed(
    texts: Sequence[str], random: np.random.Generator, change: Callable[[list[str], list[bool]], list[str]]
) -> Pairs:
    """Texts of two words or more, paired with the same text after `change` of some words."""
    pairs = []
    for text in texts:
        words = text.split()
        if len(words) > 1:
            picked = np.zeros(len(words), dtype=bool)
            picked[random.permutation(len(words))[: max(1, round(_CHANGED_SHARE * len(words)))]] = True
            pairs.append((text, " ".join(change(words, picked.tolist()))))
    return [text for text, _ in pairs], [changed for _, changed in pairs]
