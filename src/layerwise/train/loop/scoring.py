"""Scores a trained model on test tasks, whose availability is checked before training."""

import logging
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from layerwise.data import Task, data_folder, find_tasks, known_tasks, obtain
from layerwise.errors import InputError
from layerwise.evaluate import Evaluation, LayerSubject, evaluate
from layerwise.model import LayerModel

log = logging.getLogger(__name__)
_PROTOCOL = ("name", "aggregation", "split")


def tasks_to_score(names: Sequence[str], data: str | None = None) -> list[Task]:
    """Find the available tasks by name, task file or suite; missing tasks of a suite are left out."""
    known = {"all", *(task.suite for task in known_tasks().values())}
    suites = [name for name in names if name in known]
    named = find_tasks([name for name in names if name not in suites])
    tasks = {task.name: task for task in [*named, *find_tasks(suites=suites)]}
    data_folder(data)
    missing = {task.name: reason for task in tasks.values() if (reason := _missing(task, data, required=task in named))}
    if suites and len(missing) == len(tasks):
        raise InputError(
            f"none of the test tasks of {', '.join(suites)} is here or can be fetched; "
            f"give the data folder with --data, or skip the test with --no-test"
        )
    for name, reason in missing.items():
        log.warning("%s is left out of the test: %s", name, reason)
    return [task for task in tasks.values() if task.name not in missing]


def check_unseen(dev: str, tasks: Sequence[Task]) -> None:
    """Raise if a dev task without splits is also a test task, as the same rows would select the best step."""
    for task in find_tasks([dev]) if dev else []:
        if not task.splits and task.name in {test.name for test in tasks}:
            raise InputError(
                f"task {task.name!r} has no splits, so the same rows would pick the best step and test it; "
                f"declare splits in its task file, or remove it from test"
            )


def score_model(model: LayerModel, tasks: Sequence[Task], data: str | None = None) -> Evaluation:
    """Score by SentEval's protocol. Views are not cached, as no other run has these weights."""
    log.info("scoring the trained model on %s", ", ".join(task.name for task in tasks))
    return evaluate(LayerSubject(model, cache=False), tasks, data=data)


def score_facts(evaluation: Evaluation) -> dict[str, Any]:
    """Return scores, averages of suites of several tasks, and the protocol, for results and the model card."""
    run, protocol = evaluation.runs[0], evaluation.as_dict()["protocol"]
    averaged = {suite for suite in run.averages() if sum(result.suite == suite for result in run.results.values()) > 1}
    return {
        "scores": _finite({name: result.score for name, result in run.results.items()}),
        "averages": _finite({suite: mean for suite, mean in run.averages().items() if suite in averaged}),
        "protocol": {
            **{key: protocol[key] for key in _PROTOCOL},
            "metrics": protocol["metrics"],
            "saw_test_text": {name: result.stamp["saw_test_text"] for name, result in run.results.items()},
        },
    }


def _missing(task: Task, data: str | None, *, required: bool) -> str:
    """Return why a task cannot be scored, or an empty string."""
    try:
        obtain(task, data)
    except InputError as error:
        if required:
            raise
        return str(error)
    return ""


def _finite(scores: Mapping[str, float]) -> dict[str, float | None]:
    """Replace NaN, which JSON does not have, by None."""
    return {name: float(score) if isfinite(score) else None for name, score in scores.items()}
