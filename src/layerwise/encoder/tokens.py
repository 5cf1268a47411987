"""Sentences to token numbers: fast, truncated to the model's length, without padding."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from layerwise.errors import InputError

log = logging.getLogger(__name__)
_LONG, _LONGEST = 1 << 17, 1 << 23  # characters: from where a text is cut first, and within which it must have words
_PROBES = ["", "a", "The river rose by 12.5 cm; nobody was hurt!", "long words " * 600, " Ünïcode — 漢字 "]


@dataclass(frozen=True)
class Tokens:
    """Token numbers of some sentences, and how many of those sentences were cut to the model's length."""

    ids: list[list[int]]
    truncated: int


class SentenceTokenizer:
    """A Hugging Face tokenizer without its bookkeeping.

    Its Rust tokenizer is called directly, with no offsets and no Python objects a token. That this gives
    what the tokenizer itself gives is checked once on a few texts; where it does not, the tokenizer itself is called.
    """

    def __init__(self, tokenizer: Any, *, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self._fast = _direct(tokenizer, max_length)
        if self._fast is not None and self._slow_ids(_PROBES) != [e.ids for e in self._fast.encode_batch_fast(_PROBES)]:
            log.warning("The tokenizer gives other tokens when called directly; the slower way is used")
            self._fast = None

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Tokenise; a sentence beyond `max_length` tokens is truncated and counted."""
        if self._fast is None:
            ids = self._slow_ids(texts)
            full = [text for text, row in zip(texts, ids, strict=True) if len(row) == self.max_length]
            whole = self.tokenizer(full, truncation=False, verbose=False)["input_ids"] if full else []
            return Tokens(self._filled(ids), sum(len(row) > self.max_length for row in whole))
        encodings = self._fast.encode_batch_fast([_beginning(self._fast, text) for text in texts])
        ids = [encoding.ids for encoding in encodings]
        cut = (len(row) == self.max_length and bool(e.overflowing) for row, e in zip(ids, encodings, strict=True))
        return Tokens(self._filled(ids), sum(cut))

    def _filled(self, ids: list[list[int]]) -> list[list[int]]:
        """A sentence without any token (a tokenizer may add no special ones) becomes one unknown token."""
        nothing = [int(self.tokenizer.unk_token_id or self.tokenizer.pad_token_id or 0)]
        return [row or nothing for row in ids]

    def _slow_ids(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self.tokenizer(list(texts), truncation=True, max_length=self.max_length, padding=False)[
            "input_ids"
        ]
        return ids


def _beginning(tokenizer: Tokenizer, text: str) -> str:
    """What of a very long text decides its first tokens: a tokenizer takes a hundred bytes for each letter.

    A beginning of twice as many tokens as are kept gives the same tokens as the text, as words are cut on their own.
    """
    size = _LONG
    while size < len(text):
        if len(tokenizer.encode_batch_fast([text[:size]])[0].overflowing) > 1:
            return text[:size]
        if size >= _LONGEST:
            raise InputError(
                f"a text of {len(text):,} characters has hardly a word in its first {_LONGEST:,}; it is no sentence: "
                f"split it or drop it"
            )
        size *= 8
    return text


def _direct(tokenizer: Any, max_length: int) -> Tokenizer | None:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or tokenizer.truncation_side != "right":
        return None
    direct = Tokenizer.from_str(backend.to_str())  # a copy: the user's tokenizer keeps its settings
    direct.no_padding()
    direct.enable_truncation(max_length)
    return direct
