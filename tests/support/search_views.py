"""Views of pairs whose best sets are known, and every set's score by SciPy, one after the other."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from scipy.stats import spearmanr

from layerwise.search.metrics import METRICS
from layerwise.search.problems import PairProblem
from layerwise.search.sources import PairGrams


def cosine(left, right):
    """Equal to 12 digits means equal: (n, d) twice -> (n,)"""
    return np.round((left * right).sum(-1) / np.linalg.norm(left, axis=-1) / np.linalg.norm(right, axis=-1), 12)


def score_of(left, right, gold, layers, rows=slice(None)):
    """Spearman's correlation of the mean of layers on some pairs."""
    sides = (side[rows][:, list(layers)].mean(1) for side in (left, right))
    return spearmanr(cosine(*sides), gold[rows]).statistic


def brute_force(left, right, gold, rows=slice(None)) -> Mapping[tuple[int, ...], float]:
    """Set -> Spearman's correlation, for all sets."""
    layers = range(left.shape[1])
    sets = (chosen for size in layers for chosen in combinations(layers, size + 1))
    return {chosen: score_of(left, right, gold, chosen, rows) for chosen in sets}


def noise_pairs(pairs=120, layers=4, width=6, seed=0):
    """Views that know nothing about the scores."""
    random = np.random.default_rng(seed)
    return *random.normal(size=(2, pairs, layers, width)), random.integers(0, 11, size=pairs) / 2


def graded_pairs(pairs=120, layers=4, width=8, seed=0):
    """Every layer knows something, some more."""
    random = np.random.default_rng(seed)
    gold = np.round(random.random(pairs) * 5, 1)
    left = random.normal(size=(pairs, layers, width))
    spread = (5.5 - gold)[:, None, None] * np.linspace(0.2, 0.6, layers)[:, None]
    return left, left + random.normal(size=left.shape) * (spread + random.random((1, layers, 1))), gold


def planted_layer(pairs=150, layers=4, good=1, noise=0.0, seed=0):
    """One layer's cosines are the scores but for noise of their angles; the others know nothing."""
    random = np.random.default_rng(seed)
    gold = random.permutation(np.linspace(-0.95, 0.95, pairs))
    left, right = random.normal(size=(2, pairs, layers, 2))
    angle = np.arccos(np.clip(gold + noise * random.normal(size=pairs), -1, 1))
    left[:, good] = 3, 0
    right[:, good] = 3 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return left, right, gold


def planted_mix(weights, pairs=150, layers=6, width=8, seed=0):
    """Two layers whose noise cancels only in a mix by these weights (layer -> weight)."""
    random = np.random.default_rng(seed)
    signal, hidden = random.normal(size=(2, 2, pairs, width))
    left, right = random.normal(size=(2, pairs, layers, width)) * 4
    (one, share), (other, rest) = weights.items()
    for side, meaning, disturbance in zip((left, right), signal, hidden, strict=True):
        side[:, one] = meaning + disturbance / share
        side[:, other] = meaning - disturbance / rest
    return left, right, cosine(*signal)


def layers_of_noise(noise, *, pairs=300, width=16, own=0.01, seed=0):
    """Layers whose cosines are the scores but for so much noise each, nearly the same noise in all of them."""
    random = np.random.default_rng(seed)
    gold = random.uniform(-0.9, 0.9, pairs)
    shared = random.normal(size=pairs)
    left, right = np.zeros((2, pairs, len(noise), width))
    for layer, much in enumerate(noise):
        cosines = np.clip(gold + much * (shared + own * random.normal(size=pairs)), -1, 1)
        left[:, layer, 0] = 1
        right[:, layer, 0], right[:, layer, 1] = cosines, np.sqrt(1 - cosines**2)
    return left, right, gold


def problem_of(left, right, gold, metric="spearman"):
    """The pairs as a problem of a search."""
    return PairProblem(PairGrams.of(left, right), np.asarray(gold, dtype=float), METRICS[metric])
