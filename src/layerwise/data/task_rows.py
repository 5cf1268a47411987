"""The rows of a task, read and checked: texts, labels, subsets, and which rows train, choose and test.

This is the one reader of labelled files: of evaluation, of training and of plain files of pairs.
"""

import json
import logging
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.data.labels import as_number, is_missing, label_name, listed, look_alikes
from layerwise.data.rows import Row, RowSource, text_of, written_text_of
from layerwise.data.tasks import Task
from layerwise.data.text_files import id_of, path_beside, read_texts
from layerwise.errors import InputError, MissingColumnError
from layerwise.texts import has_lone_surrogate, unique_texts

log = logging.getLogger(__name__)

Rows = NDArray[np.intp]
EMPTY = "."  # what SentEval's examples encode in place of an empty sentence


class NoSubsetError(InputError):
    """A file shared by several tasks has no rows of this one."""


@dataclass(frozen=True)
class TaskRows:
    """All rows of a task in a file.

    Args:
        task: The declaration.
        left: The first texts.
        right: The second texts; empty for single texts.
        labels: Scores (sts), names of classes (classification) or grades (retrieval); empty where there are none.
        subsets: Each row's subset; empty where there are none.
        splits: Role -> its rows; all rows are "test" where the task declares no splits.
        empty: The number of empty texts, which became ".".
        file: What errors call the file.
        numbers: Each row's number in the file, for errors.
        unused: Split -> the number of its rows, of those splits that have no role.
        origin: Where the rows come from, as `source` calls it; by default the task's name.
        drawn: How they were drawn from more of them, such as "of 1,379 pairs, drawn with seed 0".
        left_ids: The ids of the first texts; empty where there are none.
        right_ids: The ids of the second texts.
        corpus: All passages of a retrieval task by their ids, where it declares them.
    """

    task: Task
    left: list[str]
    right: list[str]
    labels: list[Any]
    subsets: list[str]
    splits: dict[str, Rows]
    empty: int = 0
    file: str = ""
    numbers: list[int] = field(default_factory=list)
    unused: dict[str, int] = field(default_factory=dict)
    origin: str = ""
    drawn: str = ""
    left_ids: list[str] = field(default_factory=list)
    right_ids: list[str] = field(default_factory=list)
    corpus: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.left)

    @cached_property
    def digest(self) -> str:
        """A hash of the rows in order, independent of the file format."""
        columns = (self.left, self.right, self.labels, self.left_ids, self.right_ids)
        hashed, as_json = sha256(), json.JSONEncoder(ensure_ascii=False).encode
        for row in (*zip(*filter(None, columns), strict=True), *self.corpus.items()):
            hashed.update(as_json(row).encode("utf-8", "surrogatepass"))
        for role, rows in sorted(self.splits.items()):
            hashed.update(role.encode() + rows.astype("<i8").tobytes())
        return hashed.hexdigest()[:32]

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows by role; "all" if the task declares no splits."""
        return {role if self.task.splits else "all": len(rows) for role, rows in self.splits.items()}

    def pick(self, rows: NDArray[np.integer]) -> "TaskRows":
        """Select rows, all of which are tested."""
        names = ("left", "right", "labels", "subsets", "numbers", "left_ids", "right_ids")
        columns: dict[str, Any] = {
            name: [column[row] for row in rows] for name in names if (column := getattr(self, name))
        }
        return replace(self, **columns, splits={"test": np.arange(len(rows))}, unused={})

    def limited(self, most: int, *, seed: int = 0) -> "TaskRows":
        """Sample at most this many rows by a seed, in order."""
        if most < 2:
            raise InputError(f"a limit of {most} pairs is not possible; give 2 or more")
        if len(self) <= most:
            return self
        rows = np.sort(np.random.default_rng(seed).choice(len(self), most, replace=False))
        return replace(self.pick(rows), drawn=f"of {len(self):,} pairs, drawn with seed {seed}")

    def of_role(self, role: str) -> "TaskRows":
        """Select the rows of a role; raise if there are none."""
        if role not in self.splits:
            raise InputError(
                f"task {self.task.name!r} has no {role} rows; it has {', '.join(self.splits)}: declare them, such as "
                f'splits = {{ {role} = "{role}" }}'
            )
        return self.pick(self.splits[role])

    @cached_property
    def gold(self) -> NDArray[np.float64] | None:
        """The scores of graded pairs, (rows,), or None."""
        return np.asarray(self.labels, dtype=np.float64) if self.labels else None

    @property
    def source(self) -> str:
        """The name of the rows in reports and errors: a file, a task and its split."""
        return self.origin or self.task.name

    @property
    def described(self) -> str:
        """Such as "stsb, test: 1,000 of 1,379 pairs, drawn with seed 0"."""
        graded = "" if self.labels else ", without scores"
        return f"{self.source}: {len(self):,} {self.drawn or 'pairs'}{graded}"

    @cached_property
    def _unique(self) -> tuple[list[str], tuple[Rows, ...]]:
        return unique_texts(self.left, self.right)

    @property
    def texts(self) -> list[str]:
        """The unique texts, in order."""
        return self._unique[0]

    def positions(self) -> tuple[Rows, Rows | None]:
        """Return each row's left and right text as indices into `texts`, (rows,) each; no right for single texts."""
        left, right = self._unique[1]
        return left, right if self.right else None

    def fail(self, row: int, message: str) -> InputError:
        """Build an error that names the file and the row's number in it."""
        return InputError(f"{self.file}:{self.numbers[row]}: {message}")


