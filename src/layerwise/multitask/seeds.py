"""One recipe of several tasks by one or several seeds: trained, scored, saved, and their mean.

A folder gets what `layerwise.train.seeds` writes, without evaluation.json: for one seed, or in seed-K for each of
several, model/, recipe.toml, metrics.jsonl and result.json; results.json is of all seeds.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from layerwise.errors import InputError
from layerwise.files import read_json, write_json
from layerwise.multitask.build import check_trainable
from layerwise.multitask.recipe import load_multitask_recipe, multitask_toml
from layerwise.multitask.rows import TrainingTask
from layerwise.multitask.run import MultitaskTrained, read_tasks_of, train_multitask
from layerwise.multitask.settings import MultitaskRecipe
from layerwise.train.loop.checkpoints import last_checkpoint
from layerwise.train.loop.summary import spread, spreads
from layerwise.train.seeds import (
    BEGUN,
    MODEL,
    RESULT,
    SeedsResult,
    SeedTold,
    begun,
    check_seeds,
    device_name,
    is_done,
    named_encoder,
    remove_checkpoints,
    seed_folders,
    start_in,
    write_results,
)


def train_multitask_seeds(
    recipe: MultitaskRecipe,
    out: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = (0,),
    encoder: str | None = None,
    data: str | None = None,
    resume: bool = False,
    device: str | None = None,
    told: SeedTold | None = None,
) -> SeedsResult:
    """Train a recipe once for each seed, each time from the encoder as it is on disk; arguments as `train_seeds`'."""
    out = Path(out).expanduser()
    recipe = replace(recipe, reached="")  # which is another run's figure
    recipe = replace(recipe, model=replace(recipe.model, encoder=encoder)) if encoder else recipe
    check_seeds(seeds)
    start_in(out, resume=resume, device=device)
    check_trainable(recipe)
    named_encoder(recipe)
    folders = seed_folders(out, seeds)
    missing = [
        seed
        for seed, folder in folders.items()
        if not (resume and is_done(folder, seed, recipe, load_multitask_recipe))
    ]
    tasks = read_tasks_of(recipe, data) if missing else ()
    for seed in missing:
        _run(recipe, tasks, seed, folders[seed], device, told)
        write_results(out, recipe.name, multitask_summary)
    results = tuple(read_json(folder / RESULT) for folder in folders.values())
    return SeedsResult(out, tuple(folder / MODEL for folder in folders.values()), results, multitask_summary(results))


def multitask_summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each score, and of the seconds, the mean and the sd over the seeds."""
    roles = [role for role in ("dev", "test") if all(role in result for result in results)]
    return {
        "seeds": [result["seed"] for result in results],
        **{role: spreads([result[role]["scores"] for result in results]) for role in roles},
        "seconds": spread([result["seconds"] for result in results]),
    }


def _run(
    recipe: MultitaskRecipe,
    tasks: Sequence[TrainingTask],
    seed: int,
    folder: Path,
    device: str | None,
    told: SeedTold | None,
) -> None:
    digest = _digest(tasks)
    _check_rows(folder, digest)
    with begun(folder, multitask_toml(recipe), seed, rows=digest):
        trained = train_multitask(
            recipe,
            folder,
            tasks=tasks,
            seed=seed,
            resume=last_checkpoint(folder) is not None,
            device=device,
            told=(lambda *figures: told(seed, *figures)) if told else None,
        )
    _finish(trained, folder)


def _check_rows(folder: Path, digest: str) -> None:
    """Refuse to go on with other rows than those a training began with: its classes or their order may be others."""
    before = read_json(folder / BEGUN).get("rows", digest) if (folder / BEGUN).is_file() else digest
    if before != digest and last_checkpoint(folder) is not None:
        raise InputError(f"{folder}: was begun with other rows in its tasks' files; give those, or another folder")


def _digest(tasks: Sequence[TrainingTask]) -> str:
    """Of every text, label and class, in their order."""
    found = sha256()
    for task in tasks:
        found.update(repr((task.name, task.labels, sorted(task.parts))).encode())
        for _, rows in sorted(task.parts.items()):
            found.update(repr(rows.columns).encode())
            found.update(rows.targets.tobytes())
    return found.hexdigest()


def _finish(trained: MultitaskTrained, folder: Path) -> None:
    """The model, then the result, for a seed that has one is finished; then checkpoints go."""
    model = trained.predictor.model
    facts = trained.facts | {"device": device_name(model.encoder.device)}
    replace(trained.predictor, model=model.replaced(training=facts)).save(folder / MODEL, overwrite=True)
    write_json(folder / RESULT, facts)
    remove_checkpoints(folder)
