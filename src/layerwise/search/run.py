"""From an encoder and a file's pairs to a report and a model: what `layerwise search` does, without the printing."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.data.pairs import PairRows
from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.encoder.pooling import POOLINGS
from layerwise.encoder.stream import Array
from layerwise.errors import InputError, ModelError
from layerwise.search.choose import Choice, check_method
from layerwise.search.layer_search import LayerSearch
from layerwise.search.metrics import FEWEST_PAIRS, as_metric, check_gold
from layerwise.search.retrieval import RetrievalMetric
from layerwise.search.select import random_splits
from layerwise.search.unlabelled import dropout_passes

_UNLABELLED_SENTENCES = 512  # that are encoded twice with dropout, to show what a choice without labels would be
Watch = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
ViewsOf = tuple[dict[str, Array], dict[str, Array]]


@dataclass(frozen=True)
class SearchResult:
    """A fitted search, what a choice without labels would have been, and how long things took."""

    search: LayerSearch
    unlabelled: Choice | None
    unlabelled_note: str
    seconds: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Scores are as the metric gives them: correlations from -1 to 1."""
        search, report = self.search, self.search.report_
        return {
            "best": _choice(search.best_),
            "last": _choice(search.last_),
            "gain": {"mean": report.gain.mean, "low": report.gain.low, "high": report.gain.high}
            | {"p_value": report.gain.p_value},
            "subsets": len(search.table_),
            "seconds": self.seconds,
            "front": [_choice(choice) for choice in front_with_tests(search)],
            "stability": {
                "layers": dict(search.stability_),
                "poolings": dict(search.stability_.poolings),
                "agreement": search.stability_.agreement,
            },
            "unlabelled": _choice(self.unlabelled) if self.unlabelled else {"note": self.unlabelled_note},
            "protocol": {
                "metric": search.metric_name_,
                "space": str(search.space_),
                "dev_pairs": report.dev_pairs,
                "test_pairs": report.test_pairs,
                "splits": len(report.splits),
                "seed": search.seed,
            },
            "splits": [vars(split) for split in report.splits],
            "warnings": search.warnings_,
        }


def search_pairs(
    encoder: LayerEncoder, pairs: PairRows, poolings: Sequence[str], search: LayerSearch, watch: Watch
) -> SearchResult:
    """Views (from the cache, if they are there), the search, and a choice without labels to compare with."""
    began = time.perf_counter()
    is_retrieval = isinstance(search.metric, str) and RetrievalMetric.parse(search.metric) is not None
    left, right, gold = _as_retrieval(pairs) if is_retrieval else (pairs.left, pairs.right, pairs.scores)
    views = encode_sides(encoder, left, right, poolings, watch)
    seen = time.perf_counter()
    with watch("Searching", None) as progress:
        search.progress = progress
        search.fit(*views, gold)
    found = time.perf_counter()
    unlabelled, note = _without_labels(encoder, [*left, *right], poolings, search)
    return SearchResult(search, unlabelled, note, {"views": seen - began, "search": found - seen})


def check_request(path: str, pairs: PairRows, poolings: Sequence[str], search: LayerSearch) -> None:
    """Refuse what can't be searched before a model is loaded, and name the file where it is at fault."""
    check_method(search.method)
    for pooling in poolings:
        POOLINGS[pooling]
    retrieval = isinstance(search.metric, str) and RetrievalMetric.parse(search.metric)
    metric = None if retrieval or search.metric is None else as_metric(search.metric)
    try:
        if metric is not None:
            check_gold(pairs.scores, metric)
        units = len(_as_retrieval(pairs)[0]) if retrieval else len(pairs)
        if not units:
            raise InputError("no row is relevant, for no score is above 0; a query needs a relevant passage")
        splits = 1 if search.splits is None else search.splits
        random_splits(units, 0.5 if search.dev is None else search.dev, splits, search.seed)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def search_text(
    encoder: LayerEncoder,
    left: Sequence[str],
    right: Sequence[str] | None,
    poolings: Sequence[str],
    search: LayerSearch,
    watch: Watch,
) -> LayerSearch:
    """A choice without labels: by two dropout passes over sentences, or by pairs of text that belong together."""
    if len(left) < FEWEST_PAIRS:
        raise InputError(
            f"{len(left)} sentences are too few to choose layers by; give {FEWEST_PAIRS} at the very least"
        )
    if right is None:
        views: ViewsOf = dropout_passes(encoder, left, poolings)
    else:
        views = encode_sides(encoder, left, right, poolings, watch)
    with watch("Searching", None) as progress:
        search.progress = progress
        return search.fit(*views)


def front_with_tests(search: LayerSearch) -> list[Choice]:
    """The Pareto front with scores on the test pairs, mean of the splits."""
    tests = [{name: problem.pick(test) for name, problem in search.problems_.items()} for _, test in search.parts_]
    choices = [Choice(found.mix, found.score) for found in search.front_]
    return [Choice(c.mix, c.dev, float(np.mean([c.on(test) for test in tests]))) for c in choices]


def encode_sides(
    encoder: LayerEncoder, left: Sequence[str], right: Sequence[str], poolings: Sequence[str], watch: Watch
) -> ViewsOf:
    """The views of either side, each different text once, cached on disk."""
    texts = {text: number for number, text in enumerate(dict.fromkeys([*left, *right]))}
    rows = [np.array([texts[text] for text in side]) for side in (left, right)]
    with watch("Layers", None):
        views = encoder.encode_layers(list(texts), list(poolings), cache=True)
    return {n: v[rows[0]] for n, v in views.items()}, {n: v[rows[1]] for n, v in views.items()}


def _without_labels(
    encoder: LayerEncoder, texts: Sequence[str], poolings: Sequence[str], search: LayerSearch
) -> tuple[Choice | None, str]:
    different = list(dict.fromkeys(texts))
    order = np.random.default_rng(search.seed).permutation(len(different))[:_UNLABELLED_SENTENCES]
    try:
        passes = dropout_passes(encoder, [different[place] for place in order], poolings)
        chosen = LayerSearch(space=search.space, seed=search.seed).fit(*passes).best_
    except (ModelError, InputError) as error:
        return None, str(error)
    tests = [{name: problem.pick(test) for name, problem in search.problems_.items()} for _, test in search.parts_]
    return Choice(chosen.mix, chosen.dev, float(np.mean([chosen.on(test) for test in tests]))), ""


def _as_retrieval(pairs: PairRows) -> tuple[list[str], list[str], list[Mapping[int, float]]]:
    """First texts are queries, second texts candidates; the rows say which belong together, graded by their scores."""
    candidates = {text: number for number, text in enumerate(dict.fromkeys(pairs.right))}
    relevance: dict[str, dict[int, float]] = {}
    for row, (query, candidate) in enumerate(zip(pairs.left, pairs.right, strict=True)):
        grade = pairs.scores[row] if pairs.scores else 1.0
        if grade > 0:
            relevance.setdefault(query, {})[candidates[candidate]] = grade
    return list(relevance), list(candidates), list(relevance.values())


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "layers": list(choice.layers),
        "pooling": choice.pooling,
        "mix": str(choice.mix),
        "dev": choice.dev,
        "test": choice.test,
    }
