"""The demonstration pairs: every layer and named mix of an encoder on them, and the verdict of a search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from layerwise.data import demo_rows
from layerwise.encoder import Array
from layerwise.metrics import Numbers, cosine, spearman
from layerwise.mixes import parse_mix
from layerwise.model import LayerModel
from layerwise.search import CachedViews, Facts, Number, Search, Selection, SelectionFacts

DEMO_POOLINGS = ("mean", "cls", "max")
_PROMPTS = ("eol",)  # of a decoder's demonstration: a short one, and every second pair, for it takes minutes otherwise
_NAMED = ("last-2", "last-4", "first-last", "0+last", "all", "concat(1,-1)")
Sides = tuple[dict[str, Array], dict[str, Array]]


class MixScore(Facts):
    """A mix, its layers as they were named, and its correlation on the pairs that report."""

    layers: str
    pooling: str
    mix: str
    score: Number


@dataclass(frozen=True)
class DemoScores:
    """The layers and named mixes on the pairs that report, and the search that the other pairs chose by."""

    encoder: str
    scores: tuple[MixScore, ...]
    selection: Selection

    def table(self) -> dict[str, dict[str, float | None]]:
        """Layers -> pooling -> score."""
        rows: dict[str, dict[str, float | None]] = {}
        for score in self.scores:
            rows.setdefault(score.layers, {})[score.pooling] = score.score
        return rows


class AnswerFacts(Facts):
    """A passage, and its cosine with the question that it answers."""

    text: str
    score: float


class NoDecoderFacts(Facts):
    """Why no decoder was searched."""

    note: str


class DemoFacts(SelectionFacts):
    """What `layerwise demo --json` prints: the search of the encoder's layers, and what else it shows."""

    encoder: str
    scores: tuple[MixScore, ...]
    report: str | None
    answers: dict[str, tuple[AnswerFacts, ...]]
    decoder: SelectionFacts | NoDecoderFacts

    @classmethod
    def of(
        cls,
        scores: DemoScores,
        *,
        decoder: Selection | str,
        answers: Mapping[str, Sequence[Mapping[str, Any]]],
        saved: str,
        report: str | None,
    ) -> Self:
        """From the scores, a decoder's selection (or why there is none), answers and what was written."""
        shown = NoDecoderFacts(note=decoder) if isinstance(decoder, str) else decoder.facts
        found = dict(scores.selection.facts) | {"saved": saved, "report": report}
        return cls.model_validate(
            found | {"encoder": scores.encoder, "scores": scores.scores, "answers": answers, "decoder": shown}
        )


def score_demo_pairs(model: LayerModel) -> DemoScores:
    """One pass over the sentences (none, if their views are cached), then every layer, mix, set and pooling."""
    rows, depth = demo_rows(), model.encoder.depth
    selection = Search(poolings=DEMO_POOLINGS).fit(model, rows).selection_
    reporting = selection.splits[0].test
    encode = CachedViews(model.encoder, model.prompt())
    sides = encode.sides(rows.left, rows.right, DEMO_POOLINGS)  # of all rows: the search cached them
    left, right = ({pooling: view[reporting] for pooling, view in side.items()} for side in sides)
    gold = np.asarray(rows.labels)[reporting]
    named = [
        _score(layers, pooling, (left, right), gold, depth)
        for layers in [*map(str, range(depth + 1)), *_usable(depth)]
        for pooling in DEMO_POOLINGS
    ]
    return DemoScores(model.encoder.name, tuple(named), selection)


def search_demo_views(decoder: LayerModel) -> Selection:
    """The views of a decoder on every second demonstration pair: some choose, others report."""
    rows = demo_rows()
    return Search(prompts=_PROMPTS).fit(decoder, rows.pick(np.arange(0, len(rows.labels), 2))).selection_


def _score(layers: str, pooling: str, sides: Sides, gold: Numbers, depth: int) -> MixScore:
    mix = parse_mix(layers, pooling=pooling)
    left, right = (np.asarray(mix(side[pooling])) for side in sides)
    score = spearman(cosine(left, right), gold)
    return MixScore(layers=layers, pooling=pooling, mix=str(mix.resolve(depth)), score=score)


def _usable(depth: int) -> list[str]:
    """The named mixes that an encoder of few layers has too."""
    needed = {"last-4": 3, "concat(1,-1)": 2}
    return [name for name in _NAMED if depth >= needed.get(name, 1)]
