"""A table of the scores of all searched sets, sorted on request."""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from layerwise.errors import InputError, LayerwiseError
from layerwise.files import atomic_file, check_writable
from layerwise.mixes import Mean
from layerwise.search.problems import Rows, Scores
from layerwise.search.scored import Scored
from layerwise.search.spaces import Masks, highest_layers, layers_of, mask_of

if TYPE_CHECKING:
    from pandas import DataFrame

_DIGITS = 12  # scores that agree in this many digits are equal: then fewer and lower layers win
_TOLERANCE = 10.0**-_DIGITS
_FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")


class ScoreTable(Sequence[Scored]):
    """All scored sets, best first: `table[0]` is the best. The order is computed when it is first needed.

    Args:
        parts: The masks and scores of each token pooling.
    """

    def __init__(self, parts: Mapping[str, tuple[Masks, Scores]]) -> None:
        self.poolings = tuple(parts)
        self._offsets = np.cumsum([0, *(len(masks) for masks, _ in parts.values())])
        self.masks = _joined([masks for masks, _ in parts.values()])
        self.scores = _joined([scores for _, scores in parts.values()])
        self._order: np.ndarray[Any, np.dtype[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self.masks)

    @overload
    def __getitem__(self, place: int) -> Scored: ...

    @overload
    def __getitem__(self, place: slice) -> list[Scored]: ...

    def __getitem__(self, place: int | slice) -> Scored | list[Scored]:
        if isinstance(place, slice):
            return [self.at(int(row)) for row in self._ordered[place]]
        return self.at(int(self._ordered[place]))

    def __iter__(self) -> Iterator[Scored]:
        return (self.at(int(row)) for row in self._ordered)

    @property
    def best(self) -> Scored:
        """The best set; of equally good ones the set with the fewest, then the lowest layers."""
        if not len(self) or np.isnan(self.scores).all():
            raise InputError("No set has a score: all pairs are equally similar in every layer")
        top = np.flatnonzero(self.scores >= np.nanmax(self.scores) - 2 * _TOLERANCE)  # `best_row` decides
        return self.at(self.best_row(top))

    def best_row(self, rows: np.ndarray[Any, np.dtype[np.int64]]) -> int:
        """The best of the rows, by the same order."""
        scores = np.where(np.isnan(self.scores[rows]), -np.inf, np.round(self.scores[rows], _DIGITS))
        equal = rows[scores == scores.max()]
        sizes, masks = np.bitwise_count(self.masks[equal]), self.masks[equal]
        return int(equal[np.lexsort((masks, highest_layers(masks), sizes))[0]])

    def best_rows(self, count: int) -> Rows:
        """The rows of the best sets, in the order of the search."""
        scores = np.where(np.isnan(self.scores), -np.inf, self.scores)
        return np.arange(len(self)) if len(self) <= count else np.sort(np.argpartition(-scores, count)[:count])

    def at(self, row: int) -> Scored:
        """The set at a row, in the order of the search."""
        pooling = self.poolings[int(np.searchsorted(self._offsets, row, side="right")) - 1]
        return Scored(Mean.of(*layers_of(int(self.masks[row])), pooling=pooling), float(self.scores[row]))

    def score_of(self, layers: Sequence[int], pooling: str | None = None) -> float:
        """The score of one set."""
        name = pooling or self.poolings[0]
        if name not in self.poolings:
            raise InputError(f"{name!r} was not searched; these were: {', '.join(self.poolings)}")
        masks, scores = self.column(name)
        rows = np.flatnonzero(masks == np.uint64(mask_of(layers)))
        if not len(rows):
            raise InputError(f"Layers {','.join(map(str, layers))} are not in the space that was searched")
        return float(scores[rows[0]])

    def rows_of(self, pooling: str) -> slice:
        """The rows of one token pooling."""
        place = self.poolings.index(pooling)
        return slice(int(self._offsets[place]), int(self._offsets[place + 1]))

    def column(self, pooling: str) -> tuple[Masks, Scores]:
        """The sets of one token pooling and their scores."""
        part = self.rows_of(pooling)
        return self.masks[part], self.scores[part]

    def front(self) -> list[Scored]:
        """The Pareto front of score against highest layer: each is better than all sets of fewer blocks."""
        highest, front, threshold = highest_layers(self.masks), list[Scored](), -np.inf
        for layer in range(int(highest.max()) + 1):
            rows = np.flatnonzero((highest == layer) & ~np.isnan(self.scores))
            if len(rows) and self.scores[rows].max() > threshold + _TOLERANCE:
                best = self.at(self.best_row(rows))
                threshold = best.dev
                front.append(best)
        return front

    def to_pandas(self) -> "DataFrame":
        """All sets, best first, as a data frame with the columns layers, pooling and score."""
        if find_spec("pandas") is None:
            raise LayerwiseError("ScoreTable.to_pandas needs pandas: pip install pandas")
        import pandas as pd

        return pd.DataFrame(self._columns())

    def write(self, path: str | Path) -> None:
        """Write all sets, best first, as CSV, TSV, JSONL or Parquet by the file extension."""
        target = Path(path)
        check_table_path(target)
        columns = self._columns()
        columns["score"] = [None if isnan(score) else score for score in columns["score"]]
        with atomic_file(target) as building:
            _write(building, columns)

    def __repr__(self) -> str:
        if not len(self) or np.isnan(self.scores).all():
            return f"ScoreTable({len(self):,} sets, none with a score)"
        best = self.best
        return f"ScoreTable({len(self):,} sets, the best {best.mix} with {best.dev:.4g})"

    def _columns(self) -> dict[str, list[Any]]:
        return {
            "layers": [",".join(map(str, layers_of(int(mask)))) for mask in self.masks[self._ordered]],
            "pooling": [
                self.poolings[place] for place in np.searchsorted(self._offsets, self._ordered, side="right") - 1
            ],
            "score": self.scores[self._ordered].astype(float).tolist(),
        }

    @property
    def _ordered(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        if self._order is None:
            negated = np.where(np.isnan(self.scores), np.inf, -np.round(self.scores, _DIGITS))
            sizes = np.bitwise_count(self.masks)
            self._order = np.lexsort((self.masks, highest_layers(self.masks), sizes, negated))
        return self._order


def check_table_path(target: Path) -> None:
    """Refuse a file that cannot be written or has an unknown extension, before any work is done."""
    if target.suffix.lower() not in _FORMATS:
        raise InputError(f"{target}: a table is written as {', '.join(_FORMATS)}; give a file with such an ending")
    check_writable(target)


def _joined(arrays: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _write(path: Path, columns: dict[str, list[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pa.table(columns)
    kind = path.suffix.lower()
    if kind == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif kind == ".jsonl":
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in table.to_pylist())
    else:
        options = pyarrow.csv.WriteOptions(delimiter="," if kind == ".csv" else "\t")
        pyarrow.csv.write_csv(table, path, options)
