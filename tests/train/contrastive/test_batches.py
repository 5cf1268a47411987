"""An epoch has every row once, in an order that seed and epoch decide; processes share it, and skipping leaves it."""

import threading
from itertools import count, islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.data import Row
from layerwise.data.rows import FORMATS
from layerwise.encoder import PromptTokenizer, SentenceTokenizer, Tokens, named_prompt
from layerwise.errors import InputError
from layerwise.train import Corpus, read_corpus
from layerwise.train.contrastive.batches import Batches, Sharding
from layerwise.train.contrastive.text_rows import CorpusCounts
from support.tiny import WORDS, tiny_tokenizer

PAD = 9_999


class Numbered:
    """A tokenizer whose tokens can be worked out by hand: text "7 3" is three tokens of 7; beyond six it cuts."""

    max_length = 6

    def __init__(self):
        self.texts = []
        self.threads = set()

    def __call__(self, texts):
        self.texts += texts
        self.threads.add(threading.get_ident())
        wanted = [tuple(map(int, text.split())) for text in texts]
        ids = [[number] * min(length, self.max_length) for number, length in wanted]
        return Tokens.of(ids, sum(length > self.max_length for _, length in wanted))


def numbered(rows, columns=1):
    """Row i's texts are numbers i, 1000 + i, 2000 + i of lengths 1 to 8."""
    return Corpus.of(
        *(
            [f"{1000 * column + row} {1 + (5 * row + 3 * column) % 8}" for row in range(rows)]
            for column in range(columns)
        ),
        source="numbered",
    )


def made(corpus, **options):
    options = {"batch_size": 4, "pad_id": PAD, "seed": 3, "window": 3} | options
    return Batches(corpus, options.pop("tokenizer", None) or Numbered(), **options)


def plain(batches):
    return [{name: tensor.tolist() for name, tensor in batch.items()} for batch in batches]


def rows_of(batches):
    return [row for batch in batches for row in batch["rows"].tolist()]


def expected(corpus, rows, copies):
    """A batch by plain loops."""
    texts = [column[row] for column in corpus.columns for row in rows] * copies
    ids = Numbered()(texts).ids
    longest = max(map(len, ids))
    return {
        "input_ids": [row + [PAD] * (longest - len(row)) for row in ids],
        "attention_mask": [[1] * len(row) + [0] * (longest - len(row)) for row in ids],
        "rows": rows,
    }


sizes, batch_sizes, worlds, windows = st.integers(2, 90), st.integers(2, 9), st.integers(1, 3), st.integers(1, 4)


@pytest.mark.parametrize("bucket", [True, False])
@pytest.mark.parametrize(("columns", "copies"), [(1, 1), (1, 2), (2, 1), (3, 1)])
def test_tensors_are_those_of_a_plain_loop(columns, copies, bucket):
    corpus = numbered(42, columns)
    batches = made(corpus, copies=copies, bucket=bucket)
    found = list(batches)
    for batch in found:
        assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
        assert plain([batch]) == [expected(corpus, batch["rows"].tolist(), copies)]
    assert len(found) == len(batches) == 11
    assert [len(batch["rows"]) for batch in found] == [4] * 10 + [2]
    assert batches.truncated == sum(int(text.split()[1]) > 6 for column in corpus.columns for text in column)


@settings(deadline=None)
@given(sizes, batch_sizes, worlds, windows, st.booleans(), st.integers(0, 5))
def test_every_row_comes_once_an_epoch_and_the_rest_is_counted(rows, batch_size, world, window, bucket, epoch):
    options = {"batch_size": batch_size, "window": window, "bucket": bucket, "world": world}
    if not Sharding(batch_size, 0, world).count(rows):
        with pytest.raises(InputError, match=rf"numbered: {rows} rows make no batch of {batch_size} for each of"):
            made(numbered(rows), **options)
        return
    ranks = [made(numbered(rows), **options, rank=rank) for rank in range(world)]
    for batches in ranks:
        batches.set_epoch(epoch)
    found = [list(batches) for batches in ranks]
    assert {len(own) for own in found} == {len(ranks[0])}
    for parts in zip(*found, strict=True):
        assert len({len(part["rows"]) for part in parts}) == 1
    seen = [row for own in found for row in rows_of(own)]
    assert len(seen) == len(set(seen)) == rows - ranks[0].dropped
    assert ranks[0].dropped < batch_size * world
    assert ranks[0].dropped <= 1 or world > 1


