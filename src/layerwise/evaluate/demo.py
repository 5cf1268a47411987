"""The demonstration pairs: every layer and named mix of an encoder on them, and the search of all sets of layers."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layerwise.data import demo_pairs
from layerwise.encoder import Array
from layerwise.evaluate.sts import Vectors, spearman
from layerwise.mixes import parse_mix
from layerwise.model import LayerModel
from layerwise.search import Choice, Gain, LayerSearch, Part

_POOLINGS = ("mean", "cls", "max")
_NAMED = ("last-2", "last-4", "first-last", "0+last", "all", "concat(1,-1)")
_DEV, _SPLITS = 0.5, 5
Sides = tuple[dict[str, Array], dict[str, Array]]


@dataclass(frozen=True)
class MixScore:
    """A mix, its layers as they were named, and its correlation on the pairs that choose and that report."""

    layers: str
    pooling: str
    mix: str
    dev: float
    test: float


@dataclass(frozen=True)
class DemoScores:
    """Scores are means over random splits into pairs that choose (`dev`) and others that report (`test`).

    `scores` are the layers and named mixes; `best` is what `LayerSearch` chose among all `sets` of all poolings, `last`
    the mean of the last layer, and `gain` how far the one is above the other on the pairs that report.
    """

    encoder: str
    dev_pairs: int
    test_pairs: int
    splits: int
    sets: int
    scores: tuple[MixScore, ...]
    best: MixScore
    last: MixScore
    gain: Gain
    warnings: tuple[str, ...]
    poolings: tuple[str, ...] = _POOLINGS

    @property
    def how(self) -> str:
        """For the model card."""
        return (
            f"the best of {self.sets} sets by spearman on {self.dev_pairs} of layerwise's demonstration pairs "
            f"({self.splits} random splits); on {self.test_pairs} others {100 * self.best.test:.1f}, "
            f"last layer {100 * self.last.test:.1f} (x 100)"
        )

    def table(self) -> dict[str, dict[str, float]]:
        """Layers -> pooling -> score on the pairs that choose."""
        rows: dict[str, dict[str, float]] = {}
        for score in self.scores:
            rows.setdefault(score.layers, {})[score.pooling] = score.dev
        return rows

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def score_demo_pairs(model: LayerModel) -> DemoScores:
    """One pass over the sentences (none, if their views are cached), then every layer, mix, set and pooling."""
    pairs, prompt = demo_pairs(), model.prompt()
    texts = [prompt + text for side in ("sentence1", "sentence2") for text in (getattr(pair, side) for pair in pairs)]
    views = model.encoder.encode_layers(texts, _POOLINGS, cache=True)
    halves = (slice(len(pairs)), slice(len(pairs), None))
    left, right = ({name: array[half] for name, array in views.items()} for half in halves)
    gold, depth = np.array([pair.score for pair in pairs]), model.encoder.depth
    search = LayerSearch(dev=_DEV, splits=_SPLITS).fit(left, right, gold)
    named = [
        _score(layers, pooling, (left, right), gold, search.parts_, depth)
        for layers in [*map(str, range(depth + 1)), *_usable(depth)]
        for pooling in _POOLINGS
    ]
    return DemoScores(
        encoder=model.encoder.name,
        dev_pairs=search.report_.dev_pairs,
        test_pairs=search.report_.test_pairs,
        splits=_SPLITS,
        sets=len(search.table_),
        scores=tuple(named),
        best=_as_score(search.best_),
        last=next(score for score in named if (score.layers, score.pooling) == (str(depth), "mean")),
        gain=search.report_.gain,
        warnings=tuple(search.warnings_),
    )


def _score(layers: str, pooling: str, sides: Sides, gold: Vectors, parts: list[Part], depth: int) -> MixScore:
    mix = parse_mix(layers, pooling=pooling)
    left, right = (np.asarray(mix(side[pooling])) for side in sides)
    scores = [[spearman(left[rows], right[rows], gold[rows]) for rows in part] for part in parts]
    return MixScore(layers, pooling, str(mix.resolve(depth)), *map(float, np.mean(scores, axis=0)))


def _as_score(choice: Choice) -> MixScore:
    test = np.nan if choice.test is None else choice.test
    return MixScore(",".join(map(str, choice.layers)), choice.pooling, str(choice.mix), choice.dev, test)


def _usable(depth: int) -> list[str]:
    """The named mixes that an encoder of few layers has too."""
    needed = {"last-4": 3, "concat(1,-1)": 2}
    return [name for name in _NAMED if depth >= needed.get(name, 1)]
