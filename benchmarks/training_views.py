"""Trains the rows of `training_views_rows.py`: what each part adds to training from the mask token of a prompt.

    python benchmarks/training_views.py list
    python benchmarks/training_views.py prepare FOLDER [--sentences 200000] [--pairs N]
    python benchmarks/training_views.py run FOLDER [--rows mask,sg] [--seeds 0,1,2] [--jobs 6] [--limit 300]
    python benchmarks/training_views.py collect FILE … > joined into results/training-views.json

`prepare` writes everything that a run reads as text and JSON lines, so that the machine with the GPU needs no pyarrow:
Wikipedia sentences, NLI triples, pairs, STS-B dev, the seven STS sets, and pairs outside STS that choose nothing.
Models are folders of --models (wiki-mlm-12x384, and teachers by their names; all-MiniLM-L6-v2 is the package's).

`run` has --jobs processes take its runs in turn. Each rewrites its result file, OUT-0.json, OUT-1.json, …, after every
finished run; the same command again leaves out what is finished. A run beyond --limit seconds of training is given up
and recorded as such. Checkpoints are picked on the dev split of STS-B alone; the test sets are scored once by the
picked weights, and not at all with --dev-only. Beside them stands the model without as many of its first components,
of Wikipedia sentences, as dev chose (less).
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import compress
from pathlib import Path
from typing import Any

from filelock import FileLock

from measure import machine, write_runs
from own_views import MINILM, SEARCHED, first_lines, make_own_views
from training_less import less_components
from training_views_rows import (
    BLEND,
    CLAUSES,
    GROUPS,
    LESS,
    MIXED,
    NEEDED,
    PAIRS,
    ROWS,
    SHUFFLED,
    TRIPLES,
    WIKIPEDIA,
    Row,
)

DEV, TEST = "dev.toml", "test.toml"
SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
OUTSIDE = ("twitter-url", "semrel-eng", "biosses")
STUDENT = "wiki-mlm-12x384"
CAPTIONS = 60_000  # pairs of captions of one picture
FITTED = 200  # sentences that first components are of


class TimeLimitError(Exception):
    """A run took longer than it may."""


def main() -> None:
    """Parse, run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the rows")
    preparing = commands.add_parser("prepare", help="text and pairs without parquet")
    preparing.add_argument("folder", type=Path)
    preparing.add_argument("--sentences", type=int, default=200_000)
    preparing.add_argument("--pairs", type=int, help="at most so many of each set, to try things out")
    running = commands.add_parser("run", help="train and score")
    running.add_argument("folder", type=Path)
    running.add_argument("--rows", default="without-labels", help="names of rows or groups, with commas")
    running.add_argument("--seeds", default="0,1,2")
    running.add_argument("--jobs", type=int, default=1)
    running.add_argument("--part", type=int, help="only this part of the runs (a process of --jobs)")
    running.add_argument("--limit", type=float, default=600, help="seconds of one training")
    running.add_argument("--steps", type=int, help="of every training, to try things out")
    running.add_argument("--set", action="append", default=[], dest="sets", help="a value put into every recipe")
    running.add_argument("--out", type=Path, default=Path("training-views"), help="result files begin with this")
    running.add_argument("--models", type=Path, default=Path(os.environ.get("LAYERWISE_MODELS", "models")))
    running.add_argument("--kept", type=Path, help="folder of models that other rows need; default OUT-models")
    running.add_argument("--keep-all", action="store_true", help="keep the models of all rows there")
    running.add_argument("--dev-only", action="store_true")
    collecting = commands.add_parser("collect", help="join result files")
    collecting.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    {"list": show, "prepare": prepare, "run": run, "collect": collect}[options.command](options)


def show(_: argparse.Namespace) -> None:
    """Print the rows by group."""
    for group, rows in GROUPS.items():
        print(group)
        for name, row in rows.items():
            print(f"  {name:24} {row.label}")


# The folder that travels


