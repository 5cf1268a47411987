"""A FAISS index in a folder: index.json (how it was made), index.faiss, columns.parquet, and for PQ vectors.npy.

A folder may be untrusted. Before FAISS reads its file, checksums, kind and sizes are compared with index.json, and
FAISS may allocate no more than the file's size (and PQ's table); afterwards the ids and offsets of its graph or
lists are validated.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from layerwise.checksums import CHECKSUMS, changed_files
from layerwise.embed import resolved
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.files import read_json
from layerwise.index.exact import check_queries, unit
from layerwise.index.faiss_kinds import KINDS, Kind, faiss_module, inner, set_effort, table_bytes
from layerwise.index.protocol import Hits
from layerwise.settings import Settings, parse_settings

FACTS, INDEX, COLUMNS, VECTORS = "index.json", "index.faiss", "columns.parquet", "vectors.npy"
_REMEDY = "build it again by `layerwise index build`"
_CANDIDATES = 10  # of PQ per hit, re-ranked by their float16 vectors
_GROUPS_CACHED = 64  # row groups of carried columns
_INNER = 37  # bytes of the id map's header, which the index itself follows


class IndexFacts(Settings):
    """The contents of index.json."""

    label: ClassVar[str] = "index:"
    format: Literal[1] = 1
    kind: Literal["flat", "hnsw", "ivf", "pq"]
    rows: int = Field(ge=1)
    width: int = Field(ge=1)
    similarity: Literal["cosine", "dot"]
    effort: int = Field(ge=1)
    recall: float | None
    queries: int
    seconds: float
    embedded: dict[str, Any]


class FaissIndex:
    """An index written by `layerwise index build`.

    Args:
        index: A FAISS IndexIDMap.
        facts: The contents of index.json.
        table: A Parquet file of carried columns, or None.
        vectors: (rows, width), to re-rank the candidates of PQ.
    """

    def __init__(self, index: Any, facts: IndexFacts, *, table: Path | None = None, vectors: Any = None) -> None:
        self.facts, self.width, self.settings = facts, facts.width, facts.embedded
        self.kind = KINDS[facts.kind]
        self._index = index
        self._vectors = vectors
        self._columns = None if table is None else _Columns(table, facts.rows)
        set_effort(index, self.kind, facts.effort)

    @classmethod
    def read(cls, folder: str | Path) -> "FaissIndex":
        """Read a folder; raise if it is damaged or inconsistent."""
        place = Path(folder).expanduser()
        facts = parse_settings(IndexFacts, read_json(place / FACTS, remedy=_REMEDY), file=str(place / FACTS))
        _check_files(place, facts)
        facts = facts.model_copy(update={"embedded": resolved(facts.embedded, place)})
        index = _read_faiss(place / INDEX, facts)
        vectors = _read_vectors(place / VECTORS, facts) if facts.kind == "pq" else None
        table = place / COLUMNS
        return cls(index, facts, table=table if table.is_file() else None, vectors=vectors)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, queries: Array, k: int) -> Hits:
        """Return the (approximately) k nearest vectors of each query (n, width), best first."""
        check_queries(queries, self.width)
        queries = unit(queries) if self.facts.similarity == "cosine" else np.ascontiguousarray(queries, np.float32)
        k = min(k, len(self))
        if self._vectors is None:
            scores, rows = self._nearest(queries, k)
        else:
            _, candidates = self._nearest(queries, min(len(self), max(_CANDIDATES * k, 100)))
            near = self._vectors[candidates].astype(np.float32)
            rows, scores = candidates, np.einsum("qcd,qd->qc", near, queries)
        if self.facts.similarity == "cosine":
            scores = np.clip(scores, -1, 1)  # rounding gives cosines of 1.0000001
        order = np.lexsort((rows, -scores), axis=1)[:, :k]
        return Hits(np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1))

    def columns(self, row: int) -> dict[str, Any]:
        """Return the carried columns of a vector; `row` is its number in the input."""
        return {} if self._columns is None else self._columns[row]

    def _nearest(self, queries: Array, k: int) -> tuple[Array, Any]:
        """Search by FAISS; repeat a query exhaustively if few lists or part of the graph gave fewer than k results."""
        effort = max(self.facts.effort, k) if self.kind.effort == "efSearch" else self.facts.effort
        set_effort(self._index, self.kind, effort)
        scores, rows = self._index.search(queries, k)
        incomplete = (rows < 0).any(axis=1)
        if incomplete.any():
            scores[incomplete], rows[incomplete] = self._search_exhaustively(queries[incomplete], k)
        return scores, rows

    def _search_exhaustively(self, queries: Array, k: int) -> tuple[Array, Any]:
        if self.kind.effort == "nprobe":
            set_effort(self._index, self.kind, int(inner(self._index).nlist))
            return self._index.search(queries, k)  # type: ignore[no-any-return]
        graph = inner(self._index)
        scores, positions = faiss_module().downcast_index(graph.storage).search(queries, k)
        return scores, faiss_module().vector_to_array(self._index.id_map)[positions]


class _Columns:
    """Rows of a Parquet file by number; an LRU cache holds some row groups."""

    def __init__(self, path: Path, rows: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._path = path
        try:
            self._file = pq.ParquetFile(path, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}: is damaged: {error}; {_REMEDY}") from error
        head = self._file.metadata
        sizes = [head.row_group(group).num_rows for group in range(head.num_row_groups)]
        if sum(sizes) != rows:
            raise InputError(f"{path}: has {sum(sizes)} rows, the index {rows}; {_REMEDY}")
        self._ends = np.cumsum(sizes)
        self._group = lru_cache(_GROUPS_CACHED)(self._read)

    def __getitem__(self, row: int) -> dict[str, Any]:
        group = int(np.searchsorted(self._ends, row, side="right"))
        place = row - (int(self._ends[group - 1]) if group else 0)
        record: dict[str, Any] = self._group(group).slice(place, 1).to_pylist()[0]
        return record

    def _read(self, group: int) -> Any:
        import pyarrow as pa

        try:
            return self._file.read_row_group(group)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self._path}: is damaged: {error}; {_REMEDY}") from error


def _check_files(place: Path, facts: IndexFacts) -> None:
    """Raise if a file differs from its checksum."""
    checksums = read_json(place / CHECKSUMS, remedy=_REMEDY)
    names = [INDEX, FACTS] + [VECTORS] * (facts.kind == "pq") + [COLUMNS] * (place / COLUMNS).exists()
    for name in names:
        if name not in checksums:
            raise InputError(f"{place / name}: has no checksum in {CHECKSUMS}; {_REMEDY}")
    for name in changed_files(place):
        raise InputError(f"{place / name}: is missing or damaged: its checksum differs; {_REMEDY}")


def _read_faiss(path: Path, facts: IndexFacts) -> Any:
    """Read FAISS's file; raise if it does not match index.json."""
    faiss, kind = faiss_module(), KINDS[facts.kind]
    with path.open("rb") as file:
        head = file.read(_INNER + 4)
    shape = (int.from_bytes(head[4:8], "little"), int.from_bytes(head[8:16], "little"))
    if head[:4] != b"IxMp" or head[_INNER:] != kind.letters or shape != (facts.width, facts.rows):
        raise InputError(f"{path}: is no {kind.name} index of {facts.rows} vectors of {facts.width} numbers; {_REMEDY}")
    limits = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
    size = path.stat().st_size + 1 + table_bytes(kind, facts.rows, facts.width)
    try:
        faiss.set_deserialization_vector_byte_limit(size)
        faiss.set_deserialization_loop_limit(size)
        index = faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"{path}: FAISS cannot read it: {str(error).splitlines()[0]}; {_REMEDY}") from error
    finally:
        faiss.set_deserialization_vector_byte_limit(limits[0])
        faiss.set_deserialization_loop_limit(limits[1])
    fault = _fault(index, kind, facts)
    if fault:
        raise InputError(f"{path}: {fault}; {_REMEDY}")
    return index


