"""`evaluate`: scores tasks by mixes to stamped results, each stored as soon as it is available."""

import logging
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from layerwise.data import KnownRows, Task, find_tasks, repeated
from layerwise.errors import InputError
from layerwise.evaluate.results import Evaluation, Run, TaskResult
from layerwise.evaluate.store import ResultStore
from layerwise.evaluate.subject import Subject, Variant
from layerwise.kinds import Outcome, Protocol, problem_class
from layerwise.postprocess import FittedOn
from layerwise.version import __version__

log = logging.getLogger(__name__)

Progress = Callable[[Task, Variant, TaskResult], None]


def evaluate(
    model: Any,
    tasks: Sequence[Task | str],
    *,
    protocol: Protocol | None = None,
    data: str | None = None,
    store: ResultStore | None = None,
    progress: Progress | None = None,
    when_read: Callable[[], None] | None = None,
) -> Evaluation:
    """Score a model on tasks, by each of its mixes where it is a subject with several.

    Args:
        model: A name or folder, a `LayerModel`, any object that encodes, or a `Subject` made of one.
        tasks: Tasks, their names or task files; for suites see `layerwise.data.find_tasks`.
        protocol: By default SentEval's.
        data: The data folder; by default `$LAYERWISE_DATA`, then fetched tasks, then the network.
        store: Where results are stored and read; by default nowhere.
        progress: Called after each result.
        when_read: Called once, when the rows of all tasks are read and checked.
    """
    if not tasks:
        raise InputError("no tasks; name some, or a suite")
    protocol, subject = protocol or Protocol(), _as_subject(model)
    facts = subject.facts()
    if store and not facts.get("model_hash"):
        log.info("%s has no weights to recognise it by: its results are not stored", subject.name)
        store = None
    results: dict[str, dict[str, TaskResult]] = {variant.label: {} for variant in subject.variants}
    memory = store.rows if store else None
    resolved = _resolved(tasks)
    if name := repeated([task.name for task in resolved]):
        raise InputError(f"two tasks are called {name!r}; rename one of them")
    read = [KnownRows.find(task, data, memory) for task in resolved]  # all, before anything is encoded
    if when_read:
        when_read()
    for rows in read:
        try:
            for variant, result in _evaluate_task(subject, facts, rows, protocol, store):
                results[variant.label][rows.task.name] = result
                if progress:
                    progress(rows.task, variant, result)
        except InputError as error:
            named = repr(rows.task.name) in str(error)
            raise InputError(str(error) if named else f"task {rows.task.name!r}: {error}") from error
    runs = [Run(variant.label, variant.layers, variant.pooling, results[variant.label]) for variant in subject.variants]
    return Evaluation(subject.name, {**facts, **protocol.facts(), "versions": versions()}, tuple(runs))


def _resolved(tasks: Sequence[Task | str]) -> list[Task]:
    """Resolve tasks, names and task files to tasks."""
    items = [tasks] if isinstance(tasks, str) else tasks
    return [task for item in items for task in (find_tasks([item]) if isinstance(item, str) else [item])]


def _as_subject(model: Any) -> Subject:
    if isinstance(model, Subject):
        return model
    from layerwise.evaluate.load import as_subject  # imports torch, which stored results do not need

    return as_subject(model)


