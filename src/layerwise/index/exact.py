"""Exact search over a folder of vectors written by `layerwise embed`, or one file joined from it.

Vectors are compared by cosine, which suits most models, or by dot product.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.embed import VectorFiles
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.index.protocol import SIMILARITIES, Hits
from layerwise.registry import check_known

_ROWS = 65_536  # compared at a time


class ExactIndex:
    """Brute-force search over vectors in memory.

    Args:
        vectors: (rows, width).
        similarity: "cosine" or "dot".
        table: The carried columns, a pyarrow table with as many rows.
        settings: How the vectors were made: the folder's manifest.
    """

    def __init__(
        self, vectors: Array, *, similarity: str = "cosine", table: Any = None, settings: dict[str, Any] | None = None
    ) -> None:
        check_known(similarity, SIMILARITIES, "similarity of an index")
        self._vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        self._scales = _inverse_lengths(self._vectors) if similarity == "cosine" else None
        self._table = table
        self.similarity = similarity
        self.settings = settings or {}

    @classmethod
    def read(cls, path: str | Path, *, similarity: str = "cosine") -> "ExactIndex":
        """Read a folder of shards, or one *.parquet or *.npy file."""
        files = VectorFiles.of(path, unfinished=True)
        vectors, table = files.read()
        return cls(vectors, similarity=similarity, table=table, settings=files.settings)

    @property
    def width(self) -> int:
        """The length of a vector."""
        return int(self._vectors.shape[1])

    def __len__(self) -> int:
        return len(self._vectors)

    def search(self, queries: Array, k: int) -> Hits:
        """Return the k nearest vectors of each query (n, width), best first; ties go to the first row."""
        check_queries(queries, self.width)
        queries = unit(queries) if self._scales is not None else np.asarray(queries, dtype=np.float32)
        rows = np.empty((len(queries), 0), dtype=np.int64)
        scores = np.empty((len(queries), 0), dtype=np.float32)
        for start in range(0, len(self), _ROWS):
            part = slice(start, start + _ROWS)
            chunk_scores = queries @ self._vectors[part].T
            if self._scales is not None:
                chunk_scores = np.clip(chunk_scores * self._scales[part], -1, 1)  # rounding gives 1.0000001
            numbers = np.broadcast_to(np.arange(start, start + chunk_scores.shape[1]), chunk_scores.shape)
            rows, scores = best(np.hstack([rows, numbers]), np.hstack([scores, chunk_scores]), k)
        return Hits(rows, scores)

    def columns(self, row: int) -> dict[str, Any]:
        """Return the carried columns of a vector; `row` is its number in the input."""
        if self._table is None:
            return {}
        return {name: self._table.column(name)[row].as_py() for name in self._table.column_names}


def check_queries(queries: Array, width: int) -> None:
    """Raise for queries of another width."""
    if queries.ndim != 2 or queries.shape[1] != width:
        raise InputError(f"queries have the shape {queries.shape}; this index has vectors of {width} numbers")


def best(rows: NDArray[np.int64], scores: Array, k: int) -> tuple[NDArray[np.int64], Array]:
    """Return the k highest scores of each row, sorted."""
    if scores.shape[1] > k:
        part = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        rows, scores = np.take_along_axis(rows, part, axis=1), np.take_along_axis(scores, part, axis=1)
    order = np.lexsort((rows, -scores), axis=1)
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)


def unit(vectors: Array) -> Array:
    """Normalise vectors (n, width) to length 1; zero vectors stay zero."""
    return np.ascontiguousarray(vectors * _inverse_lengths(np.asarray(vectors, dtype=np.float32))[:, None])


def _inverse_lengths(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=1)
    return np.asarray(1 / np.maximum(lengths, 1e-12), dtype=np.float32)
