"""Word repetition (ESimCSE, Wu et al. 2022): the second view of a sentence repeats some of its words.

Two dropout passes of a sentence have the same length, other sentences mostly a different one, so that length reveals
the positives. Repeating words prevents that. The paper repeats subwords; here it is words.
"""

from collections.abc import Sequence

import numpy as np


def repeat_words(texts: Sequence[str], rate: float, random: np.random.Generator) -> tuple[str, ...]:
    """Repeat 0 to max(2, rate · words) randomly drawn words of each text; the order is unchanged."""
    return tuple(_repeated(text, rate, random) for text in texts)


def _repeated(text: str, rate: float, random: np.random.Generator) -> str:
    words = text.split()
    limit = min(len(words), max(2, int(rate * len(words))))
    repeated = set(random.permutation(len(words))[: random.integers(limit + 1)].tolist())
    return " ".join(word for index, word in enumerate(words) for _ in range(2 if index in repeated else 1))
