"""Stores of vectors behind one protocol: exact search over what `layerwise embed` writes, FAISS, and PostgreSQL."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.index.build import BuildResult, build_index, check_out
    from layerwise.index.cluster import Clusters, clusters_of
    from layerwise.index.dedup import Duplicates, find_duplicates
    from layerwise.index.exact import ExactIndex
    from layerwise.index.faiss_index import FaissIndex
    from layerwise.index.faiss_kinds import choose_kind
    from layerwise.index.open import open_index
    from layerwise.index.postgres_index import PostgresIndex
    from layerwise.index.postgres_load import LoadResult, load_vectors
    from layerwise.index.postgres_table import TableAddress, is_postgres
    from layerwise.index.protocol import Hits, VectorIndex, embed_queries, load_model_of, model_of
    from layerwise.index.tables import check_table, write_table

__getattr__, __dir__, __all__ = door(__name__, __file__)
