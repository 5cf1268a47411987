"""Reads mteb's result folders as evaluations for `compare`: one JSON file per task of a model.

mteb keeps the main score of every split and subset, and no scores of single rows: differences have intervals by tasks,
and none by rows.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from layerwise.errors import InputError
from layerwise.evaluate.results import Evaluation, Run, TaskResult
from layerwise.files import read_json

SUITE, HEADLINE = "mteb", "main_score"
_META = "model_meta.json"
_OURS = "evaluation.json"  # of a training
_REMEDY = "give the folder that mteb wrote for one revision of a model, results/MODEL/REVISION"


def load_evaluation(path: str | os.PathLike[str]) -> Evaluation:
    """Load a result of `layerwise evaluate --out`, or a result folder of mteb."""
    if not Path(path).is_dir():
        return Evaluation.load(path)
    files = sorted(map(str, Path(path).rglob(_OURS)))
    if files:
        raise InputError(f"{path}: is the folder of a training; give its evaluation: {', '.join(files)}")
    return read_mteb_folder(path)


def read_mteb_folder(folder: str | os.PathLike[str]) -> Evaluation:
    """Read the results of one model revision, as written by mteb 2.

    Args:
        folder: results/MODEL/REVISION, or a folder above it that holds no other revision.
    """
    root = Path(folder)
    files = [path for path in sorted(root.rglob("*.json")) if path.name != _META]
    revisions = sorted({path.parent for path in files})
    if not revisions:
        raise InputError(f"{folder}: holds no results of mteb; {_REMEDY}")
    if len(revisions) > 1:
        names = ", ".join(str(path.relative_to(root)) for path in revisions[:5])
        raise InputError(f"{folder}: holds results of {len(revisions)} models or revisions ({names}); {_REMEDY}")
    results = {result.task: result for path in files for result in _results(path)}
    meta = revisions[0] / _META
    about = read_json(meta, remedy="let mteb write it again") if meta.is_file() else {}
    name = str(about.get("name") or revisions[0].parent.name)
    revision = str(about.get("revision") or revisions[0].name)
    facts = {"model": name, "revision": revision, "protocol": "mteb"}
    return Evaluation(name, facts, (Run(revision, (), "", results),))


def _results(path: Path) -> list[TaskResult]:
    """One for each split of a task's file."""
    facts = read_json(path, remedy=_REMEDY)
    try:
        name, splits = facts["task_name"], facts["scores"]
        if not splits:
            raise ValueError("it has no scores")
        return [
            _result(name if len(splits) == 1 else f"{name}, {split}", split, subsets, facts)
            for split, subsets in splits.items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{path}: is no result of mteb: {reason}; {_REMEDY}") from error


def _result(task: str, split: str, subsets: list[dict[str, Any]], facts: Mapping[str, Any]) -> TaskResult:
    """The mean of the subsets' main scores x 100, and of one subset all that is a share."""
    by_subset = {str(subset.get("hf_subset", "default")): 100 * float(subset[HEADLINE]) for subset in subsets}
    figures = {HEADLINE: float(np.mean(list(by_subset.values())))}
    if len(subsets) == 1:
        numbers = {key: value for key, value in subsets[0].items() if isinstance(value, float) and key != HEADLINE}
        figures |= {key: 100 * value for key, value in numbers.items()}
    stamp = {
        "task": task,
        "split": split,
        "protocol": "mteb",
        "rows_digest": f"{facts['task_name']}@{facts.get('dataset_revision')}: {', '.join(sorted(by_subset))}",
        "versions": {"mteb": facts.get("mteb_version")},
    }
    details = {"subsets": by_subset} if len(by_subset) > 1 else {}
    return TaskResult(task, SUITE, HEADLINE, figures, stamp, details=details)
