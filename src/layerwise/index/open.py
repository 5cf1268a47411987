"""Opens an index by location: a folder of `layerwise index build`, a PostgreSQL table, or vectors of `embed`.

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
    """Open the index at a location. Searches of a PostgreSQL table may be filtered by an SQL condition."""
    if is_postgres(place):
        return PostgresIndex.read(str(place), where=where, values=values)
    if where or values:
        raise InputError(f"{place}: --filter and --param are for tables of PostgreSQL; leave them out")
    if is_url(place):
        return ExactIndex.read(place)
    if (Path(place).expanduser() / FACTS).is_file():
        return FaissIndex.read(place)
    if not Path(place).expanduser().exists():
        raise InputError(
            f"{place}: no such file or folder; build an index with `layerwise index build`, or write vectors with "
            f"`layerwise embed`"
        )
    return ExactIndex.read(place)
