"""Which layers a search chooses, how certain that is and what it gains (BERT-LC, figures 1 to 4)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise import plots
from layerwise.evidence import Gain, Verdict, draw_splits
from layerwise.measures.measure import (
    Figure,
    LayerColumn,
    Measure,
    MeasureValue,
    Row,
    Values,
    last_model,
    only_value,
)
from layerwise.measures.model_on_pairs import ModelOnPairs
from layerwise.mixes import parse_mix
from layerwise.search import (
    Ablation,
    Scored,
    Search,
    Selection,
    SetScorer,
    as_metric,
    by_size_and_without,
    by_training_size,
    check_gold,
    fixed_mixes,
)

FEWEST_PAIRS = 20  # with which the report searches: some choose, the others report
_DRAWS = 5  # of fewer pairs that choose
_EVERY_SET = 16  # layers up to which all sets are scored in every split; with more, a beam search is used


@dataclass(frozen=True, eq=False)
class Curve:
    """Scores × 100 on unseen pairs against whole numbers: means and standard deviations over splits, (points,) each."""

    x: tuple[int, ...]
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    mixes: tuple[str, ...]


@dataclass(frozen=True)
class MixScore:
    """A mix with its scores × 100: on the pairs that selected it (NaN for a fixed mix) and on unseen pairs."""

    name: str
    mix: str
    blocks: int
    dev: float
    test: float


@dataclass(frozen=True, eq=False)
class ChosenLayers(MeasureValue):
    """The result of a search over all sets of layers. Scores and the gain are × 100, on unseen pairs unless stated.

    Attributes:
        verdict: Which layers to use; its scores and gain are not × 100.
        best, last: The best set by the pairs that choose; the last layer.
        gain: Of the best set over the last layer: mean, low, high (95 %), p_value.
        shares: The share of random halves of the pairs that choose each layer: (layers,)
        agreement: The overlap of the sets that two halves choose, 0 to 1.
        by_size: The best set of exactly N layers, against N.
        without: The best set without layer i, against i.
        by_pairs: What N pairs choose, against N, from many to few; `last_by_pairs` is the last layer beside it.
        fixed: Mixes that are not chosen by pairs.
        front: The best sets within a number of blocks.
        blocks, all_blocks: How many blocks the layers to use need, and how many the encoder has.
        poolings: The token poolings that were searched.
        sets, dev_pairs, test_pairs, splits, seed: The protocol.
        warnings: Of the search.
    """

    verdict: Verdict[Scored]
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
        """Return a row per mix and point of the curves; a layer's share is in the row that leaves the layer out."""
        mixes = (self.best, self.last, *self.fixed, *self.front)
        named = [_row(score.name, score.mix, score.test, blocks=score.blocks, dev=score.dev) for score in mixes]
        sizes = _rows(self.by_size, "best of {} layers")
        without = _rows(self.without, "without layer {}")
        for row, layer in zip(without, self.without.x, strict=True):
            row["chosen by halves"] = float(self.shares[layer])
        return [*named, *sizes, *without, *_rows(self.by_pairs, "{} pairs choose")]

    @property
    def notes(self) -> tuple[str, ...]:
        """The verdict, the gain with its interval, the cost, the protocol, and warnings."""
        gain, best, last = self.gain, self.best, self.last
        splits = "one random split" if self.splits == 1 else f"means of {self.splits} random splits"
        return (
            str(self.verdict).rstrip("."),
            f"best found is {best.mix} with {best.test:.1f}, the last layer has {last.test:.1f}: {gain.mean:+.1f} "
            f"[{gain.low:+.1f}, {gain.high:+.1f}] (95 %) on unseen pairs, p = {gain.p_value:.2g}",
            f"{self.dev_pairs:,} pairs choose among {self.sets:,} sets, {self.test_pairs:,} others report; {splits}, "
            f"seed {self.seed}",
            *self.warnings,
        )

    def layer_columns(self) -> tuple[LayerColumn, ...]:
        """The share of halves that choose each layer."""
        explained = "By what share of random halves of the pairs a search takes the layer."
        return (LayerColumn("chosen", self.shares, digits=2, help=explained),)