def _fault(index: Any, kind: Kind, facts: IndexFacts) -> str:
    """Describe an inconsistency that could break a search; empty if there is none."""
    faiss, within = faiss_module(), inner(index)
    ids = np.sort(faiss.vector_to_array(index.id_map))
    if type(within).__name__ != kind.class_name or within.metric_type != faiss.METRIC_INNER_PRODUCT:
        return f"holds {type(within).__name__}, not {kind.class_name} of inner products"
    if (within.d, within.ntotal, len(ids)) != (facts.width, facts.rows, facts.rows):
        return "its parts differ in size"
    if not np.array_equal(ids, np.arange(facts.rows)):
        return "its row numbers are not those of its rows"
    if kind.name == "hnsw":
        return _graph_fault(within, facts)
    return _lists_fault(within, facts) if kind.is_trained else ""


def _graph_fault(index: Any, facts: IndexFacts) -> str:
    faiss, graph = faiss_module(), index.hnsw
    neighbours, offsets, levels, per_level = (
        faiss.vector_to_array(array)
        for array in (graph.neighbors, graph.offsets, graph.levels, graph.cum_nneighbor_per_level)
    )
    rows, storage = facts.rows, faiss.downcast_index(index.storage)
    if type(storage).__name__ != "IndexFlatIP" or (storage.ntotal, storage.d) != (rows, facts.width):
        return "its graph has other vectors"
    if len(levels) != rows or len(offsets) != rows + 1 or levels.min() < 1 or levels.max() >= len(per_level):
        return "its graph has other rows"
    if not np.array_equal(np.diff(offsets.astype(np.int64)), per_level[levels]) or offsets[0] != 0:
        return "its graph has gaps"
    if offsets[-1] != len(neighbours) or neighbours.min() < -1 or neighbours.max() >= rows:
        return "its graph leads to rows that are not there"
    if not 0 <= graph.entry_point < rows or graph.max_level != levels[graph.entry_point] - 1:
        return "its graph has no entry"
    return ""


def _lists_fault(index: Any, facts: IndexFacts) -> str:
    faiss = faiss_module()
    coarse, lists = faiss.downcast_index(index.quantizer), index.invlists
    if type(coarse).__name__ != "IndexFlatIP" or (coarse.ntotal, coarse.d) != (index.nlist, facts.width):
        return "its lists have other centres"
    sizes = [lists.list_size(number) for number in range(index.nlist)]
    if lists.nlist != index.nlist or sum(sizes) != facts.rows or lists.code_size != index.code_size:
        return "its lists have other rows"
    for number, size in enumerate(sizes):
        ids = faiss.rev_swig_ptr(lists.get_ids(number), size) if size else np.zeros(1)
        if ids.min() < 0 or ids.max() >= facts.rows:
            return "its lists lead to rows that are not there"
    if facts.kind == "pq" and (index.pq.d != facts.width or index.pq.centroids.size() != index.pq.ksub * index.pq.d):
        return "its codes are of other vectors"
    return ""


def _read_vectors(path: Path, facts: IndexFacts) -> Any:
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: is damaged: {error}; {_REMEDY}") from error
    if vectors.shape != (facts.rows, facts.width) or vectors.dtype != np.float16:
        raise InputError(f"{path}: holds {vectors.dtype} {vectors.shape}, not the vectors of the index; {_REMEDY}")
    return vectors
