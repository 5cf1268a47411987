"""A corpus beyond memory: read anew in each epoch, its rows never all held."""

import logging
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, islice, pairwise

from layerwise.data.rows import STDIN
from layerwise.errors import InputError
from layerwise.postprocess.fitted_on import ENCODER, FittedOn
from layerwise.train.corpus_rows import TextRows, Texts
from layerwise.train.corpus_sieve import CorpusCounts, RecentRows, Sieve

log = logging.getLogger(__name__)
_CHUNK = 65_536


class StreamedCorpus:
    """Rows of texts as they are read: iterate as often as you like, the files are read each time.

    Empty rows are dropped as in a `Corpus`; repeated ones only where they are near each other, see `RecentRows`.

    Args:
        texts: Where the rows come from; standard input is refused, for it can't be read twice.
        limit: Only the first rows, counted after dropping.
        keep_duplicates: Keep repeated rows.
        rows: How many rows there are after dropping, if that is known: progress and schedules need it.
    """

    def __init__(
        self, texts: TextRows, *, limit: int | None = None, keep_duplicates: bool = False, rows: int | None = None
    ) -> None:
        if STDIN in texts.paths:
            raise InputError("standard input can't be streamed, for each epoch reads it anew; give a file")
        self._texts = texts
        self._limit = limit
        self._keep_duplicates = keep_duplicates
        self._sieve = self._fresh_sieve()
        self.rows = rows
        self._read_two()

    @property
    def source(self) -> str:
        """What records call it."""
        return self._texts.label + (f", at most {self._limit:,} rows" if self._limit else "")

    @property
    def width(self) -> int:
        """How many columns of texts there are."""
        return len(self._texts.columns)

    @property
    def counts(self) -> CorpusCounts:
        """Counts of the reading that began last, as far as it went."""
        return self._sieve.counts

    @cached_property
    def fitted_on(self) -> FittedOn:
        """The record of all its sentences, also where training ends before their end; reads the files once."""
        rows = iter(self)
        parts = iter(lambda: list(chain.from_iterable(islice(rows, _CHUNK))), [])
        return FittedOn.of_parts(parts, source=self.source, what=ENCODER)

    def __iter__(self) -> Iterator[Texts]:
        sieve = self._sieve = self._fresh_sieve()
        yield from sieve(self._texts)
        sieve.require_two(self._texts.name)
        if self.rows not in (None, sieve.counts.kept):
            log.warning("%s has %d rows, not %d as was said", self._texts.name, sieve.counts.kept, self.rows)

    def _fresh_sieve(self) -> Sieve:
        return Sieve(None if self._keep_duplicates else RecentRows(), self._limit)

    def _read_two(self) -> None:
        """Read until two rows differ, so that what can't be used is told before a model is loaded."""
        any(row != before for before, row in pairwise(self))
