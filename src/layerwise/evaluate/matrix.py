"""Scores of tasks by views, such as every layer on every task, as tables, JSON and a heat map."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.evaluate.results import Evaluation, Run, describe, describe_heads, leakage, shown, table

if TYPE_CHECKING:
    from layerwise.plots import Drawing

_MOST_TASKS = 7  # columns of a table that has a row for each mix; with more tasks they are the rows

Table = tuple[list[str], list[list[str]]]


@dataclass(frozen=True, eq=False)
class Matrix:
    """The headline figures of an evaluation: `scores` (tasks, mixes), NaN if missing."""

    tasks: tuple[str, ...]
    metrics: tuple[str, ...]
    runs: tuple[Run, ...]
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "Matrix":
        """Build from runs on the same tasks."""
        results = runs[0].results
        scores = [[run.results[task].score for run in runs] for task in results]
        return cls(tuple(results), tuple(result.metric for result in results.values()), tuple(runs), np.array(scores))

    def best(self, row: int) -> Run | None:
        """Return the run with a task's highest score; None if no mix has a score."""
        return None if np.isnan(self.scores[row]).all() else self.runs[int(np.nanargmax(self.scores[row]))]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: `scores[task][mix]` in the order of `tasks` and `mixes`."""
        best = {task: run.mix if (run := self.best(row)) else None for row, task in enumerate(self.tasks)}
        return {
            "tasks": list(self.tasks),
            "metrics": list(self.metrics),
            "mixes": [run.mix for run in self.runs],
            "scores": self.scores.tolist(),
            "best": best,
        }

    def tables(self) -> list[Table]:
        """Return a table per token pooling, with a row per task and a column per mix, the best mix last."""
        result = []
        for pooling in dict.fromkeys(run.pooling for run in self.runs):
            columns = [i for i, run in enumerate(self.runs) if run.pooling == pooling]
            part = Matrix(self.tasks, self.metrics, tuple(self.runs[i] for i in columns), self.scores[:, columns])
            rows = [
                [task, metric, *map(shown, values), run.mix if (run := part.best(row)) else "-"]
                for row, (task, metric, values) in enumerate(zip(part.tasks, part.metrics, part.scores, strict=True))
            ]
            result.append((["task", "metric", *(run.mix for run in part.runs), "best"], rows))
        return result

    def draw(self) -> "Drawing":
        """Draw a heat map of single layers: scores relative to the best view of the task, which is marked by a dot."""
        from layerwise.plots import view_scores

        if any(len(run.layers) != 1 for run in self.runs):
            raise InputError("a heat map is of single layers; evaluate with --layers each")
        poolings = list(dict.fromkeys(run.pooling for run in self.runs))
        layers = max(run.layers[0] for run in self.runs) + 1
        shares: dict[str, NDArray[np.float64]] = {}
        chosen = []
        for row, task in enumerate(self.tasks):
            best = self.best(row)
            if best is None or best.results[task].score <= 0:
                continue  # no score is a share of it
            for pooling in poolings:
                name = task if len(poolings) == 1 else f"{task}, {pooling}"
                shares[name] = np.full(layers, np.nan)
                for run, score in zip(self.runs, self.scores[row], strict=True):
                    if run.pooling == pooling:
                        shares[name][run.layers[0]] = 100 * score / best.results[task].score
                if best.pooling == pooling:
                    chosen.append((name, best.layers[0]))
        if not shares:
            raise InputError("no view has a score above 0 on any task; there is nothing to draw")
        return view_scores(scores=shares, chosen=chosen, measure="% of the task's best view", rows="tasks")


def tables(evaluation: Evaluation) -> list[Table]:
    """Return the tables of an evaluation: a row per mix, or per task if there are many tasks."""
    if len(evaluation.runs) > 1 and len(evaluation.runs[0].results) > _MOST_TASKS:
        return Matrix.of(evaluation.runs).tables()
    return [table(evaluation.runs)]


def to_markdown(evaluation: Evaluation) -> str:
    """Markdown tables and how they were made."""
    parts = [
        "\n".join([_line(columns), f"|{'---|' * len(columns)}", *map(_line, rows)])
        for columns, rows in tables(evaluation)
    ]
    weights = f"weights {evaluation.protocol.get('model_hash', '')[:12]}"
    notes = [describe(evaluation), describe_heads(evaluation), leakage(list(evaluation)), weights]
    return "\n\n".join(parts) + "\n\n" + "; ".join(filter(None, notes)) + ".\n"


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)  # joined mixes have a bar in their texts
    return f"| {' | '.join(escaped)} |"
