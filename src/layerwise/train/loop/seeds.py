"""`train_seeds`: trains, scores and saves a job with one or several seeds, and averages over the seeds.

The folder gets, for one seed, or in seed-K for each of several: model/, recipe.toml (as it was run), run.json (seed and
digest of the rows), metrics.jsonl, evaluation.json (for `layerwise compare`), result.json, and checkpoints while it is
trained; results.json covers all seeds. Each is written as soon as it is available, so that a later seed that fails
does not affect it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch

from layerwise.errors import InputError, LayerwiseError
from layerwise.files import read_json, write_json, write_text
from layerwise.objectives import rank
from layerwise.train.loop.callbacks import METRICS
from layerwise.train.loop.checkpoints import last_checkpoint, remove_checkpoints
from layerwise.train.loop.host import device_name, join_processes, wait_for_all
from layerwise.train.loop.job import Job, M, R, S
from layerwise.train.loop.run import Trained, train
from layerwise.train.loop.scoring import score_facts

MODEL, RECIPE, RESULT, RESULTS, EVALUATION = "model", "recipe.toml", "result.json", "results.json", "evaluation.json"
RUN = "run.json"
OnSeedStep = Callable[[int, int, int, dict[str, float]], object]
_HIGHEST = 2**31 - 1  # accepted by every generator, plus a few above


@dataclass(frozen=True)
class SeedsResult:
    """The output of `train_seeds`: the results of the seeds in order, and means over them.

    Attributes:
        out: The folder.
        models: Each seed's model folder.
        results: Each seed's result.json.
        summary: Means and standard deviations, see `layerwise.train.loop.summary`.
    """

    out: Path
    models: tuple[Path, ...]
    results: tuple[dict[str, Any], ...]
    summary: dict[str, Any]


def train_seeds(
    job: Job[R, S, M],
    out: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = (0,),
    resume: bool = False,
    device: str | None = None,
    keep_checkpoints: bool = False,
    on_step: OnSeedStep | None = None,
) -> SeedsResult:
    """Train a job once for each seed, each time from the pretrained encoder, then score and save the models.

    Args:
        job: The recipe with its data.
        out: A folder, which must be empty unless `resume`.
        seeds: Different numbers from 0.
        resume: Keep finished seeds and resume the others from their last checkpoint.
        device: Where to train.
        keep_checkpoints: Do not remove them when a seed is finished.
        on_step: Called after each step with the seed, the step, the number of steps and the latest metrics.
    """
    out = Path(out).expanduser()
    check_seeds(seeds)
    start_in(out, resume=resume, device=device)
    job.check()
    folders = seed_folders(out, seeds)
    runs = [_SeedRun(job, seed, folder) for seed, folder in folders.items()]
    missing = [run for run in runs if not (resume and run.is_done())]
    if missing:
        job.prepare()
        job.prepare_test()  # may download data, so errors in the training data come first
    for run in missing:
        run.train(device=device, keep_checkpoints=keep_checkpoints, on_step=on_step)
        if rank() == 0:
            write_results(out, job.recipe.name, job.summary)
    wait_for_all()
    results = tuple(_read_result(folder) for folder in folders.values())
    return SeedsResult(out, tuple(folder / MODEL for folder in folders.values()), results, job.summary(results))


class _SeedRun:
    """One seed of a job and its folder."""

    def __init__(self, job: Job[Any, Any, Any], seed: int, folder: Path) -> None:
        self.job = job
        self.seed = seed
        self.folder = folder

    def is_done(self) -> bool:
        """Whether the seed is finished; raises for a folder of another recipe or seed."""
        self._check_recipe()
        if (self.folder / RESULT).is_file() and (self.folder / MODEL).is_dir():
            finished = _read_result(self.folder).get("seed")
            if finished != self.seed:
                raise InputError(
                    f"{self.folder}: holds seed {finished}, not {self.seed}; give another folder with --out"
                )
            return True
        started = self._read_run().get("seed", self.seed)
        if started != self.seed:
            raise InputError(
                f"{self.folder}: was started with seed {started}, not {self.seed}; give that seed, or another folder"
            )
        return False

    def train(self, *, device: str | None, keep_checkpoints: bool, on_step: OnSeedStep | None) -> None:
        """Train, score and save."""
        resume = last_checkpoint(self.folder) is not None
        if resume and self._read_run().get("rows", self.job.digest) != self.job.digest:
            raise InputError(
                f"{self.folder}: was started with other rows in its data; give the same data, or another folder"
            )
        with self._started():
            trained = train(
                self.job,
                self.folder,
                seed=self.seed,
                resume=resume,
                device=device,
                on_step=(lambda *latest: on_step(self.seed, *latest)) if on_step else None,
            )
        wait_for_all()  # all processes load the best checkpoint before it is removed
        if rank() == 0:
            self._finish(trained)
            if not keep_checkpoints:
                remove_checkpoints(self.folder)

    def _finish(self, trained: Trained[Any, Any]) -> None:
        """Write scores, model, and finally the result, which marks the seed as finished."""
        facts = dict(trained.facts)
        evaluation = self.job.evaluate(trained.model)
        if evaluation is not None:
            facts |= score_facts(evaluation)
            evaluation.save(self.folder / EVALUATION)
        facts["device"] = device_name(trained.student.encoder.device)
        self.job.save(trained.model, facts, self.folder / MODEL)
        write_json(self.folder / RESULT, facts)

    @contextmanager
    def _started(self) -> Iterator[None]:
        """Write the recipe and run.json; remove them and the folder if training fails before the first step."""
        is_new = not self.folder.exists()
        if rank() == 0:
            write_text(self.folder / RECIPE, self.job.formats.toml(self.job.recipe))
            write_json(self.folder / RUN, {"seed": self.seed, "rows": self.job.digest})
        try:
            yield
        except (LayerwiseError, KeyboardInterrupt):
            if rank() == 0 and not (self.folder / METRICS).exists():
                for name in (RECIPE, RUN):
                    (self.folder / name).unlink(missing_ok=True)
                if is_new and not any(self.folder.iterdir()):
                    self.folder.rmdir()
            raise

    def _check_recipe(self) -> None:
        file = self.folder / RECIPE
        if not file.is_file():
            return
        formats = self.job.formats
        try:
            source = replace(formats.read(file), folders=())  # its paths are resolved
            started = formats.parse(source).with_absolute_paths().without_description()
        except InputError as error:
            raise InputError(f"{error}; correct it, or remove it to resume without comparing the settings") from error
        current = self.job.recipe.without_description()
        if started != current:
            difference = _first_difference(started.facts(), current.facts())
            raise InputError(
                f"{self.folder}: was started with other settings{difference}, see {file}; give the same settings, or "
                f"another folder"
            )

    def _read_run(self) -> dict[str, Any]:
        """Read the run.json of this seed; empty without one."""
        if (self.folder / RUN).is_file():
            return read_json(
                self.folder / RUN,
                remedy="it holds the seed and the digest of the rows that this training was started with; remove "
                "it to resume without checking them, or give another folder",
            )
        return {}


def start_in(out: Path, *, resume: bool, device: str | None) -> None:
    """Raise for a folder that is not empty, unless it is resumed.

    Under torchrun the first process checks while the others wait, so that they do not write into the folder.
    """
    join_processes("cuda" if device is None and torch.cuda.is_available() else device or "cpu")
    if rank() == 0:
        if out.exists() and not out.is_dir():
            raise InputError(f"{out}: is a file; give a folder for --out")
        if not resume and out.is_dir() and any(out.iterdir()):
            raise InputError(f"{out}: is not empty; resume with --resume, or give another folder with --out")
    wait_for_all()


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise for missing, duplicate or out-of-range seeds."""
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > _HIGHEST:
        raise InputError(f"seeds are {list(seeds)}; give one or more different numbers from 0 to {_HIGHEST}")


