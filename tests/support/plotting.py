"""An example of every figure, in numbers that look like real ones."""

from collections.abc import Callable

import numpy as np

from layerwise.plots import (
    LIGHT,
    Drawing,
    MarkedMix,
    Theme,
    attention_map,
    attention_weights,
    before_after_curves,
    convergence,
    dumbbells,
    geometry_by_layer,
    layer_curves,
    layer_curves_by_model,
    layer_likeness,
    layer_negatives,
    layers_chosen,
    means_with_ties,
    pair_map,
    score_by_pairs,
    score_by_size,
    score_without_layer,
    smoothing_curves,
    spectra,
    token_matrices,
    view_scores,
)

LAYERS = np.arange(13)
MEAN = np.array([48.7, 50.8, 50.7, 47.4, 47.3, 45.1, 42.5, 40.8, 39.9, 39.9, 41.5, 44.2, 45.0])
CLS = np.array([np.nan, 35.6, 37.8, 35.6, 26.0, 27.3, 33.7, 30.8, 28.2, 28.8, 33.3, 35.4, 38.9])
POOLINGS = {"mean": MEAN, "cls": CLS, "max": MEAN + np.linspace(4.5, -2, 13)}
BEST = MarkedMix(56.1, (0, 1, 4))
TOKENS = ["[CLS]", "a", "man", "is", "playing", "a", "guitar", "for", "$", "5", ".", "[SEP]"]
TEXTS = ["A dog barks.", "Two men are cooking something in a very large kitchen.", "It costs $5 or $6."]
RANDOM = np.random.default_rng(3)
COSINES = np.stack([np.corrcoef(RANDOM.normal(size=(12, 30)) + shift) for shift in (0, 0, 0)])
COSINES = np.stack([(1 - level) * one + level for one, level in zip(COSINES, (0.1, 0.4, 0.7), strict=True)])
CKA = np.exp(-np.abs(LAYERS[:, None] - LAYERS) / 5)
WEIGHTS = RANDOM.dirichlet(np.linspace(1, 6, 13), size=12)
STEPS = np.arange(125, 1126, 125)
SEEDS = 70 + 10 * (1 - np.exp(-STEPS / 300)) + RANDOM.normal(0, 0.5, (3, 9))
POINTS = RANDOM.normal(0, 1, (30, 1, 2)) + RANDOM.normal(0, 1, (30, 2, 2)) * np.linspace(0.6, 0.05, 30)[:, None, None]
GRADES = np.linspace(0, 5, 30)
SHARES = np.exp(-np.arange(384) / 40) / np.exp(-np.arange(384) / 40).sum()
SIZES = np.arange(1, 14)
PAIRS = [16, 32, 64, 128, 256, 512, 1024]
BY_PAIRS = 56 - 8 / np.sqrt(np.arange(1, 8))
FLAT = MEAN[::-1] / 60

