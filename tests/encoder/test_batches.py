"""Batches hold every sentence once, within their token budget, with little padding; tokens are the tokenizer's own."""

import copy
from itertools import combinations, pairwise

import pytest
import torch
import transformers as hf
from hypothesis import given
from hypothesis import strategies as st

from layerwise.encoder import SentenceTokenizer, Tokens
from layerwise.encoder.batches import token_batches
from support.tiny import SENTENCES, VOCABULARY, WORDS, tiny_tokenizer

lengths = st.lists(st.integers(1, 60), max_size=80)
budgets = st.integers(1, 600)


def numbered(lengths: list[int]) -> list[list[int]]:
    """Sentences whose tokens say which row and column they are."""
    return [[1000 * row + column for column in range(length)] for row, length in enumerate(lengths)]


@given(lengths, budgets)
def test_every_row_comes_once_with_its_tokens(lengths, budget):
    ids = numbered(lengths)
    found = {}
    for batch in token_batches(Tokens.of(ids), budget=budget):
        tokens, mask = batch.padded(-1)
        for row, length, line, kept in zip(batch.rows, batch.lengths, tokens.tolist(), mask.tolist(), strict=True):
            assert int(row) not in found
            found[int(row)] = line[:length]
            assert set(line[length:]) <= {-1}
            assert kept == [1] * length + [0] * (tokens.shape[1] - length)
    assert [found[row] for row in range(len(ids))] == ids


@given(lengths, budgets)
def test_the_budget_holds_but_for_single_sentences(lengths, budget):
    for batch in token_batches(Tokens.of(numbered(lengths)), budget=budget):
        tokens, _ = batch.padded(0)
        assert batch.size == tokens.numel()
        assert batch.size <= budget or len(batch.rows) == 1


@given(lengths, budgets)
def test_batches_go_from_long_to_short_and_equal_lengths_keep_their_order(lengths, budget):
    rows = [int(row) for batch in token_batches(Tokens.of(numbered(lengths)), budget=budget) for row in batch.rows]
    assert rows == sorted(range(len(lengths)), key=lambda row: -lengths[row])


@given(lengths, budgets)
def test_a_batch_over_a_quarter_full_is_not_padded(lengths, budget):
    for batch in token_batches(Tokens.of(numbered(lengths)), budget=budget):
        assert batch.size == batch.lengths.sum() or 4 * batch.size <= budget


@given(lengths, budgets)
def test_a_batch_ends_only_for_its_budget_or_for_padding(lengths, budget):
    for batch, following in pairwise(token_batches(Tokens.of(numbered(lengths)), budget=budget)):
        longest, next_one = int(batch.lengths[0]), int(following.lengths[0])
        another = batch.size + longest
        assert another > budget or (4 * another > budget and longest > next_one)


def test_batches_by_hand():
    ids = numbered([2, 10, 10, 3, 10, 2])
    rows = [batch.rows.tolist() for batch in token_batches(Tokens.of(ids), budget=24)]
    assert rows == [[1, 2], [4], [3, 0], [5]], "ten and ten; ten alone; a quarter full at two of three; the rest"
    assert [batch.rows.tolist() for batch in token_batches(Tokens.of(ids), budget=1)] == [[1], [2], [4], [3], [0], [5]]
    assert [batch.rows.tolist() for batch in token_batches(Tokens.of(ids), budget=4 * 60)] == [[1, 2, 4, 3, 0, 5]]
    assert list(token_batches(Tokens.of([]), budget=10)) == []


def cut(lengths: list[int], budget: int, overhead: int) -> list[list[int]]:
    """The lengths of each batch."""
    batches = token_batches(Tokens.of(numbered(lengths)), budget=budget, overhead=overhead)
    return [batch.lengths.tolist() for batch in batches]


@given(lengths, budgets, st.integers(0, 50))
def test_cheap_batches_hold_every_row_once_within_their_budget(lengths, budget, overhead):
    batches = cut(lengths, budget, overhead)
    assert [length for batch in batches for length in batch] == sorted(lengths, reverse=True)
    assert all(batch[0] * len(batch) <= budget or len(batch) == 1 for batch in batches)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(0, 30))
def test_no_other_cuts_cost_less(lengths, overhead):
    ordered = sorted(lengths, reverse=True)

    def cost(stops: tuple[int, ...]) -> int:
        return sum(ordered[start] * (stop - start) + overhead for start, stop in pairwise((0, *stops, len(ordered))))

    places = range(1, len(ordered))
    least = min(cost(stops) for count in range(len(ordered)) for stops in combinations(places, count))
    assert sum(batch[0] * len(batch) + overhead for batch in cut(lengths, 10**6, overhead)) == least


def test_cheap_batches_by_hand():
    lengths = [2, 10, 10, 3, 10, 2]
    assert cut(lengths, 100, 0) == [[10, 10, 10], [3], [2, 2]], "padding is never free"
    assert cut(lengths, 100, 8) == [[10, 10, 10], [3, 2, 2]], "two tokens of padding cost less than another batch"
    assert cut(lengths, 100, 99) == [[10, 10, 10, 3, 2, 2]]
    assert cut(lengths, 20, 8) == [[10, 10], [10], [3, 2, 2]], "the budget cuts sentences of one length"
    assert cut([], 20, 8) == []