@settings(deadline=None)
@given(sizes, batch_sizes, st.integers(2, 3), windows, st.booleans())
def test_ranks_join_to_the_batches_of_one_process(rows, batch_size, world, window, bucket):
    options = {"window": window, "bucket": bucket}
    rows -= rows % world
    if not Sharding(batch_size, 0, world).count(rows):
        return
    whole = list(made(numbered(rows), batch_size=batch_size * world, **options))
    ranks = [
        list(made(numbered(rows), batch_size=batch_size, world=world, rank=rank, **options)) for rank in range(world)
    ]
    for batch, *parts in zip(whole, *ranks, strict=True):
        assert batch["rows"].tolist() == rows_of(parts)


@settings(deadline=None)
@given(sizes, batch_sizes, windows, st.booleans(), st.integers(0, 50))
def test_batches_after_a_skip_are_those_of_a_whole_epoch_once(rows, batch_size, window, bucket, skip):
    batches = made(numbered(rows), batch_size=batch_size, window=window, bucket=bucket)
    skip = min(skip, len(batches))
    batches.set_epoch(2)
    whole = plain(batches)
    batches.skip(skip)
    assert plain(batches) == whole[skip:]
    assert plain(batches) == whole


def test_skipped_windows_are_not_tokenised():
    tokenizer = Numbered()
    batches = made(numbered(120), tokenizer=tokenizer)
    batches.skip(20)
    assert len(list(batches)) == 10
    assert len(tokenizer.texts) == 4 * 12


def test_without_buckets_a_process_tokenises_its_own_rows_only():
    tokenizer = Numbered()
    batches = made(numbered(80, 2), tokenizer=tokenizer, bucket=False, world=2, rank=1)
    own = rows_of(batches)
    assert sorted(tokenizer.texts) == sorted(column[row] for column in batches.corpus.columns for row in own)


@settings(deadline=None)
@given(sizes, batch_sizes, windows, st.integers(1, 3), st.booleans())
def test_later_epochs_tokenise_nothing_again_and_are_those_of_new_batches(rows, batch_size, window, columns, bucket):
    options = {"batch_size": batch_size, "window": window, "bucket": bucket}
    tokenizer = Numbered()
    batches = made(numbered(rows, columns), tokenizer=tokenizer, **options)
    for epoch in range(3):
        batches.set_epoch(epoch)
        new = made(numbered(rows, columns), **options)
        new.set_epoch(epoch)
        assert plain(batches) == plain(new)
    assert len(tokenizer.texts) == len(set(tokenizer.texts)) <= rows * columns


def test_prompted_texts_keep_their_places_in_later_epochs():
    tokenizer = PromptTokenizer(tiny_tokenizer(), named_prompt("means"), max_length=24, model="tiny")
    corpus = Corpus.of([" ".join(WORDS[: 1 + row % 9]) for row in range(30)], source="words")
    batches, new = (made(corpus, tokenizer=tokenizer) for _ in range(2))
    list(batches)
    for either in (batches, new):
        either.set_epoch(1)
    assert plain(batches) == plain(new)
    assert all(batch["places"].shape[1] == 3 for batch in batches)


def test_the_order_is_a_function_of_seed_and_epoch():
    def order(seed, epoch):
        batches = made(numbered(60), seed=seed)
        batches.set_epoch(epoch)
        return rows_of(batches)

    orders = {(seed, epoch): order(seed, epoch) for seed in (0, 1) for epoch in (0, 1)}
    assert all(order(*key) == found for key, found in orders.items())
    assert len(set(map(tuple, orders.values()))) == 4


def test_buckets_pad_less_and_stay_in_their_window():
    corpus = numbered(480)
    sizes = {}
    for bucket in (True, False):
        batches = made(corpus, bucket=bucket, window=30)
        found = list(batches)
        sizes[bucket] = sum(batch["input_ids"].numel() for batch in found)
        order = np.random.default_rng([3, 0]).permutation(480)
        for start in range(0, 120, 30):
            rows = rows_of(found[start : start + 30])
            assert set(rows) == set(order[4 * start : 4 * (start + 30)].tolist())
            assert bucket or rows == order[4 * start : 4 * (start + 30)].tolist()
    assert sizes[True] < 0.85 * sizes[False]
    lengths = [batch["input_ids"].shape[1] for batch in made(corpus, window=30)]
    assert lengths != sorted(lengths)


def test_windows_are_tokenised_in_another_thread():
    tokenizer = Numbered()
    list(made(numbered(40), tokenizer=tokenizer))
    assert threading.get_ident() not in tokenizer.threads


def test_the_real_tokenizer_gives_its_own_tokens():
    tokenizer = tiny_tokenizer()
    texts = [" ".join(WORDS[start : start + 1 + start % 7]) for start in range(20)]
    corpus = Corpus.of(texts, source="words")
    for batch in Batches(corpus, SentenceTokenizer(tokenizer, max_length=8), batch_size=6, pad_id=0, seed=0):
        chosen = [corpus.columns[0][row] for row in batch["rows"].tolist()]
        by_itself = tokenizer(chosen, padding=True, truncation=True, max_length=8, return_tensors="pt")
        assert torch.equal(batch["input_ids"], by_itself["input_ids"])
        assert torch.equal(batch["attention_mask"], by_itself["attention_mask"])


