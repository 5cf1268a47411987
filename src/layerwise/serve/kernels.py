"""Chooses a CPU's matrix kernels: on some processors, oneDNN's overhead dominates the time of short texts."""

import time
from math import inf

import torch

from layerwise.encoder import LayerEncoder
from layerwise.threads import one_thread_each

_SHAPES = ((1, 16), (16, 16))  # texts and tokens: one short text, and a batch of them
_REPEATS = 5


def choose_kernels(encoder: LayerEncoder) -> bool:
    """Time short texts and batches with and without oneDNN, and use the faster for this process."""
    if encoder.device.type != "cpu" or encoder.backend != "torch" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return True
    best = dict.fromkeys(((enabled, shape) for enabled in (True, False) for shape in _SHAPES), inf)
    with one_thread_each(), torch.inference_mode():
        for _ in range(_REPEATS):  # alternate, so that noise affects both
            for enabled, shape in best:
                torch.backends.mkldnn.enabled = enabled  # type: ignore[assignment]
                best[enabled, shape] = min(best[enabled, shape], _seconds(encoder, *shape))
    faster = sum(best[True, shape] / best[False, shape] for shape in _SHAPES) <= len(_SHAPES)
    torch.backends.mkldnn.enabled = faster  # type: ignore[assignment]
    return faster


def _seconds(encoder: LayerEncoder, texts: int, tokens: int) -> float:
    ids = torch.ones(texts, min(tokens, encoder.max_length), dtype=torch.int64)
    start = time.perf_counter()
    encoder.read(ids, ids, [encoder.depth], ["mean"])
    return time.perf_counter() - start
