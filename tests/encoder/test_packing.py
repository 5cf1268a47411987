"""Packed batches give what padded ones give. The GPU's own attention needs a GPU; the rest is tested everywhere."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerwise.encoder import LayerEncoder, Tokens, streaming
from layerwise.encoder.batches import Batch, token_batches
from layerwise.encoder.packing import Packed, PackedLayers, packed_batch, packing_reader
from layerwise.encoder.pooling import ViewPool
from layerwise.encoder.streaming import _parts
from support.slow_cases import one_in
from support.tiny import ARCHITECTURES, DECODERS, SENTENCES, save_decoder, save_tiny

PACK = ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "albert", "llama", "qwen2", "qwen3", "gpt2", "phi")
DO_NOT = ("mpnet", "deberta-v2", "modernbert", "mistral", "gemma3", "t5")


def encoder_of(name, folder, **options):
    save = save_tiny if name in ARCHITECTURES else save_decoder
    assert name in {**ARCHITECTURES, **DECODERS}
    return LayerEncoder(save(name, folder / "model"), device="cpu", **options)


@pytest.mark.parametrize("name", one_in(2, PACK))
def test_a_packed_pass_reads_what_a_padded_one_reads(name, tmp_path):
    encoder = encoder_of(name, tmp_path)
    reader = packing_reader(encoder.reader)
    assert isinstance(reader, PackedLayers)
    plain = encoder.encode_layers(SENTENCES, ["mean", "cls", "max", "last"])
    vars(encoder)["reader"] = reader
    for poolings in (["last", "mean", "cls"], ["mean", "cls", "max", "last"]):  # without padding, and with it restored
        packed = encoder.encode_layers(SENTENCES, poolings)
        for pooling in poolings:
            np.testing.assert_allclose(packed[pooling], plain[pooling], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_texts_are_pooled_without_their_padding(dtype, monkeypatch):
    batch = Batch(np.array([1, 0, 2]), np.array([3, 2, 1]), np.arange(6))
    padded, mask = torch.tensor([[0, 1, 2], [3, 4, 0], [5, 0, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0]])
    states = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    packed = Packed.of(batch, padded)
    pool = ViewPool(["cls", "mean", "last"], mask)
    expected = pool(packed.restored(states))
    monkeypatch.delattr(Packed, "restored")
    pooled = packed.pooled(states, pool)
    assert pooled.dtype == expected.dtype
    torch.testing.assert_close(pooled, expected, rtol=1e-6, atol=1e-6)


def test_packed_tokens_are_the_only_ones_that_the_model_sees(tmp_path):
    encoder = encoder_of("bert", tmp_path)
    vars(encoder)["reader"] = packing_reader(encoder.reader)
    seen = []
    encoder.model.embeddings.register_forward_hook(lambda _module, _inputs, states: seen.append(states.shape[:2]))
    encoder.encode_layers(SENTENCES)
    assert seen == [(1, sum(encoder.token_counts(SENTENCES)))]


def test_prompts_are_packed_too(tmp_path):
    encoder = encoder_of("bert", tmp_path)
    plain = encoder.encode_layers(SENTENCES, 'mask in "a {text} means [MASK] ."')
    vars(encoder)["reader"] = packing_reader(encoder.reader)
    packed = encoder.encode_layers(SENTENCES, 'mask in "a {text} means [MASK] ."')
    np.testing.assert_allclose(packed, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", DO_NOT)
def test_models_with_another_attention_are_padded(name, tmp_path):
    encoder = encoder_of(name, tmp_path)
    assert packing_reader(encoder.reader) is encoder.reader
    assert encoder.model.config._attn_implementation != "layerwise_packed"


def test_only_half_precision_on_a_gpu_packs(tmp_path):
    encoder = encoder_of("bert", tmp_path, dtype="bfloat16")
    assert not encoder.reader.packs


def test_an_unpacked_batch_is_read_as_before(tmp_path):
    encoder = encoder_of("bert", tmp_path)
    reader = packing_reader(encoder.reader)
    tokens = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]])
    mask = (tokens > 0).long()
    inputs = {"input_ids": tokens, "attention_mask": mask}
    other = Packed.of(Batch(np.array([0]), np.array([2]), np.array([2, 3])), torch.tensor([[2, 3]]))
    with torch.inference_mode(), packed_batch(other):
        read = reader.read(inputs, [4], torch.Tensor.clone)[4]
        expected = encoder.reader.read(inputs, [4], torch.Tensor.clone)[4]
    assert torch.equal(read, expected)


def test_states_return_to_their_places():
    batch = Batch(np.array([1, 0]), np.array([3, 2]), np.array([5, 6, 7, 8, 9]))
    packed = Packed.of(batch, torch.tensor([[5, 6, 7], [8, 9, 0]]))
    assert packed.tokens.tolist() == [[5, 6, 7, 8, 9]]
    assert packed.positions.tolist() == [[0, 1, 2, 0, 1]]
    assert packed.bounds.tolist() == [0, 3, 5]
    restored = packed.restored(torch.tensor([[[1.0], [2.0], [3.0], [4.0], [5.0]]]))
    assert restored[..., 0].tolist() == [[1, 2, 3], [4, 5, 0]]


def test_packed_batches_are_full_and_hold_every_sentence_once():
    lengths = np.random.default_rng(0).integers(1, 60, size=500)
    ids = [list(range(length)) for length in lengths]
    batches = list(token_batches(Tokens.of(ids), budget=512, packs=True))
    assert sorted(np.concatenate([batch.rows for batch in batches])) == list(range(500))
    assert max(batch.size for batch in batches) <= 512
    assert len(batches) <= 1 + lengths.sum() / (512 - 60)
    for batch in batches:
        assert batch.size == batch.lengths.sum() == len(batch.tokens)
        first, second = batch.split()
        assert first.size + second.size == batch.size
    (alone,) = token_batches(Tokens.of([[1] * 100]), budget=10, packs=True)
    assert alone.size == 100


@given(st.lists(st.integers(1, 60), min_size=1, max_size=300), st.integers(100, 2000))
def test_packed_batches_are_as_few_as_can_be_and_alike_in_size(lengths, budget):
    batches = list(token_batches(Tokens.of([[1] * length for length in lengths]), budget=budget, packs=True))
    assert len(batches) <= math.ceil(sum(lengths) / max(budget // 2, budget - max(lengths) + 1))
    sizes = [batch.size for batch in batches]
    assert max(sizes) <= budget
    assert max(sizes[:-1], default=0) - min(sizes[:-1], default=0) < 60  # the last one has what is left


def test_a_window_is_cut_into_parts_only_for_packed_batches():
    windows = [["a" * 1000] * 1100, ["d"]]
    cut = [(part.start, len(part.texts)) for part in _parts(windows, cut=True)]
    assert cut == [(0, 550), (550, 550), (0, 1)]
    assert [(part.start, len(part.texts)) for part in _parts(windows, cut=False)] == [(0, 1100), (0, 1)]


@given(st.lists(st.integers(0, 2_000_000), min_size=1, max_size=30))
def test_the_parts_of_a_window_hold_every_sentence_once(lengths):
    texts = ["x" * length for length in lengths]
    parts = list(_parts([texts], cut=True))
    assert [text for part in parts for text in part.texts] == texts
    assert [part.start for part in parts] == [0, *np.cumsum([len(part.texts) for part in parts])[:-1]]
    assert all(len(part.texts) for part in parts)


def test_windows_come_back_whole_and_in_order_however_they_are_cut(monkeypatch, tmp_path):
    """On the CPU, where packed batches are read one text after the other."""
    encoder = encoder_of("bert", tmp_path)
    vars(encoder)["reader"] = packing_reader(encoder.reader)
    windows = [[f"text {number} " * (number % 7 + 1) for number in range(start, start + 40)] for start in (0, 40)]
    tokens: list[int] = []

    def read():
        forward = lambda ids, mask: encoder.read(ids, mask, [1, 2], ["mean"])  # noqa: E731
        return list(encoder.stream(windows, forward, on_tokens=tokens.append))

    whole = read()
    monkeypatch.setattr(streaming, "_PART_CHARACTERS", 150)
    for before, after in zip(whole, read(), strict=True):
        np.testing.assert_allclose(after, before, atol=1e-6)
    assert len(tokens) == 4
    assert tokens[:2] == tokens[2:]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="packed attention in half precision needs a GPU")
@pytest.mark.parametrize("name", ["bert", "roberta", "llama", "qwen3"])
def test_a_gpu_packs_and_gives_what_it_gives_one_by_one(name, tmp_path):
    save = save_tiny if name in ARCHITECTURES else save_decoder
    encoder = LayerEncoder(save(name, tmp_path / "model"), device="cuda", dtype="bfloat16")
    assert encoder.reader.packs
    together = encoder.encode_layers(SENTENCES)
    alone = np.concatenate([encoder.encode_layers([sentence]) for sentence in SENTENCES])
    np.testing.assert_allclose(together, alone, atol=0.05 * abs(alone).max())
