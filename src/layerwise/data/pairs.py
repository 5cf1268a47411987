"""Files of sentence pairs, graded or not: two texts and a number a row, with the row named in every error."""

import math
from dataclasses import dataclass

from layerwise.data.rows import Row, RowSource, text_of
from layerwise.errors import InputError

_FORM = "a pairs file has a text, another text and a number in each row"


@dataclass(frozen=True)
class PairRows:
    """The pairs of a file: `scores` is empty where none were asked for."""

    left: list[str]
    right: list[str]
    scores: list[float]

    def __len__(self) -> int:
        return len(self.left)


def read_pairs(
    path: str,
    columns: tuple[str, str],
    score: str | None,
    *,
    where: tuple[str, str] | None = None,
    format: str | None = None,
) -> PairRows:
    """All pairs of a file, in order.

    Args:
        path: CSV, TSV, JSONL or Parquet, told by its ending unless `format` says so.
        columns: The names of the two texts' columns; the same name twice reads one column for both.
        score: The name of the column that holds the number, or None.
        where: (column, value): only rows with this value.
        format: One of the formats of `layerwise.data.rows`.
    """
    names = (*columns, *((score,) if score else ()), *((where[0],) if where else ()))
    source = RowSource.of(path, names, format=format)
    pairs = PairRows([], [], [])
    for row in source:
        if where is not None and str(row.values[-1]) != where[1]:
            continue
        left, right = (_sentence(source, row, place) for place in (0, 1))
        pairs.left.append(left)
        pairs.right.append(right)
        if score:
            pairs.scores.append(_number(source, row))
    if not len(pairs):
        kept = f" with {where[0]} = {where[1]}" if where else ""
        raise InputError(f"{source.name}: no rows{kept}; {_FORM}")
    return pairs


def _sentence(source: RowSource, row: Row, place: int) -> str:
    text = text_of(source, row, place)
    if not text.strip():
        raise source.fail(row.place, f"column {source.columns[place]!r} is empty; fill it in or drop the row")
    return text


def _number(source: RowSource, row: Row) -> float:
    value = row.values[2]
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        shown = "null" if value is None else repr(value)
        raise source.fail(row.place, f"{source.columns[2]} {shown} is not a number; {_FORM}")
    return number
