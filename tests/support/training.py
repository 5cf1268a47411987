"""What the tests of training share: texts, recipes of a few steps, a tiny BERT with its language modelling head."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import transformers as hf

from layerwise.encoder import LayerEncoder
from layerwise.train import (
    TERMS,
    ContrastiveJob,
    Corpus,
    DataSettings,
    DevSettings,
    ModelSettings,
    OptimiserSettings,
    Recipe,
    Trained,
    train,
)
from support.tiny import ARCHITECTURES, WORDS, tiny_tokenizer


def said(count: int, seed: int = 0, words: tuple[int, int] = (3, 9)) -> list[str]:
    """Sentences of the tokenizer's words, no two alike."""
    random = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(random.choice(WORDS, int(random.integers(*words))))] = None
    return list(found)


def texts(count: int = 48, columns: int = 1) -> Corpus:
    """A corpus; the columns of a row share their first words."""
    rows = said(count)
    more = [
        [f"{row} {word}" for row, word in zip(rows, said(count, k, (1, 5)), strict=True)] for k in range(1, columns)
    ]
    return Corpus.of(rows, *more, source="made up")


def save_masked_bert(folder: Path) -> Path:
    torch.manual_seed(1)
    model = hf.BertForMaskedLM(ARCHITECTURES["bert"]())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def save_dev(folder: Path, splits: tuple[str, ...] = ("train", "dev", "test")) -> Path:
    """A data folder with an STS-B of made-up pairs."""
    random, left, right = np.random.default_rng(5), said(60, 8), said(60, 9)
    rows = [
        {
            "sentence1": one,
            "sentence2": other,
            "score": float(random.integers(0, 11)) / 2,
            "subset": "x",
            "split": splits[number % len(splits)],
        }
        for number, (one, other) in enumerate(zip(left, right, strict=True))
    ]
    (folder / "sts").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "sts" / "stsb.parquet")
    return folder


def term(name: str, **settings):
    return TERMS[name](**settings)


def recipe(*objectives, columns=1, data=None, model=None, dev=None, **train) -> Recipe:
    """Six steps of eight rows, every one logged, without a dev set, unless other values are given."""
    names = ("text", "positive", "negative")[:columns]
    steps = {"batch_size": 8, "steps": 6, "learning_rate": 1e-3, "precision": "float32", "schedule": "constant"}
    return Recipe(
        name="tiny",
        data=DataSettings(**{"columns": names, "max_length": 16, **(data or {})}),
        model=ModelSettings(**(model or {})),
        objectives=objectives or (term("info-nce"),),
        train=OptimiserSettings(**{**steps, **train}),
        dev=DevSettings(**{"task": "", "log_every": 1, "every": 100, **(dev or {})}),
    )


def encoder_of(folder: Path, device: str = "cpu") -> LayerEncoder:
    return LayerEncoder(folder, device=device)


def losses(trained: Trained) -> list[float]:
    return [line["loss"] for line in trained.history if "loss" in line]


def weights(trained: Trained) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trained.student.state_dict().items()}


def same_weights(one: Trained, other: Trained) -> bool:
    mine, theirs = weights(one), weights(other)
    return mine.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in mine.items())


def train_recipe(recipe: Recipe, folder, *, encoder=None, corpus=None, data=None, **options) -> Trained:
    """`train` of a contrastive job."""
    return train(ContrastiveJob(recipe, encoder=encoder, corpus=corpus, data=data), folder, **options)


def trainings(encoder, out):
    """run(recipe, corpus, …) trains in a new folder, from the encoder as it is on disk."""
    runs = iter(range(99))

    def run(what, corpus=None, **options):
        options.setdefault("folder", out / f"run-{next(runs)}")
        return train_recipe(what, encoder=encoder_of(encoder), corpus=corpus or texts(), **options)

    return run
