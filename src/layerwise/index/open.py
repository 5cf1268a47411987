"""Opening an index by its place: a folder of `layerwise index build`, a table of PostgreSQL, or vectors of `embed`.

Plain vectors are searched exactly.
"""

from collections.abc import Mapping
from pathlib import Path

from layerwise.errors import InputError
from layerwise.index.exact import ExactIndex
from layerwise.index.faiss_index import FACTS, FaissIndex
from layerwise.index.postgres_index import PostgresIndex
from layerwise.index.postgres_table import is_postgres
from layerwise.index.protocol import VectorIndex
from layerwise.stores import is_url


def open_index(place: str | Path, *, where: str = "", values: Mapping[str, str] | None = None) -> VectorIndex:
    """The index at a place. A table of PostgreSQL is searched within a condition in SQL, if there is one."""
    if is_postgres(place):
        return PostgresIndex.read(str(place), where=where, values=values)
    if where or values:
        raise InputError(f"{place}: --filter and --param are for tables of PostgreSQL; leave them out")
    if is_url(place):
        return ExactIndex.read(place)
    if (Path(place).expanduser() / FACTS).is_file():
        return FaissIndex.read(place)
    return ExactIndex.read(place)
