"""Exact search over a folder of vectors that `layerwise embed` wrote, or over one file joined from it.

Vectors are compared by cosine, as most models are meant, or by the dot product.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.files import read_json
from layerwise.index.protocol import Hits
from layerwise.model import LayerModel
from layerwise.registry import check_known

SIMILARITIES = ("cosine", "dot")
_MANIFEST = "_embed.json"
_ROWS = 65_536  # that are compared at a time
_REMEDY = "write it by `layerwise embed`"


class ExactIndex:
    """All vectors in memory, compared one by one.

    Args:
        vectors: (rows, width).
        similarity: "cosine" or "dot".
        table: What was carried along, a pyarrow table with as many rows.
        settings: How the vectors were made, as the folder's manifest has it.
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
        place = Path(path).expanduser()
        shards = sorted(place.glob("part-*")) if place.is_dir() else [place]
        shards = [shard for shard in shards if shard.suffix in (".parquet", ".npy") and shard.is_file()]
        if not shards:
            raise InputError(f"{place}: holds no vectors (*.parquet or *.npy); {_REMEDY}")
        manifest = place / _MANIFEST
        settings = read_json(manifest, remedy=_REMEDY) if manifest.is_file() else {}
        if all(shard.suffix == ".npy" for shard in shards):
            return cls(_read_npy(shards), similarity=similarity, settings=settings)
        vectors, table = _read_parquet(shards)
        return cls(vectors, similarity=similarity, table=table, settings=settings)

    @property
    def width(self) -> int:
        """The length of a vector."""
        return int(self._vectors.shape[1])

    def __len__(self) -> int:
        return len(self._vectors)

    def model_of(self, model: LayerModel) -> LayerModel | None:
        """The model, or its encoder with another mix, that made the vectors; None where it is another one.

        It may have made them with another backend. Without a manifest only the length of a vector is known.
        """
        if "model" not in self.settings:
            return model if model.width == self.width else None
        for candidate in (model, model.with_mix(str(self.settings["mix"]))):
            if candidate.digest(self.settings.get("backend")) == self.settings["model"]:
                return candidate
        return None

    def search(self, queries: Array, k: int) -> Hits:
        """The k nearest vectors of each query (n, width), best first; of equal ones the first row."""
        if queries.ndim != 2 or queries.shape[1] != self.width:
            raise InputError(f"queries have the shape {queries.shape}; this index has vectors of {self.width} numbers")
        queries = np.asarray(queries, dtype=np.float32)
        if self._scales is not None:
            queries = queries * _inverse_lengths(queries)[:, None]
        rows = np.empty((len(queries), 0), dtype=np.int64)
        scores = np.empty((len(queries), 0), dtype=np.float32)
        for start in range(0, len(self), _ROWS):
            part = slice(start, start + _ROWS)
            found = queries @ self._vectors[part].T
            if self._scales is not None:
                found *= self._scales[part]
            numbers = np.broadcast_to(np.arange(start, start + found.shape[1]), found.shape)
            rows, scores = _best(np.hstack([rows, numbers]), np.hstack([scores, found]), k)
        return Hits(rows, scores)

    def columns(self, row: int) -> dict[str, Any]:
        """What was carried along with a vector; `row` there is its number in the input."""
        if self._table is None:
            return {}
        return {name: self._table.column(name)[row].as_py() for name in self._table.column_names}


def _best(rows: NDArray[np.int64], scores: Array, k: int) -> tuple[NDArray[np.int64], Array]:
    """The k highest of each row, sorted."""
    if scores.shape[1] > k:
        part = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        rows, scores = np.take_along_axis(rows, part, axis=1), np.take_along_axis(scores, part, axis=1)
    order = np.lexsort((rows, -scores), axis=1)
    return np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1)


def _inverse_lengths(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=1)
    return np.asarray(1 / np.maximum(lengths, 1e-12), dtype=np.float32)


def _read_npy(shards: list[Path]) -> Array:
    try:
        return np.concatenate([np.load(shard, allow_pickle=False) for shard in shards]).astype(np.float32)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{shards[0].parent}: an array of vectors is damaged: {error}; {_REMEDY}") from error


def _read_parquet(shards: list[Path]) -> tuple[Array, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pa.concat_tables([pq.read_table(shard).replace_schema_metadata(None) for shard in shards])
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{shards[0].parent}: a Parquet file is damaged: {error}; {_REMEDY}") from error
    if "embedding" not in table.column_names:
        raise InputError(f"{shards[0]}: has no column embedding; {_REMEDY}")
    column = table.column("embedding").combine_chunks()
    width = column.type.list_size if pa.types.is_fixed_size_list(column.type) else 0
    if not width:
        raise InputError(f"{shards[0]}: the column embedding is {column.type}, not lists of one length; {_REMEDY}")
    vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    return vectors, table.drop_columns(["embedding"])
