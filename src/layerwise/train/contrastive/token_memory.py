"""The tokens of a corpus in memory, kept from the first epoch, so that later epochs tokenise nothing."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder import Tokens

Numbers = NDArray[np.int64]


class TokenMemory:
    """Tokenises each text of a corpus once. The tokens take about as much memory as the texts.

    Args:
        tokenizer: Tokenises texts.
        texts: The number of texts of the corpus.
    """

    def __init__(self, tokenizer: Callable[[Sequence[str]], Tokens], texts: int) -> None:
        self.tokenizer = tokenizer
        self._starts = np.full(texts, -1, dtype=np.int64)
        self._lengths = np.zeros(texts, dtype=np.int32)
        self._places: NDArray[np.int32] | None = None
        self._numbers = np.empty(0, dtype=np.int32)
        self._used = 0

    def __call__(self, numbers: Numbers, texts: Sequence[str]) -> Tokens:
        """Return the tokens of texts by their numbers in the corpus; `truncated` counts those tokenised now."""
        new = np.flatnonzero(self._starts[numbers] < 0)
        truncated = 0
        if len(new):
            tokens = self.tokenizer([texts[index] for index in new.tolist()])
            self._add(numbers[new], tokens)
            truncated = tokens.truncated
            if len(new) == len(numbers):
                return tokens
        lengths = self._lengths[numbers].astype(np.int64)
        firsts = np.cumsum(lengths) - lengths  # of each text among the tokens that are returned
        positions = np.arange(lengths.sum()) + np.repeat(self._starts[numbers] - firsts, lengths)
        places = None if self._places is None else self._places[numbers].astype(np.int64)
        return Tokens(self._numbers[positions].astype(np.int64), lengths, truncated, places)

    def _add(self, numbers: Numbers, tokens: Tokens) -> None:
        """Append the tokens of texts."""
        needed = self._used + len(tokens.numbers)
        if needed > len(self._numbers):
            larger = np.empty(max(needed, 2 * len(self._numbers)), dtype=np.int32)
            larger[: self._used] = self._numbers[: self._used]
            self._numbers = larger
        self._numbers[self._used : needed] = tokens.numbers
        self._starts[numbers] = self._used + np.cumsum(tokens.lengths) - tokens.lengths
        self._lengths[numbers] = tokens.lengths
        self._used = needed
        if tokens.places is not None:
            if self._places is None:
                self._places = np.zeros((len(self._starts), tokens.places.shape[1]), dtype=np.int32)
            self._places[numbers] = tokens.places
