"""`layerwise search MODEL TASK...` for clustering, reranking and other kinds, and for several tasks at once."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from layerwise.cli.screen import counting, points, print_line, print_table, spent
from layerwise.errors import InputError
from layerwise.muted import muted

if TYPE_CHECKING:
    from layerwise.data import TaskRows
    from layerwise.model import LayerModel
    from layerwise.search import JointResult, LayerSearch, SearchResult


@dataclass(frozen=True)
class TaskOptions:
    """The options of the command other than those of the search."""

    poolings: Sequence[str]
    metric: str | None
    weights: str | None
    split: str | None
    limit: int | None
    fixed: bool

    def refuse(self, options: Mapping[str, object]) -> None:
        """Raise for options that are for pairs only."""
        for option, value in options.items():
            if value:
                raise InputError(f"{option}: is for pairs, not for this kind of task or for several; leave it out")

    @property
    def counts(self) -> list[float]:
        """The weights as numbers."""
        try:
            return [float(weight) for weight in self.weights.split(",")] if self.weights else []
        except ValueError as error:
            raise InputError(f"--weights {self.weights!r}: give numbers with commas between, such as 2,1") from error


def search_tasks_of(
    rows: "Sequence[TaskRows]", options: TaskOptions, search: "LayerSearch", load: "Callable[[], LayerModel]"
) -> "SearchResult | JointResult":
    """Check everything, load the model, search."""
    from layerwise.encoder import parse_pooling
    from layerwise.search import SearchTask, check_weights, search_task, search_tasks

    for pooling in options.poolings:
        parse_pooling(pooling)
    if len(rows) > 1 and options.metric:
        raise InputError("--metric is for one task; several are searched by the metrics that they declare")
    tasks = [
        SearchTask.of(
            one,
            metric=options.metric,
            split=options.split,
            limit=options.limit,
            fixed=options.fixed,
            seed=search.seed,
        )
        for one in rows
    ]
    for task in tasks:
        task.split(search)
    counts = check_weights(tasks, options.counts) if len(tasks) > 1 or options.weights else []
    watch, bar = partial(counting, unit="sets"), sys.stderr.isatty()
    model = load()
    search.device = model.encoder.device if model.encoder.device.type == "cuda" else "cpu"
    with muted("layerwise.search"):  # its warnings are shown as notes to the result
        if len(tasks) == 1:
            return search_task(model, tasks[0], options.poolings, search, watch, show_progress_bar=bar)
        return search_tasks(model, tasks, counts, options.poolings, search, watch, show_progress_bar=bar)


def show_joint(result: "JointResult") -> None:
    """Scores on unseen rows, the regret of each choice, the verdict."""
    columns = ["layers for", "layers @ pooling", *result.names, "weighted mean"]
    title = f"{len(result.search.table_):,} sets of layers for {len(result.tasks)} tasks; scores x 100 on unseen rows"
    print_table(columns, _lines(result, result.unseen.tolist()), title=title)
    print_table(
        columns, _lines(result, result.regrets.tolist()), title="Regret: what a choice loses against the task's own"
    )
    for task, weight, single in zip(result.tasks, result.weights, result.singles, strict=True):
        dev, test = (len(part) for part in single.parts_[0])
        counted = f"{dev:,} {task.unit} choose, {test:,} others report"
        print_line(f"{task.name}: {task.rows.task.metric}, weight {weight:.2f}; {counted}.")
    print_line(str(result.verdict))
    if any(result.prompts):
        print_line(f"Put before the texts: {' and '.join(repr(one) for one in dict.fromkeys(result.prompts))}.")
    for warning in result.warnings:
        print_line(f"Note: {warning}.")
    print_line(spent(result.seconds))


def _lines(result: "JointResult", values: "Sequence[Sequence[float]]") -> list[list[str]]:
    lines = []
    for (name, choice), row in zip(result.choices.items(), values, strict=True):
        mean = sum(value * weight for value, weight in zip(row, result.weights, strict=True))
        lines.append([name, str(choice.mix), *map(points, row), points(mean)])
    return lines
