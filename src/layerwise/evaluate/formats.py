"""Evaluations as tables for people: Markdown and CSV, each with how the figures were made."""

import csv
import io
from collections.abc import Sequence
from math import isfinite

from layerwise.evaluate.results import Evaluation, Run, TaskResult


def table(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: a line for each mix, a column for each task, then averages by suite."""
    tasks, suites = list(runs[0].results), list(runs[0].averages())
    several = [suite for suite in suites if sum(r.suite == suite for r in runs[0].results.values()) > 1]
    columns = ["layers", *tasks, *(f"{suite} avg" if len(suites) > 1 else "avg" for suite in several)]
    rows = []
    for run in runs:
        averages = run.averages()
        cells = [shown(run.results[task].score, run.results[task].sd.get(run.results[task].metric)) for task in tasks]
        rows.append([run.mix, *cells, *(shown(averages[suite]) for suite in several)])
    return columns, rows


def shown(score: float, sd: float | None = None) -> str:
    """Two digits; mean ± sd where something was random."""
    if not isfinite(score):
        return "-"
    return f"{score:.2f}" + (f" ± {sd:.2f}" if sd is not None and isfinite(sd) else "")


def how(evaluation: Evaluation) -> str:
    """One sentence on what the figures are."""
    results = list(evaluation.runs[0].results.values())
    metrics = dict.fromkeys(result.metric for result in results)
    said = [f"{evaluation.model}: {', '.join(metrics)} × 100", f"protocol {evaluation.protocol['name']}"]
    words = {"all": "over all pairs", "mean": "mean of subsets", "wmean": "mean of subsets by their size"}
    said += dict.fromkeys(f"STS {words[how]}" for result in results if (how := result.stamp.get("aggregation")))
    splits = dict.fromkeys(str(result.stamp.get("split", "test")) for result in results)
    said += [f"scored on {', '.join(splits)}"] if set(splits) != {"test"} else []
    if any(result.sd for result in results):
        said.append(f"seeds {', '.join(map(str, evaluation.protocol['seeds']))}")
    return "; ".join(said)


def behind(evaluation: Evaluation) -> str:
    """What stands behind the layers that a line of the table names, or nothing."""
    told = {run.mix: one.stamp.get("behind") for run in evaluation.runs for one in run.results.values()}
    return "; ".join(f"behind {mix}: {words}" for mix, words in told.items() if words)


def leakage(results: Sequence[TaskResult]) -> str:
    """Which scores are of a model that saw test text, or nothing."""
    shares: dict[str, float] = {}
    for result in results:  # of several mixes the one that saw most
        shares[result.task] = max(shares.get(result.task, 0.0), result.stamp.get("saw_test_text") or 0.0)
    seen = [f"{task} ({share:{'.0%' if share >= 0.01 else '.2%'}})" for task, share in shares.items() if share]
    return f"saw test text: {', '.join(seen)}" if seen else ""


def to_markdown(evaluation: Evaluation) -> str:
    """A table and how it was made."""
    columns, rows = table(evaluation.runs)
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *map(_line, rows)]
    weights = f"weights {evaluation.protocol.get('model_hash', '')[:12]}"
    notes = [how(evaluation), behind(evaluation), leakage(list(evaluation)), weights]
    return "\n".join(lines) + "\n\n" + "; ".join(filter(None, notes)) + ".\n"


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)  # joined mixes have it in their texts
    return f"| {' | '.join(escaped)} |"


def to_csv(evaluation: Evaluation) -> str:
    """A line for each figure, with the stamp's main facts."""
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
                own = (evaluation.model, run.mix, layers, run.pooling, result.task, metric, _cell(figure), sd)
                writer.writerow((*own, *stamped))
    return text.getvalue()


def _cell(value: object) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)
