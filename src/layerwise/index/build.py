"""Builds a FAISS index of any number of vectors and measures its recall on held-out rows.

The files are read twice: first the held-out rows and the training rows, then all rows, which are added and compared
with the held-out ones by brute force. The search gets the lowest effort that reaches the requested recall; then the
held-out rows are added too. The folder is written atomically.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.checksums import write_checksums
from layerwise.embed import VectorFiles, portable
from layerwise.encoder import Array, Progress, no_progress
from layerwise.errors import InputError
from layerwise.files import atomic_folder, new_mapped_array, write_json
from layerwise.index.exact import best, unit
from layerwise.index.faiss_index import COLUMNS, FACTS, INDEX, VECTORS, FaissIndex, IndexFacts
from layerwise.index.faiss_kinds import Kind, choose_kind, efforts, faiss_module, new_index, training_rows
from layerwise.index.protocol import SIMILARITIES
from layerwise.registry import check_known
from layerwise.stores import refuse_url

DEPTH = 10  # recall@10
_TRUTH = 100  # exact nearest rows stored per held-out row, so that rows with tied scores count as nearest
_TIE = 1e-6
_WRITTEN_BYTES = 1 << 20  # at once
_GROUP_ROWS = 1024  # of carried columns; a hit reads one group


@dataclass(frozen=True)
class BuildResult:
    """The result of a build: `effort` is the search setting, `recall` is recall@10 on `queries` held-out rows."""

    out: str
    kind: str
    rows: int
    width: int
    effort: int
    recall: float | None
    queries: int
    bytes: int
    seconds: float


def build_index(
    files: VectorFiles,
    out: str | Path,
    *,
    kind: str = "auto",
    similarity: str = "cosine",
    recall: float = 0.95,
    queries: int = 256,
    seed: int = 0,
    overwrite: bool = False,
    settings: dict[str, Any] | None = None,
    progress: Progress = no_progress,
) -> BuildResult:
    """Build an index of vectors in the folder `out`.

    Args:
        files: The vectors.
        out: The folder; an index that is there is replaced only with `overwrite`.
        kind: "flat", "hnsw", "ivf", "pq", or "auto" to choose by size.
        similarity: "cosine" or "dot".
        recall: The wanted recall@10, which sets the effort of a search.
        queries: How many rows are held out to measure it, a tenth of all at most.
        seed: Of the rows that are drawn.
        overwrite: Replace an index.
        settings: How the vectors were made, where their manifest does not say.
        progress: Called with numbers of rows as they are read, all of them twice.
    """
    check_known(similarity, SIMILARITIES, "similarity of an index")
    if not 0 < recall <= 1:
        raise InputError(f"recall {recall} is not possible; give a number above 0 and at most 1")
    chosen = choose_kind(kind, files.rows, files.width)
    refuse_url(out, "an index")
    place = Path(out).expanduser()
    check_out(place, overwrite=overwrite)
    start = time.perf_counter()
    building = _Building(files, chosen, similarity, min(queries, files.rows // 10), seed)
    with atomic_folder(place) as folder:
        folder.mkdir()
        building.add_all(folder, progress)
        effort, achieved = building.tune(recall)
        building.add_queries()
        facts: dict[str, Any] = {"kind": chosen.name, "rows": files.rows, "width": files.width, "effort": effort}
        facts |= {"similarity": similarity, "recall": achieved, "queries": len(building.query_rows)}
        facts["seconds"] = time.perf_counter() - start
        manifest = files.settings if settings is None else settings
        facts["embedded"] = portable(_without_files(manifest), place)
        IndexFacts(**facts)
        write_json(folder / FACTS, {"format": 1} | facts, indent=1)
        _write_faiss(building.index, folder / INDEX)
        write_checksums(folder)
        size = sum(path.stat().st_size for path in folder.iterdir())
    return BuildResult(
        str(out),
        chosen.name,
        files.rows,
        files.width,
        effort,
        achieved,
        len(building.query_rows),
        size,
        facts["seconds"],
    )


def check_out(place: Path, *, overwrite: bool) -> None:
    """Raise if the folder exists, unless it is empty or an index that may be replaced."""
    if not place.exists():
        return
    if not place.is_dir() or (any(place.iterdir()) and not (place / FACTS).is_file()):
        raise InputError(f"{place}: is there and no index, so it is not replaced; give another folder")
    if any(place.iterdir()) and not overwrite:
        raise InputError(f"{place}: holds an index; give another folder, or --overwrite")


def _without_files(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest without its entries about shard files."""
    return {key: value for key, value in manifest.items() if key not in ("shards", "checksums")}


