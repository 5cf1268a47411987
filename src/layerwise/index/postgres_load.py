"""Loads vectors into PostgreSQL: binary COPY in batches, upsert by id, one HNSW index at the end.

Every batch is one transaction that also records the progress of the load. So a lost connection loses and duplicates
nothing: the load reconnects and continues, and so does the same command after any interruption. The record is removed
at the very end, so that a load that is killed while the table is indexed or tuned does not copy its rows again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from layerwise.digests import file_sha256, json_digest
from layerwise.embed import VectorBatch, VectorFiles, portable
from layerwise.encoder import Progress, no_progress
from layerwise.errors import InputError
from layerwise.index.postgres_index import PostgresIndex, operator_class
from layerwise.index.postgres_rows import column_types, register_halfvec, rows_of
from layerwise.index.postgres_table import (
    MOST_NUMBERS,
    TableAddress,
    TableFacts,
    comment,
    connect,
    first_line,
    one_line_errors,
    read_facts,
    require_psycopg,
)
from layerwise.index.protocol import SIMILARITIES
from layerwise.registry import check_known

if TYPE_CHECKING:
    from psycopg import Connection

_T = TypeVar("_T")
BATCH_ROWS = 2000  # per transaction
_REMEDY = "correct that, then run the same command again, which resumes"
_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before each reconnection
_TUNING_QUERIES = 64
DEPTH = 10  # recall@10
_EFFORTS = (40, 80, 160, 320, 640, 1000)


@dataclass(frozen=True)
class LoadResult:
    """A finished load: rows written now and by an interrupted run, and how the table is searched.

    `recall` is recall@10 against exact search, on `queries` means of two rows each, at the search setting `effort`.
    """

    table: str
    rows: int
    resumed: int
    width: int
    effort: int
    recall: float | None
    queries: int
    reconnected: int
    seconds: float


def load_vectors(
    files: VectorFiles,
    to: str,
    *,
    id_column: str | None = None,
    similarity: str = "cosine",
    recall: float = 0.95,
    settings: dict[str, Any] | None = None,
    waits: tuple[float, ...] = _WAITS,
    progress: Progress = no_progress,
) -> LoadResult:
    """Load vectors into a table, which is created or must have the same model, width and columns.

    Args:
        files: The vectors.
        to: The table: `postgresql://[user@]host[:port]/database/table`.
        id_column: The carried column whose values tell rows apart; without, the number of the row in the input.
        similarity: "cosine" or "dot".
        recall: The wanted recall@10, which sets the effort of a search.
        settings: How the vectors were made, where their manifest does not say.
        waits: Seconds to wait before each reconnection.
        progress: Called with numbers of rows as they are written.
    """
    require_psycopg()
    check_known(similarity, SIMILARITIES, "similarity of an index")
    address, start = TableAddress.parse(to), time.perf_counter()
    if files.width > MOST_NUMBERS:
        raise InputError(f"{files.place}: vectors of {files.width} numbers; pgvector's index takes {MOST_NUMBERS}")
    expected = _table_facts(files, id_column, similarity, files.settings if settings is None else settings)
    load = _Load(files, address, expected, waits)
    load.run(load.prepare)
    load.run(lambda connection: load.copy(connection, progress))
    load.run(load.index)
    tuned = load.run(lambda connection: _tune(connection, address, recall))
    load.run(lambda connection: load.finish(connection, tuned))
    return LoadResult(
        address.shown,
        files.rows - (load.resumed or 0),
        load.resumed or 0,
        files.width,
        tuned.effort,
        tuned.recall,
        tuned.queries,
        load.reconnected,
        time.perf_counter() - start,
    )


def _table_facts(files: VectorFiles, id_column: str | None, similarity: str, manifest: dict[str, Any]) -> TableFacts:
    """Return the facts that the table must record."""
    types = column_types(files)
    id_column = id_column or "row"
    if id_column not in types:
        raise InputError(
            f"{files.place}: has no column {id_column!r} for --id; it has {', '.join(types)}: carry it along by "
            f"`layerwise embed --keep {id_column}`"
        )
    embedded = portable({key: manifest[key] for key in manifest if key not in ("shards", "checksums")}, None)
    return TableFacts(
        width=files.width,
        similarity=similarity,  # type: ignore[arg-type]
        id=id_column,
        columns=types,
        embedded=embedded,
    )


@dataclass(frozen=True)
class _Tuned:
    """The lowest effort that reaches the requested recall@10, and the recall measured on so many queries."""

    effort: int
    recall: float | None
    queries: int


class _Load:
    """One load, over any number of connections."""

    def __init__(
        self, files: VectorFiles, address: TableAddress, expected: TableFacts, waits: tuple[float, ...]
    ) -> None:
        self.files, self.address, self.expected, self._waits = files, address, expected, waits
        self.key = _digest(files)
        self.reconnected = 0
        self.resumed: int | None = None

    def run(self, step: Callable[["Connection[Any]"], _T]) -> _T:
        """Run a step on a new connection; if that is lost, repeat the step on another."""
        import psycopg

        waits = iter(self._waits)
        while True:
            try:
                with connect(self.address) as connection, one_line_errors(self.address, _REMEDY):
                    return step(connection)
            except (psycopg.OperationalError, InputError) as error:
                if isinstance(error, InputError) and not (self.reconnected and "cannot connect" in str(error)):
                    raise
                wait = next(waits, None)
                if wait is None:
                    raise InputError(
                        f"{self.address.shown}: the connection was lost: {first_line(error)}; what was loaded is kept: "
                        f"run the same command again, which resumes"
                    ) from error
                self.reconnected += 1
                time.sleep(wait)

    def prepare(self, connection: "Connection[Any]") -> None:
        """Create the table, or check that the existing one matches."""
        from psycopg.sql import SQL, Identifier

        with connection.transaction():
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            facts = read_facts(connection, self.address)
            if facts is not None:
                _check_same(self.address, facts, self.expected)
                return
            columns = SQL(", ").join(
                SQL("{} {}").format(Identifier(name), SQL(kind)) for name, kind in self.expected.columns.items()
            )
            connection.execute(
                SQL("CREATE TABLE {} ({}, embedding halfvec({}) NOT NULL, PRIMARY KEY ({}))").format(
                    self.address.identifier, columns, SQL(str(self.files.width)), Identifier(self.expected.id)
                )
            )
            connection.execute(comment(self.address, self.expected))

    def copy(self, connection: "Connection[Any]", progress: Progress) -> None:
        """Write all rows that are not in the table yet."""
        with connection.transaction():
            self._lock(connection)  # waits for the last batch of a lost connection, which the server may still commit
            done = self._facts(connection).loading.get(self.key, 0)
        if self.resumed is None:
            self.resumed = done
            progress(done)
        register_halfvec(connection)
        for batch in self.files.batches(rows=BATCH_ROWS, start=done):
            self._write(connection, batch)
            progress(len(batch.vectors))

    def index(self, connection: "Connection[Any]") -> None:
        """Create the HNSW index."""
        from psycopg.sql import SQL

        with connection.transaction():
            self._lock(connection)
            connection.execute(
                SQL("CREATE INDEX IF NOT EXISTS {} ON {} USING hnsw (embedding {})").format(
                    self.address.index_identifier(),
                    self.address.identifier,
                    SQL(operator_class(self.expected.similarity)),
                )
            )
        connection.execute(SQL("ANALYZE {}").format(self.address.identifier))

    def finish(self, connection: "Connection[Any]", tuned: _Tuned) -> None:
        """Record how the table is searched, and remove the record of the load's progress."""
        with connection.transaction():
            self._lock(connection)
            facts = self._facts(connection)
            loading = {key: rows for key, rows in facts.loading.items() if key != self.key}
            changed = {"effort": tuned.effort, "recall": tuned.recall, "loading": loading}
            connection.execute(comment(self.address, facts.model_copy(update=changed)))

    def _write(self, connection: "Connection[Any]", batch: VectorBatch) -> None:
        """Write one batch and record it. Of rows with the same id, the last one is kept."""
        from psycopg.sql import SQL, Identifier

        names = [*self.expected.columns, "embedding"]
        columns = SQL(", ").join(map(Identifier, names))
        updates = SQL(", ").join(
            SQL("{0} = EXCLUDED.{0}").format(Identifier(name)) for name in names if name != self.expected.id
        )
        with connection.transaction():
            self._lock(connection)
            facts = self._facts(connection)
            if facts.loading.get(self.key, 0) != batch.start:
                raise InputError(f"{self.address.shown}: the same vectors are being loaded by another run; wait for it")
            connection.execute(
                SQL("CREATE TEMP TABLE layerwise_batch (LIKE {}) ON COMMIT DROP").format(self.address.identifier)
            )
            statement = SQL("COPY layerwise_batch ({}) FROM STDIN (FORMAT BINARY)").format(columns)
            with connection.cursor().copy(statement) as copy:
                copy.set_types([*self.expected.columns.values(), "halfvec"])
                for row in rows_of(self.files, batch, self.expected.columns):
                    copy.write_row(row)
            connection.execute(
                SQL(
                    "INSERT INTO {0} ({1}) SELECT DISTINCT ON ({2}) {1} FROM layerwise_batch ORDER BY {2}, row DESC "
                    "ON CONFLICT ({2}) DO UPDATE SET {3}"
                ).format(self.address.identifier, columns, Identifier(self.expected.id), updates)
            )
            loading = facts.loading | {self.key: batch.start + len(batch.vectors)}
            connection.execute(comment(self.address, facts.model_copy(update={"loading": loading})))

    def _lock(self, connection: "Connection[Any]") -> None:
        """Lock the table against other writers; readers are not blocked."""
        from psycopg.sql import SQL

        connection.execute(SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(self.address.identifier))

    def _facts(self, connection: "Connection[Any]") -> TableFacts:
        facts = read_facts(connection, self.address)
        if facts is None:
            raise InputError(f"{self.address.shown}: the table was dropped; run the same command again")
        return facts


