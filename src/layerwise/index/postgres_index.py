"""Searches a table of vectors in PostgreSQL by pgvector's HNSW index, optionally filtered by an SQL condition.

The condition is the user's SQL; its values are bound as parameters and are never part of the statement. Every query is
one statement in a read-only transaction.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from layerwise.embed import resolved
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.index.exact import check_queries
from layerwise.index.postgres_table import (
    TableAddress,
    connect,
    first_line,
    is_lost,
    one_line_errors,
    read_facts,
)
from layerwise.index.protocol import Hits

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

_OPERATORS = {"cosine": ("<=>", "halfvec_cosine_ops"), "dot": ("<#>", "halfvec_ip_ops")}
_PLACEHOLDER = re.compile(r"(?<![:\w]):([A-Za-z_]\w*)")
_REMEMBERED = 100_000  # hits whose columns are cached
_MAX_EFFORT = 1000  # pgvector's limit


def operator_class(similarity: str) -> str:
    """Return pgvector's operator class of an HNSW index."""
    return _OPERATORS[similarity][1]


class PostgresIndex:
    """A table filled by `layerwise index load`.

    Args:
        connection: The connection to its database.
        address: The address of the table.
        where: An SQL condition, with `:name` placeholders for `values`.
        values: The values of the condition, by name.
    """

    def __init__(
        self,
        connection: "Connection[Any]",
        address: TableAddress,
        *,
        where: str = "",
        values: Mapping[str, str] | None = None,
    ) -> None:
        facts = read_facts(connection, address)
        if facts is None:
            raise InputError(f"{address.shown}: there is no such table; fill it by `layerwise index load`")
        self.facts, self.width, self.similarity = facts, facts.width, facts.similarity
        self.settings = resolved(facts.embedded, None)
        self._connection, self._address = connection, address
        self._values = {f"value_{name}": value for name, value in (values or {}).items()}
        self._where = _condition(where, self._values)
        self._records: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._numbers = count()

    @classmethod
    def read(cls, address: str, *, where: str = "", values: Mapping[str, str] | None = None) -> "PostgresIndex":
        """Connect to a table: `postgresql://[user@]host[:port]/database/table`."""
        parsed = TableAddress.parse(address)
        return cls(connect(parsed), parsed, where=where, values=values)

    def __len__(self) -> int:
        from psycopg.sql import SQL

        result = self._connection.execute(SQL("SELECT count(*) FROM {}").format(self._address.identifier)).fetchone()
        return int(result[0]) if result else 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def search(self, queries: Array, k: int) -> Hits:
        """Return the k nearest vectors of each query (n, width) that match the condition, best first.

        Rows are ids if these are integers, otherwise numbers that identify this search's hits in `columns`. If the
        condition leaves fewer than k hits for a query, all queries get that many.
        """
        check_queries(queries, self.width)
        results = self._query([_text(query) for query in queries], k, columns=list(self.facts.columns))
        rows, scores = [], []
        for hits in results:
            rows.append([self._store(dict(zip(self.facts.columns, hit[1:], strict=True))) for hit in hits])
            scores.append([1 - hit[0] if self.similarity == "cosine" else -hit[0] for hit in hits])
        least = min(map(len, rows), default=0)
        return Hits(
            np.array([row[:least] for row in rows], dtype=np.int64).reshape(len(rows), least),
            np.array([score[:least] for score in scores], dtype=np.float32).reshape(len(rows), least),
        )

    def columns(self, row: int) -> dict[str, Any]:
        """Return the other columns of a hit of a recent search."""
        return self._records[row]

    def sample(self, most: int) -> Array:
        """Return up to `most` vectors, sampled by the hash of their ids."""
        from psycopg.sql import SQL, Identifier

        statement = SQL("SELECT embedding::text FROM {} ORDER BY hashtext({}::text) LIMIT %s")
        name = Identifier(self.facts.id)
        rows = self._connection.execute(statement.format(self._address.identifier, name), [most]).fetchall()
        return np.array([json.loads(row[0]) for row in rows], dtype=np.float32)

    def distances(self, queries: Array, k: int, *, effort: int | None = None, exact: bool = False) -> list[Any]:
        """Return the distances of the k nearest rows of each query, by the index or by exact search."""
        results = self._query([_text(query) for query in queries], k, effort=effort, exact=exact)
        return [[hit[0] for hit in hits] for hits in results]

    def _query(
        self,
        queries: Sequence[str],
        k: int,
        *,
        columns: Sequence[str] = (),
        effort: int | None = None,
        exact: bool = False,
    ) -> list[list[tuple[Any, ...]]]:
        """Run the queries; return each query's hits as tuples of distance and columns."""
        import psycopg

        remedy = "check --filter and --param" if self._where else "check the table"
        if self._connection.closed:
            self._connection = connect(self._address)
        try:
            with one_line_errors(self._address, remedy), self._connection.transaction():
                self._set(k, effort or self.facts.effort, exact)
                statement = self._statement(columns)
                values = [{"query": query, "k": k} | self._values for query in queries]
                return [self._connection.execute(statement, params, prepare=True).fetchall() for params in values]
        except psycopg.OperationalError as error:
            if not is_lost(error):
                raise
            raise InputError(
                f"{self._address.shown}: the connection was lost: {first_line(error)}; run the same command again"
            ) from error

    def _set(self, k: int, effort: int, exact: bool) -> None:
        """Configure the transaction: read-only, and with an iterative scan if a condition drops rows."""
        settings = {
            "transaction_read_only": "on",
            "hnsw.ef_search": str(min(_MAX_EFFORT, max(effort, k))),
            "hnsw.iterative_scan": "strict_order",
            "enable_indexscan": "off" if exact else "on",
        }
        for name, value in settings.items():
            self._connection.execute("SELECT set_config(%s, %s, true)", [name, value])

    def _statement(self, columns: Sequence[str]) -> "Composed":
        from psycopg.sql import SQL, Identifier

        distance = SQL("embedding {} %(query)s::halfvec").format(SQL(_OPERATORS[self.similarity][0]))
        where = SQL("WHERE ({})").format(SQL(self._where)) if self._where else SQL("")
        return SQL("SELECT {} FROM {} {} ORDER BY {} LIMIT %(k)s").format(
            SQL(", ").join([distance, *map(Identifier, columns)]), self._address.identifier, where, distance
        )

    def _store(self, record: dict[str, Any]) -> int:
        """Cache the columns of a hit and return its row number."""
        key = record[self.facts.id]
        row = key if isinstance(key, int) else next(self._numbers)
        self._records[row] = record
        self._records.move_to_end(row)
        while len(self._records) > _REMEMBERED:
            self._records.popitem(last=False)
        return row


def _text(vector: Array) -> str:
    return "[" + ",".join(f"{number:.7g}" for number in vector.tolist()) + "]"


def _condition(where: str, values: Mapping[str, str]) -> str:
    """Replace each `:name` of a condition by a psycopg parameter and escape everything else."""
    if not where.strip():
        if values:
            raise InputError("--param gives a value to a condition; write the condition by --filter")
        return ""
    known = {name.removeprefix("value_") for name in values}
    used = set()

    def parameter(match: re.Match[str]) -> str:
        used.add(match[1])
        if match[1] not in known:
            raise InputError(f"--filter {where!r} has no value for :{match[1]}; give --param {match[1]}=VALUE")
        return f"%(value_{match[1]})s"

    # quoted strings are not searched for names
    parts = re.split(r"('(?:[^']|'')*')", where.replace("%", "%%"))
    condition = "".join(part if part.startswith("'") else _PLACEHOLDER.sub(parameter, part) for part in parts)
    if known - used:
        raise InputError(
            f"--filter {where!r} does not use --param {sorted(known - used)[0]}; write :name where it stands"
        )
    return condition