def read_declared(task: Task, path: str | Path, **options: Any) -> TaskRows:
    """Like `read_task`, for a user's task: an error about its columns tells where to name them."""
    try:
        return read_task(task, path, **options)
    except MissingColumnError as error:
        remedy = 'name the columns of your file in its [[task]], such as columns = { left = "question" }'
        raise InputError(f"{error}; {remedy}") from error


def read_task(
    task: Task,
    path: str | Path,
    *,
    format: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    empty: str | None = EMPTY,
    unlabelled: Container[str] = (),
) -> TaskRows:
    """All rows of a task's file; an error names the file, the row and the remedy.

    Where the task declares splits, rows of others are left out and need no label.

    Args:
        task: The declaration.
        path: The file; "-" is standard input.
        format: One of the formats of `layerwise.data.rows`; by default the file's ending says which.
        encoding: Of a file that is text; UTF-8 without it.
        delimiter: Between the fields of a CSV or TSV file, where it is another than its format's.
        empty: What an empty text becomes; None refuses empty texts.
        unlabelled: Roles whose labels may be hidden: missing ones become None there, and none is checked.
    """
    columns = {place: name for place, name in task.columns.items() if name}
    source = RowSource.of(str(path), tuple(columns.values()), format=format, encoding=encoding, delimiter=delimiter)
    texts = {
        place: read_texts(declared, path_beside(task, path, declared.file), empty=empty)
        for place, declared in (("left", task.queries), ("right", task.corpus))
        if declared is not None
    }
    reader = _Reader(task, source, columns, empty, unlabelled, texts)
    values: dict[str, list[Any]] = {place: [] for place in (*columns, *(f"{place}_id" for place in texts))}
    numbers = []
    for number, row in reader.rows():
        numbers.append(number)
        for place, value in row.items():
            values[place].append(value)
    reader.check(len(numbers))
    splits = reader.by_role(values.get("split", []), len(numbers))
    if task.has_classes:
        reader.tell_look_alikes(values.get("label", []))
    return TaskRows(
        task,
        values["left"],
        values.get("right", []),
        values.get("label", []),
        values.get("subset", []),
        splits,
        reader.empty_texts,
        reader.source.name,
        numbers,
        {split: count for split, count in reader.splits.items() if split not in reader.roles},
        left_ids=values.get("left_id", []),
        right_ids=values.get("right_id", []),
        corpus=texts.get("right", {}),
    )


