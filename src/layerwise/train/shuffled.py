"""The order of an epoch, a function of seed and epoch alone: blocks of shuffled rows with their texts.

In memory, all rows are shuffled. A streamed corpus goes through a buffer: of the block that waits and the block that
comes, a random half goes out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from layerwise.train.corpus import Corpus
from layerwise.train.corpus_rows import Texts
from layerwise.train.corpus_stream import StreamedCorpus

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Some rows: their numbers in the corpus (streamed: in the order of reading), and each column's texts."""

    rows: Rows
    columns: tuple[Texts, ...]

    def __len__(self) -> int:
        return len(self.rows)


def shuffled(corpus: Corpus | StreamedCorpus, *, size: int, seed: int, epoch: int) -> Iterator[Block]:
    """Every row once, in blocks of `size` rows but for the last."""
    random = np.random.default_rng([seed, epoch])
    return _of_all(corpus, size, random) if isinstance(corpus, Corpus) else _buffered(corpus, size, random)


def _of_all(corpus: Corpus, size: int, random: np.random.Generator) -> Iterator[Block]:
    order = random.permutation(len(corpus))
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        places = rows.tolist()
        yield Block(rows, tuple(tuple(map(column.__getitem__, places)) for column in corpus.columns))


def _buffered(corpus: StreamedCorpus, size: int, random: np.random.Generator) -> Iterator[Block]:
    numbered = enumerate(corpus)
    waiting = list(islice(numbered, size))
    while waiting:
        waiting += islice(numbered, size)
        order = random.permutation(len(waiting)).tolist()
        numbers, texts = zip(*(waiting[place] for place in order[:size]), strict=True)
        yield Block(np.array(numbers, dtype=np.int64), tuple(zip(*texts, strict=True)))
        waiting = [waiting[place] for place in order[size:]]
