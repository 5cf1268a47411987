"""The demonstration pairs: every layer and named mix of an encoder on them, and the verdict of a search."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layerwise.data import TaskRows, demo_rows
from layerwise.encoder import Array, prompt_library
from layerwise.evaluate.sts import Vectors, spearman
from layerwise.mixes import parse_mix
from layerwise.model import LayerModel
from layerwise.search import (
    LayerSearch,
    SearchResult,
    ViewResult,
    ViewSearch,
    encode_sides,
    search_pairs,
    search_views,
    view_poolings,
)

DEMO_POOLINGS = ("mean", "cls", "max")
_PROMPTS = ("eol",)  # of a decoder's demonstration: a short one, and every second pair, for it takes minutes otherwise
_NAMED = ("last-2", "last-4", "first-last", "0+last", "all", "concat(1,-1)")
Sides = tuple[dict[str, Array], dict[str, Array]]


@dataclass(frozen=True)
class MixScore:
    """A mix, its layers as they were named, and its correlation on the pairs that report."""

    layers: str
    pooling: str
    mix: str
    score: float


@dataclass(frozen=True)
class DemoScores:
    """The layers and named mixes on the pairs that report, and the search that the other pairs chose by."""

    encoder: str
    scores: tuple[MixScore, ...]
    search: SearchResult

    def table(self) -> dict[str, dict[str, float]]:
        """Layers -> pooling -> score."""
        rows: dict[str, dict[str, float]] = {}
        for score in self.scores:
            rows.setdefault(score.layers, {})[score.pooling] = score.score
        return rows

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"encoder": self.encoder, "scores": [asdict(score) for score in self.scores]} | self.search.as_dict()


def score_demo_pairs(model: LayerModel) -> DemoScores:
    """One pass over the sentences (none, if their views are cached), then every layer, mix, set and pooling."""
    rows, depth = demo_rows(), model.encoder.depth
    result = search_pairs(model, rows, DEMO_POOLINGS, LayerSearch())
    (_, reporting), *_ = result.search.parts_
    sides = encode_sides(model.encoder, *_prompted(model, rows), DEMO_POOLINGS)  # of all rows: the search cached them
    left, right = ({pooling: view[reporting] for pooling, view in side.items()} for side in sides)
    gold = np.asarray(rows.labels)[reporting]
    named = [
        _score(layers, pooling, (left, right), gold, depth)
        for layers in [*map(str, range(depth + 1)), *_usable(depth)]
        for pooling in DEMO_POOLINGS
    ]
    return DemoScores(model.encoder.name, tuple(named), result)


def search_demo_views(decoder: LayerModel, *, show_progress_bar: bool = False) -> ViewResult:
    """The views of a decoder on every second demonstration pair: some choose, others report."""
    poolings = view_poolings(decoder, [], [prompt_library()[name] for name in _PROMPTS])
    rows = demo_rows()
    return search_views(
        decoder, rows.pick(np.arange(0, len(rows.labels), 2)), ViewSearch(poolings), show_progress_bar=show_progress_bar
    )


def _prompted(model: LayerModel, rows: TaskRows) -> tuple[list[str], list[str]]:
    prompt = model.prompt()
    return [prompt + text for text in rows.left], [prompt + text for text in rows.right]


def _score(layers: str, pooling: str, sides: Sides, gold: Vectors, depth: int) -> MixScore:
    mix = parse_mix(layers, pooling=pooling)
    left, right = (np.asarray(mix(side[pooling])) for side in sides)
    return MixScore(layers, pooling, str(mix.resolve(depth)), spearman(left, right, gold))


def _usable(depth: int) -> list[str]:
    """The named mixes that an encoder of few layers has too."""
    needed = {"last-4": 3, "concat(1,-1)": 2}
    return [name for name in _NAMED if depth >= needed.get(name, 1)]
