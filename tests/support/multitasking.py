"""Made-up tasks that a tiny encoder can learn in a few steps, and recipes for them."""

from pathlib import Path

import numpy as np

from layerwise.data import Task
from layerwise.predict import TaskObjective, TaskSetup
from layerwise.train import (
    MixingSettings,
    MultitaskDev,
    MultitaskJob,
    MultitaskModel,
    MultitaskRecipe,
    OptimiserSettings,
    load_training_task,
    train,
)
from support.row_files import write
from support.tiny import WORDS

GOOD, BAD = ["river", "rain", "clock"], ["door", "prices", "kitchen"]


def save_tasks(folder: Path, train: int = 40, dev: int = 16) -> Path:
    """mood.csv: a text has words of one class; same.csv: two texts of one class or two; near.csv: the same, graded."""
    random = np.random.default_rng(4)
    others = [word for word in WORDS if word not in GOOD + BAD]

    def said(good: bool, words: int = 2) -> str:
        own = random.choice(GOOD if good else BAD, words)
        return " ".join(random.permutation([*own, *random.choice(others, int(random.integers(1, 4)))]))

    splits = ["train"] * train + ["dev"] * dev
    moods, same, near = [], [], []
    for row, split in enumerate(splits):
        good, alike = bool(row % 2), bool(row // 2 % 2)
        moods.append({"text": said(good), "label": ("bad", "good")[good], "split": split})
        pair = {"a": said(good), "b": said(good == alike), "split": split}
        same.append({**pair, "label": int(alike)})
        near.append({**pair, "score": 4.5 * alike + round(float(random.random()) / 2, 2)})
    for name, rows in (("mood", moods), ("same", same), ("near", near)):
        write(folder / f"{name}.csv", rows)
    return folder


KINDS = {
    "mood": {"kind": "classification"},
    "same": {"kind": "classification", "columns": {"left": "a", "right": "b"}},
    "near": {"kind": "sts", "columns": {"left": "a", "right": "b"}, "metric": "pearson"},
}


def setup(**given) -> TaskSetup:
    """A task and its objective from the keys of both."""
    objective = {key: given.pop(key) for key in TaskObjective.model_fields if key != "task" and key in given}
    given = {"splits": {"train": "train", "dev": "dev"}, **given}
    return TaskSetup(Task(**given), TaskObjective(task=given["name"], **objective))


def task(name: str, folder: Path, **more) -> TaskSetup:
    given = {"name": name, "file": str(folder / f"{name}.csv"), "max_length": 16, "dropout": 0.1, **KINDS[name]}
    return setup(**given | more)


def recipe(*setups, mixing=None, model=None, dev=None, **train) -> MultitaskRecipe:
    """Six steps of eight rows, every one logged."""
    steps = {"batch_size": 8, "steps": 6, "learning_rate": 1e-3, "precision": "float32", "schedule": "constant"}
    return MultitaskRecipe(
        name="tiny",
        model=MultitaskModel(**(model or {})),
        tasks=tuple(one.task for one in setups),
        objectives=tuple(one.objective for one in setups),
        mixing=MixingSettings(**(mixing or {})),
        train=OptimiserSettings(**steps | train),
        dev=MultitaskDev(**{"log_every": 1, "every": 100, **(dev or {})}),
    )


def read(*setups):
    return tuple(load_training_task(one) for one in setups)


def train_tasks(what, folder, *, encoder, data=None, tasks=None, **options):
    """Train a recipe of tasks with one seed."""
    return train(MultitaskJob(what, encoder=encoder, data=data, tasks=tasks), folder, **options)


RECIPE = """
[model]
pooler = "last @ mean"
[[task]]
name = "mood"
kind = "classification"
file = "mood.csv"
splits = {train = "train", dev = "dev"}
[[task]]
name = "same"
kind = "classification"
file = "same.csv"
columns = {left = "a", right = "b"}
splits = {train = ["train"], dev = "dev"}
[[task]]
name = "near"
kind = "sts"
file = "near.csv"
columns = {left = "a", right = "b"}
metric = "pearson"
splits = {train = "train", dev = "dev"}
[[objective]]
task = "mood"
max_length = 16
[[objective]]
task = "same"
max_length = 16
[[objective]]
task = "near"
head = "cosine"
max_length = 16
[train]
batch_size = 8
steps = 4
learning_rate = 1e-3
precision = "float32"
[dev]
every = 2
log_every = 1
"""
