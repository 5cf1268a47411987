"""Word repetition (ESimCSE, Wu et al. 2022): the second view of a sentence says some of its words twice.

Two dropout passes of a sentence have the same length, other sentences mostly another, so that length alone tells
positives from negatives. Repeating words takes that away. The paper repeats subwords; here it is words.
"""

from collections.abc import Sequence

import numpy as np


def repeat_words(texts: Sequence[str], rate: float, random: np.random.Generator) -> tuple[str, ...]:
    """Each text with 0 to max(2, rate · words) of its words, drawn anew, said twice; their order stays."""
    return tuple(_repeated(text, rate, random) for text in texts)


def _repeated(text: str, rate: float, random: np.random.Generator) -> str:
    words = text.split()
    most = min(len(words), max(2, int(rate * len(words))))
    twice = set(random.permutation(len(words))[: random.integers(most + 1)].tolist())
    return " ".join(word for place, word in enumerate(words) for _ in range(2 if place in twice else 1))