def measure_chosen_layers(
    subject: ModelOnPairs,
    *,
    poolings: Sequence[str] | None = None,
    dev: int | float = 0.5,
    splits: int = 1,
    seed: int = 0,
) -> ChosenLayers:
    """Search every set of layers: some pairs choose, the others report, and random halves show how stable that is.

    Args:
        subject: The model and pairs with scores.
        poolings: The token poolings to search; by default those of the model's mix.
        dev: How many pairs (or, below 1, which share of them) choose.
        splits: How many random splits into pairs that choose and pairs that report; one, as `layerwise search`.
        seed: Of splits and resamples.
    """
    names = tuple(poolings or subject.model.mix.poolings)
    check_gold(subject.grades, as_metric("spearman"))
    search = Search(dev=dev, splits=splits, seed=seed, method="auto" if subject.layers <= _EVERY_SET else "beam")
    sides = {name: subject.sides(subject.pooled(name)) for name in names}
    left, right = ({name: pair[side] for name, pair in sides.items()} for side in (0, 1))
    selection = search.fit_views(left, right, subject.grades, texts=_unit_texts(subject)).selection_
    return _summarise(selection, names, subject.model.encoder.depth)


def reporting_rows(subject: ModelOnPairs, *, seed: int = 0) -> NDArray[np.intp]:
    """Return the pairs not used to choose layers, on which a report measures; all pairs without a search."""
    pairs = len(subject.pairs)
    if not _is_searched(subject):
        return np.arange(pairs)
    return np.sort(draw_splits(pairs, 0.5, 1, seed, texts=_unit_texts(subject))[0].test)


def _unit_texts(subject: ModelOnPairs) -> list[tuple[str, str]]:
    return list(zip(subject.pairs.left, subject.pairs.right, strict=True))


def _summarise(selection: Selection, poolings: tuple[str, ...], depth: int) -> ChosenLayers:
    scorer, stability, gain = selection.scorer, selection.stability, selection.gain
    if not isinstance(scorer, SetScorer) or stability is None or gain is None:
        raise TypeError(f"{selection.candidates} are no sets of layers that were scored on unseen pairs")
    by_pairs = by_training_size(scorer, draws=_DRAWS)
    sizes, without = by_size_and_without(scorer)
    last = selection.last
    return ChosenLayers(
        verdict=selection.verdict,
        best=_score("best found", selection.chosen),
        last=_score("last layer", last),
        gain=Gain(100 * gain.mean, 100 * gain.low, 100 * gain.high, gain.p_value),
        shares=np.array([stability.layers.get(layer, 0.0) for layer in range(depth + 1)]),
        agreement=stability.agreement,
        by_size=_curve(sizes),
        without=_curve(without),
        by_pairs=_curve([chosen for _, chosen, _ in by_pairs]),
        last_by_pairs=_curve([line for _, _, line in by_pairs]),
        fixed=tuple(_fixed(line) for line in fixed_mixes(scorer, pooling=last.pooling) if line.name != "last"),
        front=tuple(_score(f"best within {scored.blocks} blocks", scored) for scored in selection.front),
        blocks=selection.verdict.use.blocks,
        all_blocks=depth,
        poolings=poolings,
        sets=len(selection.table),
        dev_pairs=selection.n_choosing,
        test_pairs=selection.n_reporting,
        splits=len(selection.splits),
        seed=selection.seed,
        warnings=tuple(selection.warnings),
    )


def _score(name: str, choice: Scored) -> MixScore:
    test = float("nan") if choice.test is None else choice.test
    return MixScore(name, str(choice.mix), choice.blocks, 100 * choice.dev, 100 * test)


