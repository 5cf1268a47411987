"""Sentences to token numbers: fast, truncated to the model's length, without padding; plain or within a prompt."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from layerwise.encoder.prompts import TEXT, Prompt, check_prompt, in_words
from layerwise.errors import InputError

Spans = tuple[str, list[tuple[int, int]]]  # a text, and each token's first and last character in it, plus 1
Numbers = NDArray[np.int64]

log = logging.getLogger(__name__)
_LONG, _LONGEST = 1 << 17, 1 << 23  # characters: from where a text is cut first, and within which it must have words
_AT_ONCE = 4096  # texts: after some thousand new objects Python looks through all it has for garbage, for 0.2 s
_PROBES = ["", "a", "The river rose by 12.5 cm; nobody was hurt!", "long words " * 600, " Ünïcode — 漢字 "]


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token numbers of some sentences.

    Attributes:
        numbers: One sentence after the other, (all tokens,).
        lengths: How many are of each sentence, (sentences,).
        truncated: How many of the sentences were cut to the model's length.
        places: Which tokens of a prompt are pooled, (sentences, 3): the first one, the one after the last, the mask.
            None where all are.
    """

    numbers: Numbers
    lengths: Numbers
    truncated: int = 0
    places: Numbers | None = None

    @classmethod
    def of(cls, ids: Iterable[Sequence[int]], truncated: int = 0, places: Numbers | None = None) -> "Tokens":
        """Of the token numbers of each sentence."""
        lengths: list[int] = []

        def counted() -> Iterator[Sequence[int]]:
            for row in ids:
                lengths.append(len(row))
                yield row

        numbers = np.fromiter(chain.from_iterable(counted()), dtype=np.int64)
        return cls(numbers, np.array(lengths, dtype=np.int64), truncated, places)

    @classmethod
    def joined(cls, parts: Sequence["Tokens"]) -> "Tokens":
        """The sentences of one part after those of another; all have places or none has."""
        if len(parts) == 1:
            return parts[0]
        places = [part.places for part in parts if part.places is not None]
        return cls(
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.lengths for part in parts]),
            sum(part.truncated for part in parts),
            np.concatenate(places) if places else None,
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, start: int, stop: int) -> "Tokens":
        """Some of the sentences; how many of them were cut is not known any more."""
        first = int(self.lengths[:start].sum())
        last = first + int(self.lengths[start:stop].sum())
        places = None if self.places is None else self.places[start:stop]
        return Tokens(self.numbers[first:last], self.lengths[start:stop], 0, places)

    @property
    def ids(self) -> list[list[int]]:
        """The token numbers of each sentence, for few sentences."""
        ends = np.cumsum(self.lengths)
        return [self.numbers[end - length : end].tolist() for end, length in zip(ends, self.lengths, strict=True)]


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
            return Tokens.of(self._filled(ids), sum(len(row) > self.max_length for row in whole))
        return _in_parts(partial(self._tokens, self._fast), texts)

    def spans(self, text: str) -> Spans | None:
        """The text and where each of its tokens stands in it; None where the tokenizer cannot tell."""
        if self._fast is None:
            return None
        return text, self._fast.encode(_beginning(self._fast, text)).offsets

    def _tokens(self, fast: Tokenizer, texts: Sequence[str]) -> Tokens:
        encodings = fast.encode_batch_fast([_beginning(fast, text) for text in texts])
        truncated = sum(len(encoding) == self.max_length and bool(encoding.overflowing) for encoding in encodings)
        return Tokens.of(self._filled(encoding.ids for encoding in encodings), truncated)

    def _filled(self, ids: Iterable[list[int]]) -> Iterator[list[int]]:
        """A sentence without any token (a tokenizer may add no special ones) becomes one unknown token."""
        nothing = [int(self.tokenizer.unk_token_id or self.tokenizer.pad_token_id or 0)]
        return (row or nothing for row in ids)

    def _slow_ids(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self.tokenizer(list(texts), truncation=True, max_length=self.max_length, padding=False)[
            "input_ids"
        ]
        return ids


@dataclass(frozen=True)
class Template:
    """The tokens of a prompt without its text, how many of them stand before it, and which one is the mask."""

    ids: list[int]
    before: int
    mask: int


class PromptTokenizer:
    """Sentences within a prompt to tokens. Where they are too many, the text is cut and never the prompt."""

    def __init__(self, tokenizer: Any, prompt: Prompt, *, max_length: int, model: str) -> None:
        check_prompt(prompt, tokenizer, model)
        text = _text_of(tokenizer)
        if text is None:
            raise InputError(f"{model}: its tokenizer is written in Python, and prompts need one of Rust")
        self.prompt = prompt
        self.max_length = max_length
        self._truncating, self._whole = _copy(text, max_length), _copy(text, None)
        words = in_words(prompt, tokenizer)
        self._parts = words.split(TEXT)
        self._mask_token = tokenizer.mask_token if prompt.has_mask else None
        fixed = len(self._encode([""])[0].ids)
        if fixed >= max_length:
            raise InputError(
                f"The prompt {prompt.full} takes {fixed} tokens and {model} at most {max_length}, so no text fits in it"
            )
        self._room = (max_length - fixed) // (len(self._parts) - 1)

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Tokenise, and tell which tokens are pooled."""
        return _in_parts(self._tokens, texts)

    def _tokens(self, texts: Sequence[str]) -> Tokens:
        fitted, encodings = self._fit(texts)
        truncated = sum(len(kept) < len(text) for kept, text in zip(fitted, texts, strict=True))
        places = [self._places(text, encoding) for text, encoding in zip(fitted, encodings, strict=True)]
        return Tokens.of((encoding.ids for encoding in encodings), truncated, np.array(places).reshape(-1, 3))

    def template(self) -> Template:
        """The prompt's own tokens: those around a text of one letter. Refused where the text stands in it twice."""
        if len(self._parts) != 2:
            raise InputError(f"The prompt {self.prompt.full} has its text twice; take one that has it once")
        letter, begins = "a", len(self._parts[0])
        (encoding,) = self._encode([letter])
        of_text = [first < begins + len(letter) and last > max(first, begins) for first, last in encoding.offsets]
        if not any(of_text):
            raise InputError(f"The prompt {self.prompt.full} has no token of its own for a text; take another prompt")
        masked = self._mask_place(letter, encoding)
        kept = [number for number, inside in enumerate(of_text) if not inside]
        return Template(
            [encoding.ids[number] for number in kept], of_text.index(True), kept.index(masked) if masked in kept else 0
        )

    def spans(self, text: str) -> Spans:
        """The prompt with the text in it, and where each of its tokens stands there."""
        (fitted,), (encoding,) = self._fit([text])
        return fitted.join(self._parts), encoding.offsets

    def _fit(self, texts: Sequence[str]) -> tuple[list[str], list[Encoding]]:
        """As much of each text as fits, and the tokens of the prompt with it."""
        fitted = [_beginning(self._truncating, text) for text in texts]
        encodings = self._encode(fitted)
        long = [row for row, encoding in enumerate(encodings) if len(encoding) > self.max_length]
        for row, (text, encoding) in zip(long, self._cut([fitted[row] for row in long]), strict=True):
            fitted[row], encodings[row] = text, encoding
        return fitted, encodings

    def _encode(self, texts: Sequence[str]) -> list[Encoding]:
        """A chat template has its special tokens already."""
        filled = [text.join(self._parts) for text in texts]
        encodings: list[Encoding] = self._whole.encode_batch(filled, add_special_tokens=not self.prompt.is_chat)
        return encodings

    def _cut(self, texts: Sequence[str]) -> list[tuple[str, Encoding]]:
        """The longest beginning of each text that fits, by whole tokens."""
        tokens = self._whole.encode_batch(list(texts), add_special_tokens=False)
        keep, found = [self._room] * len(texts), dict[int, tuple[str, Encoding]]()
        while len(found) < len(texts):
            left = [row for row in range(len(texts)) if row not in found]
            cut = [texts[row][: tokens[row].offsets[keep[row] - 1][1]] if keep[row] > 0 else "" for row in left]
            for row, text, encoding in zip(left, cut, self._encode(cut), strict=True):
                over = len(encoding) - self.max_length
                if over <= 0:
                    found[row] = text, encoding
                else:
                    keep[row] -= max(1, over // (len(self._parts) - 1))
        return [found[row] for row in range(len(texts))]

    def _places(self, text: str, encoding: Encoding) -> tuple[int, int, int]:
        start, stop = 0, len(encoding)
        if self.prompt.over != "all":
            begins = len(self._parts[0])
            if self.prompt.over == "second":
                begins += len(text) + len(self._parts[1])
            within = _tokens_within(encoding, begins, begins + len(text))
            if within is None:
                raise InputError(f"The text {text[:40]!r} has no token in the prompt {self.prompt.full}; leave it out")
            start, stop = within
        return start, stop, self._mask_place(text, encoding)

    def _mask_place(self, text: str, encoding: Encoding) -> int:
        """The place of the prompt's own mask, whatever the text holds."""
        if self._mask_token is None:
            return 0
        before = 0
        for number, part in enumerate(self._parts):
            if self._mask_token in part:
                before += part.index(self._mask_token)
                break
            before += len(part) + (len(text) if number < len(self._parts) - 1 else 0)
        place = encoding.char_to_token(before)
        if place is None:
            raise InputError(
                f"The mask of the prompt {self.prompt.full} is no token of this model; take another prompt"
            )
        return int(place)


def _in_parts(tokenise: Callable[[Sequence[str]], Tokens], texts: Sequence[str]) -> Tokens:
    """Some texts at a time, so that no thousands of Python objects wait to become arrays."""
    starts = range(0, max(1, len(texts)), _AT_ONCE)
    return Tokens.joined([tokenise(texts[start : start + _AT_ONCE]) for start in starts])


def _tokens_within(encoding: Encoding, begins: int, ends: int) -> tuple[int, int] | None:
    """The first token of some characters and the one after their last; None where they have none."""
    first = next((place for at in range(begins, ends) if (place := encoding.char_to_token(at)) is not None), None)
    if first is None:
        return None
    last = next(place for at in range(ends - 1, begins - 1, -1) if (place := encoding.char_to_token(at)) is not None)
    stop = last + 1  # a character of several tokens is found by the first of them
    while stop < len(encoding) and (span := encoding.token_to_chars(stop)) and span[0] < min(ends, span[1]):
        stop += 1
    return first, stop


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
    text = _text_of(tokenizer)
    return None if text is None else _copy(text, max_length)


def _text_of(tokenizer: Any) -> str | None:
    """A tokenizer of Rust as text; None for others."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return None if backend is None or tokenizer.truncation_side != "right" else str(backend.to_str())


@lru_cache(maxsize=4)  # one for all prompts: to read a large vocabulary takes half a second
def _copy(text: str, max_length: int | None) -> Tokenizer:
    """A copy, for the user's tokenizer keeps its settings."""
    copy = Tokenizer.from_str(text)
    copy.no_padding()
    if max_length is None:
        copy.no_truncation()
    else:
        copy.enable_truncation(max_length)
    return copy
