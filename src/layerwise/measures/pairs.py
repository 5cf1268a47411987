"""The pairs that measures are taken on: the user's file, a task by its name, or those that come with the package."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from layerwise.data import TaskRows, demo_pairs, find_tasks, guess_format, load_task, read_pairs
from layerwise.errors import InputError, MissingColumnError

SCORE = "score"


@dataclass(frozen=True, eq=False)
class TextPairs:
    """Pairs of texts, graded (pairs,) or not. `source` says in words what they are, `total` how many there were."""

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
        """Pairs that are there already."""
        grades = None if gold is None else np.asarray(gold, dtype=np.float64)
        return cls(tuple(left), tuple(right), grades, source, len(left))

    @classmethod
    def demo(cls) -> "TextPairs":
        """The graded pairs that come with the package."""
        pairs = demo_pairs()
        left, right = [pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs]
        return cls.of(left, right, [pair.score for pair in pairs], source="the demonstration pairs of the package")

    def limited(self, most: int, *, seed: int = 0) -> "TextPairs":
        """At most so many pairs, drawn by a seed and in their order; `described` says so."""
        if most < 2:
            raise InputError(f"a limit of {most} pairs is not possible; give 2 or more")
        if len(self) <= most:
            return self
        rows = np.sort(np.random.default_rng(seed).choice(len(self), most, replace=False))
        left, right = (tuple(side[row] for row in rows) for side in (self.left, self.right))
        return replace(self, left=left, right=right, gold=None if self.gold is None else self.gold[rows], seed=seed)

    @property
    def described(self) -> str:
        """Such as "stsb, test: 1,000 of 1,379 pairs, drawn with seed 0"."""
        drawn = "" if self.seed is None else f" of {self.total:,}"
        how = "" if self.seed is None else f", drawn with seed {self.seed}"
        graded = "" if self.gold is not None else ", without scores"
        return f"{self.source}: {len(self):,}{drawn} pairs{how}{graded}"

    def __len__(self) -> int:
        return len(self.left)


def pairs_of(
    name: str,
    *,
    columns: tuple[str, str] = ("sentence1", "sentence2"),
    score: str | None = None,
    split: str = "test",
    data: str | os.PathLike[str] | None = None,
) -> TextPairs:
    """The pairs of a file (CSV, TSV, JSONL, Parquet), or of an STS task by its name or task file (*.toml).

    Args:
        name: The file or the task.
        columns: The columns of a file's two texts.
        score: The column of a file's scores; without it "score" if there is one, else the pairs have no grades.
        split: Which rows of a task that has splits.
        data: The data folder of tasks, as for `layerwise evaluate`.
    """
    if Path(name).suffix != ".toml" and (Path(name).is_file() or guess_format(name)):
        return _of_file(name, columns, score)
    return _of_task(name, split, data)


def _of_file(path: str, columns: tuple[str, str], score: str | None) -> TextPairs:
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


def _of_task(name: str, split: str, data: str | os.PathLike[str] | None) -> TextPairs:
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
