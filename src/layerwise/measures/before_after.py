"""Two models on the same pairs: every figure of both, and what changed."""

from dataclasses import dataclass

from layerwise.errors import InputError
from layerwise.measures.geometry import Geometry, geometry
from layerwise.measures.material import Material
from layerwise.measures.measure import Measured, Row
from layerwise.measures.scores import LayerScores, layer_scores
from layerwise.measures.smoothing import Smoothing, smoothing

Taken = tuple[LayerScores | None, Smoothing, Geometry]  # of one model

_BETTER = {
    "score of the own mix": "higher",
    "score of the last layer, mean": "higher",
    "score of the best single layer": "higher",
    "alignment": "lower",
    "uniformity": "lower",
}


@dataclass(frozen=True)
class Change:
    """One figure of two models. `better` is "higher" or "lower", or "" where neither is better in itself."""

    name: str
    first: float
    second: float
    better: str

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


@dataclass(frozen=True, eq=False)
class BeforeAfter(Measured):
    """Two models compared: figures of both, and either's scores by layer (None for pairs without grades)."""

    first: str
    second: str
    changes: tuple[Change, ...]
    first_scores: LayerScores | None
    second_scores: LayerScores | None

    def rows(self) -> list[Row]:
        """A row for each figure."""
        return [
            {"figure": change.name, "first": change.first, "second": change.second}
            | {"difference": change.difference, "better": change.better or None}
            for change in self.changes
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Which model is which."""
        return (f"first: {self.first}; second: {self.second}",)


def before_after(first: Material, second: Material) -> BeforeAfter:
    """Every scalar figure of two models on the same pairs, such as an encoder before and after its training."""
    if (first.pairs.left, first.pairs.right) != (second.pairs.left, second.pairs.right):
        raise InputError("two models are compared on the same pairs; these differ")
    graded = first.pairs.gold is not None
    taken = [
        (layer_scores(material) if graded else None, smoothing(material), geometry(material))
        for material in (first, second)
    ]
    return changes_between((first.name, second.name), *taken)


def changes_between(names: tuple[str, str], first: Taken, second: Taken) -> BeforeAfter:
    """The same from what was measured of both already, on the same pairs."""
    before, after = _figures(*first), _figures(*second)
    changes = tuple(Change(name, before[name], after[name], _BETTER.get(name, "")) for name in before)
    return BeforeAfter(*names, changes, first[0], second[0])


def _figures(scores: LayerScores | None, smooth: Smoothing, space: Geometry) -> dict[str, float]:
    """By name, in the order in which they are shown."""
    found = {}
    if scores is not None:
        found["score of the own mix"] = scores.own
        found["score of the last layer, mean"] = float(scores.of("mean")[-1])
        found["score of the best single layer"] = scores.best[2]
    found["TokSim of the last layer"] = float(smooth.toksim.means[-1])
    for pooling in smooth.setsim.poolings:
        found[f"SetSim of the last two layers, {pooling}"] = float(smooth.setsim.of(pooling)[-1])
    for name in ("anisotropy", "alignment", "uniformity", "effective_rank"):
        found[name.replace("_", " ")] = float(getattr(space, name)[-1])
    return found
