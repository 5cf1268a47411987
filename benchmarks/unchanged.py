"""The same numbers before and after a refactoring: record each version, then compare the two records.

    python benchmarks/unchanged.py record before.json --src ../base/src --inputs FOLDER   # the version before
    python benchmarks/unchanged.py record after.json --inputs FOLDER                      # this checkout
    python benchmarks/unchanged.py compare before.json after.json --out benchmarks/results/unchanged.json

`record` uses the command line and, of both versions, the estimators of a search; `--src` names the source of the
version to record. `--only sts,search` records some sections anew and keeps the others of an existing record. `compare`
exits with 1 where a number differs by more than the tolerance, is missing, or is new, unless `ON_PURPOSE` says why.
Models and data come from the folder ../shared (or $LAYERWISE_SHARED); all other inputs are made here, once, in
FOLDER/inputs. A full record takes about half an hour on two cores.
"""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from measure import machine, shared_folder

Value = float | str | list[float | None]
Numbers = dict[str, Value]

TOLERANCE = 1e-5  # of a number, relative to its size where that is above 1
NAMES = (" / mix", " / pooling")  # texts that decide a number; others are words, which may change
ON_PURPOSE = {  # number -> the rule that changed since 315b7e6
    "search / weights / split 2 / mix": "a mix of one layer is written without its weight",
    "search / classes / interval": "intervals of classes follow the rule of all others: the spread of several splits",
}
UNTIMED = ("seconds", "runtime", "per_second")  # what differs from run to run
_VOCABULARY = (
    "the river rose after three days of rain she repaired old clock in kitchen and it has kept perfect time ever since "
    "that day march who left door open prices fell nobody was surprised by someone an"
)
WORDS = sorted(_VOCABULARY.split())