@dataclass
class _Reader:
    """The rows of one file, checked one at a time; `splits` and `empty_texts` are counted on the way.

    `texts` holds, by place, the texts that the rows name by their ids.
    """

    task: Task
    source: RowSource
    columns: dict[str, str]
    empty: str | None
    unlabelled: Container[str]
    texts: Mapping[str, Mapping[str, str]]
    splits: Counter[str] = field(default_factory=Counter)
    empty_texts: int = 0

    def __post_init__(self) -> None:
        self.roles = {name: role for role, names in self.task.splits.items() for name in names}

    @property
    def needed(self) -> str:
        return "needed: " + ", ".join(f"{name} ({place})" for place, name in self.columns.items())

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number of each row of the task and its values by place."""
        try:
            for row in self.source:
                values = dict(zip(self.columns, row.values, strict=True))
                if self._is_of_task(values):
                    yield row.place, self._checked(row, values)
        except MissingColumnError as error:
            raise MissingColumnError(f"{error}; {self.needed}") from error

    def _is_of_task(self, values: Mapping[str, Any]) -> bool:
        if self.task.only is not None and str(values["subset"]) != self.task.only:
            return False
        if not self.roles:
            return True
        split = str(values["split"])
        self.splits[split] += 1
        return split in self.roles

    def _checked(self, row: Row, values: dict[str, Any]) -> dict[str, Any]:
        for number, place in enumerate(self.columns):
            if place in self.texts:
                values[f"{place}_id"], values[place] = self._named_text(row, number, place)
            elif place in ("left", "right"):
                values[place] = self._text(row, number)
            elif place in ("left_id", "right_id"):
                values[place] = id_of(self.source, row, number)
            elif place in ("subset", "split"):
                values[place] = str(values[place])
        if "label" in values:
            hidden = self.roles.get(values.get("split", "")) in self.unlabelled if self.roles else False
            values["label"] = self._label(row, values["label"], hidden=hidden)
        return values

    def _text(self, row: Row, column: int) -> str:
        if self.empty is None:
            return written_text_of(self.source, row, column)
        text = text_of(self.source, row, column)
        if text.strip():
            return text
        self.empty_texts += 1
        return self.empty

    def _named_text(self, row: Row, column: int, place: str) -> tuple[str, str]:
        """An id and its text."""
        name = id_of(self.source, row, column)
        if name not in self.texts[place]:
            declared = self.task.queries if place == "left" else self.task.corpus
            file, column_name = declared.file if declared else "", self.columns[place]
            raise self.source.fail(
                row.place, f"{column_name} {name!r} is no id of {file}; add it there, or drop the row"
            )
        return name, self.texts[place][name]

    def _label(self, row: Row, value: Any, *, hidden: bool) -> Any:
        if hidden and is_missing(value):
            return None
        return self._class(row, value, hidden) if self.task.has_classes else self._number(row, value, hidden)

    def _class(self, row: Row, value: Any, hidden: bool) -> str:
        column, labels = self.columns["label"], self.task.labels
        if is_missing(value):
            raise self.source.fail(row.place, f"no label in {column!r}; every row needs a class")
        if isinstance(value, list | dict):
            raise self.source.fail(row.place, f"{column} is {value}; expected one class, a text or a number")
        if has_lone_surrogate(str(value)):
            raise self.source.fail(row.place, f"{column} holds half a surrogate pair, no text; correct it")
        if not labels:
            return str(value)
        name = label_name(value)
        if name not in labels and not hidden:
            raise self.source.fail(row.place, f"label {name!r} is not among the labels of the task: {listed(labels)}")
        return name

    def _number(self, row: Row, value: Any, hidden: bool) -> float:
        column, number = self.columns["label"], as_number(value)
        if number is None:
            shown = "null" if value is None else repr(value)
            raise self.source.fail(
                row.place, f"{column} {shown} is not a number; every row needs one: correct it, or remove the row"
            )
        if self.task.declaration.binary and number not in (0, 1) and not hidden:
            raise self.source.fail(row.place, f"{column} {number:g} is neither 0 nor 1; mark a pair as 1, others as 0")
        if self.task.scale is not None and not hidden:
            check_scale(number, self.task.scale, self.source.fail, row.place, column)
        return number

    def check(self, rows: int) -> None:
        """Raise for a file without rows; warn of empty texts."""
        if self.empty_texts:
            message = "%s: %d empty texts are encoded as %r, as SentEval does"
            log.info(message, self.task.name, self.empty_texts, self.empty)
        if rows or self.splits:
            return
        if self.task.only is not None:
            subset = f"{self.columns['subset']} = {self.task.only}"
            raise NoSubsetError(f"{self.source.name}: no rows with {subset}; {self.needed}")
        raise InputError(f"{self.source.name}: no rows; {self.needed}")

    def tell_look_alikes(self, labels: list[Any]) -> None:
        """Warn of classes with names that look identical."""
        for name, other in look_alikes(dict.fromkeys(label for label in labels if label is not None)):
            log.warning(
                "%s: %s and %s are two classes, which differ only by spaces or Unicode form; write them alike if they "
                "are one",
                self.source.name,
                ascii(name),
                ascii(other),
            )

    def by_role(self, names: list[str], rows: int) -> dict[str, Rows]:
        """Return the rows by role. Without declared splits, all rows are tested (or cross-validated for classes)."""
        if not self.task.splits:
            return {"test": np.arange(rows)}
        values = np.array(names)
        splits = {role: np.flatnonzero(np.isin(values, names)) for role, names in self.task.splits.items()}
        for role, members in splits.items():
            if not len(members):
                raise InputError(
                    f"{self.source.name}: no rows of the split {'/'.join(self.task.splits[role])} ({role}) of task "
                    f"{self.task.name!r}; its column {self.columns['split']!r} has {listed(sorted(self.splits))}; add "
                    f"such rows, or name other splits: splits = {{ {role} = [...] }}"
                )
        return splits


def check_scale(number: float, scale: tuple[float, float], fail: Any, row: int, column: str) -> None:
    """Raise for a score outside the scale; `fail` builds the error that names its row."""
    low, high = scale
    if not low <= number <= high:
        raise fail(row, f"{column} {number:g} is outside the scale {low:g} to {high:g}; correct it, or set scale = ...")


def relevant_passages(rows: Iterable[tuple[str, str, float]], places: Mapping[str, int]) -> dict[str, dict[int, float]]:
    """(query, passage, grade) -> by query, in order: the passage's place -> grade; a grade of 0 is not relevant.

    >>> relevant_passages([("why?", "because", 1), ("why?", "no", 0), ("who?", "me", 2)], {"because": 0, "me": 1})
    {'why?': {0: 1}, 'who?': {1: 2}}
    """
    relevant: dict[str, dict[int, float]] = {}
    for query, passage, grade in rows:
        if grade > 0:
            relevant.setdefault(query, {})[places[passage]] = grade
    return relevant