class TestStreamed:
    @staticmethod
    def corpus(tmp_path, size, **options):
        file = tmp_path / "rows.txt"
        file.write_text("".join(f"{row} {1 + row % 8}\n" for row in range(size)))
        return read_corpus(file, "text", stream=True, **options)

    @pytest.mark.parametrize("rows", [2, 5, 12, 47, 150])
    @pytest.mark.parametrize("bucket", [True, False])
    def test_every_row_comes_once_with_its_number(self, tmp_path, rows, bucket):
        batches = made(self.corpus(tmp_path, rows), bucket=bucket)
        found = list(batches)
        seen = rows_of(found)
        assert len(seen) == len(set(seen)) == rows - batches.dropped
        assert batches.dropped == (rows % 4 == 1)
        assert set(seen) <= set(range(rows))
        for batch in found:
            assert batch["input_ids"][:, 0].tolist() == batch["rows"].tolist()

    def test_order_skip_and_ranks_as_in_memory(self, tmp_path):
        corpus = self.corpus(tmp_path, 150)
        batches = made(corpus)
        first = plain(batches)
        assert plain(batches) == first
        for skip in (1, 13, 38):
            batches.skip(skip)
            assert plain(batches) == first[skip:]
        batches.set_epoch(1)
        assert plain(batches) != first
        ranks = [list(made(corpus, batch_size=2, world=2, rank=rank)) for rank in (0, 1)]
        for batch, *parts in zip(first, *ranks, strict=True):
            assert batch["rows"] == rows_of(parts)

    def test_rows_are_shuffled_beyond_their_window(self, tmp_path):
        order = rows_of(made(self.corpus(tmp_path, 600)))
        assert sum(row // 12 != place // 12 for place, row in enumerate(order)) > 300

    def test_the_length_is_known_where_rows_were_said(self, tmp_path):
        assert len(made(self.corpus(tmp_path, 10, rows=10))) == 3
        with pytest.raises(TypeError, match=r"a streamed corpus has no length; give it rows"):
            len(made(self.corpus(tmp_path, 10)))

    def test_a_stream_too_short_for_its_processes_is_told(self, tmp_path):
        with pytest.raises(InputError, match=r"rows.txt: 3 rows make no batch of 4 for each of 2 processes"):
            list(made(self.corpus(tmp_path, 3), world=2))

    def test_a_file_without_an_end_is_read_a_few_windows_ahead(self, tmp_path, monkeypatch):
        pulled = []

        def endless(_source):
            for place in count():
                pulled.append(place)
                yield Row(place + 1, (f"{place} 2",))

        corpus = self.corpus(tmp_path, 2)
        monkeypatch.setitem(FORMATS._entries, "text", endless)
        batches = iter(made(corpus))
        assert len(list(islice(batches, 10))) == 10
        assert len(pulled) <= 12 * (4 + 1 + 2)  # four windows begun, one ahead, and the buffer of one with what comes
        batches.close()

    def test_what_goes_wrong_in_the_thread_is_told(self, tmp_path):
        corpus = self.corpus(tmp_path, 50)
        with (tmp_path / "rows.txt").open("ab") as file:
            file.write(b"\xff\n")
        with pytest.raises(InputError, match=r"rows.txt:51: not UTF-8"):
            list(made(corpus))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 1}, r"batch_size is 1: a batch of one sentence has no negatives.*give 2 or more"),
        ({"rank": 2, "world": 2}, r"rank is 2 of world 2; ranks count from 0"),
        ({"copies": 0}, r"0 copies of a corpus of 1 columns"),
        ({"window": 0}, r"window is 0 batches; give 1 or more"),
        ({"seed": -1}, r"seed is -1; give 0 or more"),
    ],
)
def test_mistakes_are_told(options, message):
    with pytest.raises(InputError, match=message):
        made(numbered(20), **options)


def test_other_mistakes_are_told():
    with pytest.raises(InputError, match=r"2 copies of a corpus of 2 columns; give 1"):
        made(numbered(20, 2), copies=2)
    with pytest.raises(InputError, match=r"one: 1 rows make no batch of 4; give more rows"):
        made(Corpus((("0 1",),), "one", CorpusCounts()))
    batches = made(numbered(20))
    with pytest.raises(InputError, match=r"6 batches to skip; an epoch has 5"):
        batches.skip(6)
    with pytest.raises(InputError, match=r"-1 batches to skip"):
        batches.skip(-1)
    with pytest.raises(InputError, match=r"epoch is -1; epochs count from 0"):
        batches.set_epoch(-1)
