"""The paper's ablations of a search over sets of layers: its choosing units choose, its reporting units report.

Scores are means over the search's splits, with their standard deviation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from layerwise.errors import InputError
from layerwise.evidence import Rows
from layerwise.mixes import Mix, parse_mix
from layerwise.search.metrics import FEWEST_PAIRS
from layerwise.search.problems import Scores
from layerwise.search.sets import SetScorer
from layerwise.search.spaces import layers_of, mask_of
from layerwise.search.table import ScoreTable

FIXED = ("last", "last-4", "first-last", "0+last", "all")
FRACTIONS = tuple(2.0**-power for power in range(9))  # 1 to 1/256


@dataclass(frozen=True)
class Ablation:
    """A row of an ablation: the mean test score over the splits, and the mixes that were scored.

    `number` is the value that the ablation varies: the number of layers or of dev pairs, or the layer left out.
    """

    name: str
    mean: float
    sd: float
    mixes: tuple[str, ...]
    number: int | None = None

    @classmethod
    def of(
        cls, name: str, scores: Sequence[float] | Scores, mixes: Sequence[str], *, number: int | None = None
    ) -> "Ablation":
        """Summarise the scores of the splits (or draws)."""
        sd = float(np.std(scores, ddof=1)) if len(scores) > 1 else float("nan")
        return cls(name, float(np.mean(scores)), sd, tuple(mixes), number)


def by_size(scorer: SetScorer) -> list[Ablation]:
    """The best set of exactly N layers, for each N."""
    return by_size_and_without(scorer)[0]


def without_each(scorer: SetScorer) -> list[Ablation]:
    """The best set without layer i, for each i."""
    return by_size_and_without(scorer)[1]


def by_size_and_without(scorer: SetScorer) -> tuple[list[Ablation], list[Ablation]]:
    """`by_size` and `without_each`, scoring the sets of every split only once."""
    sizes = [int(size) for size in np.unique(np.bitwise_count(scorer.table.masks))]
    used = layers_of(int(np.bitwise_or.reduce(scorer.table.masks)))
    by_count = {f"{n} layers": (n, _has_size(n)) for n in sizes}
    by_layer = {f"without {n}": (n, _lacks(n)) for n in used}
    lines = _best_among(scorer, by_count | by_layer)
    return [line for line in lines if line.name in by_count], [line for line in lines if line.name in by_layer]


def fixed_mixes(scorer: SetScorer, mixes: Sequence[str] = FIXED, *, pooling: str = "mean") -> list[Ablation]:
    """Fixed mixes, which need no dev pairs: the last layer, the last 4, …"""
    depth = scorer.layers - 1
    named = {name: parse_mix(name, pooling=pooling).resolve(depth) for name in mixes if name != "last-4" or depth >= 3}
    scores = scorer.unseen_scores(list(named.values()))
    return [Ablation.of(name, row, [str(mix)]) for (name, mix), row in zip(named.items(), scores, strict=True)]


def random_sets(scorer: SetScorer, *, count: int = 100, seed: int = 0) -> Ablation:
    """Sets drawn at random from the space: the mean and standard deviation of their scores."""
    rows = np.random.default_rng(seed).choice(len(scorer.table), min(count, len(scorer.table)), replace=False)
    drawn = [scorer.table.at(int(row)).mix for row in rows]
    return Ablation.of(f"{len(drawn)} random sets", scorer.unseen_scores(drawn).mean(1), list(map(str, drawn)))


def by_training_size(
    scorer: SetScorer, fractions: Sequence[float] = FRACTIONS, *, draws: int = 3, seed: int = 0
) -> list[tuple[int, Ablation, Ablation]]:
    """Decreasing numbers of dev pairs, scored on the same test pairs: (pairs, chosen, last layer) for each number."""
    random, last = np.random.default_rng(seed), scorer.last.mix
    lines = []
    for fraction in fractions:
        size = round(fraction * len(scorer.splits[0].dev))
        if not size >= FEWEST_PAIRS:
            break
        chosen, lasts, mixes = [], [], []
        for dev, test in scorer.splits:
            for _ in range(draws if size < len(dev) else 1):
                mix = _choose(scorer, random.permutation(dev)[:size])
                if mix is not None:
                    chosen.append(scorer.score(mix, test))
                    lasts.append(scorer.score(last, test))
                    mixes.append(str(mix))
        if not chosen:
            break
        best = Ablation.of(f"{size} pairs choose", chosen, mixes, number=size)
        lines.append((size, best, Ablation.of("last layer", lasts, ["last"], number=size)))
    if not lines:
        most = len(scorer.splits[0].dev)
        raise InputError(f"No size of {most} dev pairs is large enough: {FEWEST_PAIRS} must choose")
    return lines


def _choose(scorer: SetScorer, rows: Rows) -> Mix | None:
    """The choice of the pairs at `rows`; None if their labels are constant."""
    try:
        return scorer.choose(rows)[0]
    except InputError:
        return None


def _best_among(scorer: SetScorer, filters: dict[str, tuple[int, Callable[[ScoreTable], Rows]]]) -> list[Ablation]:
    """The best set among the table rows that each filter selects; `filters` maps a name to its number and filter."""
    scores: dict[str, list[float]] = {name: [] for name in filters}
    mixes: dict[str, list[str]] = {name: [] for name in filters}
    for dev, test in scorer.splits:
        table = scorer.choose(dev)[2]
        for name, (_, rows_of) in filters.items():
            rows = rows_of(table)
            if len(rows) and not np.isnan(table.scores[rows]).all():
                best = table.at(table.best_row(rows.astype(np.int64))).mix
                scores[name].append(scorer.score(best, test))
                mixes[name].append(str(best))
    return [
        Ablation.of(name, scores[name], mixes[name], number=number)
        for name, (number, _) in filters.items()
        if scores[name]
    ]


def _has_size(size: int) -> Callable[[ScoreTable], Rows]:
    return lambda table: np.flatnonzero(np.bitwise_count(table.masks) == size)


def _lacks(layer: int) -> Callable[[ScoreTable], Rows]:
    return lambda table: np.flatnonzero((table.masks & np.uint64(mask_of([layer]))) == 0)
