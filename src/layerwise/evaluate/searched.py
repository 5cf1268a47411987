"""A model by whichever layers each split's own rows choose: BERT-LC as the paper reports it."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from layerwise.data import TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.evaluate.outcomes import Outcome
from layerwise.evaluate.protocols import Protocol
from layerwise.evaluate.score import sides
from layerwise.evaluate.splits import search_splits
from layerwise.evaluate.subjects import LayerSubject, Subject, Variant
from layerwise.model import LayerModel
from layerwise.search import TransferProtocol, TransferSearch

SEARCH = "search"
_LARGE = 13  # layers above which the paper searches sets of up to 3 for classification instead of 4


class SearchedSubject(Subject):
    """No mix is fixed: under the protocol "lc" the rows that choose do so anew in every split.

    Args:
        model: Whose layers are searched.
        poolings: Token poolings to choose from, for graded pairs; classes are searched by the first of them.
        show_progress_bar: While encoding.
    """

    def __init__(
        self, model: LayerModel, poolings: Sequence[str] = ("mean",), *, show_progress_bar: bool = False
    ) -> None:
        self._layers = LayerSubject(model, ["last"], show_progress_bar=show_progress_bar)  # without heads
        self.poolings = tuple(poolings)

    @property
    def name(self) -> str:
        """The encoder's name."""
        return self._layers.name

    @property
    def variants(self) -> list[Variant]:
        """One: what the search finds."""
        return [Variant(SEARCH, (), "+".join(self.poolings))]

    def facts(self) -> dict[str, Any]:
        """As of any mix of the model."""
        return self._layers.facts()

    def saw(self, texts: Sequence[str], variant: Variant) -> float | None:  # noqa: ARG002
        """What the encoder saw; nothing else of a model takes part in the search."""
        return self._layers.saw(texts, self._layers.variants[0])

    def embed(self, texts: Sequence[str], role: str, variants: Sequence[Variant]) -> Iterator[Array]:  # noqa: ARG002
        """There is no one embedding."""
        raise InputError("layers that are searched split by split give no one embedding; use `layerwise search`")

    def outcomes(self, rows: TaskRows, protocol: Protocol, variants: Sequence[Variant]) -> Iterator[Outcome]:
        """Search, and report on rows that had no part in it."""
        if protocol.name != "lc" or rows.task.kind == "retrieval":
            raise InputError(
                f"layers can't be searched for task {rows.task.name!r} under the protocol {protocol.name!r}: "
                f"use --protocol lc with STS or classification, or choose a mix with `layerwise search` first"
            )
        if rows.task.kind == "classification" and len(self.poolings) > 1:
            raise InputError(f"layers for classes are searched by one token pooling, not by {', '.join(self.poolings)}")
        score = _search_pairs if rows.task.kind == "sts" else _search_classes
        views = self._layers.views(rows.texts, self.poolings if rows.task.kind == "sts" else self.poolings[:1])
        for _ in variants:
            yield score(rows, views, protocol)


def _search_pairs(rows: TaskRows, views: dict[str, Array], protocol: Protocol) -> Outcome:
    both = {pooling: sides(rows, own) for pooling, own in views.items()}
    left = {pooling: own for pooling, (own, _) in both.items()}
    right = {pooling: own for pooling, (_, own) in both.items() if own is not None}
    return search_splits(left, right, np.asarray(rows.labels, dtype=np.float64), seeds=protocol.seeds)


def _search_classes(rows: TaskRows, views: dict[str, Array], protocol: Protocol) -> Outcome:
    (own,) = views.values()
    left, right = sides(rows, own)
    accuracies, chosen = [], []
    for seed in protocol.seeds:
        largest = 4 if left.shape[1] <= _LARGE else 3
        search = TransferSearch(protocol=TransferProtocol(seed=seed, largest=largest))
        splits = search.fit(left, rows.labels, pair_views=right).report_.splits
        accuracies += [100 * split.test for split in splits]
        chosen += [list(split.layers) for split in splits]
    sd = float(np.std(accuracies, ddof=1))
    return Outcome(
        {"accuracy": float(np.mean(accuracies))}, items=np.empty(0), sd={"accuracy": sd}, details={"chosen": chosen}
    )
