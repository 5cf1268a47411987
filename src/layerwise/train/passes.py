"""A streamed corpus for a trainer that counts steps, not epochs: one pass after the other, for ever."""

from collections.abc import Iterator
from itertools import count

from torch import Tensor

from layerwise.train.batches import Batches


class Passes:
    """Batches of a streamed corpus, pass after pass, each in an order of its own."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self._skip = 0

    def skip(self, batches: int) -> None:
        """Begin the next iteration after so many batches, in whatever pass they end."""
        self._skip = batches

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        skip, self._skip = self._skip, 0
        rows = self.batches.corpus.rows
        passed, skip = (0, skip) if rows is None else divmod(skip, len(self.batches))
        for number in count(passed):
            self.batches.set_epoch(number)
            self.batches.skip(skip)
            yield from self.batches
            skip = 0 if rows is not None else max(0, skip - self.batches.counted)
