"""The same numbers before and after a refactoring: record each version, then compare the two records.

    python benchmarks/unchanged.py record before.json --src ../base/src --keep KEPT   # the version before
    python benchmarks/unchanged.py record after.json --load KEPT                      # the version of this checkout
    python benchmarks/unchanged.py compare before.json after.json --out benchmarks/results/unchanged.json

`record` uses the command line and the names of the package's root only, so that it runs on both versions; `--src` names
the source of the version to record. `--keep` writes models, stopped runs, evaluations and half-written shards of that
version into a folder, `--load` reads them with another version. `--only sts,search` records some sections anew and
keeps the others of an existing record. `compare` exits with 1 where a number differs by more than the tolerance, is
missing, or is new. Artefacts of the version before that are refused with one line are listed and allowed.

Models and data come from the folder ../shared (or $LAYERWISE_SHARED); all other inputs are made here, once, in
KEPT/inputs. A full record takes about half an hour on two cores.
"""

import argparse
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from measure import machine, shared_folder

Value = float | str | list[float | None]
Numbers = dict[str, Value]

TOLERANCE = 1e-5  # of a number, relative to its size where that is above 1
REFUSED = "refused: "  # before the one line by which a version refuses what another version wrote
NAMES = (" / mix", " / pooling")  # texts that decide a number; others are words, which may change
UNTIMED = ("seconds", "runtime", "per_second")  # what differs from run to run
SENTENCES = [
    "the old clock",
    "rain.",
    "who left the door open?",
    "prices fell after the rain",
    "an old river an old door",
]
_VOCABULARY = (
    "the river rose after three days of rain she repaired old clock in kitchen and it has kept perfect time ever since "
    "that day march who left door open prices fell nobody was surprised by someone an"
)
WORDS = sorted(_VOCABULARY.split())

# --- the recipe of several tasks, in the format of each version -------------------------------------------------------

MULTITASK_BEFORE = """
name = "three"
[model]
pooler = "last @ mean"
[mixing]
weights = "{weights}"
[[task]]
name = "mood"
kind = "classification"
file = "mood.csv"
columns = ["text"]
head = "mlp"
contrast = 0.1
max_length = 16
weight = {mood_weight}
[[task]]
name = "same"
kind = "pairs"
file = "same.csv"
columns = ["a", "b"]
max_length = 16
splits = {{train = ["train"], dev = "dev", test = "test"}}
[[task]]
name = "near"
kind = "similarity"
file = "near.csv"
columns = ["a", "b"]
label = "score"
head = "cosine"
max_length = 16
[train]
batch_size = 8
steps = {steps}
learning_rate = 1e-3
precision = "float32"
[dev]
every = {every}
log_every = 1
"""

# The same in the format of one declaration a task, with what training adds in [[objective]] tables.
MULTITASK_AFTER = """
name = "three"
[model]
pooler = "last @ mean"
[mixing]
weights = "{weights}"
[[task]]
name = "mood"
kind = "classification"
file = "mood.csv"
splits = {{train = "train", dev = "dev"}}
[[task]]
name = "same"
kind = "classification"
file = "same.csv"
columns = {{left = "a", right = "b"}}
splits = {{train = "train", dev = "dev", test = "test"}}
[[task]]
name = "near"
kind = "sts"
file = "near.csv"
columns = {{left = "a", right = "b"}}
scale = [0, 5]
metric = "pearson"
splits = {{train = "train", dev = "dev"}}
[[objective]]
task = "mood"
head = "mlp"
contrast = 0.1
max_length = 16
weight = {mood_weight}
[[objective]]
task = "same"
max_length = 16
[[objective]]
task = "near"
head = "cosine"
max_length = 16
[train]
batch_size = 8
steps = {steps}
learning_rate = 1e-3
precision = "float32"
[dev]
every = {every}
log_every = 1
"""


