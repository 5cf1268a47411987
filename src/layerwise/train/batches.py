"""Batches to train on: a corpus's rows in an epoch's order, tokenised ahead in a thread, padded and stacked.

The order is a function of (seed, epoch), so all processes of a training agree on it without a word, and a resumed
training sees what an uninterrupted one would have seen. Moving to a device is left to who iterates.
"""

from collections.abc import Iterator
from itertools import count

import numpy as np
from torch import Tensor

from layerwise.encoder import ahead
from layerwise.encoder.tokens import SentenceTokenizer
from layerwise.errors import InputError
from layerwise.train.corpus import Corpus
from layerwise.train.corpus_stream import StreamedCorpus
from layerwise.train.cut import Cut
from layerwise.train.shuffled import shuffled
from layerwise.train.window import Window, tokenised


class Batches:
    """An epoch's batches each time it is iterated.

    A batch has `input_ids` and `attention_mask`, both int64 (columns·b, t): the b rows of the first column, then those
    of the next; and `rows`, int64 (b,), their numbers in the corpus (of a streamed one: in the order of reading, the
    same in each epoch). t is the longest text of the batch.

    Args:
        corpus: In memory or streamed.
        tokenizer: Cuts each text to the model's length.
        batch_size: Rows a batch and process, 2 or more.
        copies: How often the texts of a one-column corpus are repeated; 2 for two passes with different dropout.
        pad_id: What texts are padded with.
        seed: Of the order, with the epoch.
        bucket: Put texts of like length together, within a window: less padding. Then every process tokenises whole
            windows; without, only its own rows.
        rank: Which process this is.
        world: How many there are. A joint batch has batch_size·world rows, each process takes its contiguous part.
        window: How many joint batches are tokenised at a time.
    """

    def __init__(
        self,
        corpus: Corpus | StreamedCorpus,
        tokenizer: SentenceTokenizer,
        *,
        batch_size: int,
        copies: int = 1,
        pad_id: int,
        seed: int,
        bucket: bool = True,
        rank: int = 0,
        world: int = 1,
        window: int = 64,
    ) -> None:
        self.corpus = corpus
        self.tokenizer = tokenizer
        self.copies = copies
        self.pad_id = pad_id
        self.seed = seed
        self.bucket = bucket
        self.window = window
        self.cut = Cut(batch_size, rank, world)
        self.epoch = 0
        self.truncated = 0
        self.counted = 0
        self._dropped = 0
        self._skip = 0
        self._check()

    def __len__(self) -> int:
        """Batches an epoch; a TypeError where the corpus does not know its rows."""
        if self.corpus.rows is None:
            raise TypeError("a streamed corpus has no length; give it rows")
        return self.cut.count(self.corpus.rows)

    @property
    def dropped(self) -> int:
        """Rows that are in no batch of an epoch; for a corpus of unknown length 0 until its first epoch ended."""
        return self._dropped if self.corpus.rows is None else self.cut.dropped(self.corpus.rows)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is."""
        if epoch < 0:
            raise InputError(f"epoch is {epoch}; epochs count from 0")
        self.epoch = epoch

    def skip(self, batches: int) -> None:
        """Begin the next iteration, and only that, after this many batches."""
        most = batches if self.corpus.rows is None else len(self)
        if not 0 <= batches <= most:
            raise InputError(f"{batches} batches to skip; an epoch has {most}: was it another corpus or batch size?")
        self._skip = batches

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """The batches. `truncated` counts anew how many texts that this process tokenised were cut."""
        skip, self._skip, self.truncated = self._skip, 0, 0
        return self._batches(self._windows(self.epoch, skip))

    def _batches(self, windows: Iterator[Window]) -> Iterator[dict[str, Tensor]]:
        for window in _in_a_thread(windows):
            self.truncated += window.truncated
            self._dropped = window.dropped
            for part in window.parts:
                yield window.padded(part, pad_id=self.pad_id, copies=self.copies)

    def _windows(self, epoch: int, skip: int) -> Iterator[Window]:
        size = self.window * self.cut.joint
        batches = rows = 0
        for number, block in enumerate(shuffled(self.corpus, size=size, seed=self.seed, epoch=epoch)):
            own = self.cut.count(len(block))
            batches, rows = batches + own, rows + len(block)
            if batches > skip or not own:
                random = np.random.default_rng([self.seed, epoch, number + 1])
                window = tokenised(block, self.tokenizer, cut=self.cut, random=random if self.bucket else None)
                yield window.after(skip - (batches - own))
        if not batches:
            raise self._no_batch(rows)
        self.counted = batches  # of the pass that was read last, skipped ones too

    def _check(self) -> None:
        if self.window < 1:
            raise InputError(f"window is {self.window} batches; give 1 or more")
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}; give 0 or more")
        if self.copies < 1 or (self.copies > 1 and self.corpus.width > 1):
            raise InputError(
                f"{self.copies} copies of a corpus of {self.corpus.width} columns; give 1, or a corpus of one column"
            )
        if self.corpus.rows is not None and not len(self):
            raise self._no_batch(self.corpus.rows)

    def _no_batch(self, rows: int) -> InputError:
        processes = "" if self.cut.world == 1 else f" for each of {self.cut.world} processes"
        return InputError(
            f"{self.corpus.source}: {rows} rows make no batch of {self.cut.batch_size}{processes}; "
            f"give more rows, or a smaller batch_size"
        )


def _in_a_thread(windows: Iterator[Window]) -> Iterator[Window]:
    """The same windows, each read and tokenised in a thread while the one before is used."""
    for window in ahead(lambda _: next(windows, None), count()):
        if window is None:
            return
        yield window
