"""Results with their stamps: what was scored, on which rows, how, by which model and versions."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.evaluate.outcomes import Figures
from layerwise.files import read_json, write_json

_FORMAT = 1
_DIGITS = 9  # of the rows' own scores in a file


@dataclass(frozen=True, eq=False)
class TaskResult:
    """One task's figures by one mix. `metric` names the headline among them; the stamp says how they came about."""

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
            facts |= {name: _rounded(getattr(self, name)) for name in ("items", "gold") if len(getattr(self, name))}
        return facts

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """From `as_dict`."""
        figures, sd = _numbers(facts["figures"]), _numbers(facts.get("sd", {}))
        figures[facts["metric"]]  # a result without its headline is none
        if not isinstance(facts["stamp"], dict) or len(facts.get("gold", ())) not in (0, len(facts.get("items", ()))):
            raise ValueError("its stamp or its rows are damaged")
        return cls(
            facts["task"],
            facts["suite"],
            facts["metric"],
            figures,
            facts["stamp"],
            sd=sd,
            details=facts.get("details", {}),
            items=np.asarray(facts.get("items", ()), dtype=np.float64),
            gold=np.asarray(facts.get("gold", ()), dtype=np.float64),
        )


@dataclass(frozen=True)
class Run:
    """All tasks by one mix of a model."""

    mix: str
    layers: tuple[int, ...]
    pooling: str
    results: dict[str, TaskResult]

    def averages(self) -> dict[str, float]:
        """Suite -> the mean of its tasks' headline figures."""
        suites = dict.fromkeys(result.suite for result in self.results.values())
        return {
            suite: float(np.mean([result.score for result in self.results.values() if result.suite == suite]))
            for suite in suites
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
        """Write everything, rows' scores included, so that it can be loaded and compared. Whole or not at all."""
        write_json(path, self.as_dict(items=True))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        facts = read_json(path, remedy="give a result of `layerwise evaluate --out`")
        try:
            heads = facts.get("runs") or [facts]
            runs = []
            for head, results in zip(heads, facts["results"], strict=True):
                found = {one["task"]: TaskResult.of(one) for one in results}
                runs.append(Run(head["mix"], tuple(head["layers"]), head["pooling"], found))
            return cls(facts["model"], facts["protocol"], tuple(runs))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"{path}: not a result of `layerwise evaluate --out`: {why}; evaluate again") from error


def _numbers(given: Mapping[str, float | None]) -> Figures:
    """As they were before JSON, which has no NaN."""
    return {name: float("nan") if value is None else float(value) for name, value in given.items()}


def _rounded(values: NDArray[np.floating[Any]]) -> list[float]:
    return [float(value) for value in np.round(values, _DIGITS)]
