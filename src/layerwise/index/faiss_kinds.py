"""The kinds of FAISS index: how each is built, its expected class in a file, and its search setting.

Every index is wrapped in an `IndexIDMap`, so that rows keep their numbers in any order of insertion.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.registry import check_known

AUTO = "auto"
_FLAT_ROWS = 50_000  # up to this size, exact search takes milliseconds
_HNSW_BYTES, _IVF_BYTES = 4 << 30, 16 << 30  # of float32 vectors in memory
_LINKS, _BUILD_EFFORT = 32, 100  # HNSW's M and efConstruction
_TRAINING_ROWS = 64  # per inverted list
_CODE_BITS, _CODE_NUMBERS = 8, 4  # of PQ: 4 dimensions become one byte
_PQ_ROWS = 256  # minimum training rows of a PQ codebook


@dataclass(frozen=True)
class Kind:
    """A kind of index: FAISS's class, its four-letter magic in a file, and the name of its search setting."""

    name: str
    class_name: str
    letters: bytes
    effort: str = ""

    @property
    def is_trained(self) -> bool:
        """Whether the index must be trained before vectors are added."""
        return self.effort == "nprobe"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("flat", "IndexFlatIP", b"IxFI"),
        Kind("hnsw", "IndexHNSWFlat", b"IHNf", "efSearch"),
        Kind("ivf", "IndexIVFFlat", b"IwFl", "nprobe"),
        Kind("pq", "IndexIVFPQ", b"IwPQ", "nprobe"),
    )
}


def faiss_module() -> Any:
    """Import FAISS, an optional dependency."""
    require("index", "an index", "faiss")
    import faiss

    return faiss


def choose_kind(name: str, rows: int, width: int) -> Kind:
    """Return a kind by name; "auto" chooses by the number and size of the vectors."""
    check_known(name, [AUTO, *KINDS], "kind of index")
    if name == AUTO:
        size = 4 * rows * width
        name = (
            "flat" if rows <= _FLAT_ROWS else "hnsw" if size <= _HNSW_BYTES else "ivf" if size <= _IVF_BYTES else "pq"
        )
    if name == "pq" and (rows < _PQ_ROWS or width % _CODE_NUMBERS):
        raise InputError(
            f"kind pq needs {_PQ_ROWS} vectors or more, of a width that {_CODE_NUMBERS} divides; these are {rows} of "
            f"{width} numbers: choose another kind"
        )
    return KINDS[name]


def lists_of(rows: int) -> int:
    """Return the number of inverted lists for this many vectors."""
    return max(1, min(4 * isqrt(rows), rows // 39))


def training_rows(rows: int) -> int:
    """Return the number of vectors to train the lists on."""
    return min(rows, max(_TRAINING_ROWS * lists_of(rows), 40 * _PQ_ROWS))


def new_index(kind: Kind, width: int, rows: int, training: Array, *, seed: int = 0) -> Any:
    """Create an empty inner-product index, trained if its kind needs it."""
    faiss = faiss_module()
    product = faiss.METRIC_INNER_PRODUCT
    if kind.name == "flat":
        return faiss.IndexIDMap(faiss.IndexFlatIP(width))
    if kind.name == "hnsw":
        graph = faiss.IndexHNSWFlat(width, _LINKS, product)
        graph.hnsw.efConstruction = _BUILD_EFFORT
        return faiss.IndexIDMap(graph)
    lists = min(lists_of(rows), len(training))
    coarse = faiss.IndexFlatIP(width)
    if kind.name == "ivf":
        inverted = faiss.IndexIVFFlat(coarse, width, lists, product)
    else:
        inverted = faiss.IndexIVFPQ(coarse, width, lists, width // _CODE_NUMBERS, _CODE_BITS, product)
        inverted.pq.cp.min_points_per_centroid = 1
        inverted.pq.cp.seed = seed
    inverted.cp.seed = seed
    inverted.cp.min_points_per_centroid = 1  # no warning for a small corpus with one list
    inverted.train(training)
    return faiss.IndexIDMap(inverted)


def table_bytes(kind: Kind, rows: int, width: int) -> int:
    """Return the memory of the table that FAISS precomputes when it reads a PQ index."""
    return 4 * lists_of(rows) * (width // _CODE_NUMBERS) * _PQ_ROWS + 4 if kind.name == "pq" else 0


def inner(index: Any) -> Any:
    """Return the index inside an IndexIDMap, downcast; it is valid only as long as the map."""
    return faiss_module().downcast_index(index.index)


def set_effort(index: Any, kind: Kind, effort: int) -> None:
    """Set the search effort: efSearch of HNSW, nprobe of IVF and PQ."""
    if kind.effort == "efSearch":
        inner(index).hnsw.efSearch = effort
    elif kind.effort == "nprobe":
        inner(index).nprobe = effort


def efforts(index: Any, kind: Kind) -> list[int]:
    """Return the values of the search setting to try, in rising order."""
    if kind.effort == "efSearch":
        return [16, 32, 64, 128, 256, 512, 1024]
    if kind.effort == "nprobe":
        lists = int(inner(index).nlist)
        return sorted({min(2**power, lists) for power in range(int(np.log2(lists)) + 2)})
    return [1]
