"""Results with their stamps (task, rows, protocol, model, versions), as JSON files and as tables."""

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.files import read_json, write_json
from layerwise.metrics import Figures

_FORMAT = 1
_DIGITS = 9  # of the scores of single rows in a file


@dataclass(frozen=True, eq=False)
class TaskResult:
    """The figures of one task by one mix; `metric` names the headline, and the stamp records how they were computed."""

    task: str
    suite: str
    metric: str
    figures: Figures
    stamp: dict[str, Any]
    sd: Figures = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    items: NDArray[np.floating[Any]] = field(default_factory=lambda: np.empty(0))
    gold: NDArray[np.floating[Any]] = field(default_factory=lambda: np.empty(0))

    @property
    def score(self) -> float:
        """The headline figure."""
        return self.figures[self.metric]

    def as_dict(self, *, items: bool = True) -> dict[str, Any]:
        """For JSON; `items` are needed to compare two runs row by row."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in ("task", "suite", "metric", "figures", "stamp")}
        facts |= {name: getattr(self, name) for name in ("sd", "details") if getattr(self, name)}
        if items:
            rows = {"items": self.items, "grades": self.gold}
            facts |= {name: _rounded(values) for name, values in rows.items() if len(values)}
        return facts

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Build from the result of `as_dict`."""
        figures, sd = _numbers(facts["figures"]), _numbers(facts.get("sd", {}))
        figures[facts["metric"]]  # a result must have its headline
        items, grades = facts.get("items", ()), facts.get("grades", ())
        if not isinstance(facts["stamp"], dict) or len(grades) not in (0, len(items)):
            raise ValueError("its stamp or its rows are damaged")
        return cls(
            facts["task"],
            facts["suite"],
            facts["metric"],
            figures,
            facts["stamp"],
            sd=sd,
            details=facts.get("details", {}),
            items=np.asarray(items, dtype=np.float64),
            gold=np.asarray(grades, dtype=np.float64),
        )


@dataclass(frozen=True)
class Run:
    """All tasks by one mix of a model."""

    mix: str
    layers: tuple[int, ...]
    pooling: str
    results: dict[str, TaskResult]

    def averages(self) -> dict[str, float]:
        """Return the mean of the headline figures by suite; NaN if their metrics differ."""
        suites: dict[str, list[TaskResult]] = {}
        for result in self.results.values():
            suites.setdefault(result.suite, []).append(result)
        return {
            suite: float(np.mean([result.score for result in results]))
            if len({result.metric for result in results}) == 1
            else np.nan
            for suite, results in suites.items()
        }

    @property
    def average(self) -> float:
        """The mean of the headline figures, NaN over several suites: correlations and accuracies have no mean."""
        averages = list(self.averages().values())
        return averages[0] if len(averages) == 1 else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """`tasks.<name>.<metric>`, averages; standard deviations as `<metric>_sd`."""
        tasks = {
            name: result.figures | {f"{metric}_sd": sd for metric, sd in result.sd.items()}
            for name, result in self.results.items()
        }
        facts = {"mix": self.mix, "layers": list(self.layers), "pooling": self.pooling, "tasks": tasks}
        return facts | {"average": self.average, "averages": self.averages()}


@dataclass(frozen=True)
class Evaluation:
    """One model on some tasks, by one or several mixes."""

    model: str
    protocol: dict[str, Any]
    runs: tuple[Run, ...]

    def __iter__(self) -> Iterator[TaskResult]:
        return (result for run in self.runs for result in run.results.values())

    def as_dict(self, *, items: bool = False) -> dict[str, Any]:
        """For JSON: `tasks`, `average` and `protocol` of the first mix, `runs` where there are several."""
        first = self.runs[0]
        protocol = self.protocol | {
            "mix": first.mix,
            "layers": list(first.layers),
            "pooling": first.pooling,
            "metrics": {name: result.metric for name, result in first.results.items()},
            "stamps": {name: result.stamp for name, result in first.results.items()},
        }
        facts = {"format": _FORMAT, "model": self.model, **first.as_dict(), "protocol": protocol}
        if len(self.runs) > 1:
            facts["runs"] = [run.as_dict() for run in self.runs]
        if items:
            facts["results"] = [[result.as_dict() for result in run.results.values()] for run in self.runs]
        return facts

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything, including the scores of single rows, so that it can be loaded and compared."""
        write_json(path, self.as_dict(items=True))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load what `save` wrote."""
        facts = read_json(path, remedy="give a result of `layerwise evaluate --out`, or evaluate again")
        try:
            heads = facts.get("runs") or [facts]
            runs = []
            for head, results in zip(heads, facts["results"], strict=True):
                by_task = {facts["task"]: TaskResult.of(facts) for facts in results}
                runs.append(Run(head["mix"], tuple(head["layers"]), head["pooling"], by_task))
            return cls(facts["model"], facts["protocol"], tuple(runs))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{path}: is no result of `layerwise evaluate --out`: {reason}; evaluate again") from error