@dataclass(frozen=True)
class Version:
    """One version of the package.

    Args:
        src: Its source folder.
        home: Where its commands run; `home/inputs` holds what they read, named by relative paths.
        scratch: Where they write.
    """

    src: Path
    home: Path
    scratch: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the commands: this source, an empty cache, no hub."""
        own = {"PYTHONPATH": str(self.src), "LAYERWISE_CACHE": str(self.scratch / "cache"), "HF_HUB_OFFLINE": "1"}
        return dict(os.environ) | own | {"LAYERWISE_DATA": str(shared_folder() / "data")}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A running command `layerwise ARGUMENTS`."""
        command = [sys.executable, "-m", "layerwise", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.home, env=self.environment, text=True, **pipes)

    def run(self, *arguments: str) -> str:
        """The standard output of a command that must succeed."""
        began = time.perf_counter()
        process = self.start(*arguments)
        out, errors = process.communicate()
        print(f"  {time.perf_counter() - began:5.0f} s  layerwise {' '.join(arguments)}", flush=True)
        if process.returncode:
            raise CommandError(process.returncode, errors.strip())
        return out

    def json(self, *arguments: str) -> Any:
        """What a command prints with --json."""
        return json.loads(self.run(*arguments, "--json"))

    def folder(self, *parts: str) -> Path:
        """A path below the scratch folder whose parent exists."""
        path = self.scratch.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class CommandError(Exception):
    """A command failed; with the exit code 2 and one line it refused its input."""

    def __init__(self, code: int, errors: str) -> None:
        lines = [line for line in errors.splitlines() if not line.startswith(("INFO:", "WARNING:"))]
        self.refusal = lines[-1] if code == 2 and lines and lines[-1].startswith("error: ") else None
        super().__init__(self.refusal or errors[-2000:])


# --- inputs -----------------------------------------------------------------------------------------------------------


def make_inputs(folder: Path) -> None:
    """Everything that the commands read, unless it is there: a tiny encoder, texts, pairs, tasks."""
    if folder.is_dir():
        return
    building = folder.with_name(folder.name + "-unfinished")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    save_tiny_bert(building / "tiny")
    random = np.random.default_rng(0)
    corpus = made_up(random, 96)
    (building / "corpus.txt").write_text("".join(f"{line}\n" for line in corpus), encoding="utf-8")
    (building / "rows.txt").write_text("".join(f"{line}\n" for line in made_up(random, 6000)), encoding="utf-8")
    more = [made_up(random, 96, (1, 5)) for _ in range(2)]
    triples = [
        {"anchor": row, "positive": f"{row} {one}", "negative": f"{other} {row}"}
        for row, one, other in zip(corpus, *more, strict=True)
    ]
    write_csv(building / "triples.csv", triples)
    save_graded_pairs(building / "data" / "sts" / "stsb.parquet", random)
    save_tasks(building / "tasks", random)
    rows = pq.read_table(shared_folder() / "data" / "sts" / "stsb.parquet").to_pylist()
    dev = [{key: row[key] for key in ("sentence1", "sentence2", "score")} for row in rows if row["split"] == "dev"]
    write_csv(building / "pairs.csv", dev[:300])
    building.rename(folder)


