"""Checks an encoder's arguments: texts, lengths, batch sizes, backends."""

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
    """Return the sentences as a list of str; log a warning about empty ones."""
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


def checked_length(requested: int | None, tokenizer: Any, limit: int) -> int:
    """Return the maximum number of tokens of a text; by default, the encoder's limit."""
    minimum = max(1, int(tokenizer.num_special_tokens_to_add()))
    if requested is None:
        return limit
    if not minimum <= requested <= limit:
        raise InputError(f"max_length {requested} is not possible: this encoder takes {minimum} to {limit} tokens")
    return requested


def token_budget(requested: int | None, device: torch.device) -> TokenBudget:
    """Return the token budget of a batch; by default, the size from which measured throughput is level."""
    if requested is not None and requested < 1:
        raise InputError(f"tokens_per_batch must be 1 or more, not {requested}")
    if device.type == "cpu":
        return TokenBudget(requested or _CPU_TOKENS, overhead=_CPU_OVERHEAD)
    return TokenBudget(requested or _GPU_TOKENS)


def checked_backend(backend: str | None, precision: str, device: torch.device, dtype: str) -> str:
    """Return the backend to use; by default, ONNX for int8 and torch otherwise."""
    check_known(precision, ("float", "int8"), "precision")
    is_cpu_float32 = device.type == "cpu" and dtype == "float32"
    if precision == "int8":
        if backend not in (None, "onnx"):
            raise InputError(f"precision int8 runs with the onnx backend, not with {backend}; leave the backend out")
        if not is_cpu_float32:
            raise InputError(
                f"precision int8 runs on the CPU with dtype float32, not {dtype} on {device}; leave both out"
            )
        return "onnx"
    check_known(backend or "torch", ("onnx", "torch"), "backend")
    if backend == "onnx" and not is_cpu_float32:
        raise InputError(f"The ONNX backend runs float32 on the CPU, not {dtype} on {device}; use the torch backend")
    return backend or "torch"