def versions() -> dict[str, str]:
    """The versions of the packages that decide numbers."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    known = {"python": platform.python_version(), "layerwise": __version__}
    for package in ("torch", "transformers", "sentence-transformers", "numpy", "scipy", "scikit-learn", "faiss-cpu"):
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known


def _evaluate_task(
    subject: Subject, facts: dict[str, Any], rows: KnownRows, protocol: Protocol, store: ResultStore | None
) -> Iterable[tuple[Variant, TaskResult]]:
    """Yield stored results first, then compute the missing ones from one pass over the texts.

    A stored result gets a new stamp, except for the versions that made it: aggregation, suite and what is known of the
    text that a model saw do not decide a figure, and may have changed.
    """
    task, stamps = rows.task, _Stamps(subject, facts, rows, protocol)
    keys = {variant.label: _key(facts, variant, rows, protocol) for variant in subject.variants}
    missing = []
    for variant in subject.variants:
        stored = store.get(keys[variant.label]) if store else None
        if stored is None:
            missing.append(variant)
        else:
            stamp = stamps.of(variant) | {"versions": stored.stamp.get("versions")}
            headline = problem_class(task).headline(task, protocol)
            yield variant, replace(stored, suite=task.suite, metric=headline, stamp=stamp)
    if not missing:
        return
    for variant, outcome in zip(missing, subject.outcomes(rows.rows, protocol, missing), strict=True):
        result = _result(outcome, stamps.of(variant), task, protocol)
        if store:
            store.put(keys[variant.label], result)
        yield variant, result


def _key(facts: dict[str, Any], variant: Variant, rows: KnownRows, protocol: Protocol) -> dict[str, Any]:
    """Return everything that determines a result, excluding the model's path."""
    task = rows.task
    return {
        "subject": {name: value for name, value in facts.items() if name != "model" or not facts.get("model_hash")},
        "mix": [variant.label, variant.pooling],
        "behind": variant.facts,
        "rows": rows.facts.digest,
        "task": [task.name, task.kind, task.duplicates, rows.facts.subsets],
        **problem_class(task).settings(task, protocol),
    }


def _result(outcome: Outcome, stamp: dict[str, Any], task: Task, protocol: Protocol) -> TaskResult:
    return TaskResult(
        task.name,
        task.suite,
        problem_class(task).headline(task, protocol),
        outcome.figures,
        stamp,
        outcome.sd,
        outcome.details,
        outcome.items,
        outcome.gold,
    )


class _Stamps:
    """Return the stamps of a task's results for each variant of a subject."""

    def __init__(self, subject: Subject, facts: dict[str, Any], rows: KnownRows, protocol: Protocol) -> None:
        self._subject, self._facts, self._rows, self._protocol = subject, facts, rows, protocol
        self._role = problem_class(rows.task).scored(rows.task, rows.facts.splits, protocol)
        self._seen: dict[tuple[FittedOn, ...], float | None] = {(): None}  # by records: the share of tested texts

    def of(self, variant: Variant) -> dict[str, Any]:
        """The stamp of a variant's result."""
        task, known, kind = self._rows.task, self._rows.facts, problem_class(self._rows.task)
        counts = known.splits if task.splits else {"all": known.rows}
        return {
            "task": task.name,
            "suite": task.suite,
            "kind": task.kind,
            "split": kind.split(task, self._protocol),
            "rows": dict(counts),
            "scored": known.rows if self._role is None else known.splits[self._role],
            "rows_digest": known.digest,
            "as_published": known.digest == task.digest if task.digest else None,
            "empty_texts": known.empty,
            "aggregation": kind.aggregation(self._protocol),
            **{name: value for name, value in kind.settings(task, self._protocol).items() if name != "split"},
            **self._facts,
            "mix": variant.label,
            "layers": list(variant.layers),
            "pooling": variant.pooling,
            **variant.facts,
            **({"behind": variant.heads} if variant.heads else {}),
            "saw_test_text": self._saw(variant),
            "versions": versions(),
            "source": str(task.source) if task.source else "",
            "note": task.note,
        }

    def _saw(self, variant: Variant) -> float | None:
        """Return the share of tested texts that the variant was fitted on; rows are read only if it has records."""
        records = self._subject.records(variant)
        if records not in self._seen:
            rows = self._rows.rows
            test = range(len(rows)) if self._role is None else rows.splits[self._role]
            tested = [side[row] for side in (rows.left, rows.right) if side for row in test]
            self._seen[records] = self._subject.saw(tested, variant)
        return self._seen[records]
