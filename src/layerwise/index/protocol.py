"""What every index can do."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder import Array


@dataclass(frozen=True)
class Hits:
    """The nearest rows of n queries, best first: row numbers and scores, (n, k) each."""

    rows: NDArray[np.int64]
    scores: Array


class VectorIndex(Protocol):
    """Vectors that can be searched, and what is known of each of them."""

    @property
    def width(self) -> int:
        """The length of a vector."""

    def __len__(self) -> int:
        """How many vectors."""

    def search(self, queries: Array, k: int) -> Hits:
        """The k nearest vectors of each query (n, width); fewer where there are fewer."""

    def columns(self, row: int) -> dict[str, Any]:
        """What was carried along with a vector."""
