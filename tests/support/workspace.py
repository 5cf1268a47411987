"""What the commands of the how-to pages name: tiny models, text, pairs, tasks and a data folder of the whole catalogue.

A model is found by the folder of its name, so `default`, `MODEL` and `bert-base-uncased` are folders here.
"""

import json
import random
from collections.abc import Iterable
from pathlib import Path

import torch
import transformers as hf

from layerwise.data import ROLES, Task, known_tasks
from layerwise.encoder import LayerEncoder
from layerwise.model import Head, LayerModel
from layerwise.train import load_multitask_recipe
from support.row_files import write
from support.tiny import DECODERS, VOCABULARY, decoder_tokenizer, tiny_tokenizer
from support.training import said

ENCODERS = {  # width -> names; many classifiers are trained on the vectors of narrow ones
    384: ("default", "MODEL", "other-folder", "searched"),
    32: ("my-model", "my-encoder", "bert-base-uncased"),
}
DECODER = "HuggingFaceTB/SmolLM2-135M-Instruct"
WITH_HEAD = "model-with-head"
LAYERS, MAX_LENGTH, DECODER_LAYERS = 6, 256, 30  # as the models have that the pages speak of
CLASSES = ("billing", "delivery", "returns")
PAIRS, LINES, ROWS = 400, 400, 36  # the protocols of BERT-LC, rotations and ten folds need as many
SENTENCES = said(LINES, seed=7)
TASK = """
[[task]]
name = "{name}"
kind = "{kind}"
file = "{name}.csv"
splits = {{ train = "train", dev = "dev", test = "test" }}
"""


def save_models(folder: Path) -> Path:
    """A BERT under each name of an encoder, one with a head, and a decoder."""
    torch.manual_seed(0)
    for width, names in ENCODERS.items():
        size = {"num_hidden_layers": LAYERS, "hidden_size": width, "num_attention_heads": 4, "intermediate_size": 64}
        places = {"vocab_size": len(VOCABULARY), "max_position_embeddings": MAX_LENGTH + 4, "pad_token_id": 0}
        bert = hf.BertForMaskedLM(hf.BertConfig(**size, **places))
        encoder = _save(bert, tiny_tokenizer(MAX_LENGTH), folder / f"bert-{width}")
        for name in names:
            (folder / name).symlink_to(encoder.name)
    LayerModel(LayerEncoder(encoder), "last", heads=[Head(torch.eye(width))]).save(folder / WITH_HEAD)
    config = DECODERS["llama"]()
    config.num_hidden_layers, config.max_position_embeddings = DECODER_LAYERS, MAX_LENGTH
    _save(hf.AutoModel.from_config(config), decoder_tokenizer(MAX_LENGTH), folder / DECODER)
    return folder


def _save(model: torch.nn.Module, tokenizer: hf.PreTrainedTokenizerFast, folder: Path) -> Path:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.1)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def link_models(models: Path, folder: Path) -> None:
    """Every model of one folder, in another."""
    for path in models.iterdir():
        (folder / path.name).symlink_to(path.resolve())


def save_files(folder: Path) -> None:
    """Text, pairs, tasks and results."""
    graded = zip(said(PAIRS, 5), said(PAIRS, 6), [number % 11 / 2 for number in range(PAIRS)], strict=True)
    write(folder / "pairs.csv", _table(("sentence1", "sentence2", "score"), graded))
    for name, lines in (("corpus.txt", LINES), ("sentences.txt", LINES), ("text.txt", 96)):
        (folder / name).write_text("\n".join(SENTENCES[:lines]) + "\n", encoding="utf-8")
    write(folder / "corpus.parquet", [{"text": text} for text in SENTENCES])
    write(folder / "nli.csv", _table(("premise", "entailed", "contradicted"), _triples()))
    write(folder / "paraphrases.csv", _table(("sentence", "paraphrase"), (row[:2] for row in _triples())))
    for name in ("help.csv", "changed.csv"):
        write(folder / name, [{"id": f"doc-{number}", "text": text} for number, text in enumerate(SENTENCES)])
    for name, kind in (("my-task", "sts"), ("a", "sts"), ("b", "clustering")):
        (folder / f"{name}.toml").write_text(TASK.format(name=name, kind=kind), encoding="utf-8")
        splits = {role: (role,) for role in ROLES}
        write(folder / f"{name}.csv", rows_of(Task(name=name, kind=kind, file="a.csv", splits=splits)))
    _save_tables(folder)
    _save_results(folder)


