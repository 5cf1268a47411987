"""Batches of a corpus: shuffles the rows of an epoch, cuts them into batches, tokenises ahead in a thread, and pads.

The order is a function of (seed, epoch), so all processes of a training agree on it without communication, and a
resumed training sees the same batches as an uninterrupted one. A corpus in memory is permuted as a whole; a streamed
one is shuffled in a buffer. Tensors stay on the CPU.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder import PromptTokenizer, SentenceTokenizer, ahead
from layerwise.errors import InputError
from layerwise.train.contrastive.corpus import AnyCorpus, Corpus, StreamedCorpus
from layerwise.train.contrastive.prompted import TwoPrompts
from layerwise.train.contrastive.repetition import repeat_words
from layerwise.train.contrastive.text_rows import Texts
from layerwise.train.contrastive.token_memory import TokenMemory

Numbers = NDArray[np.int64]
AnyTokenizer = SentenceTokenizer | PromptTokenizer | TwoPrompts


class Batches:
    """Iterates over the batches of an epoch.

    A batch has `input_ids` and `attention_mask`, both int64 (columns·b, t): the b rows of the first column, then those
    of the next; and `rows`, int64 (b,), their numbers in the corpus (of a streamed one: in the order of reading, the
    same in each epoch). t is the longest text of the batch. Texts in a prompt have `places`, int64 (columns·b, 3), too;
    in two prompts (columns·b, 4).

    Args:
        corpus: In memory or streamed.
        tokenizer: Truncates each text to the model's length; `TwoPrompts` adds a second column to a single one.
        batch_size: Rows per batch and process, 2 or more.
        copies: How often the texts of a one-column corpus are repeated; 2 for two passes with different dropout.
        pad_id: The token that texts are padded with.
        seed: Determines the order, together with the epoch.
        bucket: Batch texts of similar length together, within a window: less padding. Then every process tokenises
            whole windows; without, only its rows.
        rank: The rank of this process.
        world: The number of processes. A joint batch has batch_size·world rows; each process takes a contiguous part.
        window: How many joint batches are tokenised at a time.
        repetition: Instead of copies of one column, add a second one with up to this share of the words repeated.
    """

    def __init__(
        self,
        corpus: AnyCorpus,
        tokenizer: AnyTokenizer,
        *,
        batch_size: int,
        copies: int = 1,
        pad_id: int,
        seed: int,
        bucket: bool = True,
        rank: int = 0,
        world: int = 1,
        window: int = 64,
        repetition: float = 0.0,
    ) -> None:
        self.corpus = corpus
        self.tokenizer = tokenizer
        self.copies = copies
        self.pad_id = pad_id
        self.seed = seed
        self.bucket = bucket
        self.window = window
        self.repetition = repetition
        self.sharding = Sharding(batch_size, rank, world)
        self._memory = self._token_memory()
        self.epoch = 0
        self.truncated = 0
        self.counted = 0
        self._dropped = 0
        self._skip = 0
        self._check()

    def __len__(self) -> int:
        """Batches per epoch; raises TypeError if the corpus has an unknown number of rows."""
        if self.corpus.rows is None:
            raise TypeError("a streamed corpus has no length; give it rows")
        return self.sharding.count(self.corpus.rows)

    @property
    def dropped(self) -> int:
        """Rows of an epoch that are in no batch; 0 for a corpus of unknown length until its first epoch ends."""
        return self._dropped if self.corpus.rows is None else self.sharding.dropped(self.corpus.rows)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        if epoch < 0:
            raise InputError(f"epoch is {epoch}; epochs count from 0")
        self.epoch = epoch

    def skip(self, batches: int) -> None:
        """Skip this many batches in the next iteration only."""
        limit = batches if self.corpus.rows is None else len(self)
        if not 0 <= batches <= limit:
            raise InputError(f"{batches} batches to skip; an epoch has {limit}: was it another corpus or batch size?")
        self._skip = batches

    def resume_at(self, step: int) -> None:
        """Start the next iteration after this many steps of training."""
        self.skip(step % len(self))

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Iterate over the batches.

        `truncated` counts the texts that this process truncated in this iteration; those whose tokens it has from an
        earlier one are not counted again.
        """
        skip, self._skip, self.truncated = self._skip, 0, 0
        return self._batches(self._windows(self.epoch, skip))

    def _batches(self, windows: Iterator["Window"]) -> Iterator[dict[str, Tensor]]:
        for window in _in_a_thread(windows):
            self.truncated += window.truncated
            self._dropped = window.dropped
            for batch in window.batches:
                yield window.padded(batch, pad_id=self.pad_id, copies=self.copies)

    def _windows(self, epoch: int, skip: int) -> Iterator["Window"]:
        size = self.window * self.sharding.joint
        batches = rows = 0
        for number, block in enumerate(shuffled(self.corpus, size=size, seed=self.seed, epoch=epoch)):
            in_block = self.sharding.count(len(block))
            batches, rows = batches + in_block, rows + len(block)
            if batches > skip or not in_block:
                block = self._with_second_view(block, np.random.default_rng([self.seed, epoch, number + 1, 1]))
                random = np.random.default_rng([self.seed, epoch, number + 1])
                window = tokenised(
                    block,
                    self._memory or self.tokenizer,
                    sharding=self.sharding,
                    random=random if self.bucket else None,
                )
                yield window.after(skip - (batches - in_block))
        if not batches:
            raise self._no_batch(rows)
        self.counted = batches  # in the latest pass, including skipped ones

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

    def _token_memory(self) -> TokenMemory | None:
        """Return the memory of a corpus whose texts are the same in every epoch, as a second view's are not."""
        if isinstance(self.corpus, StreamedCorpus) or self.repetition or isinstance(self.tokenizer, TwoPrompts):
            return None
        return TokenMemory(self.tokenizer, len(self.corpus) * self.corpus.width)

    def _with_second_view(self, block: "Block", random: np.random.Generator) -> "Block":
        """Add a second column unless it is just a copy: with repeated words, or in another prompt."""
        if not self.repetition and not isinstance(self.tokenizer, TwoPrompts):
            return block
        (texts,) = block.columns
        second = repeat_words(texts, self.repetition, random) if self.repetition else texts
        return replace(block, columns=(texts, second))

    def _no_batch(self, rows: int) -> InputError:
        world = self.sharding.world
        processes = "" if world == 1 else f" for each of {world} processes"
        return InputError(
            f"{self.corpus.source}: {rows} rows make no batch of {self.sharding.batch_size}{processes}; "
            f"give more rows, or a smaller batch_size"
        )