@given(st.lists(st.integers(1, 30), min_size=2, max_size=40))
def test_halves_hold_what_the_whole_held(lengths):
    (whole,) = token_batches(Tokens.of(numbered(lengths)), budget=10**6)
    left, right = whole.split()
    assert abs(len(left.rows) - len(right.rows)) <= 1
    for half in (left, right):
        tokens, mask = half.padded(-1)
        assert tokens.shape == (len(half.rows), half.lengths[0])
        for row, line, kept in zip(half.rows.tolist(), tokens, mask.bool(), strict=True):
            assert line[kept].tolist() == [1000 * row + column for column in range(lengths[row])]
    assert [*left.rows, *right.rows] == whole.rows.tolist()


def test_padding_takes_the_pad_number_and_masks_it():
    (batch,) = token_batches(Tokens.of([[5], [6, 7, 8]]), budget=100)
    tokens, mask = batch.padded(9)
    assert torch.equal(tokens, torch.tensor([[6, 7, 8], [5, 9, 9]]))
    assert torch.equal(mask, torch.tensor([[1, 1, 1], [1, 0, 0]]))


def left_tokenizer() -> hf.PreTrainedTokenizerFast:
    tokenizer = tiny_tokenizer()
    tokenizer.truncation_side = "left"
    return tokenizer


def bare_tokenizer() -> hf.PreTrainedTokenizerFast:
    """Without special tokens around a sentence."""
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    return tokenizer


@pytest.fixture(scope="module")
def python_tokenizer(tmp_path_factory) -> hf.PreTrainedTokenizerBase:
    """One without a Rust tokenizer behind it."""
    vocabulary = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY), encoding="utf-8")
    return hf.BertJapaneseTokenizer(str(vocabulary), word_tokenizer_type="basic", do_lower_case=True)


texts = st.lists(st.lists(st.sampled_from([*WORDS, "Ünïcode", "漢字", "!?", " "]), max_size=12).map(" ".join))


def assert_same_tokens(tokenizer, sentences: list[str], max_length: int) -> None:
    whole = tokenizer(sentences, verbose=False)["input_ids"] if sentences else []
    cut = tokenizer(sentences, truncation=True, max_length=max_length)["input_ids"] if sentences else []
    tokens = SentenceTokenizer(tokenizer, max_length=max_length)(sentences)
    assert tokens.ids == cut
    assert tokens.truncated == sum(len(row) > max_length for row in whole)


@given(texts, st.integers(2, 14))
def test_tokens_are_the_tokenizers_own(sentences, max_length):
    assert SentenceTokenizer(tiny_tokenizer(), max_length=max_length)._fast is not None
    assert_same_tokens(tiny_tokenizer(), sentences, max_length)


@given(texts.filter(len), st.integers(2, 14))
def test_what_the_direct_way_can_not_do_goes_through_the_tokenizer(sentences, max_length):
    assert SentenceTokenizer(left_tokenizer(), max_length=max_length)._fast is None
    assert_same_tokens(left_tokenizer(), sentences, max_length)


def test_a_tokenizer_without_special_tokens_is_followed_too():
    assert_same_tokens(bare_tokenizer(), SENTENCES, 5)


@pytest.mark.parametrize("max_length", [3, 6, 60])
def test_a_tokenizer_written_in_python_is_followed_too(python_tokenizer, max_length):
    assert SentenceTokenizer(python_tokenizer, max_length=max_length)._fast is None
    assert_same_tokens(python_tokenizer, SENTENCES, max_length)


def test_a_sentence_of_exactly_the_length_is_not_cut():
    tokenizer = tiny_tokenizer()
    words = " ".join(WORDS[:6])  # 6 words and 2 special tokens
    for made in (tokenizer, left_tokenizer()):
        assert SentenceTokenizer(made, max_length=8)([words]).truncated == 0
        assert SentenceTokenizer(made, max_length=7)([words, "rain", words]).truncated == 2


@pytest.mark.parametrize("make", [tiny_tokenizer, left_tokenizer])
def test_the_users_tokenizer_keeps_its_settings(make):
    tokenizer = make()
    tokenizer.padding_side = "left"
    tokenizer(["warm up"], truncation=True, max_length=40, padding="max_length")
    before, expected = copy.deepcopy(tokenizer), tokenizer(SENTENCES, padding=True)["input_ids"]
    sentences = SentenceTokenizer(tokenizer, max_length=4)
    assert sentences(SENTENCES).ids[0] != expected[0]
    assert tokenizer(SENTENCES, padding=True)["input_ids"] == expected == before(SENTENCES, padding=True)["input_ids"]
    assert tokenizer.model_max_length == before.model_max_length
    assert (tokenizer.padding_side, tokenizer.truncation_side) == (before.padding_side, before.truncation_side)


def test_padding_left_in_the_users_tokenizer_does_not_reach_ours():
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.enable_padding(length=50)
    tokenizer.backend_tokenizer.enable_truncation(3)
    tokens = SentenceTokenizer(tokenizer, max_length=30)(SENTENCES)
    assert tokens.ids == tiny_tokenizer()(SENTENCES)["input_ids"]
    assert tokens.truncated == 0
