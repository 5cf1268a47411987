"""One recipe by one or several seeds: trained, scored, saved, and their mean.

A folder gets, for one seed, or in seed-K for each of several: model/, recipe.toml (as it was run), metrics.jsonl,
evaluation.json (for `layerwise compare`), result.json, and checkpoints while it is trained; results.json is of all
seeds. Each is written as soon as it is there, so that a later seed that fails takes nothing along.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch

from layerwise.data.tasks import Task
from layerwise.errors import InputError, LayerwiseError
from layerwise.files import read_json, write_json, write_text
from layerwise.objectives import rank, world_size
from layerwise.train.corpus import Corpus
from layerwise.train.corpus_stream import StreamedCorpus
from layerwise.train.host import join_processes, last_checkpoint
from layerwise.train.recipe import load_recipe, recipe_toml
from layerwise.train.run import METRICS, Trained, named_encoder, train
from layerwise.train.scoring import check_unseen, score_facts, scored, tasks_to_score
from layerwise.train.settings import Recipe
from layerwise.train.summary import summary
from layerwise.train.text import load_corpus

MODEL, RECIPE, RESULT, RESULTS, EVALUATION = "model", "recipe.toml", "result.json", "results.json", "evaluation.json"
BEGUN = "begun.json"
_HIGHEST = 2**31 - 1  # every generator takes it, and a few numbers above
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
    recipe = replace(recipe, reached="")  # which is another run's figure
    recipe = replace(recipe, model=replace(recipe.model, encoder=encoder)) if encoder else recipe
    check_seeds(seeds)
    start_in(out, resume=resume, device=device)
    named_encoder(recipe)
    folders = seed_folders(out, seeds)
    missing = [seed for seed, folder in folders.items() if not (resume and is_done(folder, seed, recipe, load_recipe))]
    if missing:
        corpus = load_corpus(recipe.data, data)
        tasks = tasks_to_score(recipe.dev.test, data)  # may fetch: mistakes about the text come first
        check_unseen(recipe.dev.task, tasks)
        for seed in missing:
            one = _Seed(recipe, seed, folders[seed], data, device)
            one.run(corpus, tasks, told=told, keep_checkpoints=keep_checkpoints)
            if rank() == 0:
                write_results(out, recipe.name, summary)
    together()
    results = tuple(read_json(folder / RESULT) for folder in folders.values())
    return SeedsResult(out, tuple(folder / MODEL for folder in folders.values()), results, summary(results))


def start_in(out: Path, *, resume: bool, device: str | None) -> None:
    """Refuse a folder that holds something, unless it is gone on with.

    Under torchrun the first process looks, and the others begin only then: what they write would be in its way.
    """
    join_processes("cuda" if device is None and torch.cuda.is_available() else device or "cpu")
    if rank() == 0:
        check_out(out, resume=resume)
    together()


def check_out(out: Path, *, resume: bool) -> None:
    """Refuse a file, and a folder that holds something, unless it is gone on with."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; give a folder for --out")
    if not resume and out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out}: is not empty; go on with --resume, or give another folder with --out")


def together() -> None:
    """Wait for the other processes of a training, where there are any."""
    if world_size() > 1:
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
        with begun(self.folder, recipe_toml(self.recipe), self.seed):
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
                remove_checkpoints(self.folder)

    def _finish(self, trained: Trained, tasks: Sequence[Task]) -> None:
        """The model with its scores; the result comes last, for a seed that has one is finished."""
        facts = dict(trained.facts)
        if tasks:
            found = scored(trained.model, tasks, self.data)
            facts |= score_facts(found)
            found.save(self.folder / EVALUATION)
        facts["device"] = device_name(trained.model.encoder.device)
        trained.model.replaced(training=facts).save(self.folder / MODEL, overwrite=True)
        write_json(self.folder / RESULT, facts)


@contextmanager
def begun(folder: Path, recipe: str, seed: int, **about: Any) -> Iterator[None]:
    """The recipe's text and what it began with are there while it runs; what fails before a step leaves no folder."""
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


def remove_checkpoints(folder: Path) -> None:
    """Those of a training that is finished."""
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)


def is_done(folder: Path, seed: int, recipe: Any, load: Callable[[Path], Any]) -> bool:
    """Whether a seed is finished there; what another recipe (which `load` reads) or seed left is not gone on with."""
    written = folder / RECIPE
    before, now = _settings(load(written)) if written.is_file() else None, _settings(recipe)
    if before not in (None, now):
        raise InputError(
            f"{folder}: was begun with other settings{_first_difference(asdict(before), asdict(now))}, see {written}; "
            f"give them again, or another folder"
        )
    done = _holds_result(folder, seed)
    began = read_json(folder / BEGUN).get("seed") if (folder / BEGUN).is_file() else seed
    if began != seed:
        raise InputError(f"{folder}: was begun with seed {began}, not {seed}; give that seed, or another folder")
    return done


def _holds_result(folder: Path, seed: int) -> bool:
    """Whether a folder has the finished model and result of this seed; an error where it is another one's."""
    if not (folder / RESULT).is_file() or not (folder / MODEL).is_dir():
        return False
    found = read_json(folder / RESULT).get("seed")
    if found != seed:
        raise InputError(f"{folder}: holds seed {found}, not {seed}; give another folder with --out")
    return True


def _first_difference(before: Any, now: Any, place: str = "") -> str:
    """Where two recipes differ first, and how, in brackets: " (train.steps: 4, now 6)"."""
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        parts = {f"{place}.{key}".lstrip("."): (before[key], now[key]) for key in before}
    elif isinstance(before, list | tuple) and isinstance(now, list | tuple) and len(before) == len(now):
        parts = {f"{place}.{number}": both for number, both in enumerate(zip(before, now, strict=True))}
    else:
        return f" ({place}: {shorten(repr(before), 60)}, now {shorten(repr(now), 60)})"
    return next((_first_difference(*both, name) for name, both in parts.items() if both[0] != both[1]), "")


def _settings(recipe: Any) -> Any:
    """What decides a training: without the words about it."""
    return replace(recipe, name="", about="", reached="")


def seed_folders(out: Path, seeds: Sequence[int]) -> dict[int, Path]:
    """Seed -> its folder: OUT itself for one, unless several are there already; a seed can be added to those."""
    if len(seeds) == 1 and not any(out.glob("seed-*")):
        return {seeds[0]: out}
    if (out / RECIPE).is_file():
        raise InputError(f"{out}: holds one seed's run, not several; give another folder with --out")
    return {seed: out / f"seed-{seed}" for seed in seeds}


def write_results(out: Path, name: str, summary: Callable[[Sequence[dict[str, Any]]], dict[str, Any]]) -> None:
    """Of every seed that is finished in OUT, also of those that were trained before."""
    found = [read_json(path) for path in (out / RESULT, *out.glob(f"seed-*/{RESULT}")) if path.is_file()]
    results = sorted(found, key=lambda result: int(result["seed"]))
    write_json(out / RESULTS, {"recipe": name, **summary(results), "results": results})


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse none, equal ones, and numbers that no generator takes."""
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > _HIGHEST:
        raise InputError(f"seeds are {list(seeds)}; give one or more different numbers from 0 to {_HIGHEST}")


def device_name(device: torch.device) -> str:
    """What the machine calls it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
