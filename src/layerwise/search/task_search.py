"""The rows of a task that choose and report, and the search of layers for classification.

If a task declares dev and test rows, dev chooses and test reports. Otherwise the split is random: pairs and queries are
those of its test rows (else of dev, else of train), and classification follows BERT-LC's protocol.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from layerwise.data import TaskRows
from layerwise.errors import InputError
from layerwise.mixes import Mean
from layerwise.model import LayerModel
from layerwise.postprocess import LAYERS, FittedOn
from layerwise.search.choose import Choice
from layerwise.search.run import choice_facts, chosen_model, kept_model
from layerwise.search.select import Part
from layerwise.search.spaces import Space, layers_of, mask_of
from layerwise.search.table import ScoreTable
from layerwise.search.transfer import TransferSearch, layer_sets
from layerwise.search.transfer_protocol import OuterSplit, TransferProtocol, TransferReport, inner_splits
from layerwise.search.verdict import Verdict

_SCORES = ("dev", "test", "last_dev", "last_test")
LARGE = 13  # layers above which the paper searches sets of up to 3 layers for classification instead of 4
Watch = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]


def rows_to_search(
    rows: TaskRows, *, split: str | None = None, fixed: bool = True
) -> tuple[TaskRows, list[Part] | None]:
    """The rows to search of a task of pairs, and its declared split if there is one.

    Args:
        rows: The rows of graded pairs, or of queries and passages.
        split: Only use the rows of this role.
        fixed: Let dev rows choose and test rows report if a task of graded pairs declares both.
    """
    if rows.task.duplicates:
        raise InputError(
            f"task {rows.task.name!r} is of duplicates, whose texts are searched among themselves; layers are searched "
            f"for queries and passages, so give a task with duplicates = false"
        )
    if split is not None:
        return rows.of_role(split if rows.task.splits else "test"), None
    if not rows.task.splits:
        return rows, None
    if {"dev", "test"} <= rows.splits.keys() and rows.task.kind == "sts":
        dev, test = rows.splits["dev"], rows.splits["test"]
        part = np.arange(len(dev)), np.arange(len(dev), len(dev) + len(test))
        return rows.pick(np.concatenate([dev, test])), [part] if fixed else None
    return rows.of_role(next(role for role in ("test", "dev", "train") if role in rows.splits)), None


@dataclass(frozen=True)
class ClassSearchResult:
    """The layers that a search chose for a classification task, and their accuracy on unseen rows.

    Args:
        searched: The model whose layers were searched.
        rows: The rows of the task.
        mix: The best layers by the dev rows.
        last: The last layer.
        space: The sets that were searched, if not those of the paper.
        report: Accuracies split by split.
        table: The mean accuracy of each set on the dev rows.
        seconds: The time of views and search.
        prompt: The prefix of the texts.
    """

    searched: LayerModel
    rows: TaskRows
    mix: Mean
    last: Mean
    space: Space | None
    report: TransferReport
    table: ScoreTable
    seconds: dict[str, float]
    prompt: str

    @property
    def verdict(self) -> Verdict:
        """Which layers to use."""
        splits = self.report.splits
        dev, test, last_dev, last_test = (
            float(np.mean([getattr(split, name) for split in splits])) for name in _SCORES
        )
        layers = self.last.layers[-1] + 1
        may_keep = self.space is None or self.space.highest_single(layers) == self.last.layers[-1]
        chosen, last = Choice(self.mix, dev, test), Choice(self.last, last_dev, last_test)
        return Verdict(chosen, last, self.report.interval, len(self.rows), "rows", may_keep=may_keep)

    @property
    def model(self) -> LayerModel:
        """The model to use: of the chosen layers, or of the last layer if they are not reliably better."""
        if self.verdict.use.mix != self.mix:
            return kept_model(self.searched, self.last, f"kept by a search: {self.verdict}")
        name = self.rows.task.name
        choosing = self.rows if "test" not in self.rows.task.splits else self._choosing_rows
        record = FittedOn.of(choosing.texts, source=name, what=LAYERS)
        return chosen_model(self.searched, self.mix, self.how, chosen_on=record)

    @property
    def _choosing_rows(self) -> TaskRows:
        """The train and dev rows of a task that declares its test."""
        test = self.rows.splits["test"]
        return self.rows.pick(np.setdiff1d(np.arange(len(self.rows)), test))

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Accuracies are from 0 to 1."""
        splits, protocol = self.report.splits, self.report.protocol
        verdict, interval = self.verdict, self.report.interval
        return {
            "verdict": verdict.as_dict(),
            "best": choice_facts(verdict.chosen),
            "last": choice_facts(verdict.baseline),
            "gain": {"mean": self.report.gain, "sd": self.report.gain_sd, "low": interval.low, "high": interval.high},
            "subsets": len(self.table),
            "seconds": self.seconds,
            "protocol": {"metric": "accuracy", "splits": len(splits), "inner": protocol.inner, "seed": protocol.seed},
            "prompts": [self.prompt] * 2,
            "splits": [vars(split) for split in splits],
        }

    @property
    def how(self) -> str:
        """How the layers were chosen, for the model card."""
        return (
            f"the best of {len(self.table):,} sets by the accuracy of a logistic regression "
            f"({len(self.report.splits)} split(s)). {self.verdict}"
        )


