"""How rows are cut into batches, and which part of each batch a process takes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import InputError

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """Joint batches of `batch_size` rows for each of `world` processes, of which `rank` takes its contiguous part.

    The rows left at the end make a smaller batch, if one process has two of them or more, or if they divide evenly
    among several; else they are dropped, for processes of unlike batches would wait for each other for ever.
    """

    batch_size: int
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise InputError(
                f"batch_size is {self.batch_size}: one-sentence batches have no negatives to tell apart; give 2 or more"
            )
        if not 0 <= self.rank < self.world:
            raise InputError(f"rank is {self.rank} of world {self.world}; ranks count from 0 to world - 1")

    @property
    def joint(self) -> int:
        """Rows of a batch of all processes together."""
        return self.batch_size * self.world

    def full(self, rows: int) -> int:
        """How many of so many rows are in full batches."""
        return rows - rows % self.joint

    def tail(self, rows: int) -> int:
        """How many rows the last, smaller batch has; 0 where there is none."""
        left = rows % self.joint
        return left if left > 1 and left % self.world == 0 else 0

    def count(self, rows: int) -> int:
        """How many batches so many rows make."""
        return rows // self.joint + bool(self.tail(rows))

    def dropped(self, rows: int) -> int:
        """How many of so many rows are in no batch."""
        return rows - self.full(rows) - self.tail(rows)

    def parts(self, order: Positions) -> list[Positions]:
        """This process's part of each batch of the rows in their order, the smaller one last."""
        full, tail = self.full(len(order)), self.tail(len(order))
        own = order[:full].reshape(-1, self.world, self.batch_size)[:, self.rank]
        last = order[full : full + tail].reshape(self.world, -1)[self.rank]
        return [*own, *([last] if tail else [])]
