"""What a finished training says of itself: in the model card, in layerwise.json, in results."""

from dataclasses import asdict
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
        "recipe": recipe.facts(),
        "text": {"source": corpus.source, **asdict(corpus.counts)},
        "text_equal_to_evaluation": equal_to_evaluation(corpus, tasks, data),
        "seed": seed,
        "steps": state.global_step,
        "seconds": round(seconds, 1),
    }
    if dev is not None and state.best_metric is not None:
        found["dev"] = {
            "task": f"{recipe.dev.task}, {recipe.dev.split}",
            "metric": dev.metric,
            "best": 100 * state.best_metric,
            "at_step": state.best_global_step,
        }
    return found
