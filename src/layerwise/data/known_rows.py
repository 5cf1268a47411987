"""Lazily read rows of a task: their identifying facts are cached by the content of their files.

The files are hashed each time, which takes a hundredth of the time of reading rows: one that was changed is noticed
whatever its size, its times and the clock say.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from layerwise.checksums import read_checked_json, write_checked_json
from layerwise.data.locate import Folder, obtain
from layerwise.data.task_rows import TaskRows, read_declared
from layerwise.data.tasks import Task
from layerwise.data.text_files import path_beside
from layerwise.digests import file_sha256, json_digest, text_digest
from layerwise.errors import InputError
from layerwise.version import __version__

log = logging.getLogger(__name__)

_FORMAT = 1  # raised whenever rows of the same file would be read otherwise


@dataclass(frozen=True)
class RowFacts:
    """The facts that identify the rows of a task.

    Args:
        digest: Of the rows, `TaskRows.digest`.
        subsets: A digest of each row's subset.
        rows: How many there are.
        splits: Role -> how many rows it has.
        empty: The number of empty texts.
    """

    digest: str
    subsets: str
    rows: int
    splits: Mapping[str, int]
    empty: int

    @classmethod
    def of(cls, rows: TaskRows) -> Self:
        """Build from rows that are read."""
        splits = {role: len(members) for role, members in rows.splits.items()}
        return cls(rows.digest, text_digest(rows.subsets), len(rows), splits, rows.empty)


class KnownRows:
    """The rows of a task and what identifies them.

    Args:
        task: The declaration.
        path: The file of its rows.
        memory: A folder where facts of rows are kept; without one, rows are read for them.
    """

    def __init__(self, task: Task, path: Path, memory: Path | None = None) -> None:
        self.task, self.path, self.memory = task, path, memory

    @classmethod
    def find(cls, task: Task, folder: Folder = None, memory: Path | None = None) -> Self:
        """The rows of a task, fetched if they are nowhere on this machine; checked, unless they were before."""
        known = cls(task, obtain(task, folder), memory)
        known.facts  # noqa: B018 - an error of the rows is found here
        return known

    @cached_property
    def rows(self) -> TaskRows:
        """All rows; read on first use."""
        return read_declared(self.task, self.path)

    @cached_property
    def facts(self) -> RowFacts:
        """Return the facts from the cache, or from the rows."""
        if self.memory is None:
            return RowFacts.of(self.rows)
        place = self._place(self.memory)
        facts = _recall(place)
        if facts is None:
            facts = RowFacts.of(self.rows)
            if self._place(self.memory) == place:  # else the files have changed while they were read
                write_checked_json(place, {"rows": asdict(facts)})
        return facts

    def _place(self, memory: Path) -> Path:
        """The file of the facts, named after everything that decides them."""
        _, *others = self.task.files
        paths = [self.path, *(path_beside(self.task, self.path, file) for file in others)]
        try:
            contents = [file_sha256(path) for path in paths]
        except OSError as error:
            raise InputError(f"{error.filename}: cannot be read: {error.strerror}; check the path") from error
        decides = {"format": _FORMAT, "layerwise": __version__, "task": self.task.model_dump(mode="json")}
        return memory / f"{json_digest(decides | {'contents': contents})[:32]}.json"


def _recall(path: Path) -> RowFacts | None:
    """Read the facts of a file; None if it is missing or damaged."""
    if not path.is_file():
        return None
    try:
        return RowFacts(**read_checked_json(path)["rows"])
    except (InputError, KeyError, TypeError):
        log.warning("%s: is damaged; the rows are read again", path)
        return None
