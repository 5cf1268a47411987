"""The kinds of FAISS index: how each is made, what it must be when read, and the one setting of its search.

Every index is an `IndexIDMap` around one of them, so that rows keep their numbers in any order of adding.
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
_FLAT_ROWS = 50_000  # up to which exact search takes milliseconds
_HNSW_BYTES, _IVF_BYTES = 4 << 30, 16 << 30  # of float32 vectors, which these kinds hold in memory
_LINKS, _BUILD_EFFORT = 32, 100  # of HNSW: links a vector, candidates while it is built
_TRAINING_ROWS = 64  # for each inverted list
_CODE_BITS, _CODE_NUMBERS = 8, 4  # of PQ: each 4 numbers of a vector become one byte
_PQ_ROWS = 256  # that the codes of a byte are made from, at least


@dataclass(frozen=True)
class Kind:
    """A kind: FAISS's class and the four letters that begin it in a file, and the name of its search setting."""

    name: str
    class_name: str
    letters: bytes
    effort: str = ""

    @property
    def is_trained(self) -> bool:
        """Whether it has to see vectors before it takes any."""
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
    """FAISS, which is an optional dependency."""
    require("index", "an index", "faiss")
    import faiss

    return faiss


def choose_kind(name: str, rows: int, width: int) -> Kind:
    """A kind by its name; "auto" takes the first whose memory and time suit this many vectors."""
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
    """How many inverted lists suit this many vectors."""
    return max(1, min(4 * isqrt(rows), rows // 39))


def training_rows(rows: int) -> int:
    """How many vectors the lists are made from."""
    return min(rows, max(_TRAINING_ROWS * lists_of(rows), 40 * _PQ_ROWS))


def new_index(kind: Kind, width: int, rows: int, training: Array, *, seed: int = 0) -> Any:
    """An empty index of inner products, trained where it has to be."""
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
    inverted.cp.min_points_per_centroid = 1  # no warning where a small corpus is one list
    inverted.train(training)
    return faiss.IndexIDMap(inverted)


def table_bytes(kind: Kind, rows: int, width: int) -> int:
    """The memory of the table that FAISS makes of a PQ index when it is read."""
    return 4 * lists_of(rows) * (width // _CODE_NUMBERS) * _PQ_ROWS + 4 if kind.name == "pq" else 0


def inner(index: Any) -> Any:
    """What an IndexIDMap holds, as its own class; keep the map as long as this is used."""
    return faiss_module().downcast_index(index.index)


def set_effort(index: Any, kind: Kind, effort: int) -> None:
    """How far a search looks: candidates of HNSW, inverted lists of IVF and PQ."""
    if kind.effort == "efSearch":
        inner(index).hnsw.efSearch = effort
    elif kind.effort == "nprobe":
        inner(index).nprobe = effort


def efforts(index: Any, kind: Kind) -> list[int]:
    """Values of the search setting to try, from fast to thorough."""
    if kind.effort == "efSearch":
        return [16, 32, 64, 128, 256, 512, 1024]
    if kind.effort == "nprobe":
        lists = int(inner(index).nlist)
        return sorted({min(2**power, lists) for power in range(int(np.log2(lists)) + 2)})
    return [1]
