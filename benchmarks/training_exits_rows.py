"""Rows of fewer layers: students of fewer blocks, every exit of one model, and a decoder, trained and scored.

    python benchmarks/training_exits_rows.py prepare FOLDER                     # text and pairs, from the data folder
    python benchmarks/training_exits_rows.py run FOLDER [ROW …] [--seeds 0,1,2] [--steps N] [--limit SECONDS] [--jobs J]
    python benchmarks/training_exits_rows.py list

`run` needs no pyarrow: FOLDER holds plain files. Every row and seed is a process of its own, ended after `--limit`
seconds, and writes FOLDER/runs/ROW_SEED.json when it is finished; what is there already is not run again. Models are
looked for in `--models`, LAYERWISE_SHARED/models and LAYERWISE_MODELS. Checkpoints are picked on STS-B dev, the seven
STS sets are scored once (Spearman × 100, all pairs of a set). `--dev-only` scores no test pair.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import machine
from own_views import OWN_LESS, OWN_VIEWS, SEARCHED, SMOL, TEXTS, first_lines, make_own_views
from training_less import less_components

SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
SENTENCES = 200_000
MINILM, MPNET, WIKI = "all-MiniLM-L6-v2", "all-mpnet-base-v2", "wiki-mlm-12x384"
STEPS = ("train.steps=4000", "train.epochs=20", "dev.every=250")


@dataclass(frozen=True)
class Row:
    """A recipe, values put into it, its encoder and teachers; `exits` (layer, width) are scored too, 0: full width."""

    recipe: str
    sets: tuple[str, ...] = ()
    encoder: str = WIKI
    teachers: tuple[str, ...] = ()
    exits: tuple[tuple[int, int], ...] = ()


def student(blocks: str, teacher: str = MINILM, *sets: str) -> Row:
    """A student of some blocks that learns a teacher's vectors."""
    return Row("small-prompt-distil", (f"model.blocks={blocks}", *STEPS, *sets), teachers=(teacher,))


PLACES = tuple((layer, width) for layer in (3, 6, 9, 12) for width in (0, 192, 96))
TRAINED = "mask-trained"  # the model of the row `mask` of training_views.py, put into --models by this name


def alone(layer: int, width: int) -> Row:
    """A model trained for one exit: the first blocks, by that width alone."""
    sets = (f'model.blocks="1-{layer}"', "objective.info-nce.weight=0", "objective.exits.layers=[-1]")
    sets = (*sets, f"objective.exits.widths=[{width}]", "objective.exits.teacher=0", *LONGER)
    return Row("small-prompt-exits", sets, exits=((layer, width),))


def alone_taught(layer: int, width: int) -> Row:
    """A student for one exit: the first blocks and a head of that width, taught as all exits together are."""
    sets = (f'model.blocks="1-{layer}"', *HEAD, f"model.width={width or 384}")
    return Row("small-prompt-distil", (*sets, *TAUGHT), teachers=(MPNET,))


