"""Commands in this process, as a shell would run them, and tiny models and files to run them on."""

import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from layerwise.cli.app import main
from layerwise.muted import quiet
from support.tiny import WORDS, save_tiny

TASKS = """
[[task]]
name = "mine"
kind = "sts"
file = "pairs.csv"
"""
MOODS = """
[train]
steps = 4
batch_size = 8
learning_rate = 0.001
[dev]
every = 2
[[task]]
name = "mood"
kind = "classification"
file = "moods.csv"
columns = { split = "split" }
splits = { train = "train", dev = "dev" }
[[objective]]
task = "mood"
max_length = 32
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code and what it printed; `crash` is the exception that it let through, if any."""

    code: int
    out: str
    error: str
    crash: str = ""


@contextmanager
def own_cache(folder: Path) -> Iterator[None]:
    """Keep the cache in a folder, and reach for no network."""
    before = {name: os.environ.get(name) for name in ("LAYERWISE_CACHE", "HF_HUB_OFFLINE")}
    os.environ.update(LAYERWISE_CACHE=str(folder), HF_HUB_OFFLINE="1")
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def call(*words: object) -> Ended:
    """Run `layerwise WORDS` in this process."""
    out, error, argv = io.StringIO(), io.StringIO(), sys.argv
    logging.getLogger().handlers.clear()  # they would write to the streams of an earlier call
    sys.argv = ["layerwise", *map(str, words)]
    try:
        with redirect_stdout(out), redirect_stderr(error):
            main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        return Ended(code, out.getvalue(), error.getvalue())
    except BaseException as crash:  # noqa: BLE001 - whatever comes through is what is looked for
        return Ended(-1, out.getvalue(), error.getvalue(), f"{type(crash).__name__}: {crash}")
    finally:
        sys.argv = argv
    raise RuntimeError("`main` always exits")


def call_json(*words: object) -> dict:
    """Run a command that must succeed: its JSON."""
    ended = call(*words, "--json")
    if ended.code:
        raise RuntimeError(f"{' '.join(map(str, words))}: {ended.code} {ended.error[-500:]} {ended.crash}")
    return json.loads(ended.out)


def make_files(folder: Path, random: np.random.Generator) -> dict[str, Path]:
    """Two tiny models, sentences, pairs, classes and their task files."""
    with quiet():
        models = {"model": save_tiny("bert", folder / "bert"), "other": save_tiny("electra", folder / "electra")}
    pairs = [f"{_words(random, 4)},{_words(random, 5)},{random.integers(0, 6)}" for _ in range(80)]
    roles = ["train"] * 32 + ["dev"] * 16
    moods = [f"{_words(random, 5)},{('bad', 'good')[row % 2]},{role}" for row, role in enumerate(roles)]
    files = {
        "text": ("text.txt", [_words(random, int(random.integers(2, 9))) for _ in range(60)]),
        "pairs": ("pairs.csv", ["sentence1,sentence2,score", *pairs]),
        "moods": ("moods.csv", ["text,label,split", *moods]),
        "task": ("mine.toml", [TASKS]),
        "recipe": ("moods.toml", [MOODS]),
    }
    for name, lines in files.values():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return models | {key: folder / name for key, (name, _) in files.items()}


def _words(random: np.random.Generator, count: int) -> str:
    return " ".join(random.choice(WORDS, count))
