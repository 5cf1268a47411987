"""Join tokens to words: pieces of one word are joined, special tokens and punctuation are words by themselves."""

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.intp]


def words_of(tokens: Sequence[str], text: str = "", spans: Sequence[tuple[int, int]] = ()) -> tuple[list[str], Numbers]:
    """The words of a tokenised text, and the index of each token's word.

    Args:
        tokens: The tokens as in the vocabulary, which name special tokens.
        text: The text that was tokenised.
        spans: The character span of each token in it, empty for special tokens. Without spans, tokens are not joined.

    >>> words_of(["[CLS]", "un", "##well", ".", "[SEP]"], "Unwell.", [(0, 0), (0, 2), (2, 6), (6, 7), (0, 0)])
    (['[CLS]', 'Unwell', '.', '[SEP]'], array([0, 1, 1, 2, 3]))
    """
    if len(spans) != len(tokens):
        return list(tokens), np.arange(len(tokens))
    words: list[tuple[int, int]] = []
    names: list[str] = []
    numbers = []
    for token, (first, last) in zip(tokens, spans, strict=True):
        first += len(text[first:last]) - len(text[first:last].lstrip())
        if words and first < last and _continues(text, words[-1], first):
            words[-1] = (words[-1][0], max(last, words[-1][1]))
            names[-1] = text[slice(*words[-1])].rstrip()
        else:
            words.append((first, last))
            names.append(text[first:last].rstrip() or token)
        numbers.append(len(words) - 1)
    return names, np.array(numbers, dtype=np.intp)


def _continues(text: str, word: tuple[int, int], first: int) -> bool:
    """Whether the token that starts at `first` belongs to the previous word."""
    start, end = word
    if start == end:
        return False
    if start <= first < end:  # bytes of one character
        return True
    return first == end and _is_letter(text[end - 1]) and _is_letter(text[first])


def _is_letter(char: str) -> bool:
    """Whether a character is part of words between spaces, which Chinese, Japanese and Korean do not have."""
    part_of_word = char.isalnum() or unicodedata.category(char).startswith("M")
    return part_of_word and unicodedata.east_asian_width(char) not in ("W", "F")
