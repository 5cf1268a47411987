"""Rows that cannot be embedded: recorded with file, row and reason instead of stopping a long run."""

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from layerwise.errors import InputError
from layerwise.files import atomic_file, check_writable
from layerwise.stores import Place

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_ENDINGS = (".jsonl", *_DELIMITERS)


@dataclass(frozen=True)
class BadRow:
    """A row that was set aside: its number as in the column `row` (from 0), and its line in a text file."""

    file: str
    row: int
    line: int
    reason: str

    @classmethod
    def of(cls, file: str, row: int, line: int, error: InputError) -> "BadRow":
        """Build from an error; the reason is its message without the location."""
        return cls(file, row, line, str(error).removeprefix(f"{file}:{line}: "))

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> "BadRow":
        """Parse a record from the JSON of a shard."""
        return cls(str(record["file"]), int(record["row"]), int(record["line"]), str(record["reason"]))


_COLUMNS = tuple(field.name for field in fields(BadRow))


def check_bad_rows_file(path: Place) -> None:
    """Raise for a file that cannot be written, or that exists with other contents than bad rows."""
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(f"{path}: its ending names no format; give a name ending in {', '.join(_ENDINGS)}")
    check_writable(path)
    if path.expanduser().exists() and not _holds_bad_rows(path.expanduser()):
        raise InputError(f"{path}: exists and holds no rows that were set aside; give another name to --bad-rows")


def write_bad_rows(rows: Iterable[BadRow], path: Place) -> None:
    """Write the rows in order, atomically."""
    ordered = sorted(rows, key=lambda bad: bad.row)
    with atomic_file(path) as building, building.open("w", encoding="utf-8", newline="") as file:
        if path.suffix.lower() == ".jsonl":
            file.writelines(json.dumps(asdict(bad), ensure_ascii=False) + "\n" for bad in ordered)
            return
        table = csv.writer(file, delimiter=_DELIMITERS[path.suffix.lower()], lineterminator="\n")
        table.writerow(_COLUMNS)
        table.writerows(asdict(bad).values() for bad in ordered)


def _holds_bad_rows(path: Place) -> bool:
    with path.open("rb") as file:
        header = file.readline(1 << 16).decode("utf-8", "replace").strip()
    if path.suffix.lower() in _DELIMITERS:
        return header.split(_DELIMITERS[path.suffix.lower()]) == list(_COLUMNS)
    try:
        return not header or tuple(json.loads(header)) == _COLUMNS
    except (ValueError, TypeError, RecursionError):
        return False
