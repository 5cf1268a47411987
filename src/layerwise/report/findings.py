"""Everything that a report tells of one model, or of two: measured once, from views that are read once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerwise.errors import InputError
from layerwise.evaluate import gain_on_pairs
from layerwise.measures import (
    BeforeAfter,
    ChosenLayers,
    Geometry,
    LayersAlike,
    LayerScores,
    LayerWeightsTaken,
    Material,
    PairSimilarities,
    Projection,
    Smoothing,
    Spectra,
    TokenMatrices,
    TrainingCurve,
    attention_over_layers,
    changes_between,
    chosen_layers,
    geometry_and_spectra,
    layer_scores,
    layers_alike,
    pair_similarities,
    projection,
    smoothing,
    token_matrices,
    told_apart,
)
from layerwise.mixes import LayerAttention
from layerwise.search import Gain

FEWEST_PAIRS = 20  # that can choose layers and report on them
_FEWEST_POINTS = 4
_LONGEST = 24  # tokens of the sentence whose matrices are drawn: more can't be read on a phone


@dataclass(frozen=True, eq=False)
class Findings:
    """What was measured of one model; None where the pairs have no grades or are too few, or nothing attends."""

    name: str
    given: str
    material: Material
    scores: LayerScores | None
    chosen: ChosenLayers | None
    smooth: Smoothing
    tokens: TokenMatrices
    attention: LayerWeightsTaken | None
    space: Geometry
    variance: Spectra
    alike: LayersAlike
    points: Projection | None
    pairs: PairSimilarities

    @property
    def mix(self) -> str:
        """The model's own."""
        return str(self.material.model.mix)


@dataclass(frozen=True, eq=False)
class Compared:
    """Two models on the same pairs: every figure of both, and how much better the second grades the pairs."""

    first: Findings
    second: Findings
    changes: BeforeAfter
    gain: Gain | None


@dataclass(frozen=True, eq=False)
class Gathered:
    """All that a report is made of."""

    found: Findings
    compared: Compared | None = None
    trainings: tuple[TrainingCurve, ...] = ()


def find_out(material: Material, given: str, *, seed: int = 0) -> Findings:
    """Measure one model. `given` is what the user called it."""
    graded = material.pairs.gold is not None
    pairs = len(material.pairs)
    attends = isinstance(material.model.mix, LayerAttention)
    space, variance = geometry_and_spectra(material)
    return Findings(
        name=Path(given).name or given,
        given=given,
        material=material,
        scores=layer_scores(material) if graded else None,
        chosen=chosen_layers(material, seed=seed) if graded and pairs >= FEWEST_PAIRS else None,
        smooth=smoothing(material),
        tokens=token_matrices(material, _short_sentence(material)),
        attention=attention_over_layers(material) if attends else None,
        space=space,
        variance=variance,
        alike=layers_alike(material),
        points=projection(material, "tsne", seed=seed) if graded and pairs >= _FEWEST_POINTS else None,
        pairs=pair_similarities(material),
    )


def gather(first: Findings, second: Findings | None = None, trainings: Sequence[TrainingCurve] = ()) -> Gathered:
    """A report on `first`, set against `second` if there is one."""
    if second is None:
        return Gathered(first, None, tuple(trainings))
    names = told_apart([first.given, second.given])
    first, second = replace(first, name=names[0]), replace(second, name=names[1])
    gold = first.material.pairs.gold
    gain = None if gold is None else gain_on_pairs(second.pairs.own, first.pairs.own, gold)
    figures = [(one.scores, one.smooth, one.space) for one in (second, first)]
    changes = changes_between((second.name, first.name), *figures)
    return Gathered(first, Compared(second, first, changes, gain), tuple(trainings))


def _short_sentence(material: Material) -> str | None:
    """The longest text that can be read as a matrix; words stand for tokens here, which are a few more."""
    fitting = [text for text in material.pairs.left if 4 <= len(text.split()) <= _LONGEST // 2]
    return max(fitting, key=lambda text: len(text.split())) if fitting else None


def check_two(one: str, other: str) -> None:
    """Refuse a comparison of a model with itself."""
    if Path(one) == Path(other):
        raise InputError(f"{one}: a model against itself says nothing; give another one to --against")