def _numbers(figures: Mapping[str, float | None]) -> Figures:
    """Figures from JSON, which has null for NaN."""
    return {name: float("nan") if value is None else float(value) for name, value in figures.items()}


def _rounded(values: NDArray[np.floating[Any]]) -> list[float]:
    return [float(value) for value in np.round(values, _DIGITS)]


def table(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of a table: a row for each mix, a column for each task, then averages by suite."""
    tasks, suites = list(runs[0].results), list(runs[0].averages())
    members = {suite: [r.metric for r in runs[0].results.values() if r.suite == suite] for suite in suites}
    averaged = [suite for suite, metrics in members.items() if len(metrics) > 1 and len(set(metrics)) == 1]
    columns = ["layers", *tasks, *(f"{suite} avg" if len(suites) > 1 else "avg" for suite in averaged)]
    rows = []
    for run in runs:
        averages = run.averages()
        cells = [shown(run.results[task].score, run.results[task].sd.get(run.results[task].metric)) for task in tasks]
        rows.append([run.mix, *cells, *(shown(averages[suite]) for suite in averaged)])
    return columns, rows


def shown(score: float, sd: float | None = None) -> str:
    """Format a figure with two digits, and ± sd if something was random."""
    if not isfinite(score):
        return "-"
    return f"{score:.2f}" + (f" ± {sd:.2f}" if sd is not None and isfinite(sd) else "")


def describe(evaluation: Evaluation) -> str:
    """Describe metrics, protocol, splits and seeds in one sentence."""
    results = list(evaluation.runs[0].results.values())
    metrics = dict.fromkeys(result.metric for result in results)
    parts = [f"{evaluation.model}: {', '.join(metrics)} × 100", f"protocol {evaluation.protocol['name']}"]
    words = {"all": "over all pairs", "mean": "mean of subsets", "wmean": "mean of subsets by their size"}
    averages = [result.stamp.get("aggregation") for result in results]
    parts += dict.fromkeys(f"STS {words[average]}" for average in averages if average)
    splits = dict.fromkeys(str(result.stamp.get("split", "test")) for result in results)
    parts += [f"scored on {', '.join(splits)}"] if set(splits) != {"test"} else []
    if any(result.sd and result.stamp.get("seeds") for result in results):
        parts.append(f"seeds {', '.join(map(str, evaluation.protocol['seeds']))}")
    return "; ".join(parts)


def describe_heads(evaluation: Evaluation) -> str:
    """Describe the heads after the mix, such as whitening, or return an empty string."""
    heads = {run.mix: result.stamp.get("behind") for run in evaluation.runs for result in run.results.values()}
    return "; ".join(f"behind {mix}: {words}" for mix, words in heads.items() if words)


def leakage(results: Sequence[TaskResult]) -> str:
    """Describe which scores are of a model that saw test text, or return an empty string."""
    shares: dict[str, float] = {}
    for result in results:  # of several mixes the largest share
        shares[result.task] = max(shares.get(result.task, 0.0), result.stamp.get("saw_test_text") or 0.0)
    seen = [f"{task} ({share:{'.0%' if share >= 0.01 else '.2%'}})" for task, share in shares.items() if share]
    return f"saw test text: {', '.join(seen)}" if seen else ""


def to_csv(evaluation: Evaluation) -> str:
    """Format as CSV, with a row per figure and the main facts of its stamp."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    facts = ("protocol", "split", "rows_digest", "model_hash", "saw_test_text")
    writer.writerow(("model", "mix", "layers", "pooling", "task", "metric", "figure", "sd", *facts))
    for run in evaluation.runs:
        layers = " ".join(map(str, run.layers))
        for result in run.results.values():
            stamped = [_cell(result.stamp.get(fact)) for fact in facts]
            for metric, figure in result.figures.items():
                sd = _cell(result.sd.get(metric))
                row = (evaluation.model, run.mix, layers, run.pooling, result.task, metric, _cell(figure), sd)
                writer.writerow((*row, *stamped))
    return text.getvalue()


def _cell(value: object) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)
