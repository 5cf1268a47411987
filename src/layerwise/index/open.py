"""Opening an index by its place: a folder of `layerwise index build`, or vectors, which are searched exactly."""

from pathlib import Path

from layerwise.index.exact import ExactIndex
from layerwise.index.faiss_index import FACTS, FaissIndex
from layerwise.index.protocol import VectorIndex


def open_index(place: str | Path) -> VectorIndex:
    """The index at a place."""
    if (Path(place).expanduser() / FACTS).is_file():
        return FaissIndex.read(place)
    return ExactIndex.read(place)
