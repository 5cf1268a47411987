"""Several batches at a time, one core each: the results of one after the other, in order, whatever goes wrong."""

import threading
from collections import Counter

import numpy as np
import pytest
import torch

from layerwise import LayerEncoder
from layerwise.encoder.streaming import TokenBudget, stream
from layerwise.encoder.tokens import Tokens
from layerwise.errors import ModelError
from layerwise.threads import cores_here, within_cores
from support.tiny import SENTENCES

WINDOWS = [[f"{'a' * (number % 9 + 1)}" for number in range(start, start + 40)] for start in (0, 40, 80)]


class Letters:
    """A tokenizer whose tokens are a text's letters."""

    max_length = 100

    def __call__(self, texts):
        return Tokens.of([[ord(letter) for letter in text] for text in texts])


def lengths_of(tokens, mask):
    """One number for each text: its length."""
    return mask.sum(1, keepdim=True).float()


def streamed(forward, *, workers, budget=24, **options):
    return list(
        stream(
            WINDOWS,
            tokenizer=Letters(),
            pad_id=0,
            forward=forward,
            device=torch.device("cpu"),
            budget=TokenBudget(budget),
            workers=workers,
            **options,
        )
    )


def expected():
    return [np.array([[len(text)] for text in window], dtype=np.float32) for window in WINDOWS]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_rows_come_in_order_whatever_the_workers(workers):
    rows = []
    for result, window in zip(streamed(lengths_of, workers=workers, progress=rows.append), expected(), strict=True):
        np.testing.assert_array_equal(result, window)
    assert sum(rows) == sum(map(len, WINDOWS))


def test_each_of_several_batches_has_one_core():
    cores, both_run = [], threading.Barrier(2, timeout=60)

    def forward(tokens, mask):
        cores.append(cores_here())
        if len(cores) <= 2:
            both_run.wait()  # passes only if two batches run at the same time
        return lengths_of(tokens, mask)

    streamed(forward, workers=2)
    assert set(cores) == {1}


def test_a_single_batch_has_all_cores():
    cores = []

    def forward(tokens, mask):
        cores.append(cores_here())
        return lengths_of(tokens, mask)

    with within_cores(3):
        streamed(forward, workers=2, budget=10_000)
    assert set(cores) == {3}


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_that_do_not_fit_are_halved_by_any_worker(workers):
    sizes = Counter()

    def forward(tokens, mask):
        sizes[tokens.numel() > 16] += 1
        if tokens.numel() > 16:
            raise MemoryError("out of memory")
        return lengths_of(tokens, mask)

    for result, window in zip(streamed(forward, workers=workers, budget=64), expected(), strict=True):
        np.testing.assert_array_equal(result, window)
    assert sizes[True] >= 1


def test_an_error_in_a_worker_ends_the_stream():
    def forward(tokens, mask):
        raise ModelError("it failed")

    with pytest.raises(ModelError, match="it failed"):
        streamed(forward, workers=2)


def test_onnx_reads_several_batches_at_a_time(tiny_bert):
    pytest.importorskip("onnxruntime")
    encoder = LayerEncoder(tiny_bert, device="cpu", backend="onnx", tokens_per_batch=30)
    with within_cores(1):
        one_by_one = encoder.encode_layers(SENTENCES * 3)
    with within_cores(2):
        np.testing.assert_allclose(encoder.encode_layers(SENTENCES * 3), one_by_one, rtol=0, atol=1e-6)
    assert {key[-1] for key in encoder._onnx._sessions} == {1}, "one session, which both threads run"
