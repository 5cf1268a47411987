"""Trains every row of the multitask comparison, several seeds and encoders, and keeps its dev scores.

    make bench-multitask   # all of it, collected and written into the tables
    python benchmarks/multitask.py [ROW …] [--encoders A,B] [--seeds 0,1,2] [--jobs 12] [--out FOLDER]
    python benchmarks/multitask.py --collect FOLDER|LINES [--name multitask_trials]

Worker processes take one run after another from one list, seeds outermost, so that a cut leaves whole seeds; start an
MPS daemon where they share a GPU. A run is written to FOLDER as soon as it is done, and is not done again. With --set
and --rates settings are tried out (by dev, which is all that has labels: those of the test splits are hidden).
--collect joins a folder's runs into results/multitask.json; trials go into a folder and a file of their own. Several
runs share a GPU: seconds are no measure of speed.
"""

import argparse
import json
import multiprocessing
import os
import queue
import re
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measure import machine, model_folder, shared_folder, write_runs
from multitask_rows import ROWS, SEEDS, encoders_of, sets_of

FAST = Path("/dev/shm")
RESULT = "multitask"


@dataclass(frozen=True)
class Job:
    """One run: a row of the table, an encoder, a seed, and values put in on top."""

    row: str
    encoder: str
    seed: int
    sets: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its file."""
        marks = re.sub(r"[^\w.-]+", "-", "_".join(self.sets))
        return f"{self.encoder}_{self.row}_{self.seed}{'_' + marks if marks else ''}"


def encoder_folder(name: str) -> str:
    """A model of the shared folder, the package's default, or one that get-models built."""
    shared = shared_folder() / "models" / name
    if shared.is_dir():
        return str(shared)
    from layerwise.encoder import DEFAULT
    from layerwise.encoder.folders import NAME, PACKAGE

    return DEFAULT if name == NAME and find_spec(PACKAGE) else str(model_folder(name))


@cache
def rows_of(task: str, limit: int | None, *, data: str) -> Any:
    """A task's rows, read once in a process: no row of the table changes which they are, a trial perhaps how many."""
    from layerwise.train import load_multitask_recipe, load_training_task

    (setup,) = load_multitask_recipe("cs224n").only([task]).setups
    return load_training_task(replace(setup, objective=setup.objective.replaced(limit=limit)), data)


def run_one(job: Job) -> dict[str, Any]:
    """Train a row and score it on all dev rows."""
    from layerwise.train import MultitaskJob, load_multitask_recipe, train

    row = ROWS[job.row]
    sets = [*sets_of(row, job.encoder), *job.sets]
    recipe = load_multitask_recipe("cs224n", sets)
    recipe = recipe.only(row.tasks)
    data = str(shared_folder() / "data")
    tasks = [replace(rows_of(one.name, one.objective.limit, data=data), setup=one) for one in recipe.setups]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=FAST if FAST.is_dir() else None) as folder:
        training = MultitaskJob(recipe, encoder=encoder_folder(job.encoder), tasks=tasks, data=data)
        trained = train(training, folder, seed=job.seed)
    facts = trained.facts
    return {
        "row": job.row,
        "encoder": job.encoder,
        "seed": job.seed,
        "sets": sets,
        "recipe": facts["recipe"],
        "tasks": facts["tasks"],
        "steps": facts["steps"],
        "seconds": round(time.perf_counter() - began, 1),
        "dev": facts["dev"]["scores"],
        "best": facts["best"],
        "curve": [[line["step"], line["eval_overall"]] for line in trained.history if "eval_overall" in line],
        "confusions": facts["dev"]["confusions"],
        "machine": machine(),
    }


