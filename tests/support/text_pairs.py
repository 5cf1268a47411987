"""Pairs of made-up sentences."""

import numpy as np

from layerwise.data import pairs_in_memory
from support.tiny import WORDS

PAIRS = 40


def some_pairs(count=PAIRS, seed=3):
    """Pairs that share their first words, graded by how many; some texts come twice."""
    random = np.random.default_rng(seed)
    left, right, gold = [], [], []
    for _ in range(count):
        words, others = random.choice(WORDS, 6), random.choice(WORDS, int(random.integers(3, 12)))
        shared = int(random.integers(0, 6))
        left.append(" ".join(words))
        right.append(" ".join([*words[:shared], *others]))
        gold.append(float(shared))
    return pairs_in_memory([*left[:-1], left[0]], right, gold)