LONGER = ("dev.every=125", "train.steps=1500", "train.epochs=4")
HEAD = ('model.head="identity"', "model.keep_head=true")
TAUGHT = ("train.steps=2000", "train.epochs=20", "dev.every=250")
OWN = ("train.steps=1000", "train.epochs=4", "dev.every=100", "data.limit=100000")
ECHO = 'model.pooler="25 @ mean in echo"'
ROWS = {
    "distil-12": student("12"),
    "distil-6": student("6"),
    "distil-3": student("3"),
    "distil-6-best": student('"best 6"'),
    "distil-3-best": student('"best 3"'),
    "distil-6-first": student('"1-6"'),
    "distil-3-first": student('"1-3"'),
    "distil-12-mpnet": student("12", MPNET),
    "distil-6-mpnet": student("6", MPNET),
    "distil-3-mpnet": student("3", MPNET),
    "distil-12-mpnet-head": student("12", MPNET, *HEAD, "model.width=768"),
    "distil-6-mpnet-head": student("6", MPNET, *HEAD, "model.width=768"),
    "distil-3-mpnet-head": student("3", MPNET, *HEAD, "model.width=768"),
    "exits": Row("small-prompt-exits", LONGER, exits=PLACES),
    "exits-taught": Row(
        "small-prompt-exits-distil", (*STEPS, "data.max_length=32"), encoder=TRAINED, teachers=(TRAINED,), exits=PLACES
    ),
    "exits-mpnet": Row("small-prompt-exits-distil", TAUGHT, teachers=(MPNET,), exits=PLACES),
    "exits-mpnet-longer": Row(
        "small-prompt-exits-distil", (*TAUGHT, "train.steps=6000"), teachers=(MPNET,), exits=PLACES
    ),
    "exits-no-teacher": Row("small-prompt-exits", (*LONGER, "objective.exits.teacher=0"), exits=PLACES),
    "uncut": Row("small-prompt-simcse", LONGER, exits=PLACES),  # cut without training for it
    "uncut-mpnet": Row(
        "small-prompt-distil", (*TAUGHT, 'objective.distil.projection="rotation"'), teachers=(MPNET,), exits=PLACES
    ),
    **{f"alone-{layer}x{width}": alone(layer, width) for layer, width in PLACES},
    **{f"alone-mpnet-{layer}x{width}": alone_taught(layer, width) for layer, width in PLACES},
    "smollm": Row("smollm-simcse", LONGER, encoder=SMOL),
    "smollm-lora": Row("smollm-simcse-lora", LONGER, encoder=SMOL),
    "smollm-situation": Row("smollm-simcse", (*LONGER, 'model.pooler="26 @ last in situation"'), encoder=SMOL),
    "smollm-views": Row("smollm-distil", (*OWN, ECHO), encoder=SMOL, teachers=(OWN_VIEWS,)),
    "smollm-views-situation": Row("smollm-distil", OWN, encoder=SMOL, teachers=(OWN_VIEWS,)),
    "smollm-views-slow": Row(
        "smollm-distil", (*OWN, "train.steps=1500", "train.learning_rate=3e-5"), encoder=SMOL, teachers=(OWN_VIEWS,)
    ),
    "smollm-views-lora": Row(
        "smollm-distil", (*OWN, ECHO, "model.lora=16", "train.learning_rate=5e-4"), encoder=SMOL, teachers=(OWN_VIEWS,)
    ),
    "smollm-two-sets": Row(
        "smollm-distil",
        (*OWN, "train.steps=1500", "data.clauses=true", "data.limit=120000"),
        encoder=SMOL,
        teachers=(OWN_VIEWS, OWN_LESS),
    ),
    "smollm-mean-both-ways": Row(
        "smollm-simcse", (*LONGER, 'model.pooler="last @ mean"', 'model.attention="bidirectional"'), encoder=SMOL
    ),
}


def prepare(folder: Path) -> None:
    """Different Wikipedia sentences, one a line, and the pairs as CSV files with their task files."""
    from layerwise.data import data_folder, find_tasks, load_task
    from layerwise.train import read_corpus

    folder.mkdir(parents=True, exist_ok=True)
    corpus = read_corpus(str(data_folder() / "train" / "wiki1m.parquet"), ["text"], limit=SENTENCES)
    lines = [" ".join(text.split()) for text in corpus.columns[0]]
    (folder / "wiki.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in SETS:
        (task,) = find_tasks([name])
        rows = load_task(task)
        _write_pairs(folder / f"{name}.csv", rows.of_role("test") if "test" in task.splits else rows)
    _write_pairs(folder / "dev.csv", load_task(find_tasks(["stsb"])[0]).of_role("dev"))
    tables = {name: f'[[task]]\nname = "{name}-pairs"\nkind = "sts"\nfile = "{name}.csv"\n' for name in (*SETS, "dev")}
    (folder / "dev.toml").write_text(tables.pop("dev"), encoding="utf-8")
    (folder / "test.toml").write_text("\n".join(tables.values()), encoding="utf-8")
    print(f"{len(lines):,} sentences, {len(SETS)} sets and the dev pairs are in {folder}")


def _write_pairs(path: Path, rows: Any) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("sentence1", "sentence2", "score"))
        writer.writerows(zip(rows.left, rows.right, map(float, rows.labels), strict=True))


def model_path(name: str, models: Path | None) -> str:
    """The folder of a model; the embedded default by its name."""
    places = [models, os.environ.get("LAYERWISE_MODELS")]
    shared = os.environ.get("LAYERWISE_SHARED")
    for place in [*places, Path(shared) / "models" if shared else None]:
        if place and (Path(place) / name).is_dir():
            return str(Path(place) / name)
    if name == MINILM:
        return "default"
    sys.exit(f"{name} is in none of --models, LAYERWISE_SHARED/models and LAYERWISE_MODELS")


