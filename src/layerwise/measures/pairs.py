"""The pairs that measures are taken on: from a file, from a task by its name, or those that come with the package."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from layerwise.data import TaskRows, demo_pairs, find_tasks, guess_format, load_task, read_pairs
from layerwise.errors import InputError, MissingColumnError
from layerwise.texts import unique_texts

SCORE = "score"
SAMPLE = 512  # texts (or pairs) that the scalar measures of a training are taken on


@dataclass(frozen=True, eq=False)
class TextPairs:
    """Pairs of texts, with scores (pairs,) or without.

    `source` describes where they come from, `total` is how many there were before any were drawn, by `seed`.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    gold: NDArray[np.float64] | None
    source: str
    total: int
    seed: int | None = None

    def __post_init__(self) -> None:
        grades = len(self.left) if self.gold is None else len(self.gold)
        if not len(self.left) == len(self.right) == grades:
            raise InputError(f"{len(self.left)} and {len(self.right)} texts, {grades} scores: the lengths differ")
        if not self.left:
            raise InputError(f"{self.source}: no pairs; give two at the very least")
        if self.gold is not None and not np.isfinite(self.gold).all():
            place = int(np.flatnonzero(~np.isfinite(self.gold))[0])
            raise InputError(f"{self.source}: score {place} is {self.gold[place]}, not a finite number")

    @classmethod
    def of(
        cls,
        left: Sequence[str],
        right: Sequence[str],
        gold: Sequence[float] | NDArray[np.floating] | None = None,
        *,
        source: str = "pairs in memory",
    ) -> "TextPairs":
        """Pairs in memory."""
        grades = None if gold is None else np.asarray(gold, dtype=np.float64)
        return cls(tuple(left), tuple(right), grades, source, len(left))

    @classmethod
    def demo(cls) -> "TextPairs":
        """The graded pairs that come with the package."""
        pairs = demo_pairs()
        left, right = [pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs]
        return cls.of(left, right, [pair.score for pair in pairs], source="the demonstration pairs of the package")

    def limited(self, most: int, *, seed: int = 0) -> "TextPairs":
        """At most so many pairs, drawn by a seed, in their order."""
        if most < 2:
            raise InputError(f"a limit of {most} pairs is not possible; give 2 or more")
        if len(self) <= most:
            return self
        rows = np.sort(np.random.default_rng(seed).choice(len(self), most, replace=False))
        left, right = (tuple(side[row] for row in rows) for side in (self.left, self.right))
        return replace(self, left=left, right=right, gold=None if self.gold is None else self.gold[rows], seed=seed)

    @cached_property
    def texts(self) -> list[str]:
        """Every different text once, in order of appearance."""
        return unique_texts(self.left, self.right)[0]

    @property
    def sample_texts(self) -> list[str]:
        """The first texts, on which a training's scalar measures are taken."""
        return self.texts[:SAMPLE]

    @cached_property
    def positions(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The positions of the left and the right texts among `texts`: (pairs,) each"""
        left, right = unique_texts(self.left, self.right)[1]
        return left, right

    @property
    def described(self) -> str:
        """Such as "stsb, test: 1,000 of 1,379 pairs, drawn with seed 0"."""
        drawn = "" if self.seed is None else f" of {self.total:,}"
        how = "" if self.seed is None else f", drawn with seed {self.seed}"
        graded = "" if self.gold is not None else ", without scores"
        return f"{self.source}: {len(self):,}{drawn} pairs{how}{graded}"

    def __len__(self) -> int:
        return len(self.left)


def load_pairs(
    name: str,
    *,
    columns: tuple[str, str] = ("sentence1", "sentence2"),
    score: str | None = None,
    split: str = "test",
    data: str | os.PathLike[str] | None = None,
) -> TextPairs:
    """Load the pairs of a file (CSV, TSV, JSONL, Parquet), or of an STS task by its name or task file (*.toml).

    Args:
        name: The file or the task.
        columns: The columns of a file's two texts.
        score: The column of a file's scores; by default "score" where the file has it, else no scores.
        split: Which rows of a task that has splits.
        data: The data folder of tasks, as for `layerwise evaluate`.
    """
    if Path(name).suffix != ".toml" and (Path(name).is_file() or guess_format(name)):
        return _from_file(name, columns, score)
    return _from_task(name, split, data)


def _from_file(path: str, columns: tuple[str, str], score: str | None) -> TextPairs:
    if Path(path).is_file() and guess_format(path) in (None, "", "text"):
        raise InputError(f"{path}: no file of pairs by its ending; give CSV, TSV, JSONL or Parquet")
    try:
        rows = _read(path, columns, score)
    except MissingColumnError as error:
        raise InputError(f"{error}; name the columns by --left, --right and --score") from error
    return TextPairs.of(rows.left, rows.right, rows.labels or None, source=Path(path).name)


def _read(path: str, columns: tuple[str, str], score: str | None) -> TaskRows:
    try:
        return read_pairs(path, columns, score or SCORE)
    except MissingColumnError:
        if score is not None:
            raise
    return read_pairs(path, columns, None)


def _from_task(name: str, split: str, data: str | os.PathLike[str] | None) -> TextPairs:
    task, *more = find_tasks([name])
    if more or task.kind != "sts":
        wanted = "holds several tasks" if more else f"is a {task.kind} task"
        raise InputError(f"{name!r} {wanted}; measures are taken on one task of graded pairs, such as stsb")
    rows = load_task(task, data)
    role = split if task.splits else "test"
    if role not in rows.splits:
        raise InputError(f"task {task.name!r} has no {split!r} rows but {', '.join(rows.splits)}")
    picked = rows.pick(rows.splits[role])
    where = f"{task.name}, {split}" if task.splits else task.name
    return TextPairs.of(picked.left, picked.right, picked.labels, source=where)
