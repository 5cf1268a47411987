"""Checks of texts, and deduplication."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SURROGATE = re.compile("[\ud800-\udfff]")
_SEPARATORS = re.compile(r"[\W_]+")


def has_lone_surrogate(text: str) -> bool:
    """Half a surrogate pair, as broken JSON gives it: it cannot be encoded as UTF-8, so no tokenizer takes it."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def letters_of(text: str) -> str:
    """Return the letters and digits of a text in lower case; if there are none, its punctuation marks."""
    lower = text.lower()
    return _SEPARATORS.sub("", lower) or " ".join(lower.split())


def unique_texts(*columns: Sequence[str]) -> tuple[list[str], tuple[NDArray[np.intp], ...]]:
    """Return the unique texts in order of appearance, and each column as indices into them.

    >>> unique_texts(["a", "b"], ["b", "c"])
    (['a', 'b', 'c'], (array([0, 1]), array([1, 2])))
    """
    positions: dict[str, int] = {}
    rows = tuple(
        np.array([positions.setdefault(text, len(positions)) for text in column], dtype=np.intp) for column in columns
    )
    return list(positions), rows
