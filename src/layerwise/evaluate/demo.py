"""Every layer and named mix of an encoder on the demonstration pairs: half of them choose, the other half report."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layerwise.data.demo import demo_pairs
from layerwise.encoder.batches import Rows
from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.encoder.stream import Array
from layerwise.evaluate.pairs import Vectors, spearman
from layerwise.mixes import parse_mix

_POOLINGS = ("mean", "cls", "max")
_NAMED = ("last-2", "last-4", "first-last", "0+last", "all", "concat(1,-1)")
_SEED = 0
_RESAMPLES = 200


@dataclass(frozen=True)
class MixScore:
    """A mix, its layers as they were named, and its correlation on either half of the pairs."""

    layers: str
    pooling: str
    mix: str
    dev: float
    test: float


@dataclass(frozen=True)
class DemoScores:
    """All scores. `last` is the mean of the last layer; `best` is the best on the half that chooses, unless it leads
    `last` there by no more than one standard error: then the last layer stays.
    """

    encoder: str
    dev_pairs: int
    test_pairs: int
    scores: tuple[MixScore, ...]
    best: MixScore
    last: MixScore
    poolings: tuple[str, ...] = _POOLINGS

    @property
    def how(self) -> str:
        """For the model card."""
        return (
            f"of {len(self.scores)} layers and mixes the best on {self.dev_pairs} of layerwise's demonstration pairs "
            f"(Spearman x 100 {100 * self.best.dev:.1f}; the last layer unless another leads by more than its "
            f"standard error); on {self.test_pairs} other pairs {100 * self.best.test:.1f}, "
            f"last layer {100 * self.last.test:.1f}"
        )

    def table(self) -> dict[str, dict[str, float]]:
        """Layers -> pooling -> score on the half that chooses."""
        rows: dict[str, dict[str, float]] = {}
        for score in self.scores:
            rows.setdefault(score.layers, {})[score.pooling] = score.dev
        return rows

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def score_demo_pairs(encoder: LayerEncoder) -> DemoScores:
    """One pass over the sentences (none, if their views are cached), then every layer, mix and pooling."""
    pairs = demo_pairs()
    texts = [pair.sentence1 for pair in pairs] + [pair.sentence2 for pair in pairs]
    views = encoder.encode_layers(texts, _POOLINGS, cache=True)
    gold = np.array([pair.score for pair in pairs])
    order = np.random.default_rng(_SEED).permutation(len(pairs))
    dev, test = order[: len(pairs) // 2], order[len(pairs) // 2 :]
    found = []
    for layers in [*map(str, range(encoder.depth + 1)), *_usable(encoder.depth)]:
        for pooling in _POOLINGS:
            mix = parse_mix(layers, pooling=pooling)
            vectors = mix(views[pooling])
            left, right = vectors[: len(pairs)], vectors[len(pairs) :]
            scores = [spearman(left[half], right[half], gold[half]) for half in (dev, test)]
            found.append(MixScore(layers, pooling, str(mix.resolve(encoder.depth)), *scores))
    last = next(score for score in found if score.layers == str(encoder.depth) and score.pooling == "mean")
    best = max((score for score in found if not np.isnan(score.dev)), key=lambda score: score.dev)
    if best.dev - last.dev <= _noise(views, best, last, gold, dev):
        best = last
    return DemoScores(encoder.name, len(dev), len(test), tuple(found), best, last)


def _noise(views: dict[str, Array], one: MixScore, other: MixScore, gold: Vectors, pairs: Rows) -> float:
    """The standard error of the difference between two mixes' scores, by resampling the pairs."""
    both = [parse_mix(score.mix)(views[score.pooling]) for score in (one, other)]
    random = np.random.default_rng(_SEED)
    gains = []
    for _ in range(_RESAMPLES):
        drawn = random.choice(pairs, len(pairs))
        first, second = (spearman(v[: len(gold)][drawn], v[len(gold) :][drawn], gold[drawn]) for v in both)
        gains.append(first - second)
    return float(np.std(gains))


def _usable(depth: int) -> list[str]:
    """The named mixes that an encoder of few layers has too."""
    needed = {"last-4": 3, "concat(1,-1)": 2}
    return [name for name in _NAMED if depth >= needed.get(name, 1)]
