"""What a finished training says of itself: in the model card, in layerwise.json, in results."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from layerwise.data.catalog import find_tasks
from layerwise.train.corpus import Corpus, equal_to_evaluation
from layerwise.train.corpus_stream import StreamedCorpus
from layerwise.train.dev import DevScore
from layerwise.train.settings import Recipe


def training_facts(
    recipe: Recipe,
    corpus: Corpus | StreamedCorpus,
    seed: int,
    state: Any,
    seconds: float,
    dev: DevScore | None,
    data: str | None,
) -> dict[str, Any]:
    """Recipe, text, seed, steps, time and dev score; `state` is the host trainer's."""
    tasks = [task.name for task in find_tasks(suites=["sts"])]
    found = {
        "recipe": without_folders(recipe.facts()),
        "text": {"source": corpus.source, **asdict(corpus.counts)},
        "text_equal_to_evaluation": equal_to_evaluation(corpus, tasks, data),
        "seed": seed,
        "steps": state.global_step,
        "seconds": round(seconds, 1),
    }
    if dev is not None and state.best_metric is not None:
        found["dev"] = {
            "task": dev.name,
            "metric": dev.metric,
            "best": 100 * state.best_metric,
            "at_step": state.best_global_step,
        }
    return found


def without_folders(recipe: dict[str, Any]) -> dict[str, Any]:
    """Files and encoders by their names: where they lie on this machine is nobody's business."""
    return {name: _plain(value) for name, value in recipe.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    is_path = isinstance(value, str) and os.sep in value and Path(value).expanduser().exists()
    return Path(value).name if is_path else value