class _Building:
    """An index under construction, and the rows that are held out as queries."""

    def __init__(self, files: VectorFiles, kind: Kind, similarity: str, queries: int, seed: int) -> None:
        self.files, self.kind, self.similarity, self._seed = files, kind, similarity, seed
        random = np.random.default_rng(seed)
        self.query_rows = np.sort(random.choice(files.rows, queries, replace=False))
        others = np.setdiff1d(np.arange(files.rows), self.query_rows)
        limit = training_rows(files.rows) if kind.is_trained else 0
        self._training = np.sort(random.choice(others, min(limit, len(others)), replace=False))
        self.index: Any = None
        self._vectors: Any = None
        self._queries: Array = np.empty((0, files.width), dtype=np.float32)
        self._rows: NDArray[np.int64] = np.empty((queries, 0), dtype=np.int64)
        self._scores: Array = np.empty((queries, 0), dtype=np.float32)

    def add_all(self, folder: Path, progress: Progress) -> None:
        """Run both passes over the files and add all but the held-out rows."""
        self._queries, training = self._read(progress)
        self.index = new_index(self.kind, self.files.width, self.files.rows, training, seed=self._seed)
        del training
        if self.kind.name == "pq":
            shape = (self.files.rows, self.files.width)
            self._vectors = new_mapped_array(folder / VECTORS, dtype=np.float16, shape=shape)
        with _columns_writer(folder / COLUMNS, self.files) as columns:
            for batch in self.files.batches():
                rows = np.arange(batch.start, batch.start + len(batch.vectors))
                vectors = self._prepared(batch.vectors)
                if self._vectors is not None:
                    self._vectors[rows] = vectors
                others = ~np.isin(rows, self.query_rows)
                self.index.add_with_ids(vectors[others], rows[others])
                self._compare(rows[others], vectors[others])
                if columns is not None:
                    columns.write_table(batch.table, row_group_size=_GROUP_ROWS)
                progress(len(rows))
        if self._vectors is not None:
            self._vectors.flush()

    def tune(self, target: float) -> tuple[int, float | None]:
        """Return the lowest effort that reaches the requested recall, or the highest effort, with its recall."""
        depth = min(DEPTH, self._rows.shape[1])
        steps = efforts(self.index, self.kind)
        if not depth:
            return steps[min(2, len(steps) - 1)], None
        recall = 0.0
        for effort in steps:
            recall = self._recall(effort, depth)
            if recall >= target:
                return effort, recall
        return steps[-1], recall

    def add_queries(self) -> None:
        """Add the held-out rows."""
        if len(self.query_rows):
            self.index.add_with_ids(self._queries, self.query_rows)

    def _read(self, progress: Progress) -> tuple[Array, Array]:
        """Read the held-out rows and the training rows."""
        queries, training = [self._queries], [self._queries]
        for batch in self.files.batches():
            vectors, end = self._prepared(batch.vectors), batch.start + len(batch.vectors)
            for rows, parts in ((self.query_rows, queries), (self._training, training)):
                parts.append(vectors[rows[(rows >= batch.start) & (rows < end)] - batch.start])
            progress(len(vectors))
        return np.concatenate(queries), np.concatenate(training)

    def _prepared(self, vectors: Array) -> Array:
        return unit(vectors) if self.similarity == "cosine" else np.ascontiguousarray(vectors)

    def _compare(self, rows: NDArray[np.int64], vectors: Array) -> None:
        """Update the exact nearest rows of each held-out row."""
        if not len(self.query_rows):
            return
        scores = self._queries @ vectors.T
        numbers = np.broadcast_to(rows, scores.shape)
        self._rows, self._scores = best(np.hstack([self._rows, numbers]), np.hstack([self._scores, scores]), _TRUTH)

    def _recall(self, effort: int, depth: int) -> float:
        facts = IndexFacts(
            kind=self.kind.name,  # type: ignore[arg-type]
            rows=self.files.rows,
            width=self.files.width,
            similarity="dot",  # the queries are prepared already
            effort=effort,
            recall=None,
            queries=0,
            seconds=0.0,
            embedded={},
        )
        hits = FaissIndex(self.index, facts, vectors=self._vectors).search(self._queries, depth).rows
        return recall_at(hits, self._rows, self._scores, depth)


def recall_at(hits: NDArray[np.int64], rows: NDArray[np.int64], scores: Array, depth: int) -> float:
    """Return the share of hits (n, depth) among the nearest rows (n, many), sorted by score; ties count as nearest."""
    nearest = scores >= scores[:, depth - 1 : depth] - _TIE
    recalls = [np.isin(hits[query], rows[query][nearest[query]]).mean() for query in range(len(hits))]
    return float(np.mean(recalls))


def _write_faiss(index: Any, path: Path) -> None:
    """Write FAISS's file. Its own writer only prints a message if the disk is full when the file is closed."""
    faiss, failures = faiss_module(), list[OSError]()
    with path.open("wb") as file:

        def write(block: bytes) -> None:
            try:
                file.write(b"" if failures else block)
            except OSError as error:  # an exception here would be printed
                failures.append(error)

        faiss.write_index(index, faiss.PyCallbackIOWriter(write, _WRITTEN_BYTES))
        if failures:
            raise failures[0]


def _columns_writer(path: Path, files: VectorFiles) -> Any:
    """Open a Parquet writer of the carried columns; a null context for arrays, which have none."""
    from contextlib import nullcontext

    if not files.columns:
        return nullcontext()
    import pyarrow.parquet as pq

    schema = next(iter(files.batches(rows=1))).table.schema
    return pq.ParquetWriter(path, schema, write_page_checksum=True)
