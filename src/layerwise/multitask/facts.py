"""What a finished multitask training says of itself: in the model card, in layerwise.json, in results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layerwise.multitask.build import MultitaskParts
from layerwise.multitask.dev import Report
from layerwise.multitask.rows import TrainingTask
from layerwise.multitask.settings import MultitaskRecipe
from layerwise.postprocess.fitted_on import ENCODER, FittedOn
from layerwise.train.loop.run import without_folders

_UNREAD = {"model": ("keep_head", "inference"), "train": ("chunk", "cuda_graphs")}


def multitask_facts(
    recipe: MultitaskRecipe,
    parts: MultitaskParts,
    seed: int,
    state: Any,
    seconds: float,
    found: Mapping[str, Report],
) -> dict[str, Any]:
    """Recipe, rows, seed, steps, time, scores; `state` is the host trainer's. No path of this machine is in it."""
    learned = parts.student.learned
    weights = learned.weights if learned else tuple(parts.student.weights.values())
    facts: dict[str, Any] = {
        "recipe": without_folders(_as_read(recipe)),
        "tasks": {
            task.name: {
                "rows": {role: len(rows) for role, rows in task.parts.items()},
                "labels": list(task.labels),
                "weight": weight,
            }
            for task, weight in zip(parts.tasks, weights, strict=True)
        },
        "seed": seed,
        "steps": state.global_step,
        "seconds": round(seconds, 1),
        **{role: one.facts() for role, one in found.items()},
    }
    if state.best_metric is not None:
        metric = f"overall, dev{f' (at most {limit} rows a task)' if (limit := recipe.dev.limit) else ''}"
        facts["best"] = {"metric": metric, "score": state.best_metric, "at_step": state.best_global_step}
    return facts


def _as_read(recipe: MultitaskRecipe) -> dict[str, Any]:
    """Without what trainings by one embedding have and this one has not."""
    facts = recipe.facts()
    for table, keys in _UNREAD.items():
        facts[table] = {key: value for key, value in facts[table].items() if key not in keys}
    return facts


def fitted_on(recipe: MultitaskRecipe, tasks: Sequence[TrainingTask]) -> tuple[FittedOn, ...]:
    """The text that the encoder, or pooler and heads behind a frozen one, were trained on."""
    what = "pooler" if recipe.mixing.frozen_encoder else ENCODER
    return tuple(
        FittedOn.of(
            [text for column in task.parts["train"].columns for text in column],
            source=f"{task.name} ({Path(task.setup.task.file).name}, train)",
            what=what,
        )
        for task in tasks
    )