def save_tiny_bert(folder: Path) -> None:
    """A BERT of four layers with its language modelling head, its weights large enough that layers differ."""
    import torch
    import transformers as hf
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*special, *WORDS, *"abcdefghijklmnopqrstuvwxyz", *".,?!"]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    hf.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=60, **names).save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 48}
    torch.manual_seed(1)
    model = hf.BertForMaskedLM(hf.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
    model.save_pretrained(folder)


def made_up(random: np.random.Generator, count: int, words: tuple[int, int] = (3, 9)) -> list[str]:
    """Different sentences of the tokenizer's words."""
    sentences: dict[str, None] = {}
    while len(sentences) < count:
        sentences[" ".join(random.choice(WORDS, int(random.integers(*words))))] = None
    return list(sentences)


def save_graded_pairs(path: Path, random: np.random.Generator) -> None:
    """An STS-B of 60 made-up pairs."""
    both = zip(made_up(random, 60), made_up(random, 60), strict=True)
    rows = [
        {
            "sentence1": left,
            "sentence2": right,
            "score": float(random.integers(0, 11)) / 2,
            "subset": "x",
            "split": split,
        }
        for (left, right), split in zip(both, ["train", "dev", "test"] * 20, strict=True)
    ]
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def save_tasks(folder: Path, random: np.random.Generator) -> None:
    """mood.csv: words of one class; same.csv: two texts of one class or two; near.csv: the same, graded."""
    good, bad = ["river", "rain", "clock"], ["door", "prices", "kitchen"]
    others = [word for word in WORDS if word not in good + bad]

    def text(is_good: bool) -> str:
        words = random.choice(good if is_good else bad, 2)
        return " ".join(random.permutation([*words, *random.choice(others, int(random.integers(1, 4)))]))

    moods, same, near = [], [], []
    for row, split in enumerate(["train"] * 40 + ["dev"] * 16 + ["test"] * 16):
        is_good, alike = bool(row % 2), bool(row // 2 % 2)
        moods.append({"text": text(is_good), "label": ("bad", "good")[is_good], "split": split})
        pair = {"a": text(is_good), "b": text(is_good == alike), "split": split}
        same.append({**pair, "label": int(alike)})
        near.append({**pair, "score": 4.5 * alike + round(float(random.random()) / 2, 2)})
    folder.mkdir()
    for name, rows in (("mood", moods), ("same", same[: 40 + 16 + 8]), ("near", near[:30] + near[40:])):
        write_csv(folder / f"{name}.csv", rows)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows with a header."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


# --- sections: each gives numbers by name -----------------------------------------------------------------------------


def record_sts(version: Version) -> Numbers:
    """STS test scores by the last layer and by one mix."""
    numbers: Numbers = {}
    models = {"all-MiniLM-L6-v2": ("default", "0,6"), "wiki-mlm-12x384": (wiki_mlm(), "1,2,12")}
    for name, (model, mix) in models.items():
        tasks = ("--tasks", "stsb,sick-r,sts16", "--layers", "last", "--layers", mix)
        for label, run in zip(("last", mix), version.json("evaluate", model, *tasks)["runs"], strict=True):
            numbers |= flattened(run["tasks"], f"sts / {name} / {label}")
    return numbers


def record_transfer(version: Version) -> Numbers:
    """Accuracy of logistic regression on two tasks of SentEval."""
    evaluation = version.json("evaluate", "default", "--tasks", "trec,mrpc", "--layers", "last", "--seeds", "1111")
    return flattened(evaluation["tasks"], "transfer / all-MiniLM-L6-v2 / last")


def record_search(version: Version) -> Numbers:
    """Searches on 300 pairs: by splits, by poolings, by other methods and metrics, without labels, in Python."""
    ways: dict[str, tuple[str, ...]] = {
        "three splits": ("--dev", "150", "--splits", "3"),
        "two poolings": ("--pooling", "mean,cls", "--layers", "up to 3"),
        "weights": ("--method", "weights", "--seed", "1"),
        "beam": ("--method", "beam", "--metric", "pearson"),
        "retrieval": ("--metric", "mrr@10"),
        "dropout": ("--no-labels", "dropout"),
    }
    numbers: Numbers = {}
    for name, model in (("all-MiniLM-L6-v2", "default"), ("wiki-mlm-12x384", wiki_mlm())):
        for way, options in ways.items():
            if model == "default" or way in ("three splits", "dropout"):
                result = version.json("search", model, "inputs/pairs.csv", *options)
                counted = {key: value for key, value in result.items() if key not in ("warnings", "saved", "prompts")}
                numbers |= flattened(counted, f"search / {name} / {way}")
    return numbers | search_in_python(version)


def search_in_python(version: Version) -> Numbers:
    """`LayerSearch` on views of `LayerEncoder`: every pair chooses, and nothing is labelled."""
    from layerwise import LayerEncoder, LayerSearch

    with (version.home / "inputs" / "pairs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    encoder = LayerEncoder()
    left, right = (encoder.encode_layers([row[side] for row in rows]) for side in ("sentence1", "sentence2"))
    labelled = LayerSearch().fit(left, right, [float(row["score"]) for row in rows])
    unlabelled = LayerSearch().fit(left, right)
    place = "search / all-MiniLM-L6-v2 / in Python"
    return {
        f"{place} / views": summed(left) + summed(right),
        f"{place} / best": str(labelled.best_.mix),
        f"{place} / dev": float(labelled.best_.dev),
        f"{place} / top ten": [float(row.score) for row in labelled.table_[:10]],
        f"{place} / gain": [float(getattr(labelled.report_.gain, name)) for name in ("mean", "low", "high", "p_value")],
        f"{place} / stability": [float(share) for share in labelled.stability_.values()],
        f"{place} / agreement": float(labelled.stability_.agreement),
        f"{place} / chosen without labels": str(unlabelled.best_.mix),
        f"{place} / separation": float(unlabelled.best_.dev),
    }


def record_measures(version: Version) -> Numbers:
    """The rows of every measure; columns in their order, because their names are words."""
    names = "scores,setsim,toksim,geometry,spectrum,cka,chosen,projection,pairs"
    numbers: Numbers = {}
    for name, table in version.json("analyze", "default", "--measure", names)["measures"].items():
        columns = zip(*(list(row.values()) for row in table["rows"]), strict=True)
        for place, column in enumerate(columns):
            values = [float(value) for value in column if isinstance(value, int | float)]
            if values:
                numbers[f"measures / {name} / column {place}"] = values
    return numbers


TRAININGS: dict[str, tuple[str, ...]] = {
    "small-simcse": ("small-simcse", "--data", "inputs/corpus.txt"),
    "small-sg-opt": ("small-sg-opt", "--data", "inputs/corpus.txt", "--set", "data.max_length=32"),
    "small-sscl-simcse": ("small-sscl-simcse", "--data", "inputs/corpus.txt"),
    "small-sscl-progressive": ("small-sscl-progressive", "--data", "inputs/corpus.txt"),
    "small-lap-unsup": ("small-lap-unsup", "--data", "inputs/corpus.txt"),
    "small-sup": ("small-sup", "--data", "inputs/triples.csv"),
    "small-diffcse": ("small-diffcse", "--data", "inputs/corpus.txt"),
    "mlm": ("small-simcse", "--data", "inputs/corpus.txt", "--set", "objective.mlm.weight=0.1"),
    "gradient caching": ("small-simcse", "--data", "inputs/corpus.txt", "--set", "train.chunk=3"),
}
MEASURES = 'dev.measures=["token-similarity","layer-similarity","alignment","uniformity"]'


def train_arguments(name: str, *, steps: int, every: int) -> tuple[str, ...]:
    """A short training of the tiny encoder on the CPU."""
    sets = (f"train.steps={steps}", "train.batch_size=8", "train.precision=float32", "dev.log_every=1", MEASURES)
    sets += (f"dev.every={every}", 'dev.test=["stsb"]')
    options = [part for change in sets for part in ("--set", change)]
    return (*TRAININGS[name], "--model", "inputs/tiny", "--data", "inputs/data", "--device", "cpu", *options)


def record_train(version: Version) -> Numbers:
    """Losses, dev scores and measures by step, and the test score, of every objective, by two seeds."""
    numbers: Numbers = {}
    for name in TRAININGS:
        out = version.folder("train", name.replace(" ", "-"))
        version.run("train", *train_arguments(name, steps=6, every=3), "--seeds", "0,1", "--out", str(out))
        for seed in (0, 1):
            numbers |= by_step(out / f"seed-{seed}", f"train / {name} / seed {seed}")
            result = json.loads((out / f"seed-{seed}" / "result.json").read_text(encoding="utf-8"))
            scores = {key: result[key] for key in ("dev", "scores")}
            numbers |= flattened(scores, f"train / {name} / seed {seed} / result")
    return numbers


def record_multitask(version: Version) -> Numbers:
    """Losses and scores of three tasks, one with contrast, by every kind of weights and two seeds."""
    numbers: Numbers = {}
    for weights in ("equal", "inverse-size", "given", "learned"):
        recipe = multitask_recipe(version, weights=weights, steps=6, every=3)
        out = version.folder("multitask", weights)
        arguments = (recipe, "--model", "inputs/tiny", "--device", "cpu")
        version.run("multitask", *arguments, "--seeds", "0,1", "--out", str(out))
        for seed in (0, 1):
            numbers |= by_step(out / f"seed-{seed}", f"multitask / {weights} / seed {seed}")
            result = json.loads((out / f"seed-{seed}" / "result.json").read_text(encoding="utf-8"))
            for split in ("dev", "test"):
                scores = flattened(result[split], f"multitask / {weights} / seed {seed} / result / {split}")
                numbers |= scores
    return numbers


def multitask_recipe(version: Version, **fields: Any) -> str:
    """A file of the recipe in the format that this version reads, in the folder of its tasks."""
    text = MULTITASK_BEFORE if reads_recipe_of_before(version) else MULTITASK_AFTER
    path = Path("inputs", "tasks", f"{fields['weights']}-{fields['steps']}-{version.src.parent.name}.toml")
    (version.home / path).write_text(filled(text, **fields), encoding="utf-8")
    return str(path)


def filled(text: str, *, weights: str, steps: int, every: int) -> str:
    """The recipe's text with these settings; a task's weight is read only where weights are given."""
    return text.format(weights=weights, steps=steps, every=every, mood_weight=0.5 if weights == "given" else 1.0)


def reads_recipe_of_before(version: Version) -> bool:
    """Whether a version reads the format of before, or refuses it with one line, which is shown."""
    answer = version.folder("format-of-multitask-recipes")
    if not answer.is_file():
        path = Path("inputs", "tasks", "format.toml")
        (version.home / path).write_text(filled(MULTITASK_BEFORE, weights="equal", steps=1, every=1), encoding="utf-8")
        out = str(version.folder("format-of-multitask-recipes-run"))
        try:
            version.run("multitask", str(path), "--model", "inputs/tiny", "--device", "cpu", "--out", out)
        except CommandError as error:
            if error.refusal is None or not MULTITASK_AFTER:
                raise
            print(f"  the recipe of before: {error.refusal}")
            answer.write_text("after", encoding="utf-8")
        else:
            answer.write_text("before", encoding="utf-8")
    return answer.read_text(encoding="utf-8") == "before"


# --- what the version before wrote ------------------------------------------------------------------------------------

MIXES = {
    "set": "1,3 @ mean",
    "set by max": "1,3 @ max",
    "weights": "1:0.25,4:0.75",
    "concat": "concat(1,4) @ cls",
    "join": "last @ cls | 1,2 @ mean",
    "wk": "wk(start=1,window=2)",
}
FITTED = {"whitening": ("--dimensions", "16"), "components": ("--components", "2"), "flow": ("--epochs", "1")}
TRAINED = {"attention": "small-lap-unsup", "head": "small-sup"}  # kinds of model that a training makes
STOPPED = {"steps": 40, "every": 5}  # of the runs that are stopped at their second checkpoint
SHARDS = ("embed", "inputs/tiny", "inputs/rows.txt", "--mix", "1,3", "--shard-rows", "64", "--device", "cpu")


def keep(version: Version, kept: Path) -> None:
    """Write artefacts of this version: models with their embeddings, stopped runs, evaluations, half of the shards."""
    for name in ("models", "runs", "evaluations", "shards"):
        shutil.rmtree(kept / name, ignore_errors=True)
        (kept / name).mkdir(parents=True)
    keep_models(version, kept / "models")
    for label, mix in (("last", "last"), ("mix", "1,3")):
        where = ("--data", "inputs/data", "--tasks", "stsb", "--layers", mix)
        version.run("evaluate", "inputs/tiny", *where, "--out", str(kept / "evaluations" / f"{label}.json"))
    recipe = multitask_recipe(version, weights="equal", **STOPPED)
    commands = {
        "train": ("train", *train_arguments("small-sg-opt", **STOPPED)),
        "multitask": ("multitask", recipe, "--model", "inputs/tiny", "--device", "cpu"),
    }
    for name, command in commands.items():
        version.run(*command, "--out", str(kept / "runs" / f"{name}-whole"))
        stopped = kept / "runs" / f"{name}-stopped"
        stop(version, (*command, "--out", str(stopped)), stopped, "checkpoint-*/trainer_state.json", count=2)
    version.run(*SHARDS, "--out", str(kept / "shards" / "whole.npy"))
    stop(version, (*SHARDS, "--out", str(kept / "shards" / "half")), kept / "shards" / "half", "part-*", count=3)


def keep_models(version: Version, folder: Path) -> None:
    """A model of every kind, each with its embeddings of five sentences."""
    from layerwise import LayerModel

    tiny = version.home / "inputs" / "tiny"
    for name, mix in MIXES.items():
        LayerModel(tiny, mix, normalize=name == "weights").save(folder / name)
    for name, options in FITTED.items():
        version.run("fit", "inputs/tiny", "inputs/rows.txt", "--with", name, *options, "--out", str(folder / name))
    for name, recipe in TRAINED.items():
        out = version.folder("kept", name)
        version.run("train", *train_arguments(recipe, steps=3, every=3), "--out", str(out))
        shutil.copytree(out / "model", folder / name)
    out = version.folder("kept", "multitask")
    recipe = multitask_recipe(version, weights="equal", steps=3, every=3)
    version.run("multitask", recipe, "--model", "inputs/tiny", "--device", "cpu", "--out", str(out))
    shutil.copytree(out / "model", folder / "multitask")
    for model in sorted(path for path in folder.iterdir() if path.is_dir()):
        np.save(folder / f"{model.name}.npy", LayerModel.load(model, device="cpu").encode(SENTENCES))


def stop(version: Version, command: Sequence[str], folder: Path, pattern: str, *, count: int) -> None:
    """Kill a command as soon as it has written so many files."""
    process = version.start(*command)
    while process.poll() is None and len(list(folder.glob(pattern))) < count:
        time.sleep(0.002)
    if process.poll() is not None:
        sys.exit(f"layerwise {' '.join(command)} ended before it was stopped: {process.communicate()[1][-500:]}")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    print(f"  stopped layerwise {' '.join(command[:2])} in {folder.name}", flush=True)


def record_kept(version: Version, kept: Path) -> Numbers:
    """What a version makes of the artefacts: numbers, or the line by which it refuses one."""
    numbers: Numbers = {}
    for model in sorted(path for path in (kept / "models").iterdir() if path.is_dir()):
        place = f"kept / model / {model.name}"
        numbers |= attempted(f"{place} / LayerModel", partial(vector_gap, layer_model_vectors, model))
        numbers |= attempted(f"{place} / SentenceTransformer", partial(vector_gap, st_vectors, model))
    for task in ("mood", "same", "near"):
        numbers |= attempted(f"kept / predict / {task}", partial(predicted, version, kept, task))
    for name in ("train", "multitask"):
        numbers |= attempted(f"kept / resumed {name}", partial(resumed, version, kept, name))
    numbers |= attempted("kept / compare", partial(compared, version, kept))
    numbers |= attempted("kept / embed resumed", partial(embedded, version, kept))
    numbers |= attempted("kept / curve of a training", partial(curve, version, kept))
    return numbers


def attempted(name: str, call: Callable[[], Value | Numbers]) -> Numbers:
    """What a call gives, under its name; a refusal is its one line, another failure its last one."""
    from layerwise import LayerwiseError

    try:
        value = call()
    except CommandError as error:
        value = f"{REFUSED}{error.refusal}" if error.refusal else f"failed: {error}"
    except LayerwiseError as error:
        value = f"{REFUSED}{error}" if "\n" not in str(error) else f"failed: {error}"
    except Exception as error:  # noqa: BLE001 - any other failure is what this looks for
        value = f"failed: {type(error).__name__}: {error}"
    return {f"{name} / {key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}


def vector_gap(vectors: Callable[[Path], Any], model: Path) -> float:
    """Embeddings of a saved model against those that are stored beside it."""
    return difference(vectors(model), np.load(model.with_name(f"{model.name}.npy")))


def difference(after: Any, before: Any) -> float:
    """The largest difference of any number; shapes must agree."""
    if after.shape != before.shape:
        raise ValueError(f"shape {after.shape} instead of {before.shape}")
    return float(np.abs(after - before).max())


def layer_model_vectors(folder: Path) -> Any:
    """By our own class."""
    from layerwise import LayerModel

    return LayerModel.load(folder, device="cpu").encode(SENTENCES)


def st_vectors(folder: Path) -> Any:
    """By the host library, which imports our modules by the names that are written in the folder."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", trust_remote_code=True).encode(SENTENCES)


def predicted(version: Version, kept: Path, task: str) -> Numbers:
    """Probabilities, or numbers, by a saved model of several tasks."""
    out = version.folder("predicted", f"{task}.csv")
    out.unlink(missing_ok=True)
    source = f"inputs/tasks/{task}.csv"
    version.run("predict", str(kept / "models" / "multitask"), source, "--task", task, "--out", str(out))
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    given = {"text", "a", "b", "label", "score", "split"}
    return {
        f"column {place}": [float(row[name]) for row in rows]
        for place, name in enumerate(name for name in rows[0] if name not in given)
        if is_number(rows[0][name])
    }


def resumed(version: Version, kept: Path, name: str) -> Numbers:
    """The losses of a stopped run that this version finishes, and its model against that of the whole run."""
    copy = version.folder("resumed", name)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(kept / "runs" / f"{name}-stopped", copy)
    if name == "train":
        command = ("train", *train_arguments("small-sg-opt", **STOPPED))
    else:
        recipe = multitask_recipe(version, weights="equal", **STOPPED)
        command = ("multitask", recipe, "--model", "inputs/tiny", "--device", "cpu")
    version.run(*command, "--resume", "--out", str(copy))
    whole = layer_model_vectors(kept / "runs" / f"{name}-whole" / "model")
    return by_step(copy, "") | {"model": difference(layer_model_vectors(copy / "model"), whole)}


def compared(version: Version, kept: Path) -> Numbers:
    """Two evaluations of before, one against the other."""
    files = (str(kept / "evaluations" / "last.json"), str(kept / "evaluations" / "mix.json"))
    return flattened(version.json("compare", *files)["tasks"], "")


def embedded(version: Version, kept: Path) -> Numbers:
    """The shards of a stopped run, completed, against those of a whole run, and how many rows were not made again."""
    copy = version.folder("shards")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(kept / "shards" / "half", copy)
    result = version.json(*SHARDS, "--out", str(copy))
    table = pq.read_table(copy)
    vectors = np.stack(table.column("embedding").to_numpy())[np.argsort(table.column("row").to_numpy())]
    whole = np.load(kept / "shards" / "whole.npy")
    return {"rows of before": float(result["resumed"]), "difference": difference(vectors, whole)}


def curve(version: Version, kept: Path) -> Numbers:
    """The figures by step that `analyze` reads from a finished run."""
    tables = version.json("analyze", "--train", str(kept / "runs" / "train-whole"))["measures"]
    rows = next(iter(tables.values()))["rows"]
    columns = [[value for value in column if is_number(value)] for column in zip(*map(dict.values, rows), strict=True)]
    return {f"column {place}": [float(value) for value in column] for place, column in enumerate(columns) if column}


# --- values -----------------------------------------------------------------------------------------------------------


def flattened(value: Any, place: str) -> Numbers:
    """Numbers and names of mixes by the path to them; lists of numbers stay together, times and words are left out."""
    if isinstance(value, Mapping):
        parts = {str(key): part for key, part in value.items() if not any(word in str(key) for word in UNTIMED)}
    elif isinstance(value, list) and value and all(is_number(part) for part in value):
        return {place: [float(part) for part in value]}
    elif isinstance(value, list):
        parts = {str(number): part for number, part in enumerate(value)}
    elif is_number(value):
        return {place: float(value)}
    else:
        return {place: str(value)} if place.endswith(NAMES) else {}
    numbers: Numbers = {}
    for key, part in parts.items():
        numbers |= flattened(part, f"{place} / {key}" if place else key)
    return numbers


def by_step(folder: Path, place: str) -> Numbers:
    """The columns of a metrics file, each as the list of its values; None is what was no number."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    columns: dict[str, list[float | None]] = {}
    for line in lines:
        for name, value in json.loads(line).items():
            if not any(word in name for word in UNTIMED):
                columns.setdefault(name, []).append(value)
    return {f"{place} / {name}" if place else name: values for name, values in columns.items()}


def is_number(value: Any) -> bool:
    """Whether a value, or its text, is a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)


def summed(views: Any) -> list[float]:
    """The sum of every layer's numbers, and of their absolute values."""
    wide = np.asarray(views, dtype=np.float64)
    return [*wide.sum(axis=(0, 2)).tolist(), *np.abs(wide).sum(axis=(0, 2)).tolist()]


def wiki_mlm() -> str:
    """The encoder that no sentence objective has touched."""
    return str(shared_folder() / "models" / "wiki-mlm-12x384")


# --- record and compare -----------------------------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[Version], Numbers]] = {
    "train": record_train,
    "multitask": record_multitask,
    "search": record_search,
    "measures": record_measures,
    "transfer": record_transfer,
    "sts": record_sts,
}


def record(out: Path, src: Path, *, kept: Path | None, making: bool, only: Iterable[str]) -> None:
    """Record the version in `src`, section by section; each is written as soon as it is there."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path.insert(0, str(src))
    import layerwise

    if src not in Path(layerwise.__file__).parents:
        sys.exit(f"layerwise was imported from {Path(layerwise.__file__).parent}, not from {src}")
    before = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    numbers: Numbers = before.get("numbers", {})
    with tempfile.TemporaryDirectory(prefix="layerwise-unchanged-") as scratch:
        version = Version(src, (kept or Path(scratch)).resolve(), Path(scratch))
        make_inputs(version.home / "inputs")
        if kept and making and "kept" in only:
            keep(version, kept)
        for name in only:
            print(name, flush=True)
            section = record_kept(version, kept) if kept and name == "kept" else SECTIONS[name](version)
            numbers = {key: value for key, value in numbers.items() if key.split(" / ")[0] != name} | section
            write(out, {"machine": machine(), "version": layerwise.__version__, "numbers": numbers})
    print(f"recorded {len(numbers)} numbers in {out}")


def compare(before: Path, after: Path, out: Path | None) -> int:
    """Print number by number, and count what differs."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (before, after)]
    one, other = (record["numbers"] for record in records)
    refused = [name for name, value in other.items() if name.startswith("kept / ") and is_refusal(value)]
    rows = {name: row(name, one.get(name), other.get(name), refused) for name in dict.fromkeys([*one, *other])}
    width = max(map(len, rows))
    print(f"{'number':{width}}  {'before':>24}  {'after':>24}  difference")
    for name, entry in rows.items():
        gap = entry["difference"]
        told = f"{gap:.3g}" if isinstance(gap, float) else gap
        print(f"{name:{width}}  {shown(entry['before']):>24}  {shown(entry['after']):>24}  {told}")
    different = [name for name, entry in rows.items() if entry["state"] == "different"]
    numeric = [entry["difference"] for entry in rows.values() if isinstance(entry["difference"], float)]
    summary = {"numbers": len(rows), "different": different, "refused": refused, "largest": max(numeric, default=0.0)}
    print(f"\n{len(rows)} numbers, tolerance {TOLERANCE:g} relative to numbers above 1: {len(different)} differ,")
    print(f"largest difference {summary['largest']:.3g}, {len(refused)} artefacts refused with one line")
    for name in refused:
        print(f"  {name}: {rows[name]['after']}")
    if out is not None:
        write(out, {"machine": records[1]["machine"], "tolerance": TOLERANCE, **summary, "rows": rows})
    return 1 if different else 0


def row(name: str, before: Value | None, after: Value | None, refused: Sequence[str]) -> dict[str, Any]:
    """One line of the table: both values, their difference, and what it means; a refusal stands for all below it."""
    gap = gap_of(before, after)
    if any(f"{name} / ".startswith(f"{place} / ") for place in refused):
        state = "refused"
    else:
        state = "same" if isinstance(gap, float) and gap <= TOLERANCE else "different"
    return {"before": before, "after": after, "difference": gap, "state": state}


def is_refusal(value: Value | None) -> bool:
    """Whether a value is the line by which an artefact was refused, with a remedy behind its semicolon."""
    return isinstance(value, str) and value.startswith(REFUSED) and "; " in value


def gap_of(before: Value | None, after: Value | None) -> float | str:
    """The largest difference, relative to numbers above 1, or a word where there is none; NaN agrees with NaN."""
    if before is None or after is None:
        return "only after" if before is None else "missing after"
    if isinstance(before, str) or isinstance(after, str):
        same = isinstance(before, str) and isinstance(after, str) and rounded(before) == rounded(after)
        return 0.0 if same else "another text"
    left, right = (np.atleast_1d(np.array(value, dtype=float)) for value in (before, after))
    if left.shape != right.shape or (np.isnan(left) != np.isnan(right)).any():
        return "other values"
    gaps = np.abs(left - right) / np.maximum(1.0, np.abs(left))
    return float(np.nanmax(gaps)) if not np.isnan(gaps).all() else 0.0


def rounded(text: str) -> str:
    """The text of a mix with its weights in six digits."""
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.6f}", text)


def shown(value: Value | None) -> str:
    """A value in few letters; a list by its ends."""
    if isinstance(value, list):
        return f"{shown(value[0])} … {shown(value[-1])}" if len(value) > 1 else shown(value[0])
    if isinstance(value, int | float):
        return f"{value:.6g}"
    return "" if value is None else value if len(value) <= 24 else value[:23] + "…"


def write(path: Path, facts: Mapping[str, Any]) -> None:
    """As JSON with a line for each fact, those inside a mapping too; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + "-unfinished")
    beside.write_text(_lines(facts) + "\n", encoding="utf-8")
    beside.replace(path)


def _lines(facts: Mapping[str, Any], depth: int = 1) -> str:
    parts = [
        f"{' ' * depth}{json.dumps(key)}: "
        + (_lines(value, 2) if isinstance(value, dict) and depth == 1 else json.dumps(value, ensure_ascii=False))
        for key, value in facts.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n" + " " * (depth - 1) + "}"


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="record the numbers of one version")
    recording.add_argument("out", type=Path)
    recording.add_argument("--src", type=Path, default=Path(__file__).resolve().parents[1] / "src")
    where = recording.add_mutually_exclusive_group()
    where.add_argument("--keep", type=Path, help="write artefacts of this version here, and load them")
    where.add_argument("--load", type=Path, help="load the artefacts that another version wrote here")
    recording.add_argument("--only", default="", help=f"of {', '.join(SECTIONS)}, kept; separated by commas")
    comparing = commands.add_parser("compare", help="compare two records")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.command == "compare":
        sys.exit(compare(given.before, given.after, given.out))
    kept = given.keep or given.load
    only = given.only.split(",") if given.only else [*SECTIONS, *(["kept"] if kept else [])]
    unknown = [name for name in only if name not in (*SECTIONS, "kept")]
    if unknown or ("kept" in only and kept is None):
        parser.error(f"unknown section {unknown[0]}" if unknown else "the section kept needs --keep or --load")
    record(given.out, given.src.resolve(), kept=kept and kept.resolve(), making=bool(given.keep), only=only)


if __name__ == "__main__":
    main()