def run_one(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train one row with one seed; scores × 100."""
    import torch

    from layerwise.train import ContrastiveJob, load_recipe, train

    row, folder = ROWS[name], options.folder
    for teacher in row.teachers:
        if teacher in SEARCHED:
            make_own_views(teacher, options.models, folder / "wiki.txt")
    files = json.dumps([str(folder / "wiki.txt")])
    sets = [
        f"data.files={files}",
        f"data.limit={SENTENCES}",
        f"dev.task={json.dumps(str(folder / 'dev.toml'))}",
        *row.sets,
    ]
    if row.teachers:
        paths = [model_path(teacher, options.models) for teacher in row.teachers]
        sets.append(f"objective.distil.teacher={json.dumps(paths if len(paths) > 1 else paths[0])}")
    sets += [f"train.steps={options.steps}"] * bool(options.steps) + options.sets
    job = ContrastiveJob(load_recipe(row.recipe, sets), encoder=model_path(row.encoder, options.models))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as checkpoints:
        trained = train(job, checkpoints, seed=seed)
    result: dict[str, Any] = {
        "row": name, "seed": seed, "sets": [*row.sets, *options.sets], "steps": options.steps, "machine": machine(),
        "training": trained.facts, "seconds": time.perf_counter() - began,
    }  # fmt: skip
    if torch.cuda.is_available():
        result["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    if not options.dev_only:
        result["test"] = scores(trained.model, folder)
        if row.encoder == SMOL:
            texts = first_lines(folder / "wiki.txt", TEXTS)
            less, facts = less_components(trained.model, texts, folder / "dev.toml", source="wiki1m")
            result["less"] = facts | {"test": scores(less, folder)}
        for layer, width in row.exits:
            result.setdefault("exits", {})[f"{layer}x{width}"] = scores(
                trained.model.at_exit(layer, width or None), folder
            )
    if options.keep:
        trained.model.save(options.keep / f"{name}_{seed}", overwrite=True)
    return result


def scores(model: Any, folder: Path) -> dict[str, float]:
    """Spearman × 100 on the seven sets, and their mean."""
    from layerwise.data import find_tasks
    from layerwise.evaluate import LayerSubject, evaluate

    run = evaluate(LayerSubject(model, cache=False), find_tasks([str(folder / "test.toml")])).runs[0]
    by_set = {name.removesuffix("-pairs"): result.figures["spearman"] for name, result in run.results.items()}
    return by_set | {"average": sum(by_set.values()) / len(by_set)}


def launch(name: str, seed: int, options: argparse.Namespace) -> str:
    """One run in a process of its own; says how it went."""
    file = options.folder / "runs" / f"{name}_{seed}.json"
    if file.is_file():
        return f"{file.stem}: is there already"
    command = [sys.executable, __file__, *sys.argv[1:], "--one", name, "--one-seed", str(seed)]
    began = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return f"{file.stem}: ended after {options.limit} s"
    if done.returncode:
        return f"{file.stem}: FAILED {done.stderr.strip()[-600:]}"
    result = json.loads(file.read_text())
    best = result["training"].get("dev", {})
    test = f"test {result['test']['average']:.2f}" if "test" in result else ""
    seconds = time.perf_counter() - began
    return f"{file.stem}: dev {best.get('best', 0):.2f} @ {best.get('at_step')} {test} ({seconds:.0f} s)"


def main() -> None:
    """Prepare, list or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("prepare", "run", "list"))
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=0, help="instead of the rows' own")
    parser.add_argument("--limit", type=float, default=900, help="seconds of one run")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--keep", type=Path, help="save the trained models there")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    parser.add_argument("--dev-only", action="store_true")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    parser.add_argument("--one-seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.rows if name not in ROWS]
    if options.part == "list" or unknown or options.folder is None:
        sys.exit(f"{'unknown: ' + ', '.join(unknown) + '; ' if unknown else ''}rows: {' '.join(ROWS)}")
    if options.part == "prepare":
        prepare(options.folder)
        return
    (options.folder / "runs").mkdir(parents=True, exist_ok=True)
    if options.one:
        result = run_one(options.one, options.one_seed, options)
        file = options.folder / "runs" / f"{options.one}_{options.one_seed}.json"
        file.write_text(json.dumps(result, indent=1), encoding="utf-8")
        return
    runs = [(name, int(seed)) for seed in options.seeds.split(",") for name in options.rows or ROWS]
    with ThreadPoolExecutor(options.jobs) as pool:
        for line in pool.map(lambda run: launch(*run, options), runs):
            print(line, flush=True)


if __name__ == "__main__":
    main()
