"""One recipe by one or several seeds: trained, scored, saved, and their mean.

A folder gets, for one seed, or in seed-K for each of several: model/, recipe.toml (as it was run), metrics.jsonl,
evaluation.json (for `layerwise compare`), result.json, and checkpoints while it is trained; results.json is of all
seeds. Each is written as soon as it is there, so that a later seed that fails takes nothing along.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerwise.data.tasks import Task
from layerwise.errors import InputError
from layerwise.evaluate.results import read_json, write_json, write_text
from layerwise.objectives import rank, world_size
from layerwise.train.corpus import Corpus
from layerwise.train.corpus_stream import StreamedCorpus
from layerwise.train.host import last_checkpoint
from layerwise.train.recipe import load_recipe
from layerwise.train.recipe_toml import recipe_toml
from layerwise.train.run import Trained, train
from layerwise.train.scoring import score_facts, scored, tasks_to_score
from layerwise.train.settings import Recipe
from layerwise.train.summary import summary
from layerwise.train.text import load_corpus

MODEL, RECIPE, RESULT, RESULTS, EVALUATION = "model", "recipe.toml", "result.json", "results.json", "evaluation.json"
SeedTold = Callable[[int, int, int, dict[str, float]], object]


@dataclass(frozen=True)
class SeedsResult:
    """What `train_seeds` made: the seeds' results in their order, and means over them.

    Args:
        out: The folder.
        models: Each seed's model folder.
        results: Each seed's result.json.
        summary: Means and standard deviations of dev and test scores, see `layerwise.train.summary`.
    """

    out: Path
    models: tuple[Path, ...]
    results: tuple[dict[str, Any], ...]
    summary: dict[str, Any]


def train_seeds(
    recipe: Recipe,
    out: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = (0,),
    encoder: str | None = None,
    data: str | None = None,
    resume: bool = False,
    device: str | None = None,
    keep_checkpoints: bool = False,
    told: SeedTold | None = None,
) -> SeedsResult:
    """Train a recipe once for each seed, each time from the encoder as it is on disk, and score what comes out.

    Args:
        recipe: What to do.
        out: A folder, which must be empty unless `resume`.
        seeds: Different numbers from 0.
        encoder: A folder or hub name instead of the recipe's.
        data: The data folder, for the text by name and for dev and test tasks.
        resume: Go on in a folder: seeds that are finished are left as they are, others go on from their checkpoint.
        device: Where to train.
        keep_checkpoints: Leave them beside the finished model.
        told: Called after each step with the seed, the step, the number of steps and the latest figures.
    """
    out = Path(out).expanduser()
    recipe = replace(recipe, model=replace(recipe.model, encoder=encoder)) if encoder else recipe
    _check_seeds(seeds)
    check_out(out, resume=resume)
    folders = {seed: out if len(seeds) == 1 else out / f"seed-{seed}" for seed in seeds}
    missing = [seed for seed, folder in folders.items() if not (resume and _is_done(folder, recipe, seed))]
    if missing:
        tasks = tasks_to_score(recipe.dev.test, data)
        corpus = load_corpus(recipe.data, data)
        for seed in missing:
            one = _Seed(recipe, seed, folders[seed], data, device)
            one.run(corpus, tasks, told=told, keep_checkpoints=keep_checkpoints)
            if rank() == 0:
                _write_results(out, recipe, [folder for folder in folders.values() if (folder / RESULT).is_file()])
    together()
    results = tuple(read_json(folder / RESULT) for folder in folders.values())
    return SeedsResult(out, tuple(folder / MODEL for folder in folders.values()), results, summary(results))


def check_out(out: Path, *, resume: bool) -> None:
    """Refuse a folder that holds something, unless it is gone on with; under torchrun the first process looks."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; give a folder for --out")
    if not resume and os.environ.get("RANK", "0") == "0" and out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out}: is not empty; go on with --resume, or give another folder with --out")


def together() -> None:
    """Wait for the other processes of a training, where there are any."""
    if world_size() > 1:
        import torch

        torch.distributed.barrier()


@dataclass(frozen=True)
class _Seed:
    """One seed's training and its folder."""

    recipe: Recipe
    seed: int
    folder: Path
    data: str | None
    device: str | None

    def run(
        self,
        corpus: Corpus | StreamedCorpus,
        tasks: Sequence[Task],
        *,
        told: SeedTold | None,
        keep_checkpoints: bool,
    ) -> None:
        """Train, then score and write."""
        write_text(self.folder / RECIPE, recipe_toml(self.recipe))
        trained = train(
            self.recipe,
            self.folder,
            corpus=corpus,
            data=self.data,
            seed=self.seed,
            resume=last_checkpoint(self.folder) is not None,
            device=self.device,
            told=(lambda *figures: told(self.seed, *figures)) if told else None,
        )
        together()  # all have read the best checkpoint before it is removed
        if rank() == 0:
            self._finish(trained, tasks)
            if not keep_checkpoints:
                for checkpoint in self.folder.glob("checkpoint-*"):
                    shutil.rmtree(checkpoint)

    def _finish(self, trained: Trained, tasks: Sequence[Task]) -> None:
        """The model with its scores; the result comes last, for a seed that has one is finished."""
        facts = _without_folders(trained.facts)
        if tasks:
            found = scored(trained.model, tasks, self.data)
            facts |= score_facts(found)
            found.save(self.folder / EVALUATION)
        facts["device"] = _device_name(trained)
        trained.model.replaced(training=facts).save(self.folder / MODEL, overwrite=True)
        write_json(self.folder / RESULT, facts)


def _is_done(folder: Path, recipe: Recipe, seed: int) -> bool:
    """Whether a seed is finished there; what another recipe or seed left there is not gone on with."""
    written = folder / RECIPE
    if written.is_file() and _settings(load_recipe(written)) != _settings(recipe):
        raise InputError(f"{folder}: was begun with other settings, see {written}; give them again, or another folder")
    if not (folder / RESULT).is_file() or not (folder / MODEL).is_dir():
        return False
    found = read_json(folder / RESULT).get("seed")
    if found != seed:
        raise InputError(f"{folder}: holds seed {found}, not {seed}; give another folder with --out")
    return True


def _settings(recipe: Recipe) -> Recipe:
    """What decides a training: without the words about it."""
    return replace(recipe, name="", about="", reached="")


def _write_results(out: Path, recipe: Recipe, folders: Sequence[Path]) -> None:
    results = [read_json(folder / RESULT) for folder in folders]
    write_json(out / RESULTS, {"recipe": recipe.name, **summary(results), "results": results})


def _check_seeds(seeds: Sequence[int]) -> None:
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise InputError(f"seeds are {list(seeds)}; give one or more different numbers from 0")


def _without_folders(facts: dict[str, Any]) -> dict[str, Any]:
    """Files and encoders by their names: where they lie on this machine is nobody's business."""
    recipe = dict(facts["recipe"])
    recipe["data"] = recipe["data"] | {"files": [_name(file) for file in recipe["data"]["files"]]}
    recipe["model"] = recipe["model"] | {"encoder": _name(recipe["model"]["encoder"])}
    recipe["dev"] = recipe["dev"] | {"test": [_name(task) for task in recipe["dev"]["test"]]}
    recipe["dev"]["task"] = _name(recipe["dev"]["task"])
    return facts | {"recipe": recipe}


def _name(path: str) -> str:
    return Path(path).name if path and Path(path).expanduser().exists() else path


def _device_name(trained: Trained) -> str:
    import torch

    device = trained.model.encoder.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
