"""Which layers a search takes, how sure that is and what it is worth (BERT-LC, figures 1 to 4)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerwise.measures.material import Material
from layerwise.measures.measure import Measure, Measured, Row, add_measure
from layerwise.mixes import parse_mix
from layerwise.muted import muted
from layerwise.search import Gain
from layerwise.search.ablations import Ablation, by_size_and_without, by_training_size, fixed_mixes
from layerwise.search.choose import Choice
from layerwise.search.layer_search import LayerSearch
from layerwise.search.metrics import as_metric, check_gold
from layerwise.search.run import front_with_tests

_EVERY_SET = 16  # layers up to which all sets are scored in every split; beyond, a beam looks


@dataclass(frozen=True, eq=False)
class Curve:
    """Scores × 100 on unseen pairs against whole numbers: means and standard deviations over splits, (points,) each."""

    x: tuple[int, ...]
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    mixes: tuple[str, ...]


@dataclass(frozen=True)
class MixScore:
    """A mix with its scores × 100: on the pairs that chose it (NaN where nobody chose) and on unseen ones."""

    name: str
    mix: str
    blocks: int
    dev: float
    test: float


@dataclass(frozen=True, eq=False)
class ChosenLayers(Measured):
    """What a search of all sets of layers finds. Scores and the gain are × 100, on unseen pairs where not said.

    Args:
        best, last: The best set by the mean of the splits, with the scores of what each split chose; the last layer.
        gain: Of what each split chooses over the last layer, mean of the splits: mean, low, high (95 %), p_value.
        shares: How often random halves of the pairs choose each layer: (layers,)
        agreement: How much of the sets of two halves is in common, 0 to 1.
        by_size: The best of exactly N layers, against N.
        without: The best without layer i, against i.
        by_pairs: What N pairs choose, against N, from many to few; `last_by_pairs` is the last layer beside it.
        fixed: Mixes that nobody chose.
        front: The best sets that need no more than so many blocks.
        blocks, all_blocks: How many the best set needs, and how many the encoder has.
        poolings: The token poolings that were searched.
        sets, dev_pairs, test_pairs, splits, seed: The protocol.
        warnings: What a careful reader should know.
    """

    best: MixScore
    last: MixScore
    gain: Gain
    shares: NDArray[np.float64]
    agreement: float
    by_size: Curve
    without: Curve
    by_pairs: Curve
    last_by_pairs: Curve
    fixed: tuple[MixScore, ...]
    front: tuple[MixScore, ...]
    blocks: int
    all_blocks: int
    poolings: tuple[str, ...]
    sets: int
    dev_pairs: int
    test_pairs: int
    splits: int
    seed: int
    warnings: tuple[str, ...]

    def rows(self) -> list[Row]:
        """A row for each mix and each point of the curves; how often a layer is chosen stands where it is left out."""
        named = [_row(score.name, score.mix, score.test, blocks=score.blocks, dev=score.dev) for score in self._named]
        sizes = _rows(self.by_size, "best of {} layers")
        without = _rows(self.without, "without layer {}")
        for row, layer in zip(without, self.without.x, strict=True):
            row["chosen by halves"] = float(self.shares[layer])
        return [*named, *sizes, *without, *_rows(self.by_pairs, "{} pairs choose")]

    @property
    def notes(self) -> tuple[str, ...]:
        """The gain with its interval, the cost, the protocol, and warnings."""
        gain = self.gain
        return (
            f"the pairs choose {self.best.mix}, which runs {self.blocks} of {self.all_blocks} blocks",
            f"what each split chooses gains {gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}] (95 %) over the last "
            f"layer on unseen pairs, p = {gain.p_value:.2g}",
            f"{self.dev_pairs:,} pairs choose among {self.sets:,} sets, {self.test_pairs:,} others report; means of "
            f"{self.splits} random splits, seed {self.seed}",
            *self.warnings,
        )

    @property
    def _named(self) -> tuple[MixScore, ...]:
        return (self.best, self.last, *self.fixed, *self.front)


def chosen_layers(
    material: Material,
    *,
    poolings: Sequence[str] | None = None,
    dev: int | float = 0.5,
    splits: int = 5,
    seed: int = 0,
) -> ChosenLayers:
    """Search every set of layers: some pairs choose, the others report, and halves of them say how sure that is.

    Args:
        material: The model and graded pairs.
        poolings: The token poolings to search; those of the model's mix without.
        dev: How many pairs (or, below 1, which share of them) choose.
        splits: How many random splits into pairs that choose and pairs that report.
        seed: Of splits and resamples.
    """
    names = tuple(poolings or material.model.mix.poolings)
    check_gold(material.grades, as_metric("spearman"))
    search = LayerSearch(dev=dev, splits=splits, seed=seed, method="auto" if material.layers <= _EVERY_SET else "beam")
    sides = {name: material.sides(material.pooled(name)) for name in names}
    left, right = ({name: both[side] for name, both in sides.items()} for side in (0, 1))
    with muted("layerwise.search"):  # its warnings are among the notes
        search.fit(left, right, material.grades)
        return _found(search, names, material.model.encoder.depth)


def _found(search: LayerSearch, poolings: tuple[str, ...], depth: int) -> ChosenLayers:
    report, stability = search.report_, search.stability_
    by_pairs = by_training_size(search, draws=1)
    sizes, without = by_size_and_without(search)
    mean, low, high = (100 * value for value in (report.gain.mean, report.gain.low, report.gain.high))
    return ChosenLayers(
        best=_score("best set", search.best_),
        last=_score("last layer", search.last_),
        gain=Gain(mean, low, high, report.gain.p_value),
        shares=np.array(stability.shares),
        agreement=stability.agreement,
        by_size=_curve(sizes),
        without=_curve(without),
        by_pairs=_curve([chosen for _, chosen, _ in by_pairs], [size for size, _, _ in by_pairs]),
        last_by_pairs=_curve([last for _, _, last in by_pairs], [size for size, _, _ in by_pairs]),
        fixed=tuple(_fixed(line) for line in fixed_mixes(search, pooling=search.last_.pooling) if line.name != "last"),
        front=tuple(_score(f"best within {c.layers[-1]} blocks", c) for c in front_with_tests(search)),
        blocks=search.best_.layers[-1],
        all_blocks=depth,
        poolings=poolings,
        sets=len(search.table_),
        dev_pairs=report.dev_pairs,
        test_pairs=report.test_pairs,
        splits=len(report.splits),
        seed=search.seed,
        warnings=tuple(search.warnings_),
    )


def _score(name: str, choice: Choice) -> MixScore:
    test = float("nan") if choice.test is None else choice.test
    return MixScore(name, str(choice.mix), choice.layers[-1], 100 * choice.dev, 100 * test)


def _fixed(line: Ablation) -> MixScore:
    (mix,) = line.mixes
    return MixScore(line.name, mix, parse_mix(mix).layers[-1], float("nan"), 100 * line.mean)


def _curve(lines: Sequence[Ablation], x: Sequence[int] | None = None) -> Curve:
    """The numbers are in the lines' names, "3 layers" or "without 3", where they are not given."""
    numbers = [int("".join(filter(str.isdigit, line.name))) for line in lines] if x is None else x
    means, spreads = (100 * np.array([getattr(line, name) for line in lines]) for name in ("mean", "sd"))
    return Curve(tuple(numbers), means, spreads, tuple(_most_common(line.mixes) for line in lines))


def _most_common(mixes: Sequence[str]) -> str:
    return Counter(mixes).most_common(1)[0][0]


def _rows(curve: Curve, label: str) -> list[Row]:
    points = zip(curve.x, curve.mixes, curve.mean.tolist(), curve.sd.tolist(), strict=True)
    return [_row(label.format(x), mix, mean, sd=sd) for x, mix, mean, sd in points]


def _row(
    what: str, mix: str, unseen: float, *, blocks: int | None = None, dev: float | None = None, sd: float | None = None
) -> Row:
    return {
        "what": what,
        "mix": mix,
        "blocks": blocks,
        "dev": dev,
        "unseen": unseen,
        "sd": sd,
        "chosen by halves": None,
    }


add_measure(
    Measure(
        "chosen",
        "What a search chooses",
        "Spearman x 100 on pairs that did not choose: a gain whose interval lies above 0 is hardly luck; a layer that "
        "most halves of the pairs choose, and whose loss costs points, matters.",
        chosen_layers,
        options=("poolings", "dev", "splits", "seed"),
        graded=True,
    )
)
