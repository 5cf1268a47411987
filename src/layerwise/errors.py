"""Errors that users can correct: one clear line each, which the command line prints unchanged."""

import re

_LONGEST = 1000
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)  # control characters, those that turn the direction of text, halves of surrogate pairs


def printable(text: str) -> str:
    r"""Escape control characters, including newlines, for display in a terminal.

    >>> printable("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


OUT_OF_MEMORY = (
    "not enough memory; use smaller batches (--tokens-per-batch, or train.batch_size of a recipe), fewer rows or a "
    "smaller model"
)
_NO_MEMORY = (
    "not enough memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "out of memory",
    "bad_alloc",
    "can't start new thread",  # its stack
    "failed to map segment from shared object",  # a library that is imported
)


def is_memory_shortage(error: BaseException) -> bool:
    """Whether an exception means out of memory; torch on a CPU raises a plain RuntimeError.

    >>> is_memory_shortage(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."))
    True
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError | ImportError | OSError) and any(text in str(error) for text in _NO_MEMORY)


class LayerwiseError(ValueError):
    """The base of all errors that users can correct. The message says what came, what was expected, what to do.

    The text is one line, without control characters; the middle of a very long one is left out.
    """

    def __init__(self, text: object = "") -> None:
        line = printable(" ".join(str(text).split()))
        super().__init__(line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}")


class InputError(LayerwiseError):
    """A file, row or value given by the user can't be used."""


class MissingColumnError(InputError):
    """A file lacks a requested column."""


class MixError(LayerwiseError):
    """A layer mix that cannot be parsed, or names layers that the encoder does not have."""


class ModelError(LayerwiseError):
    """A model folder or hub name that can't be loaded or saved."""


class UnsafeModelError(ModelError):
    """A model folder that would run code, lead out of itself, or take far more memory than its weights."""


class TrainingError(LayerwiseError):
    """A training that cannot continue."""


class MissingExtraError(LayerwiseError):
    """An optional dependency is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose}: pip install 'layerwise[{extra}]'")