FIGURES: dict[str, Callable[[Theme], Drawing]] = {
    "layer_curves": lambda t: layer_curves(scores=POOLINGS, last="mean", best=BEST, title="wiki-mlm-12x384", theme=t),
    "layer_curves_crowded": lambda t: layer_curves(
        scores={f"model number {k}": MEAN + 0.1 * k for k in range(6)}, title="Six models, all alike", theme=t
    ),
    "layer_curves_by_model": lambda t: layer_curves_by_model(
        scores={"wiki-mlm": POOLINGS, "MiniLM": {n: v[:7] + 20 for n, v in POOLINGS.items()}, "mpnet": POOLINGS},
        last="mean", best={"wiki-mlm": BEST, "MiniLM": MarkedMix(73.0, (0, 6))}, theme=t,
    ),
    "convergence": lambda t: convergence(
        steps={"SimCSE": STEPS, "SSCL": STEPS}, scores={"SimCSE": SEEDS, "SSCL": SEEDS + 2}, title="Dev", theme=t
    ),
    "score_by_size": lambda t: score_by_size(
        sizes=SIZES, scores={"STS-B": 52 + np.sqrt(SIZES)}, sd={"STS-B": np.full(13, 0.4)}, last=45.0, theme=t
    ),
    "score_without_layer": lambda t: score_without_layer(
        layers=LAYERS, scores={"BERT": 55 - 0.2 * LAYERS[::-1], "RoBERTa": 58 - 0.3 * LAYERS}, full=56.1, theme=t
    ),
    "score_by_pairs": lambda t: score_by_pairs(
        pairs=PAIRS, scores={"best set": BY_PAIRS}, sd={"best set": 2 / np.arange(1, 8)}, last=45.0, theme=t
    ),
    "layers_chosen": lambda t: layers_chosen(shares=np.clip(1 - LAYERS / 10, 0, 1), best=(0, 1, 4), theme=t),
    "layer_negatives": lambda t: layer_negatives(
        layers=LAYERS[:-1], mean=MEAN[:-1], sd=np.full(12, 0.8), without=44.0, theme=t
    ),
    "smoothing_curves": lambda t: smoothing_curves(
        setsim={"SimCSE": FLAT[1:], "SSCL": FLAT[1:] - 0.1}, toksim={"SimCSE": FLAT, "SSCL": FLAT - 0.15}, theme=t
    ),
    "geometry_by_layer": lambda t: geometry_by_layer(
        measures={m: {"before": FLAT, "after": FLAT * 0.8} for m in ("anisotropy", "uniformity", "alignment", "rank")},
        mix={"anisotropy": {"before": 0.81, "after": 0.52}}, title="Geometry", theme=t,
    ),
    "spectra": lambda t: spectra(shares={"layer 0": SHARES, "layer 12": np.sort(SHARES**1.6)[::-1] * 12}, theme=t),
    "token_matrices": lambda t: token_matrices(tokens=TOKENS, matrices=COSINES, layers=[0, 6, 12], theme=t),
    "layer_likeness": lambda t: layer_likeness(matrix=CKA, title="wiki-mlm-12x384", theme=t),
    "attention_weights": lambda t: attention_weights(
        weights={"short": WEIGHTS[:4].mean(0), "long": WEIGHTS[4:].mean(0)}, theme=t
    ),
    "attention_map": lambda t: attention_map(weights=WEIGHTS, sentences=TEXTS * 4, theme=t),
    "view_scores": lambda t: view_scores(
        scores={"mean": MEAN, "last in eol": np.where(LAYERS > 0, CLS, np.nan)},
        chosen=[("mean", 3), ("last in eol", 5)], theme=t,
    ),
    "pair_map": lambda t: pair_map(points={"before": POINTS, "after": POINTS**3}, grades=GRADES, theme=t),
    "means_with_ties": lambda t: means_with_ties(
        names=["MiniLM, 1,6 @ mean", "MiniLM, last", "wiki-mlm, last-4", "mpnet, cls"], means=[63.2, 62.9, 58, 51.5],
        by_rows=[(0, 0), (-0.9, 0.3), (-6.0, -4.4), (-12.7, -10.7)], by_tasks=[(0, 0), (-2, 1.4), (-9, 0.4), (-16, -7)],
        title="sts", theme=t,
    ),
    "before_after_curves": lambda t: before_after_curves(scores={"before": MEAN, "after": MEAN + 9}, theme=t),
    "dumbbells": lambda t: dumbbells(
        measures=["STS-B, Spearman × 100", "anisotropy", "uniformity", "effective rank"], before=[45.0, 0.61, -1.2, 61],
        after=[63.2, 0.22, -2.6, 154], names=("wiki-mlm", "SSCL"), theme=t,
    ),
}  # fmt: skip
EXTREMES: dict[str, Callable[[Theme], Drawing]] = {
    "layer_curves_by_model_long": lambda t: layer_curves_by_model(
        scores={f"organisation/all-encoder-of-a-long-name-v{k}": POOLINGS for k in range(4)}, theme=t
    ),
    "layers_chosen_deep": lambda t: layers_chosen(shares=np.linspace(0, 1, 25), title="25 layers", theme=t),
    "layer_curves_deep": lambda t: layer_curves(
        scores={"a model of quite a long name indeed": np.linspace(40, 60, 49)}, best=MarkedMix(61.0, (0, 48)),
        title="A title that goes on and on, as titles of reports do, until nobody wants to read it any more", theme=t,
    ),
    "token_matrices_long": lambda t: token_matrices(
        tokens=[f"token{k}" for k in range(24)], matrices=np.stack([np.eye(24)] * 4), layers=["SimCSE", "SSCL", 3, 4],
        theme=t,
    ),
    "attention_map_many": lambda t: attention_map(
        weights=np.tile(WEIGHTS, (5, 1)), sentences=["a"] * 60, title="Sixty", theme=t
    ),
    "means_with_ties_alone": lambda t: means_with_ties(names=["a name " * 20, "b"], means=[1.0, 1.0], theme=t),
    "score_by_pairs_alone": lambda t: score_by_pairs(pairs=[100], scores={"x": [1.0]}, theme=t),
    "pair_map_equal": lambda t: pair_map(points={"PCA": POINTS[:1]}, grades=[3.0], method="PCA", theme=t),
    "dumbbells_equal": lambda t: dumbbells(
        measures=["a measure whose name is far too long to be shown in full", "zero"], before=[-1e-7, 0],
        after=[1e6, 0], theme=t,
    ),
}  # fmt: skip


def example(name: str, theme: Theme = LIGHT) -> Drawing:
    return (FIGURES | EXTREMES)[name](theme)