def _digest(files: VectorFiles) -> str:
    """Return the digest that identifies a load of these vectors when it is resumed."""
    checksums = files.settings.get("checksums")
    return json_digest(checksums or {part.name: file_sha256(part) for part in files.parts})[:16]


def _check_same(address: TableAddress, actual: TableFacts, expected: TableFacts) -> None:
    """Raise if the table has other vectors."""
    if actual.embedded.get("model") != expected.embedded.get("model"):
        raise InputError(f"{address.shown}: holds vectors of another model; give another table")
    for name in ("normalize", "truncate_dim", "prompt"):
        if actual.embedded.get(name) != expected.embedded.get(name):
            raise InputError(
                f"{address.shown}: holds vectors made with {name} = {actual.embedded.get(name)!r}, these are made with "
                f"{expected.embedded.get(name)!r}; give another table"
            )
    for name in ("width", "similarity", "id", "columns"):
        recorded, current = getattr(actual, name), getattr(expected, name)
        if recorded != current:
            raise InputError(
                f"{address.shown}: was made with {name} = {recorded!r}, now it is {current!r}; give another table"
            )


def _tune(connection: "Connection[Any]", address: TableAddress, target: float) -> _Tuned:
    """Find the lowest effort that reaches the requested recall@10.

    A row of the table is easy to find by its links in the graph. The mean of two rows is as hard a query as a text that
    is not in the table.
    """
    index = PostgresIndex(connection, address)
    rows = index.sample(2 * _TUNING_QUERIES)
    half = len(rows) // 2
    if not half:
        return _Tuned(_EFFORTS[0], None, 0)
    queries = np.float32(0.5) * (rows[:half] + rows[half : 2 * half])
    nearest = index.distances(queries, DEPTH, exact=True)
    effort, recall = _EFFORTS[0], 0.0
    for effort in _EFFORTS:
        distances = index.distances(queries, DEPTH, effort=effort)
        recall = float(np.mean([_recall(*pair) for pair in zip(distances, nearest, strict=True)]))
        if recall >= target:
            break
    return _Tuned(effort, recall, half)


def _recall(distances: list[float], nearest: list[float]) -> float:
    """Return the recall of the nearest rows; ties in distance count as nearest."""
    return sum(distance <= nearest[-1] + 1e-9 for distance in distances) / len(nearest)
