"""Which matrix products a CPU should use. oneDNN's take long to begin on some processors, which short texts pay for."""

import time

import torch

from layerwise.encoder import LayerEncoder
from layerwise.threads import one_thread_each

_SHAPES = ((1, 16), (16, 16))  # texts and tokens: one short text, and a batch of them
_REPEATS = 3


def choose_kernels(encoder: LayerEncoder) -> bool:
    """Time short and full batches with oneDNN and without, and keep the faster for this process."""
    if encoder.device.type != "cpu" or encoder.backend != "torch" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return True
    with one_thread_each(), torch.inference_mode():
        seconds = {enabled: _seconds(encoder, enabled) for enabled in (True, False)}
    faster = seconds[True] <= seconds[False]
    torch.backends.mkldnn.enabled = faster  # type: ignore[assignment]
    return faster


def _seconds(encoder: LayerEncoder, enabled: bool) -> float:
    """The best of a few times, summed over the shapes."""
    torch.backends.mkldnn.enabled = enabled  # type: ignore[assignment]
    total = 0.0
    for texts, tokens in _SHAPES:
        ids = torch.full((texts, min(tokens, encoder.max_length)), 1)
        times = []
        for _ in range(_REPEATS + 1):  # the first is to warm up
            start = time.perf_counter()
            encoder.read(ids, torch.ones_like(ids), [encoder.depth], ["mean"])
            times.append(time.perf_counter() - start)
        total += min(times[1:])
    return total