def seed_folders(out: Path, seeds: Sequence[int]) -> dict[int, Path]:
    """Return the folder of each seed: OUT for a single one, unless OUT already has folders of several seeds."""
    if len(seeds) == 1 and not any(out.glob("seed-*")):
        return {seeds[0]: out}
    if (out / RECIPE).is_file():
        raise InputError(f"{out}: holds the run of one seed, not of several; give another folder with --out")
    return {seed: out / f"seed-{seed}" for seed in seeds}


def write_results(out: Path, name: str, summarise: Callable[[Sequence[dict[str, Any]]], dict[str, Any]]) -> None:
    """Write results.json of all finished seeds in OUT, including those of earlier runs."""
    folders = [path.parent for path in (out / RESULT, *out.glob(f"seed-*/{RESULT}")) if path.is_file()]
    results = sorted(map(_read_result, folders), key=lambda result: int(result["seed"]))
    write_json(out / RESULTS, {"recipe": name, **summarise(results), "results": results})


def _read_result(folder: Path) -> dict[str, Any]:
    return read_json(
        folder / RESULT,
        remedy="it is the result of a finished seed; remove it and resume with --resume to write it again",
    )


def _first_difference(started: Any, current: Any, path: str = "") -> str:
    """Describe the first difference between two recipes: " (train.steps: 4, now 6)"."""
    if isinstance(started, dict) and isinstance(current, dict) and started.keys() == current.keys():
        parts = {f"{path}.{key}".lstrip("."): (started[key], current[key]) for key in started}
    elif isinstance(started, list | tuple) and isinstance(current, list | tuple) and len(started) == len(current):
        parts = {f"{path}.{number}": pair for number, pair in enumerate(zip(started, current, strict=True))}
    else:
        return f" ({path}: {shorten(repr(started), 60)}, now {shorten(repr(current), 60)})"
    return next((_first_difference(*pair, name) for name, pair in parts.items() if pair[0] != pair[1]), "")