class EndlessBatches:
    """Iterates over a streamed corpus endlessly, each pass in another order."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self._skip = 0

    def resume_at(self, step: int) -> None:
        """Start the next iteration after this many batches, which may span several passes."""
        self._skip = step

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        skip, self._skip = self._skip, 0
        rows = self.batches.corpus.rows
        passes, skip = (0, skip) if rows is None else divmod(skip, len(self.batches))
        for number in count(passes):
            self.batches.set_epoch(number)
            self.batches.skip(skip)
            yield from self.batches
            skip = 0 if rows is not None else max(0, skip - self.batches.counted)


# The order of an epoch


@dataclass(frozen=True)
class Block:
    """Some rows: their numbers in the corpus (streamed: in the order of reading), and each column's texts."""

    rows: Numbers
    columns: tuple[Texts, ...]

    def __len__(self) -> int:
        return len(self.rows)


def shuffled(corpus: AnyCorpus, *, size: int, seed: int, epoch: int) -> Iterator[Block]:
    """Iterate over all rows once, in shuffled blocks of `size` rows except the last."""
    random = np.random.default_rng([seed, epoch])
    return _permuted(corpus, size, random) if isinstance(corpus, Corpus) else _buffered(corpus, size, random)


def _permuted(corpus: Corpus, size: int, random: np.random.Generator) -> Iterator[Block]:
    order = random.permutation(len(corpus))
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        indices = rows.tolist()
        yield Block(rows, tuple(tuple(map(column.__getitem__, indices)) for column in corpus.columns))


def _buffered(corpus: StreamedCorpus, size: int, random: np.random.Generator) -> Iterator[Block]:
    """Shuffle in a buffer of two blocks: yield a random half of it, then refill."""
    numbered = enumerate(corpus)
    buffer = list(islice(numbered, size))
    while buffer:
        buffer += islice(numbered, size)
        order = random.permutation(len(buffer)).tolist()
        numbers, texts = zip(*(buffer[index] for index in order[:size]), strict=True)
        yield Block(np.array(numbers, dtype=np.int64), tuple(zip(*texts, strict=True)))
        buffer = [buffer[index] for index in order[size:]]


# Which rows make a batch, and which part of it a process takes


@dataclass(frozen=True)
class Sharding:
    """Joint batches of `batch_size` rows for each of `world` processes, of which `rank` takes a contiguous part.

    The remaining rows form a smaller batch if there are at least two and they divide evenly among the processes;
    otherwise they are dropped, as processes with unequal batches would deadlock.
    """

    batch_size: int
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise InputError(
                f"batch_size is {self.batch_size}: a batch of one sentence has no negatives; give 2 or more"
            )
        if not 0 <= self.rank < self.world:
            raise InputError(f"rank is {self.rank} of world {self.world}; ranks count from 0 to world - 1")

    @property
    def joint(self) -> int:
        """Rows of a joint batch of all processes."""
        return self.batch_size * self.world

    def full(self, rows: int) -> int:
        """Return how many of these rows are in full batches."""
        return rows - rows % self.joint

    def tail(self, rows: int) -> int:
        """Return the size of the last, smaller batch; 0 if there is none."""
        remainder = rows % self.joint
        return remainder if remainder > 1 and remainder % self.world == 0 else 0

    def count(self, rows: int) -> int:
        """Return the number of batches of these rows."""
        return rows // self.joint + bool(self.tail(rows))

    def dropped(self, rows: int) -> int:
        """Return how many of these rows are in no batch."""
        return rows - self.full(rows) - self.tail(rows)

    def parts(self, order: Numbers) -> list[Numbers]:
        """Return this process's part of each batch of the ordered rows, the smaller one last."""
        full, tail = self.full(len(order)), self.tail(len(order))
        parts = order[:full].reshape(-1, self.world, self.batch_size)[:, self.rank]
        last = order[full : full + tail].reshape(self.world, -1)[self.rank]
        return [*parts, *([last] if tail else [])]