MULTITASK = """
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
    """Searches of both estimators on the same views and splits: layers, queries, without labels, views, classes."""
    import layerwise

    with (version.home / "inputs" / "pairs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    encoder = layerwise.LayerEncoder()
    texts = [[row[side] for row in rows] for side in ("sentence1", "sentence2")]
    left, right = (encoder.encode_layers(side, ["mean", "cls"]) for side in texts)
    gold = [float(row["score"]) for row in rows]
    counts = Counter(texts[0] + texts[1])
    single = [n for n, both in enumerate(zip(*texts, strict=True)) if max(counts[text] for text in both) == 1]
    pairs = [[column[n] for n in single] for column in (*texts, gold)]  # that share no sentence: both split them alike
    columns = pq.read_table(shared_folder() / "data" / "transfer" / "sst2_sentences.parquet").to_pydict()
    classes = encoder.encode_layers(columns["text"][:300]), columns["label"][:300]
    order = np.random.default_rng(0).permutation(len(gold))
    parts = [(np.sort(np.roll(order, shift)[:150]), np.sort(np.roll(order, shift)[150:])) for shift in (0, 70, 140)]
    searches = searches_of_today if hasattr(layerwise, "Search") else searches_before
    found = searches(encoder, left, right, gold, pairs, classes, parts)
    views = {"search / views": summed(left["mean"]) + summed(right["mean"])}
    return views | {f"search / {way} / {name}": value for way, of in found.items() for name, value in of.items()}


WAYS: dict[str, dict[str, Any]] = {
    "layers": {},
    "pearson": {"metric": "pearson"},
    "up to 3": {"space": "up to 3"},
    "beam": {"method": "beam"},
    "weights": {"method": "weights"},
}
VIEWS = ["mean", "cls", "max", 'mean in "The sentence {text} means"']


def searches_of_today(
    encoder: Any, left: Any, right: Any, gold: Any, pairs: Any, classes: Any, parts: Any
) -> dict[str, Numbers]:
    """By `Search`."""
    from layerwise.encoder import parse_pooling
    from layerwise.evidence import draw_splits
    from layerwise.search import ClassProtocol, Search, ViewScorer, as_metric, prices_of
    from layerwise.search.classes import ClassRows, ClassScorer
    from layerwise.search.graded_pairs import GradedPairs
    from layerwise.search.spaces import Space
    from layerwise.search.views import ViewOptions

    def numbers(selection: Any) -> Numbers:
        found: Numbers = {"chosen / mix": str(selection.chosen.mix), "dev": selection.chosen.dev}
        found |= {"last dev": selection.last.dev, "top ten": [row.dev for row in selection.table[:10]]}
        if selection.gain is not None:
            found |= {"test": selection.chosen.test, "last test": selection.last.test, "gain": selection.gain.mean}
            found |= {"interval": [selection.gain.low, selection.gain.high, selection.gain.p_value]}
            found |= {f"split {n} / mix": str(one.best.mix) for n, one in enumerate(selection.choices)}
        return found

    ways = {way: Search(parts=parts, **options).fit_views(left, right, gold) for way, options in WAYS.items()}
    ways["queries"] = Search(parts=parts, metric="mrr@10").fit_queries(left, right, list(range(len(gold))))
    ways["without labels"] = Search().fit_views(left["mean"], right["mean"])
    names = [str(parse_pooling(name)) for name in VIEWS]
    graded = GradedPairs.of(*pairs, metric=as_metric("spearman"), encode=encoder.encode_layers)
    splits = draw_splits(len(graded), 0.5, 1, 0, texts=graded.unit_texts)
    prices = prices_of(encoder, names, pairs[0])
    scorer = ViewScorer(graded, splits, ViewOptions(tuple(names), n_bootstraps=5), prices)
    ways["views"] = Search().fit_scorer(scorer)
    protocol = ClassProtocol(outer=2, inner=3)
    rows = ClassRows.of({"mean": classes[0]}, classes[1], device="cpu")
    scorer = ClassScorer(rows, protocol.splits(len(rows)), protocol, Space(largest=2))
    ways["classes"] = Search().fit_scorer(scorer)
    return {way: numbers(search.selection_) for way, search in ways.items()}


def searches_before(
    encoder: Any, left: Any, right: Any, gold: Any, pairs: Any, classes: Any, parts: Any
) -> dict[str, Numbers]:
    """By the three estimators of commit 315b7e6."""
    from layerwise.search.view_search import ViewSearch

    from layerwise import LayerSearch
    from layerwise.encoder import parse_pooling
    from layerwise.search import TransferProtocol, TransferSearch, prices_of

    def numbers(search: Any, table: list[float], mixes: list[Any], *, labels: bool = True) -> Numbers:
        found: Numbers = {"chosen / mix": str(search.best_.mix), "dev": search.best_.dev}
        found |= {"last dev": search.last_.dev, "top ten": table}
        if labels:
            gain = search.report_.gain
            found |= {"test": search.best_.test, "last test": search.last_.test, "gain": gain.mean}
            found |= {"interval": [gain.low, gain.high, gain.p_value]}
            found |= {f"split {n} / mix": str(mix) for n, mix in enumerate(mixes)}
        return found

    def layers(search: Any, *, labels: bool = True) -> Numbers:
        mixes = [split.mix for split in search.report_.splits] if labels else []
        return numbers(search, [row.score for row in search.table_[:10]], mixes, labels=labels)

    ways = {way: layers(LayerSearch(parts=parts, **options).fit(left, right, gold)) for way, options in WAYS.items()}
    queries = LayerSearch(parts=parts, metric="mrr@10").fit(left, right, list(range(len(gold))))
    ways["queries"] = layers(queries)
    ways["without labels"] = layers(LayerSearch().fit(left["mean"], right["mean"]), labels=False)
    names = [str(parse_pooling(name)) for name in VIEWS]
    views = ViewSearch(names, bags=5, dev=0.5, splits=1, seed=0)
    views.fit(encoder.encode_layers, *pairs, prices=prices_of(encoder, names, pairs[0]), own="mean")
    singles = sorted((score for scores in views.singles_.values() for score in scores if score == score), reverse=True)
    ways["views"] = numbers(views, [float(score) for score in singles[:10]], [views.best_.mix])
    protocol = TransferProtocol(outer=2, inner=3, largest=2)
    transfer = TransferSearch(protocol=protocol, device="cpu").fit(*classes)
    report = transfer.report_
    ways["classes"] = {
        "chosen / mix": f"{','.join(map(str, transfer.layers_))} @ mean",
        "dev": float(np.mean([split.dev for split in report.splits])),
        "last dev": float(np.mean([split.last_dev for split in report.splits])),
        "top ten": sorted(transfer.table_.values(), reverse=True)[:10],
        "test": report.mean,
        "last test": report.last_mean,
        "gain": report.gain,
        "interval": [report.interval.low, report.interval.high, report.interval.p_value],
    } | {f"split {n} / mix": f"{','.join(map(str, s.layers))} @ mean" for n, s in enumerate(report.splits)}
    return ways


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


def multitask_recipe(version: Version, *, weights: str, steps: int, every: int) -> str:
    """A file of the recipe in the folder of its tasks; a task's weight is read only where weights are given."""
    given = 0.5 if weights == "given" else 1.0
    path = Path("inputs", "tasks", f"{weights}-{steps}-{version.src.parent.name}.toml")
    text = MULTITASK.format(weights=weights, steps=steps, every=every, mood_weight=given)
    (version.home / path).write_text(text, encoding="utf-8")
    return str(path)


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