def attempt(job: Job, out: Path) -> str:
    """Run a job, write its file, say how it went; what goes wrong is said and stops nobody else."""
    try:
        found = run_one(job)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - other runs go on, whatever this one died of
        return f"{job.name}: FAILED {type(error).__name__}: {error}"
    whole = out / f"{job.name}.json"
    part = whole.with_suffix(".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.rename(whole)
    scores = " ".join(f"{name} {score:.4f}" for name, score in found["dev"].items())
    return f"{job.name}: {scores} @ {found['best']['at_step']} ({found['seconds']:.0f} s)"


def work(jobs: Any, said: Any, out: Path) -> None:
    """A worker's life: torch is imported and the data read once, then run after run."""
    import gc

    import torch

    torch.set_num_threads(1)
    for job in iter(jobs.get, None):
        said.put((job, attempt(job, out)))
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def run_all(jobs: list[Job], out: Path, workers: int, lines: Path | None) -> int:
    """All jobs by some workers; gives how many failed. `lines` gets a line of JSON for each that did not."""
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}  # a worker has about one core
    context = multiprocessing.get_context("spawn")
    todo, said = context.Queue(), context.Queue()
    for job in [*jobs, *[None] * workers]:
        todo.put(job)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # workers go with it: they are daemons
    pool = [context.Process(target=work, args=(todo, said, out), daemon=True) for _ in range(workers)]
    for worker in pool:
        worker.start()
    done, began = 0, time.perf_counter()
    while done < len(jobs):
        try:
            job, line = said.get(timeout=2)
        except queue.Empty:
            if not any(worker.is_alive() for worker in pool):
                break
            continue
        done += 1
        file = out / f"{job.name}.json"
        if lines and file.is_file():
            with lines.open("a", encoding="utf-8") as whole:
                whole.write(file.read_text(encoding="utf-8") + "\n")
        print(f"{done}/{len(jobs)} {time.perf_counter() - began:.0f} s {line}", flush=True)
    missing = [job.name for job in jobs if not (out / f"{job.name}.json").is_file()]
    print(f"{len(jobs) - len(missing)} of {len(jobs)} runs done; missing: {', '.join(missing) or 'none'}")
    return len(missing)


def collect(given: Path, name: str) -> None:
    """All runs of a folder, or of a file of lines, as one result; confusion matrices of the final row alone."""
    texts = given.read_text().splitlines() if given.is_file() else [one.read_text() for one in given.glob("*.json")]
    runs = sorted(map(json.loads, texts), key=lambda run: (run["encoder"], run["row"], run["seed"]))
    seen = [(run["encoder"], run["row"], run["seed"]) for run in runs]
    twice = [one for one in seen if seen.count(one) > 1]
    if not runs or (name == RESULT and twice):
        sys.exit(f"{given}: {f'{twice[0]} comes twice; keep trials in another folder' if twice else 'no runs'}")
    for run in runs:
        if run["row"] != "final":
            run.pop("confusions", None)
    write_runs(name, runs)


def main() -> None:
    """Parse, run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--encoders", help="such as all-MiniLM-L6-v2,all-mpnet-base-v2; else those of each row")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("multitask-runs"))
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.add_argument("--rates", default="", help="learning rates, each a run of its own")
    parser.add_argument("--lines", type=Path, help="a file that gets every finished run as a line, too")
    parser.add_argument("--collect", type=Path)
    parser.add_argument("--name", default=RESULT, help="of the collected result")
    given = parser.parse_args()
    if given.collect:
        collect(given.collect, given.name)
        return
    unknown = [row for row in given.rows if row not in ROWS]
    if unknown:
        parser.error(f"unknown row {unknown[0]!r}; known: {', '.join(ROWS)}")
    rates = [[f"train.learning_rate={rate}"] for rate in given.rates.split(",") if rate] or [[]]
    jobs = [
        Job(row, encoder, int(seed), (*given.sets, *rate))
        for seed in given.seeds.split(",")
        for row in ROWS  # in their order: the longest first
        if row in given.rows
        for encoder in (given.encoders.split(",") if given.encoders else encoders_of(row))
        for rate in rates
    ]
    given.out.mkdir(parents=True, exist_ok=True)
    missing = [job for job in jobs if not (given.out / f"{job.name}.json").is_file()]
    raise SystemExit(min(1, run_all(missing, given.out, max(1, min(given.jobs, len(missing))), given.lines)))


if __name__ == "__main__":
    main()