def search_classes(
    model: LayerModel,
    rows: TaskRows,
    poolings: Sequence[str],
    watch: Watch,
    *,
    space: Space | None = None,
    seed: int = 0,
    outer: int | None = None,
    show_progress_bar: bool = False,
) -> ClassSearchResult:
    """The best layers for a classification task, by logistic regression on fixed embeddings.

    Args:
        model: The model whose layers are searched.
        rows: The rows of the task. If it declares a test split, that reports; train rows train and dev rows choose, or
            random parts of train if there is no dev split.
        poolings: The token poolings to choose from; a set has one of them. The baseline is the last layer with the
            model's pooling, or with the first of these.
        watch: Shows a progress bar of the sets.
        space: The sets of layers; by default those of up to 4 layers (3 for large encoders).
        seed: The seed of random splits and of the regressions.
        outer: The number of random splits, for a task without splits.
        show_progress_bar: Show a progress bar while encoding.
    """
    start, prompt = time.perf_counter(), model.prompt()
    by_pooling = model.encoder.encode_layers(
        [prompt + text for text in rows.texts], list(poolings), cache=True, show_progress_bar=show_progress_bar
    )
    baseline = next((name for name in model.mix.poolings if name in poolings), poolings[0])
    names = [*(name for name in poolings if name != baseline), baseline]  # the last layer of the last is the baseline
    views = np.concatenate([by_pooling[name] for name in names], axis=1)
    left, right = rows.positions()
    encoded, layers = time.perf_counter(), views.shape[1] // len(names)
    protocol = TransferProtocol(seed=seed, largest=4 if layers <= LARGE else 3)
    protocol, splits = _protocol(rows, protocol if outer is None else replace(protocol, outer=outer))
    sets = _sets(space, layers, protocol)
    stacked = [
        tuple(layers * place + layer for layer in layer_set) for place in range(len(names)) for layer_set in sets
    ]
    with watch("Searching", len(stacked)) as progress:
        search = TransferSearch(protocol=protocol, sets=stacked, splits=splits, progress=progress)
        search.fit(views[left], rows.labels, pair_views=None if right is None else views[right])
    mixes = {numbers: _unstack(numbers, layers, names) for numbers in stacked}
    best, last = mixes[search.layers_], Mean.of(layers - 1, pooling=baseline)
    chosen = [
        replace(split, layers=mixes[split.layers].layers, pooling=mixes[split.layers].pooling)
        for split in search.splits_
    ]
    report = TransferReport.of(chosen, search.report_.interval, search.report_.rows, search.report_.protocol)
    seconds = {"views": encoded - start, "search": time.perf_counter() - encoded}
    table = _table({mixes[numbers]: score for numbers, score in search.table_.items()})
    return ClassSearchResult(model, rows, best, last, space, report, table, seconds, prompt)


def _sets(space: Space | None, layers: int, protocol: TransferProtocol) -> list[tuple[int, ...]]:
    """The sets of layers of one pooling."""
    if space is None:
        return layer_sets(layers, protocol)
    return [layers_of(mask) for block in space.masks(layers, 4096) for mask in block]


def _unstack(numbers: tuple[int, ...], layers: int, poolings: Sequence[str]) -> Mean:
    """Convert layers numbered over all poolings to a set of layers with its pooling."""
    return Mean.of(*(number % layers for number in numbers), pooling=poolings[numbers[0] // layers])


def _protocol(rows: TaskRows, protocol: TransferProtocol) -> tuple[TransferProtocol, list[OuterSplit] | None]:
    """The protocol with the task's declared split as its only one; the split is None if splits are random."""
    if not rows.task.splits:
        return protocol, None
    for role in ("train", "test"):
        rows.of_role(role)
    train, test = rows.splits["train"], rows.splits["test"]
    if "dev" in rows.splits:
        dev = rows.splits["dev"]
        split = OuterSplit(test, np.concatenate([train, dev]), ((train, dev),))
    else:
        split = OuterSplit(test, train, inner_splits(train, protocol, np.random.default_rng([protocol.seed, 0])))
    return replace(protocol, outer=1, inner=len(split.inner)), [split]


def _table(scores: Mapping[Mean, float]) -> ScoreTable:
    by_pooling: dict[str, list[tuple[int, float]]] = {}
    for mix, score in scores.items():
        by_pooling.setdefault(mix.pooling, []).append((mask_of(mix.layers), score))
    return ScoreTable(
        {
            pooling: (np.array([mask for mask, _ in rows], dtype=np.uint64), np.array([score for _, score in rows]))
            for pooling, rows in ((pooling, sorted(rows)) for pooling, rows in by_pooling.items())
        }
    )
