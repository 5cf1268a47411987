"""Fast tokenisation of sentences, plain or within a prompt: truncated to the model's length, without padding."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from layerwise.encoder.prompts import TEXT, Prompt, check_prompt, render_prompt
from layerwise.errors import InputError

Spans = tuple[str, list[tuple[int, int]]]  # a text and each token's character span in it
Numbers = NDArray[np.int64]

log = logging.getLogger(__name__)
_LONG, _LONGEST = 1 << 17, 1 << 23  # characters: the first cut of a long text, and the last
_AT_ONCE = 4096  # texts: some thousand new objects trigger a full garbage collection, which takes 0.2 s
_PROBES = ["", "a", "The river rose by 12.5 cm; nobody was hurt!", "long words " * 600, " Ünïcode — 漢字 "]


@dataclass(frozen=True, eq=False)
class Tokens:
    """The token ids of some sentences.

    Attributes:
        numbers: The ids of all sentences, concatenated, (all tokens,).
        lengths: The number of tokens of each sentence, (sentences,).
        truncated: How many sentences were cut to the model's length.
        places: Which tokens of a prompt are pooled, (sentences, 3): the first one, the one after the last, the mask.
            None where all are.
    """

    numbers: Numbers
    lengths: Numbers
    truncated: int = 0
    places: Numbers | None = None

    @classmethod
    def of(cls, ids: Iterable[Sequence[int]], truncated: int = 0, places: Numbers | None = None) -> "Tokens":
        """Build from the token ids of each sentence."""
        lengths: list[int] = []

        def counted() -> Iterator[Sequence[int]]:
            for row in ids:
                lengths.append(len(row))
                yield row

        numbers = np.fromiter(chain.from_iterable(counted()), dtype=np.int64)
        return cls(numbers, np.array(lengths, dtype=np.int64), truncated, places)

    @classmethod
    def joined(cls, parts: Sequence["Tokens"]) -> "Tokens":
        """Concatenate parts; either all or none of them have `places`."""
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
        """Return the sentences `start` to `stop`; in a part, `truncated` is 0, as its count is unknown."""
        if (start, stop) == (0, len(self)):
            return self
        first = int(self.lengths[:start].sum())
        last = first + int(self.lengths[start:stop].sum())
        places = None if self.places is None else self.places[start:stop]
        return Tokens(self.numbers[first:last], self.lengths[start:stop], 0, places)

    @property
    def ids(self) -> list[list[int]]:
        """The token ids of each sentence as lists, for few sentences."""
        ends = np.cumsum(self.lengths)
        return [self.numbers[end - length : end].tolist() for end, length in zip(ends, self.lengths, strict=True)]


class SentenceTokenizer:
    """A Hugging Face tokenizer without its overhead.

    Calls the Rust tokenizer directly, without offsets and Python objects per token. The results are compared once with
    the tokenizer's own on a few texts; if they differ, the tokenizer itself is called.
    """

    def __init__(self, tokenizer: Any, *, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self._unknown = [int(tokenizer.unk_token_id or tokenizer.pad_token_id or 0)]
        self._fast = _direct(tokenizer, max_length)
        if self._fast is not None and self._slow_ids(_PROBES) != [e.ids for e in self._fast.encode_batch_fast(_PROBES)]:
            log.warning("The tokenizer gives other tokens when called directly; the slower way is used")
            self._fast = None

    @property
    def is_thread_safe(self) -> bool:
        """Whether several threads may call it at the same time: a tokenizer written in Python has state."""
        return self._fast is not None

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Tokenise; sentences beyond `max_length` tokens are truncated and counted."""
        if self._fast is None:
            ids = self._slow_ids(texts)
            full = [text for text, row in zip(texts, ids, strict=True) if len(row) == self.max_length]
            whole = self.tokenizer(full, truncation=False, verbose=False)["input_ids"] if full else []
            return Tokens.of(self._filled(ids), sum(len(row) > self.max_length for row in whole))
        return _in_parts(partial(self._tokens, self._fast), texts)

    def spans(self, text: str) -> Spans | None:
        """Return the text and the character span of each token; None if the tokenizer does not provide them."""
        if self._fast is None:
            return None
        return text, self._fast.encode(_beginning(self._fast, text)).offsets

    def _tokens(self, fast: Tokenizer, texts: Sequence[str]) -> Tokens:
        encodings = fast.encode_batch_fast([_beginning(fast, text) for text in texts])
        truncated = sum(len(encoding) == self.max_length and bool(encoding.overflowing) for encoding in encodings)
        if len(encodings) == 1:  # a server's most frequent request
            ids = np.array(encodings[0].ids or self._unknown, dtype=np.int64)
            return Tokens(ids, np.array([len(ids)]), truncated)
        return Tokens.of(self._filled(encoding.ids for encoding in encodings), truncated)

    def _filled(self, ids: Iterable[list[int]]) -> Iterator[list[int]]:
        """Replace a sentence without tokens (if the tokenizer adds no special ones) by one unknown token."""
        return (row or self._unknown for row in ids)

    def _slow_ids(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self.tokenizer(list(texts), truncation=True, max_length=self.max_length, padding=False)[
            "input_ids"
        ]
        return ids


@dataclass(frozen=True)
class Template:
    """The token ids of a prompt without its text, how many precede the text, and the index of the mask."""

    ids: list[int]
    before: int
    mask: int


class PromptTokenizer:
    """Tokenises sentences within a prompt. If they are too long, the text is cut, never the prompt."""

    def __init__(self, tokenizer: Any, prompt: Prompt, *, max_length: int, model: str) -> None:
        check_prompt(prompt, tokenizer, model)
        text = _text_of(tokenizer)
        if text is None:
            raise InputError(f"{model}: its tokenizer is written in Python, and prompts need one of Rust")
        self.prompt = prompt
        self.max_length = max_length
        self._truncating, self._whole = _copy(text, max_length), _copy(text, None)
        template = render_prompt(prompt, tokenizer)
        self._parts = template.split(TEXT)
        self._mask_token = tokenizer.mask_token if prompt.has_mask else None
        fixed = len(self._encode([""])[0].ids)
        if fixed >= max_length:
            raise InputError(
                f"The prompt {prompt.full} takes {fixed} tokens and {model} at most {max_length}, so no text fits in it"
            )
        self._room = (max_length - fixed) // (len(self._parts) - 1)

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Tokenise and locate the tokens to pool."""
        return _in_parts(self._tokens, texts)

    def _tokens(self, texts: Sequence[str]) -> Tokens:
        fitted, encodings = self._fit(texts)
        truncated = sum(len(cut) < len(text) for cut, text in zip(fitted, texts, strict=True))
        places = [self._places(text, encoding) for text, encoding in zip(fitted, encodings, strict=True)]
        return Tokens.of((encoding.ids for encoding in encodings), truncated, np.array(places).reshape(-1, 3))

    def template(self) -> Template:
        """Return the prompt's tokens without a text. Raises if the prompt contains the text twice."""
        if len(self._parts) != 2:
            raise InputError(f"The prompt {self.prompt.full} has its text twice; take one that has it once")
        letter, begins = "a", len(self._parts[0])
        (encoding,) = self._encode([letter])
        is_text = [first < begins + len(letter) and last > max(first, begins) for first, last in encoding.offsets]
        if not any(is_text):
            raise InputError(f"The prompt {self.prompt.full} has no token of its own for a text; take another prompt")
        masked = self._mask_place(letter, encoding)
        template_tokens = [number for number, inside in enumerate(is_text) if not inside]
        return Template(
            [encoding.ids[number] for number in template_tokens],
            is_text.index(True),
            template_tokens.index(masked) if masked in template_tokens else 0,
        )

    def spans(self, text: str) -> Spans:
        """Return the prompt with the text inserted, and the character span of each token."""
        (fitted,), (encoding,) = self._fit([text])
        return fitted.join(self._parts), encoding.offsets

    def _fit(self, texts: Sequence[str]) -> tuple[list[str], list[Encoding]]:
        """Cut each text to fit, and tokenise the prompt with it."""
        fitted = [_beginning(self._truncating, text) for text in texts]
        encodings = self._encode(fitted)
        long = [row for row, encoding in enumerate(encodings) if len(encoding) > self.max_length]
        for row, (text, encoding) in zip(long, self._cut([fitted[row] for row in long]), strict=True):
            fitted[row], encodings[row] = text, encoding
        return fitted, encodings

    def _encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Tokenise the prompt with each text; a chat template contains its special tokens already."""
        filled = [text.join(self._parts) for text in texts]
        encodings: list[Encoding] = self._whole.encode_batch(filled, add_special_tokens=not self.prompt.is_chat)
        return encodings

    def _cut(self, texts: Sequence[str]) -> list[tuple[str, Encoding]]:
        """Cut each text to its longest prefix of whole tokens that fits."""
        tokens = self._whole.encode_batch(list(texts), add_special_tokens=False)
        keep, result = [self._room] * len(texts), dict[int, tuple[str, Encoding]]()
        while len(result) < len(texts):
            remaining = [row for row in range(len(texts)) if row not in result]
            cut = [texts[row][: tokens[row].offsets[keep[row] - 1][1]] if keep[row] > 0 else "" for row in remaining]
            for row, text, encoding in zip(remaining, cut, self._encode(cut), strict=True):
                excess = len(encoding) - self.max_length
                if excess <= 0:
                    result[row] = text, encoding
                else:
                    keep[row] -= max(1, excess // (len(self._parts) - 1))
        return [result[row] for row in range(len(texts))]

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
        """Return the index of the prompt's mask token, even if the text contains another one."""
        if self._mask_token is None:
            return 0
        offset = 0
        for number, part in enumerate(self._parts):
            if self._mask_token in part:
                offset += part.index(self._mask_token)
                break
            offset += len(part) + (len(text) if number < len(self._parts) - 1 else 0)
        place = encoding.char_to_token(offset)
        if place is None:
            raise InputError(
                f"The mask of the prompt {self.prompt.full} is no token of this model; take another prompt"
            )
        return int(place)


def _in_parts(tokenise: Callable[[Sequence[str]], Tokens], texts: Sequence[str]) -> Tokens:
    """Tokenise in chunks, so that few Python objects exist before they become arrays."""
    if len(texts) <= _AT_ONCE:
        return tokenise(texts)
    starts = range(0, len(texts), _AT_ONCE)
    return Tokens.joined([tokenise(texts[start : start + _AT_ONCE]) for start in starts])


def _tokens_within(encoding: Encoding, begins: int, ends: int) -> tuple[int, int] | None:
    """Return the token span of a character span; None if no token covers it."""
    first = next((place for at in range(begins, ends) if (place := encoding.char_to_token(at)) is not None), None)
    if first is None:
        return None
    last = next(place for at in range(ends - 1, begins - 1, -1) if (place := encoding.char_to_token(at)) is not None)
    stop = last + 1  # `char_to_token` returns the first of several tokens of a character
    while stop < len(encoding) and (span := encoding.token_to_chars(stop)) and span[0] < min(ends, span[1]):
        stop += 1
    return first, stop


def _beginning(tokenizer: Tokenizer, text: str) -> str:
    """Cut a very long text before tokenisation, which needs a hundred bytes per character.

    A prefix of twice as many tokens as are used gives the same tokens as the text, as words are tokenised separately.
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
    """Serialise a Rust tokenizer; None for others."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return None if backend is None or tokenizer.truncation_side != "right" else str(backend.to_str())


@lru_cache(maxsize=4)  # shared by all prompts: loading a large vocabulary takes half a second
def _copy(text: str, max_length: int | None) -> Tokenizer:
    """Copy the tokenizer, so that the user's keeps its settings."""
    copy = Tokenizer.from_str(text)
    copy.no_padding()
    if max_length is None:
        copy.no_truncation()
    else:
        copy.enable_truncation(max_length)
    return copy