def _save_tables(folder: Path) -> None:
    """The rows of tasks that the pages declare."""
    classes = [CLASSES[number % 3] for number in range(2 * ROWS)]
    splits = ["train" if number < ROWS else "test" for number in range(2 * ROWS)]
    texts = [SENTENCES[number % LINES] for number in range(2 * ROWS)]
    write(folder / "tickets.csv", _table(("body", "team", "split"), zip(texts, classes, splits, strict=True)))
    write(folder / "queries.csv", [{"id": f"q{number}", "text": text} for number, text in enumerate(SENTENCES[:12])])
    documents = enumerate(SENTENCES[12:36])
    write(folder / "manuals.jsonl", [{"id": f"d{number}", "title": "", "text": text} for number, text in documents])
    judged = [{"query": f"q{number % 12}", "document": f"d{number}", "grade": 1} for number in range(24)]
    write(folder / "judgements.csv", judged)
    moods = [{"text": text, "label": number % 2} for number, text in enumerate(SENTENCES[:60])]
    write(folder / "reviews.csv", [row | {"split": ("train", "dev")[at % 3 == 2]} for at, row in enumerate(moods)])
    near = zip(SENTENCES[:60], SENTENCES[60:120], [number % 6 for number in range(60)], strict=True)
    parts = ("training", "validation", "held out")
    rows = _table(("left", "right", "grade"), near)
    write(folder / "pairs.jsonl", [row | {"part": parts[at % 3]} for at, row in enumerate(rows)])


def _save_results(folder: Path) -> None:
    """A training's log, and result folders of mteb."""
    (folder / "run").mkdir()
    write(folder / "run" / "metrics.jsonl", [{"step": step, "loss": 1 / step} for step in range(5, 25, 5)])
    for name, score in (("me__a", 0.5), ("me__b", 0.6)):
        (folder / "results" / name / "1").mkdir(parents=True)
        facts = {"task_name": "T", "dataset_revision": "1", "scores": {"test": [{"main_score": score}]}}
        (folder / "results" / name / "1" / "T.json").write_text(json.dumps(facts), encoding="utf-8")


def save_data(folder: Path) -> Path:
    """A data folder: each task of the catalogue and of the recipe cs224n with a few rows, and text to train on."""
    rows: dict[str, list[dict]] = {}
    for task in (*load_multitask_recipe("cs224n").tasks, *known_tasks().values()):
        rows.setdefault(task.file, []).extend(rows_of(task))
        for texts in filter(None, (task.queries, task.corpus)):
            named = dict.fromkeys(texts.columns, "")
            by_id = enumerate(SENTENCES[:ROWS])
            rows[texts.file] = [named | {texts.id: f"t{number}", texts.text: text} for number, text in by_id]
    rows["train/wiki1m.parquet"] = [{"text": text} for text in SENTENCES]
    rows["train/nli_triples_all.parquet"] = _table(("anchor", "positive", "negative"), _triples())
    for file, each in rows.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        columns = dict.fromkeys(name for row in each for name in row)
        write(folder / file, [{name: row.get(name) for name in columns} for row in each])
    return folder


def link_data(data: Path, folder: Path) -> None:
    """The data folder by the names that pages have for it."""
    for name in ("FOLDER", "data"):
        (folder / name).symlink_to(data)


def rows_of(task: Task) -> list[dict]:
    """Rows of made-up words for each split of a task."""
    draw = random.Random(task.name)
    splits = [name for names in task.splits.values() for name in names] or [""]
    return [_row(task, number, split, draw) for split in splits for number in range(ROWS)]


def _row(task: Task, number: int, split: str, draw: random.Random) -> dict:
    values = {
        "left": f"rain {number // 2}" if task.kind == "reranking" else draw.choice(SENTENCES),
        "right": draw.choice(SENTENCES),
        "label": _label(task, number),
        "subset": task.only or "all",
        "split": split,
        "left_id": f"q{number // 2}",
        "right_id": f"d{number}",
    }
    if task.corpus is not None:
        values |= {"left": f"t{number % 12}", "right": f"t{number}"}
    return {task.columns[place]: value for place, value in values.items() if task.columns[place]}


def _label(task: Task, number: int) -> object:
    if task.labels:
        return int(task.labels[number % len(task.labels)])
    if task.kind in ("pair-classification", "reranking"):
        return number % 2
    if task.kind == "retrieval":
        return 1
    return float(number % 6) if task.kind == "sts" else CLASSES[number % 3]


def _table(names: tuple[str, ...], rows: Iterable[tuple]) -> list[dict]:
    return [dict(zip(names, row, strict=True)) for row in rows]


def _triples() -> list[tuple]:
    return list(zip(said(LINES), said(LINES, 1), said(LINES, 2), strict=True))
