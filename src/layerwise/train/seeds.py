"""Temporary: what `layerwise.multitask.seeds` needs until it becomes a job of `layerwise.train.loop`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from layerwise.errors import InputError, LayerwiseError
from layerwise.files import read_json, write_json, write_text
from layerwise.objectives import rank
from layerwise.train.loop.callbacks import METRICS
from layerwise.train.loop.checkpoints import checkpoint_to_resume, remove_checkpoints
from layerwise.train.loop.host import device_name, training_arguments
from layerwise.train.loop.seeds import (
    MODEL,
    RECIPE,
    RESULT,
    SeedsResult,
    check_seeds,
    seed_folders,
    start_in,
    write_results,
)
from layerwise.train.loop.seeds import RUN_BEFORE as BEGUN
from layerwise.train.loop.seeds import OnSeedStep as SeedTold
from layerwise.train.loop.seeds import _first_difference as first_difference

__all__ = [
    "BEGUN",
    "MODEL",
    "RESULT",
    "SeedTold",
    "SeedsResult",
    "begun",
    "check_seeds",
    "checked_folder",
    "device_name",
    "host_arguments",
    "is_done",
    "named_encoder",
    "remove_checkpoints",
    "seed_folders",
    "start_in",
    "write_results",
]


def checked_folder(folder: Path, resume: bool) -> Path | None:
    """As `checkpoint_to_resume`."""
    return checkpoint_to_resume(folder, resume=resume)


def host_arguments(recipe: Any, *arguments: Any, **options: Any) -> Any:
    """As `training_arguments`, for recipes that are dataclasses."""
    return training_arguments(recipe, *arguments, **options)


def named_encoder(recipe: Any) -> str:
    """The encoder that a recipe names; an error where it names none."""
    if not recipe.model.encoder:
        raise InputError(f"recipe {recipe.name!r} names no encoder; give one with --model")
    return str(recipe.model.encoder)


@contextmanager
def begun(folder: Path, recipe: str, seed: int, **about: Any) -> Iterator[None]:
    """As `layerwise.train.loop.seeds` has it for a job."""
    made = not folder.exists()
    if rank() == 0:
        write_text(folder / RECIPE, recipe)
        write_json(folder / BEGUN, {"seed": seed, **about})
    try:
        yield
    except (LayerwiseError, KeyboardInterrupt):
        if rank() == 0 and not (folder / METRICS).exists():
            for name in (RECIPE, BEGUN):
                (folder / name).unlink(missing_ok=True)
            if made and not any(folder.iterdir()):
                folder.rmdir()
        raise


def is_done(folder: Path, seed: int, recipe: Any, load: Callable[[Path], Any]) -> bool:
    """As `layerwise.train.loop.seeds` has it for a job, for recipes that are dataclasses."""
    written = folder / RECIPE
    before, now = _settings(load(written)) if written.is_file() else None, _settings(recipe)
    if before not in (None, now):
        raise InputError(
            f"{folder}: was started with other settings{first_difference(asdict(before), asdict(now))}, see {written}; "
            f"give the same settings, or another folder"
        )
    done = (folder / RESULT).is_file() and (folder / MODEL).is_dir()
    finished = read_json(folder / RESULT).get("seed") if done else seed
    if finished != seed:
        raise InputError(f"{folder}: holds seed {finished}, not {seed}; give another folder with --out")
    started = read_json(folder / BEGUN).get("seed") if (folder / BEGUN).is_file() else seed
    if started != seed:
        raise InputError(f"{folder}: was started with seed {started}, not {seed}; give that seed, or another folder")
    return done


def _settings(recipe: Any) -> Any:
    return replace(recipe, name="", about="", reached="")
