"""A table of vectors in PostgreSQL with pgvector: its address, its connection, and the record of how it was made.

The record is the table's comment, so it is renamed, dumped and dropped with the table. Passwords are never shown.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import Field

from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.settings import Settings, parse_settings

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed, Identifier

SCHEMES = ("postgresql://", "postgres://")
MOST_NUMBERS = 4000  # dimensions; the limit of pgvector's HNSW in half precision
_FORM = "postgresql://[user@]host[:port]/database/table"
_CONNECT_SECONDS = 10


def is_postgres(place: object) -> bool:
    """Whether a location is a PostgreSQL address."""
    return str(place).startswith(SCHEMES)


@dataclass(frozen=True)
class TableAddress:
    """The address of a table: libpq's connection string, and the table's name, optionally with a schema."""

    conninfo: str
    name: tuple[str, ...]
    shown: str

    @classmethod
    def parse(cls, address: str) -> "TableAddress":
        """Parse `postgresql://[user[:password]@][host][:port]/database/[schema.]table[?option=value]`."""
        parts = urlsplit(address)
        database, _, table = parts.path.strip("/").partition("/")
        names = tuple(map(unquote, table.split(".")))
        shown_host = parts.netloc.rpartition("@")[2]
        shown = f"postgresql://{shown_host}/{database}/{table}"
        if not database or not table or "/" in table or len(names) > 2 or not all(names):
            raise InputError(f"{shown}: names no table; give {_FORM}")
        options = dict(parse_qsl(parts.query)) | {"application_name": "layerwise"}
        options.setdefault("connect_timeout", str(_CONNECT_SECONDS))
        conninfo = f"postgresql://{parts.netloc}/{quote(unquote(database))}?{urlencode(options)}"
        return cls(conninfo, names, shown)

    @property
    def identifier(self) -> "Identifier":
        """The table's name, quoted."""
        from psycopg.sql import Identifier

        return Identifier(*self.name)

    def index_identifier(self) -> "Identifier":
        """Return the name of the HNSW index, which is in the table's schema."""
        from psycopg.sql import Identifier

        return Identifier(f"{self.name[-1]}_embedding_hnsw")


class TableFacts(Settings):
    """The contents of a table's comment. `loading` maps digests of vectors to the number of rows loaded so far."""

    label: ClassVar[str] = "table:"
    layerwise: Literal[1] = 1
    width: int = Field(ge=1, le=MOST_NUMBERS)
    similarity: Literal["cosine", "dot"]
    id: str
    columns: dict[str, str]
    effort: int = Field(default=40, ge=1, le=1000)
    recall: float | None = None
    loading: dict[str, int] = Field(default_factory=dict)
    embedded: dict[str, Any] = Field(default_factory=dict)


def require_psycopg() -> None:
    """Raise if the optional dependency is missing."""
    require("postgres", "a table of PostgreSQL", "psycopg")


def connect(address: TableAddress) -> "Connection[Any]":
    """Open a connection in autocommit mode."""
    require_psycopg()
    import psycopg

    try:
        return psycopg.connect(address.conninfo, autocommit=True)
    except psycopg.Error as error:
        raise InputError(
            f"{address.shown}: cannot connect: {first_line(error)}; check the address, and that the server is running"
        ) from error


def first_line(error: Exception) -> str:
    """Return a database error as one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


@contextmanager
def one_line_errors(address: TableAddress, remedy: str) -> Iterator[None]:
    """Convert database errors to one line that names the table; errors of a lost connection are re-raised."""
    import psycopg

    try:
        yield
    except psycopg.OperationalError as error:
        if is_lost(error):
            raise
        raise InputError(f"{address.shown}: {first_line(error)}; {remedy}") from error
    except psycopg.Error as error:
        raise InputError(f"{address.shown}: {first_line(error)}; {remedy}") from error


def is_lost(error: Exception) -> bool:
    """Whether an error means a lost connection: no SQLSTATE, or class 08 or 57P."""
    state = getattr(error, "sqlstate", None)
    return state is None or state.startswith(("08", "57P"))


def read_facts(connection: "Connection[Any]", address: TableAddress) -> TableFacts | None:
    """Read a table's facts; None if it does not exist. Raises for a table that layerwise did not create."""
    result = connection.execute(
        "SELECT obj_description(c, 'pg_class') FROM (SELECT to_regclass(%s)::oid) AS t(c) WHERE c IS NOT NULL",
        [address.identifier.as_string(connection)],
    ).fetchone()
    if result is None:
        return None
    try:
        record = json.loads(result[0] or "")
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, Mapping) or "layerwise" not in record:
        raise InputError(f"{address.shown}: is a table that `layerwise index load` did not make; give another name")
    return parse_settings(TableFacts, dict(record), file=address.shown)


def comment(address: TableAddress, facts: TableFacts) -> "Composed":
    """Build the statement that writes the record."""
    from psycopg.sql import SQL, Literal

    return SQL("COMMENT ON TABLE {} IS {}").format(address.identifier, Literal(json.dumps(facts.model_dump())))