def _fixed(line: Ablation) -> MixScore:
    (mix,) = line.mixes
    return MixScore(line.name, mix, parse_mix(mix).layers[-1], float("nan"), 100 * line.mean)


def _curve(lines: Sequence[Ablation]) -> Curve:
    """Lines of an ablation against their numbers, with the mix that most splits chose."""
    numbers = tuple(line.number for line in lines if line.number is not None)
    means, spreads = (100 * np.array([getattr(line, name) for line in lines]) for name in ("mean", "sd"))
    return Curve(numbers, means, spreads, tuple(Counter(line.mixes).most_common(1)[0][0] for line in lines))


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


def _is_searched(subject: ModelOnPairs) -> bool:
    """Whether a report searches layers: there are grades, and enough of them."""
    return subject.pairs.gold is not None and len(subject.pairs) >= FEWEST_PAIRS


def _with_enough_pairs(subject: ModelOnPairs) -> dict[str, Any] | None:
    return {} if _is_searched(subject) else None


def _plot_shares(values: Values[ChosenLayers], theme: "plots.Theme") -> "plots.Drawing":
    value = only_value(values)
    return plots.layers_chosen(shares=value.shares, best=value.verdict.use.layers, theme=theme)


def _plot_sizes(values: Values[ChosenLayers], theme: "plots.Theme") -> "plots.Drawing":
    value = only_value(values)
    return plots.score_by_size(
        sizes=value.by_size.x, last=value.last.test, theme=theme, **_curves({"best set": value.by_size})
    )


def _plot_without(values: Values[ChosenLayers], theme: "plots.Theme") -> "plots.Drawing":
    value = only_value(values)
    return plots.score_without_layer(
        layers=value.without.x, full=value.best.test, theme=theme, **_curves({"best set": value.without})
    )


def _plot_pairs(values: Values[ChosenLayers], theme: "plots.Theme") -> "plots.Drawing":
    value = only_value(values)
    order = np.argsort(value.by_pairs.x)
    curves = _curves({"chosen": value.by_pairs, "last layer": value.last_by_pairs}, order)
    return plots.score_by_pairs(pairs=np.array(value.by_pairs.x)[order].tolist(), theme=theme, **curves)


def _curves(curves: dict[str, Curve], order: Any = slice(None)) -> dict[str, Any]:
    """Compute means and standard deviations by name; a single split has no standard deviation."""
    return {
        "scores": {name: curve.mean[order] for name, curve in curves.items()},
        "sd": {name: curve.sd[order] for name, curve in curves.items() if not np.isnan(curve.sd).all()},
    }


MEASURE = Measure(
    "chosen",
    "What a search chooses",
    "Spearman x 100 on pairs that did not choose: a gain whose interval lies above 0 is hardly luck; a layer that "
    "most halves of the pairs choose, and whose loss costs points, matters.",
    measure_chosen_layers,
    graded=True,
    figures=(
        Figure(
            _plot_shares,
            name="halves",
            title="How often each layer is chosen",
            reading="By random halves of the pairs: a layer near 100 % is in every half's best set, whatever the "
            "pairs.",
            section="search",
            groups=last_model,
        ),
        Figure(
            _plot_sizes,
            name="sizes",
            title="Score by number of layers",
            reading="Where the curve is flat, more layers add nothing; the band is one standard deviation of the "
            "splits.",
            section="search",
            groups=last_model,
        ),
        Figure(
            _plot_without,
            name="without",
            title="Score without a layer",
            reading="The deeper the drop, the less the other layers can replace that one.",
            section="search",
            groups=last_model,
        ),
        Figure(
            _plot_pairs,
            name="pairs",
            title="How many pairs are needed to choose",
            reading="Where the curve rises above the last layer's, so many graded pairs are enough to gain by a "
            "search.",
            section="search",
            groups=last_model,
        ),
    ),
    in_report=_with_enough_pairs,
)