# Tokens


@dataclass(frozen=True)
class Window:
    """Tokenised rows and their batches, which are gathered from one flat array of tokens without a loop.

    Attributes:
        rows: The rows' numbers in the corpus, (n,).
        tokens: The tokens of all texts, concatenated.
        starts: The offset of each text in `tokens`, (columns, n).
        lengths: The number of tokens of each text, (columns, n).
        batches: This process's part of each batch: positions among the n rows.
        truncated: How many texts were truncated to the model's length.
        dropped: How many rows are in no batch.
        places: The pooled tokens of each text in a prompt, (columns, n, 3); in two prompts, (columns, n, 4).
    """

    rows: Numbers
    tokens: Numbers
    starts: Numbers
    lengths: Numbers
    batches: Sequence[Numbers]
    truncated: int
    dropped: int
    places: Numbers | None = None

    def after(self, batches: int) -> "Window":
        """Drop the first batches; none for 0 and less."""
        return replace(self, batches=self.batches[max(0, batches) :])

    def padded(self, batch: Numbers, *, pad_id: int, copies: int = 1) -> dict[str, Tensor]:
        """Build a padded batch: ids and mask, (copies·columns·b, longest), and the rows' numbers, (b,).

        For texts in a prompt, also the `places` of the pooled tokens, (copies·columns·b, 3 or 4).
        """
        lengths, starts = self.lengths[:, batch].reshape(-1, 1), self.starts[:, batch].reshape(-1, 1)
        numbers = np.arange(lengths.max())
        mask = numbers < lengths
        tokens = np.where(mask, self.tokens.take(starts + numbers, mode="clip"), pad_id)
        arrays = {"input_ids": tokens, "attention_mask": mask.astype(np.int64)}
        if self.places is not None:
            arrays["places"] = self.places[:, batch].reshape(-1, self.places.shape[-1])
        padded = {name: torch.from_numpy(np.tile(array, (copies, 1))) for name, array in arrays.items()}
        return padded | {"rows": torch.from_numpy(self.rows[batch])}


def tokenised(
    block: Block,
    tokenizer: AnyTokenizer | TokenMemory,
    *,
    sharding: Sharding,
    random: np.random.Generator | None = None,
) -> Window:
    """Tokenise a block. With `random`, batches have similar lengths and random order; otherwise the block's order."""
    used = np.arange(len(block) - sharding.dropped(len(block)))
    if random is None:
        parts = sharding.parts(used)
        return _window(block, tokenizer, np.concatenate([used[:0], *parts]), sharding, parts)
    window = _window(block, tokenizer, used, sharding, [])
    return replace(window, batches=_by_length(window.lengths.max(axis=0)[used], sharding, random))


def _window(
    block: Block,
    tokenizer: AnyTokenizer | TokenMemory,
    positions: Numbers,
    sharding: Sharding,
    batches: Sequence[Numbers],
) -> Window:
    """Tokenise the rows at these positions; the others have no tokens."""
    indices = positions.tolist()
    texts = [column[index] for column in block.columns for index in indices]
    if isinstance(tokenizer, TokenMemory):
        columns = len(block.columns)
        tokenized = tokenizer(np.concatenate([block.rows[positions] * columns + n for n in range(columns)]), texts)
    else:
        tokenized = tokenizer(texts)
    sizes = tokenized.lengths
    starts, lengths = np.zeros((2, len(block.columns), len(block)), dtype=np.int64)
    lengths[:, positions] = sizes.reshape(len(block.columns), -1)
    starts[:, positions] = (np.cumsum(sizes) - sizes).reshape(len(block.columns), -1)
    dropped, pooled = sharding.dropped(len(block)), None
    if tokenized.places is not None:
        shape = (len(block.columns), len(block), tokenized.places.shape[1])
        pooled = np.zeros(shape, dtype=np.int64)
        pooled[:, positions] = tokenized.places.reshape(shape[0], -1, shape[2])
    return Window(block.rows, tokenized.numbers, starts, lengths, batches, tokenized.truncated, dropped, pooled)


def _by_length(longest: Numbers, sharding: Sharding, random: np.random.Generator) -> list[Numbers]:
    """Group rows of similar length into batches in random order; a last, smaller batch stays last."""
    full = sharding.full(len(longest))
    order = np.concatenate([np.argsort(longest[:full], kind="stable"), np.arange(full, len(longest))])
    parts = sharding.parts(order)
    batches = full // sharding.joint
    return [*(parts[index] for index in random.permutation(batches)), *parts[batches:]]


def _in_a_thread(windows: Iterator[Window]) -> Iterator[Window]:
    """Read and tokenise each window in a thread while the previous one is used."""
    for window in ahead(lambda _: next(windows, None), count()):
        if window is None:
            return
        yield window
