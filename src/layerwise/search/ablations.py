"""The paper's ablations on a fitted `LayerSearch`: its dev pairs choose, its test pairs report.

Scores are means over the search's splits (`parts_`), with their standard deviation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from layerwise.errors import InputError
from layerwise.mixes import parse_mix
from layerwise.search.choose import Choice, Problems, best_of, last_layer, make_table, pick
from layerwise.search.layer_search import LayerSearch
from layerwise.search.metrics import FEWEST_PAIRS
from layerwise.search.problems import Rows, Scores
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


def by_size(search: LayerSearch) -> list[Ablation]:
    """The best set of exactly N layers, for each N."""
    return by_size_and_without(search)[0]


def without_each(search: LayerSearch) -> list[Ablation]:
    """The best set without layer i, for each i."""
    return by_size_and_without(search)[1]


def by_size_and_without(search: LayerSearch) -> tuple[list[Ablation], list[Ablation]]:
    """`by_size` and `without_each`, scoring the sets of every split only once."""
    sizes = [int(size) for size in np.unique(np.bitwise_count(search.table_.masks))]
    used = layers_of(int(np.bitwise_or.reduce(search.table_.masks)))
    by_count = {f"{n} layers": (n, _has_size(n)) for n in sizes}
    by_layer = {f"without {n}": (n, _lacks(n)) for n in used}
    lines = _best_among(search, by_count | by_layer)
    return [line for line in lines if line.name in by_count], [line for line in lines if line.name in by_layer]


def fixed_mixes(search: LayerSearch, mixes: Sequence[str] = FIXED, *, pooling: str = "mean") -> list[Ablation]:
    """Fixed mixes, which need no dev pairs: the last layer, the last 4, …"""
    depth = next(iter(search.problems_.values())).layers - 1
    named = {name: parse_mix(name, pooling=pooling).resolve(depth) for name in mixes if name != "last-4" or depth >= 3}
    scores = search.unseen_scores(list(named.values()))  # type: ignore[arg-type]
    return [Ablation.of(name, row, [str(mix)]) for (name, mix), row in zip(named.items(), scores, strict=True)]


def random_sets(search: LayerSearch, *, count: int = 100, seed: int = 0) -> Ablation:
    """Sets drawn at random from the space: the mean and standard deviation of their scores."""
    rows = np.random.default_rng(seed).choice(len(search.table_), min(count, len(search.table_)), replace=False)
    drawn = [search.table_.at(int(row)).mix for row in rows]
    return Ablation.of(f"{len(drawn)} random sets", search.unseen_scores(drawn).mean(1), list(map(str, drawn)))


def by_training_size(
    search: LayerSearch, fractions: Sequence[float] = FRACTIONS, *, draws: int = 3, seed: int = 0
) -> list[tuple[int, Ablation, Ablation]]:
    """Decreasing numbers of dev pairs, scored on the same test pairs: (pairs, chosen, last layer) for each number."""
    random = np.random.default_rng(seed)
    lines = []
    for fraction in fractions:
        size = round(fraction * len(search.parts_[0][0]))
        if not size >= FEWEST_PAIRS:
            break
        chosen, last, mixes = [], [], []
        for dev, test in search.parts_:
            reporting = pick(search.problems_, test)
            for _ in range(draws if size < len(dev) else 1):
                choice = _choose(search, random.permutation(dev)[:size])
                if choice is None:
                    continue
                chosen.append(choice.on(reporting))
                last.append(last_layer(reporting).dev)
                mixes.append(str(choice.mix))
        if not chosen:
            break
        label = f"{size} pairs choose"
        best = Ablation.of(label, chosen, mixes, number=size)
        lines.append((size, best, Ablation.of("last layer", last, ["last"], number=size)))
    if not lines:
        raise InputError(f"No size of {len(search.parts_[0][0])} dev pairs is large enough: {FEWEST_PAIRS} must choose")
    return lines


def _choose(search: LayerSearch, rows: Rows) -> Choice | None:
    """The choice of the pairs at `rows`; None if their labels are constant."""
    choosing = pick(search.problems_, rows)
    try:
        for problem in choosing.values():
            problem.check()
    except InputError:
        return None
    return best_of(choosing, make_table(choosing, search.space_, search.method), search.method)


def _best_among(search: LayerSearch, filters: dict[str, tuple[int, Callable[[ScoreTable], Rows]]]) -> list[Ablation]:
    """The best set among the table rows that each filter selects; `filters` maps a name to its number and filter."""
    scores: dict[str, list[float]] = {name: [] for name in filters}
    mixes: dict[str, list[str]] = {name: [] for name in filters}
    for dev, test in search.parts_:
        choosing, reporting = pick(search.problems_, dev), pick(search.problems_, test)
        table = make_table(choosing, search.space_, search.method)
        for name, (_, rows_of) in filters.items():
            _add_best(table, rows_of(table), reporting, scores[name], mixes[name])
    return [
        Ablation.of(name, scores[name], mixes[name], number=number)
        for name, (number, _) in filters.items()
        if scores[name]
    ]


def _add_best(table: ScoreTable, rows: Rows, reporting: Problems, scores: list[float], mixes: list[str]) -> None:
    if len(rows) and not np.isnan(table.scores[rows]).all():
        best = table.at(table.best_row(rows.astype(np.int64)))
        scores.append(Choice(best.mix, best.score).on(reporting))
        mixes.append(str(best.mix))


def _has_size(size: int) -> Callable[[ScoreTable], Rows]:
    return lambda table: np.flatnonzero(np.bitwise_count(table.masks) == size)


def _lacks(layer: int) -> Callable[[ScoreTable], Rows]:
    return lambda table: np.flatnonzero((table.masks & np.uint64(mask_of([layer]))) == 0)