def record(out: Path, src: Path, *, inputs: Path | None, only: Iterable[str]) -> None:
    """Record the version in `src`, section by section; each is written as soon as it is there."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path.insert(0, str(src))
    import layerwise

    if src not in Path(layerwise.__file__).parents:
        sys.exit(f"layerwise was imported from {Path(layerwise.__file__).parent}, not from {src}")
    before = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    numbers: Numbers = before.get("numbers", {})
    with tempfile.TemporaryDirectory(prefix="layerwise-unchanged-") as scratch:
        version = Version(src, (inputs or Path(scratch)).resolve(), Path(scratch))
        make_inputs(version.home / "inputs")
        for name in only:
            print(name, flush=True)
            section = SECTIONS[name](version)
            numbers = {key: value for key, value in numbers.items() if key.split(" / ")[0] != name} | section
            write(out, {"machine": machine(), "version": layerwise.__version__, "numbers": numbers})
    print(f"recorded {len(numbers)} numbers in {out}")


def compare(before: Path, after: Path, out: Path | None) -> int:
    """Print number by number, and count what differs but was not changed on purpose."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (before, after)]
    one, other = (record["numbers"] for record in records)
    rows = {name: row(name, one.get(name), other.get(name)) for name in dict.fromkeys([*one, *other])}
    width = max(map(len, rows))
    print(f"{'number':{width}}  {'before':>24}  {'after':>24}  difference")
    for name, entry in rows.items():
        gap = entry["difference"]
        told = f"{gap:.3g}" if isinstance(gap, float) else gap
        print(f"{name:{width}}  {shown(entry['before']):>24}  {shown(entry['after']):>24}  {told}  {entry['state']}")
    different = [name for name, entry in rows.items() if entry["state"] == "different"]
    changed = {name: entry["state"] for name, entry in rows.items() if entry["state"] in ON_PURPOSE.values()}
    same = [entry["difference"] for entry in rows.values() if entry["state"] == "same"]
    summary = {"numbers": len(rows), "different": different, "on_purpose": changed, "largest": max(same, default=0.0)}
    print(f"\n{len(rows)} numbers, tolerance {TOLERANCE:g} relative to numbers above 1: {len(different)} differ,")
    print(f"{len(changed)} were changed on purpose, largest difference of the others {summary['largest']:.3g}")
    if out is not None:
        write(out, {"machine": records[1]["machine"], "tolerance": TOLERANCE, **summary, "rows": rows})
    return 1 if different else 0


def row(name: str, before: Value | None, after: Value | None) -> dict[str, Any]:
    """One line of the table: both values, their difference, and what it means."""
    gap = gap_of(before, after)
    is_same = isinstance(gap, float) and gap <= TOLERANCE
    return {
        "before": before,
        "after": after,
        "difference": gap,
        "state": "same" if is_same else ON_PURPOSE.get(name, "different"),
    }


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
    recording.add_argument("--inputs", type=Path, help="make the inputs here, or take those that are there")
    recording.add_argument("--only", default=",".join(SECTIONS), help=f"of {', '.join(SECTIONS)}; separated by commas")
    comparing = commands.add_parser("compare", help="compare two records")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.command == "compare":
        sys.exit(compare(given.before, given.after, given.out))
    only = given.only.split(",")
    if unknown := [name for name in only if name not in SECTIONS]:
        parser.error(f"unknown section {unknown[0]}; known: {', '.join(SECTIONS)}")
    record(given.out, given.src.resolve(), inputs=given.inputs and given.inputs.resolve(), only=only)


if __name__ == "__main__":
    main()