def prepare(options: argparse.Namespace) -> None:
    """Write text and pairs, and how many sentences of the text are sentences of the test sets."""
    from layerwise.data import data_folder, find_tasks, load_task
    from layerwise.postprocess import FittedOn

    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    train = (data_folder() or Path("data")) / "train"
    texts = {
        WIKIPEDIA: _wikipedia(train, options.sentences),
        TRIPLES: _records(train / "nli_triples_all.parquet", ["anchor", "positive", "negative"]),
        PAIRS: _pairs(train),
    }
    tasks = {name: load_task(find_tasks([name])[0]) for name in (*SETS, *OUTSIDE)}
    _write_task(folder / DEV, {"stsb-dev": tasks["stsb"].of_role("dev")}, options.pairs)
    tested = {name: rows.of_role("test") if "test" in rows.splits else rows for name, rows in tasks.items()}
    _write_task(folder / TEST, tested, options.pairs)
    seen = {name: FittedOn.of(rows.texts, source=name) for name, rows in tested.items()}
    every = FittedOn.of([text for rows in tested.values() for text in rows.texts], source="all tasks")
    facts: dict[str, Any] = {}
    for name, rows in texts.items():
        sentences = [text for row in rows for text in (row.values() if isinstance(row, dict) else [row])]
        lines = (json.dumps(row) if isinstance(row, dict) else row for row in rows)
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        facts[name] = _counted(name, len(rows), compress(sentences, every.seen(sentences)), seen)
    for name in (CLAUSES, SHUFFLED, BLEND, MIXED):
        derived(folder, name)
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        facts[name] = _counted(name, len(lines), compress(lines, every.seen(lines)), seen)
    (folder / "facts.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


def _counted(name: str, rows: int, known: Iterable[str], seen: dict[str, Any]) -> dict[str, Any]:
    """How many rows a text has, and how many of its sentences, of those known from tasks, are each task's."""
    sentences = list(known)
    equal = {task: int(record.seen(sentences).sum()) for task, record in seen.items()}
    print(f"{name}: {rows:,} rows; equal to evaluation sentences: {equal}")
    return {"rows": rows, "equal_to_evaluation": equal}


def _records(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return list(pq.read_table(path, columns=columns).to_pylist())


def _wikipedia(train: Path, count: int) -> list[str]:
    """The first different sentences of wiki1m, one a line."""
    texts = (" ".join(row["text"].split()) for row in _records(train / "wiki1m.parquet", ["text"]))
    return [text for text, _ in zip(dict.fromkeys(filter(None, texts)), range(count), strict=False)]


def _pairs(train: Path) -> list[dict[str, Any]]:
    """Entailed sentences, paraphrased questions, and captions of one picture."""
    by_picture: dict[int, list[str]] = {}
    for row in _records(train / "flickr30k_captions_multi30k.parquet", ["text", "image"]):
        by_picture.setdefault(row["image"], []).append(row["text"])
    captions = [
        {"anchor": one, "positive": other}
        for several in by_picture.values()
        for one, other in zip(several[::2], several[1::2], strict=False)
    ]
    names = ["anchor", "positive"]
    labelled = [*_records(train / "nli_triples_all.parquet", names)]
    return [*labelled, *_records(train / "quora_paraphrase_pairs.parquet", names), *captions[:CAPTIONS]]


def derived(folder: Path, name: str) -> None:
    """Texts made of the others, without sentences of the test pairs.

    `clauses.txt`: sentences of Wikipedia, each with its clauses; `shuffled.txt`: those in random order, so that the
    first of them come from all articles; `blend.txt`: two sentences of Wikipedia to one clause, in random order;
    `mixed.txt`: sentences of triples and pairs, and as many of `clauses.txt`, in random order.
    """
    from layerwise.postprocess import FittedOn
    from layerwise.train.contrastive.clauses import clauses

    def lines(*names: str) -> Iterator[str]:
        return (line.strip() for name in names for line in (folder / name).open(encoding="utf-8"))

    def sentences(*names: str) -> Iterator[str]:
        rows = (json.loads(line) for line in lines(*names))
        return (" ".join(text.split()) for row in rows for text in row.values() if isinstance(text, str))

    if name != CLAUSES:
        derived(folder, CLAUSES)
    part = folder / f"{name}.part"
    with FileLock(f"{folder / name}.lock"):
        if (folder / name).is_file():
            return
        if name == CLAUSES:
            texts = list(dict.fromkeys(text for line in lines(WIKIPEDIA) for text in (line, *clauses(line))))
        elif name == SHUFFLED:
            texts = list(lines(CLAUSES))
            random.Random(0).shuffle(texts)
        elif name == BLEND:
            texts = list(dict.fromkeys(lines(WIKIPEDIA)))
            others = sorted(set(lines(CLAUSES)).difference(texts))
            texts += random.Random(0).sample(others, min(len(texts) // 2, len(others)))
            random.Random(0).shuffle(texts)
        else:
            texts = list(dict.fromkeys(sentences(TRIPLES, PAIRS)))
            others = list(lines(CLAUSES))
            texts += random.Random(0).sample(others, min(len(texts), len(others)))
            random.Random(0).shuffle(texts)
        tested = FittedOn.of(list(sentences(*(f"{name}.jsonl" for name in (*SETS, *OUTSIDE)))), source="tests")
        texts = list(compress(texts, ~tested.seen(texts)))
        part.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        part.replace(folder / name)


def _write_task(file: Path, tasks: dict[str, Any], pairs: int | None) -> None:
    """A task file and its rows as JSON lines."""
    declared = []
    for name, rows in tasks.items():
        label = "label" if rows.task.kind == "pair-classification" else "score"
        subsets = rows.subsets or [""] * len(rows.labels)
        lines = [
            json.dumps({"sentence1": one, "sentence2": other, label: value, "subset": subset or "all"})
            for one, other, value, subset in zip(rows.left, rows.right, map(float, rows.labels), subsets, strict=True)
        ]
        (file.parent / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines[:pairs]), encoding="utf-8")
        subset = 'columns = { subset = "subset" }' if label == "score" else ""
        declared.append(f'[[task]]\nname = "{name}"\nkind = "{rows.task.kind}"\nfile = "{name}.jsonl"\n{subset}\n')
    file.write_text("\n".join(declared), encoding="utf-8")


# Runs


def run(options: argparse.Namespace) -> None:
    """Run in this process, or split the runs over several."""
    runs = planned(options.rows.split(","), [int(seed) for seed in options.seeds.split(",")])
    taken = Path(f"{options.out}-taken")
    if options.part is None:
        shutil.rmtree(taken, ignore_errors=True)
        taken.mkdir(parents=True)
    if options.part is None and options.jobs > 1:
        command = [sys.executable, __file__, *sys.argv[1:]]
        jobs = [subprocess.Popen([*command, "--part", str(part)]) for part in range(min(options.jobs, len(runs)))]
        sys.exit(max(job.wait() for job in jobs))
    part = options.part or 0
    bench = Bench(options, Path(f"{options.out}-{part}.json"))
    files = options.out.parent.glob(f"{options.out.name}-*.json")
    finished = {run for file in files for run in Bench.finished(file)}
    for name, seed in runs:
        with suppress(FileExistsError):
            (taken / f"{name}-{seed}").touch(exist_ok=False)
            if (name, seed) not in finished:
                bench.run(name, seed)


def planned(names: Iterable[str], seeds: list[int]) -> list[tuple[str, int]]:
    """Rows by their names or groups, each with every seed; seed by seed, so that every row has one early."""
    rows: dict[str, Row] = {}
    for name in names:
        if name not in GROUPS and name not in ROWS:
            sys.exit(f"no row or group {name!r}; see `list`")
        rows |= GROUPS.get(name) or {name: ROWS[name]}
    return [(name, seed) for seed in seeds for name in rows]


class Bench:
    """The runs of one process, and its result file."""

    def __init__(self, options: argparse.Namespace, file: Path) -> None:
        self.options = options
        self.folder: Path = options.folder
        self.file = file
        self.kept = options.kept or Path(f"{options.out}-models")
        self.kept.mkdir(parents=True, exist_ok=True)
        self.results = self.finished(file)
        facts = self.folder / "facts.json"
        self.text_facts = json.loads(facts.read_text(encoding="utf-8")) if facts.is_file() else {}
        self._corpora: dict[str, Any] = {}

    @staticmethod
    def finished(file: Path) -> dict[tuple[str, int], dict[str, Any]]:
        """The runs of a result file that did not fail."""
        before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
        return {(run["row"], run["seed"]): run for run in before if "training" in run}

    def run(self, name: str, seed: int) -> None:
        """One row with one seed; the result file is written at once."""
        began = time.perf_counter()
        try:
            result = self._trained(name, seed)
        except TimeLimitError:
            result = {"row": name, "seed": seed, "failed": f"more than {self.options.limit:.0f} s of training"}
        except Exception as error:  # noqa: BLE001 - the other runs go on, and the result file says what failed
            result = {"row": name, "seed": seed, "failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        self.results[name, seed] = result
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(list(self.results.values())), encoding="utf-8")
        part.replace(self.file)
        print(f"{name} {seed}: {summary(result)} ({time.perf_counter() - began:.0f} s)", flush=True)

    def model_of(self, name: str, seed: int) -> str:
        """The folder of a trained row, which is trained now if no process has; others wait for it."""
        folder = self.kept / f"{name}-{seed}"
        with FileLock(f"{folder}.lock"):
            if not (folder / "modules.json").is_file():
                trained = self._train(name, seed)
                trained.model.save(folder, overwrite=True)
        return str(folder)

    def less_of(self, name: str, seed: int) -> str:
        """The folder of a trained row without its first components."""
        folder = self.kept / f"{name}{LESS.strip()}-{seed}"
        full = self.model_of(name, seed)
        with FileLock(f"{folder}.lock"):
            if not (folder / "modules.json").is_file():
                from layerwise import LayerModel

                self._less(LayerModel.load(full))[0].save(folder, overwrite=True)
        return str(folder)

    def _less(self, model: Any) -> tuple[Any, dict[str, Any]]:
        """The model without its first components of Wikipedia, as many as dev chose, and the scores of dev."""
        return less_components(model, first_lines(self.folder / WIKIPEDIA, FITTED), self.folder / DEV, source=WIKIPEDIA)

    def _trained(self, name: str, seed: int) -> dict[str, Any]:
        row, folder = ROWS[name], self.kept / f"{name}-{seed}"
        with FileLock(f"{folder}.lock"):  # so that a row that needs it waits instead of training it as well
            trained = self._train(name, seed)
            if self.options.keep_all or name in NEEDED:
                trained.model.save(folder, overwrite=True)
        result: dict[str, Any] = {
            "row": name,
            "label": row.label,
            "seed": seed,
            "labels": row.labels,
            "put_in": [*row.sets, *self._steps, *self.options.sets],
            "start": row.start,
            "teachers": list(row.teachers),
            "text": self.text_facts.get(row.text, {}),
            "machine": machine(),
            "training": trained.facts,
            "curve": [
                [line["step"], line["eval_stsb-dev_spearman"]]
                for line in trained.history
                if "eval_stsb-dev_spearman" in line
            ],
        }
        if not self.options.dev_only:
            result |= scores(trained.model, str(self.folder / TEST), row.text)
            less, facts = self._less(trained.model)
            result["less"] = facts | scores(less, str(self.folder / TEST), row.text)
        return result

    def _train(self, name: str, seed: int) -> Any:
        """Train a row; rows that it needs are trained first."""
        from layerwise.train import ContrastiveJob, load_recipe, train

        row = ROWS[name]
        if row.text in (CLAUSES, SHUFFLED, BLEND, MIXED):
            derived(self.folder, row.text)
        teachers = [self._model(teacher, other) for teacher in row.teachers for other in row.seeds or (seed,)]
        named = json.dumps(teachers if len(teachers) > 1 else teachers[0]) if teachers else ""
        sets = [*row.sets, *([f"objective.distil.teacher={named}"] if named else [])]
        recipe = load_recipe(row.recipe, [*sets, f'data.files=["{(self.folder / row.text).resolve()}"]', *self._put_in])
        encoder = self.model_of(row.start, seed) if row.start else self._model(STUDENT, seed)
        job = ContrastiveJob(recipe, encoder=encoder, corpus=self._corpus(recipe), data=str(self.folder))
        deadline = time.perf_counter() + self.options.limit

        def on_step(*_: Any) -> None:
            if time.perf_counter() > deadline:
                raise TimeLimitError

        fast = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as folder:
            return train(job, folder, seed=seed, on_step=on_step)

    @property
    def _put_in(self) -> list[str]:
        dev = [f"dev.task={json.dumps(str((self.folder / DEV).resolve()))}", "dev.test=[]"]
        return [*dev, *self._steps, *self.options.sets]

    @property
    def _steps(self) -> list[str]:
        return [f"train.steps={self.options.steps}"] if self.options.steps else []

    def _corpus(self, recipe: Any) -> Any:
        """The text of a recipe, read once by this process."""
        from layerwise.train.contrastive.load import load_corpus

        key = recipe.data.replaced(max_length=32, repetition=0.0, bucket=True).model_dump_json()
        if key not in self._corpora:
            self._corpora[key] = load_corpus(recipe.data, str(self.folder))
        return self._corpora[key]

    def _model(self, name: str, seed: int) -> str:
        """A folder of --models, the model of the package, or that of a row."""
        if name.endswith(LESS):
            return self.less_of(name.removesuffix(LESS), seed)
        if name in ROWS:
            return self.model_of(name, seed)
        if name in SEARCHED:
            make_own_views(name, self.options.models, self.folder / WIKIPEDIA)
        folder = self.options.models / name
        if name == MINILM and not folder.is_dir():
            return "default"
        if not folder.is_dir():
            raise FileNotFoundError(f"no {name} in {self.options.models}; give --models")
        return str(folder.resolve())


def scores(model: Any, tasks: str, text: str) -> dict[str, Any]:
    """Spearman × 100 on the seven sets ("all" aggregation), and pairs outside STS that the text does not hold."""
    from layerwise.data import find_tasks
    from layerwise.evaluate import LayerSubject, evaluate

    found = evaluate(LayerSubject(model, cache=False), find_tasks([tasks])).runs[0].results
    sets = {name: found[name].score for name in SETS}
    outside = {
        name: found[name].score
        for name in OUTSIDE
        if not (name == "semrel-eng" and text not in (WIKIPEDIA, CLAUSES, SHUFFLED, BLEND))
    }
    return {"test": sets | {"average": sum(sets.values()) / len(sets)}, "outside": outside}


def summary(result: dict[str, Any]) -> str:
    """How a run went, in a line."""
    if "failed" in result:
        return f"FAILED {result['failed']}"
    dev = result["training"].get("dev", {})
    test = f", test {result['test']['average']:.2f}" if "test" in result else ""
    return f"dev {dev.get('best', 0):.2f} @ {dev.get('at_step')}{test}"


def collect(options: argparse.Namespace) -> None:
    """Join the finished runs of result files; of the same row and seed the last one counts."""
    runs = {(run["row"], run["seed"]): run for file in options.files for run in json.loads(file.read_text())}
    write_runs("training-views", [run for _, run in sorted(runs.items()) if "test" in run])


if __name__ == "__main__":
    main()
