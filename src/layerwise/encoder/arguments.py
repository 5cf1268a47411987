"""What is asked of an encoder, checked: texts, lengths, batches, backends."""

import logging
from collections.abc import Sequence
from typing import Any

import torch

from layerwise.encoder.streaming import TokenBudget
from layerwise.errors import InputError
from layerwise.registry import check_known
from layerwise.texts import has_lone_surrogate

log = logging.getLogger(__name__)
_CPU_TOKENS, _GPU_TOKENS = 512, 65_536  # tokens a batch
_CPU_OVERHEAD = 8  # of a batch, in tokens: measured on two ARM cores, 6 for float and 12 for int8


def check_sentences(sentences: Sequence[str]) -> list[str]:
    """The sentences as a checked list: texts only; empty ones pass with a warning."""
    if isinstance(sentences, str):
        raise InputError("sentences is one string; give a list of them")
    texts = list(sentences)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"sentence {row} is {text!r}, not a text")
        if has_lone_surrogate(text):
            raise InputError(f"sentence {row} holds half a surrogate pair, which is no text; decode it as UTF-8")
    empty = texts.count("") + sum(map(str.isspace, texts))
    if empty:
        log.warning("%d of %d sentences are empty; they are encoded as special tokens alone", empty, len(texts))
    return texts


def checked_length(asked: int | None, tokenizer: Any, most: int) -> int:
    """The most tokens of a text; without a choice, as many as the encoder takes."""
    least = max(1, int(tokenizer.num_special_tokens_to_add()))
    if asked is None:
        return most
    if not least <= asked <= most:
        raise InputError(f"max_length {asked} is not possible: this encoder takes {least} to {most} tokens")
    return asked


def token_budget(asked: int | None, device: torch.device) -> TokenBudget:
    """The tokens of a batch; without a choice, where the measured speed levels off."""
    if asked is not None and asked < 1:
        raise InputError(f"tokens_per_batch must be 1 or more, not {asked}")
    if device.type == "cpu":
        return TokenBudget(asked or _CPU_TOKENS, overhead=_CPU_OVERHEAD)
    return TokenBudget(asked or _GPU_TOKENS)


def checked_backend(backend: str | None, precision: str, device: torch.device, dtype: str) -> str:
    """The backend to use; without a choice, ONNX for int8 and torch otherwise."""
    check_known(precision, ("float", "int8"), "precision")
    is_plain = device.type == "cpu" and dtype == "float32"
    if precision == "int8":
        if backend not in (None, "onnx"):
            raise InputError(f"precision int8 runs with the onnx backend, not with {backend}; leave the backend out")
        if not is_plain:
            raise InputError(
                f"precision int8 runs on the CPU with dtype float32, not {dtype} on {device}; leave both out"
            )
        return "onnx"
    check_known(backend or "torch", ("onnx", "torch"), "backend")
    if backend == "onnx" and not is_plain:
        raise InputError(f"The ONNX backend runs float32 on the CPU, not {dtype} on {device}; use the torch backend")
    return backend or "torch"
