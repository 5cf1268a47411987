"""The finished model on test tasks: which can be scored is found out before anything is trained."""

import logging
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from layerwise.data.catalog import find_tasks, known_tasks
from layerwise.data.locate import data_folder, obtain
from layerwise.data.tasks import Task
from layerwise.errors import InputError
from layerwise.evaluate import Evaluation, LayerSubject, evaluate
from layerwise.model.layer_model import LayerModel

log = logging.getLogger(__name__)
_SETTING = ("name", "aggregation", "split")


def tasks_to_score(names: Sequence[str], data: str | None = None) -> list[Task]:
    """Tasks by name, task file or suite, whose rows are here or could be fetched; a suite goes on without others."""
    known = {"all", *(task.suite for task in known_tasks().values())}
    suites = [name for name in names if name in known]
    named = find_tasks([name for name in names if name not in suites])
    tasks = {task.name: task for task in [*named, *find_tasks(suites=suites)]}
    data_folder(data)
    missing = {task.name: why for task in tasks.values() if (why := _missing(task, data, must=task in named))}
    if suites and len(missing) == len(tasks):
        raise InputError(
            f"none of the test tasks of {', '.join(suites)} is here or can be fetched; "
            f"name the data folder with --data, or leave testing out with --no-test"
        )
    for name, why in missing.items():
        log.warning("%s is left out of the test: %s", name, why)
    return [task for task in tasks.values() if task.name not in missing]


def check_unseen(dev: str, tasks: Sequence[Task]) -> None:
    """Refuse to test on the rows that choose: a task without splits has but one part."""
    for task in find_tasks([dev]) if dev else []:
        if not task.splits and task.name in {one.name for one in tasks}:
            raise InputError(
                f"task {task.name!r} has no splits, so the same rows would choose the best step and test it; "
                f"declare splits in its task file, or leave it out of test"
            )


def scored(model: LayerModel, tasks: Sequence[Task], data: str | None = None) -> Evaluation:
    """Scores by SentEval's protocol. Views are not kept: no other run will have these weights."""
    return evaluate(LayerSubject(model, cache=False), tasks, data=data)


def score_facts(found: Evaluation) -> dict[str, Any]:
    """For the model card: headline figures, averages of suites of several tasks, and how they were made."""
    run, protocol = found.runs[0], found.as_dict()["protocol"]
    many = {suite for suite in run.averages() if sum(one.suite == suite for one in run.results.values()) > 1}
    return {
        "scores": _finite({name: result.score for name, result in run.results.items()}),
        "averages": _finite({suite: mean for suite, mean in run.averages().items() if suite in many}),
        "protocol": {
            **{key: protocol[key] for key in _SETTING},
            "metrics": protocol["metrics"],
            "saw_test_text": {name: result.stamp["saw_test_text"] for name, result in run.results.items()},
        },
    }


def _missing(task: Task, data: str | None, *, must: bool) -> str:
    """Why a task can't be scored, or nothing."""
    try:
        obtain(task, data)
    except InputError as error:
        if must:
            raise
        return str(error)
    return ""


def _finite(figures: Mapping[str, float]) -> dict[str, float | None]:
    """JSON has no NaN."""
    return {name: float(figure) if isfinite(figure) else None for name, figure in figures.items()}
