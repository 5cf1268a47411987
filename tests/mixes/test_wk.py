"""SBERT-WK from inner products equals the QR of every token; as a mix it encodes, saves and loads."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

from layerwise import LayerEncoder, LayerModel, parse_mix
from layerwise.errors import MixError
from layerwise.mixes import SbertWk, without_last_token
from layerwise.mixes.wk import wk
from layerwise.model import is_native
from support.tiny import DEPTH, WIDTH

WK = "wk(start=1,window=2)"  # the tiny encoders have layers 0 to 4


def naive(tokens: np.ndarray, window: int = 2) -> np.ndarray:
    """The paper's steps for one sentence, (tokens, layers, width) -> (width,), written out."""
    vectors, variances = [], []
    for states in tokens.astype(np.float64):
        alignment, novelty = np.zeros(len(states)), np.zeros(len(states))
        for k in range(len(states)):
            left, right = states[k - window : k] if k >= window else states[:0], states[k + 1 : k + window + 1]
            columns = np.vstack([left, right, states[k : k + 1]])
            big = np.linalg.qr(columns.T)[1]
            r = big[:, -1]
            unit = big[:-1, :-1] / np.linalg.norm(big[:-1, :-1], axis=0)
            aligned = unit.mean(axis=1) @ big[:-1, -1] / np.linalg.norm(r[:-1])
            alignment[k] = 1 / (aligned * len(columns) * 2)
            novelty[k] = abs(r[-1]) / np.linalg.norm(r)
        weights = alignment / alignment.sum() + novelty / novelty.sum()
        vectors.append(weights / weights.sum() @ states)
        lengths = np.linalg.norm(states, axis=1)
        variances.append(np.var((states[1:] * states[:-1]).sum(1) / (lengths[1:] * lengths[:-1]), ddof=1))
    return np.array(variances) / np.sum(variances) @ np.array(vectors)


def states_like_an_encoders(seed: int, tokens: int, layers: int, width: int) -> np.ndarray:
    """Each layer a step away from the one below, as in a residual stream."""
    random = np.random.default_rng(seed)
    steps = random.normal(size=(tokens, layers, width)) * random.uniform(0.2, 1, size=(tokens, layers, 1))
    return 2 * random.normal(size=(tokens, 1, width)) + np.cumsum(steps, axis=1)


def together(sentences: list[np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = [len(tokens) for tokens in sentences]
    kept = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.from_numpy(np.concatenate(sentences)), kept


@given(st.integers(0, 10_000), st.integers(1, 3), st.integers(3, 9))
@settings(max_examples=30, deadline=None)
def test_wk_equals_the_qr_of_every_token(seed, window, layers):
    layers = max(layers, window + 1)
    sentences = [states_like_an_encoders(seed + n, n, layers, 24) for n in (1, 4, 7)]
    found = wk(*together(sentences), window=window).numpy()
    expected = np.array([naive(tokens, window) for tokens in sentences])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_the_authors_slice_of_an_incomplete_left_window_is_empty():
    """Python's slices with a start below 0: what the reference above spells out."""
    layers = list(range(9))
    assert [layers[k - 2 : k] for k in range(4)] == [[], [], [0, 1], [1, 2]]


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_a_common_scale_changes_only_the_scale_and_companions_change_nothing(seed):
    sentences = [states_like_an_encoders(seed + n, n, 9, 16) for n in (5, 2, 3)]
    found = wk(*together(sentences))
    scaled = wk(*together([3 * tokens for tokens in sentences]))
    np.testing.assert_allclose(scaled, 3 * found, rtol=1e-6)
    for row, tokens in enumerate(sentences):
        np.testing.assert_allclose(wk(*together([tokens]))[0], found[row], rtol=1e-6)


def test_layers_and_tokens_that_are_all_equal_give_their_own_vector():
    """No novelty, no variance: neither may become NaN."""
    same = np.ones((4, 5, 8))
    np.testing.assert_allclose(wk(*together([same])), np.ones((1, 8)), rtol=1e-6)


def test_float32_states_give_float32_close_to_float64():
    states, kept = together([states_like_an_encoders(1, 6, 9, 32)])
    found = wk(states.float(), kept)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, wk(states, kept), rtol=1e-3, atol=1e-4)


def test_the_last_token_is_left_out_unless_it_is_the_only_one():
    right = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    assert without_last_token(right).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]]
    left = torch.tensor([[0, 1, 1, 1], [0, 0, 0, 1]])
    assert without_last_token(left).int().tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]


def test_a_model_of_wk_equals_the_reference_on_its_hidden_states(tiny_folders, sentences):
    for name in ("bert", "modernbert", "albert"):
        encoder = LayerEncoder(tiny_folders[name], device="cpu")
        found = LayerModel(encoder, WK).encode([*sentences, ""])
        for row, sentence in enumerate([*sentences, ""]):
            with torch.inference_mode():
                output = encoder.model(**_tokens(encoder, sentence), output_hidden_states=True)
            states = torch.stack([*output.hidden_states[:-1], output.last_hidden_state])[1:, 0]
            np.testing.assert_allclose(found[row], naive(states.transpose(0, 1)[:-1].numpy()), atol=1e-4, err_msg=name)


def _tokens(encoder, sentence):
    inputs = encoder.tokenizer(sentence, return_tensors="pt")
    return {name: inputs[name] for name in ("input_ids", "attention_mask")}


def test_batches_and_prompts_change_nothing_that_they_should_not(tiny_bert, sentences):
    small = LayerModel(LayerEncoder(tiny_bert, tokens_per_batch=1), WK)
    large = LayerModel(LayerEncoder(tiny_bert, tokens_per_batch=4096), WK)
    np.testing.assert_allclose(small.encode(sentences), large.encode(sentences), atol=1e-5)
    np.testing.assert_allclose(large.encode(["clock"], prompt="an old "), large.encode(["an old clock"]), atol=1e-6)


def test_a_saved_wk_loads_here_and_with_trust_in_sentence_transformers(tiny_bert, sentences, tmp_path):
    model = LayerModel(tiny_bert, "wk(start=0,window=2,last=-2)", normalize=True)
    assert not is_native(model.mix)
    model.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["num_hidden_layers"] == DEPTH - 1
    plain = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    assert plain.get_embedding_dimension() == model.width == WIDTH
    assert np.abs(plain.encode(sentences) - model.encode(sentences)).max() < 1e-5
    loaded = LayerModel.load(tmp_path / "model")
    assert loaded.mix == model.mix
    assert np.abs(loaded.encode(sentences) - model.encode(sentences)).max() < 1e-5


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_half_precision_states_work(tiny_bert, sentences):
    half = LayerModel(LayerEncoder(tiny_bert, dtype="bfloat16"), WK).encode(sentences)
    full = LayerModel(tiny_bert, WK).encode(sentences)
    assert half.dtype == np.float32
    cosine = (half * full).sum(1) / np.linalg.norm(half, axis=1) / np.linalg.norm(full, axis=1)
    assert cosine.min() > 0.98


@pytest.mark.parametrize(
    ("text", "mix", "printed"),
    [
        ("wk", SbertWk(), "wk(start=4,window=2)"),
        ("wk()", SbertWk(), "wk(start=4,window=2)"),
        ("wk( window = 3 , start=2)", SbertWk(2, 3), "wk(start=2,window=3)"),
        ("wk(start=-9)", SbertWk(-9), "wk(start=-9,window=2)"),
        ("wk(last=10)", SbertWk(last=10), "wk(start=4,window=2,last=10)"),
    ],
)
def test_wk_parses_and_prints(text, mix, printed):
    assert parse_mix(text) == parse_mix(text, pooling="cls") == mix
    assert str(mix) == printed
    assert parse_mix(printed) == mix
    assert parse_mix(str(mix.resolve(12))) == mix.resolve(12)


def test_wk_resolves_to_the_layers_from_its_start():
    assert parse_mix("wk").resolve(12).layers == tuple(range(4, 13))
    assert parse_mix("wk").resolve(6).layers == (4, 5, 6), "MiniLM has just enough"
    assert parse_mix("wk(start=-9)").resolve(12) == parse_mix("wk").resolve(12)
    with pytest.raises(MixError, match=r"counts from the last layer: call resolve\(depth\) first"):
        _ = parse_mix("wk").layers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wk @ cls", "'wk @ cls': wk weighs the tokens itself, so it takes no pooling; leave '@ cls' out"),
        ("wk(4)", r"'4' is no option of wk, or comes twice; as in wk\(start=4,window=2\)"),
        ("wk(start=1,start=2)", "'start=2' is no option of wk, or comes twice"),
        ("wk(window=0)", "the window must be 1 or more"),
    ],
)
def test_texts_that_are_no_wk_are_refused(text, message):
    with pytest.raises(MixError, match=message):
        parse_mix(text)


def test_a_shallow_encoder_is_refused_with_a_start_that_fits(tiny_bert):
    message = r"wk\(start=4,window=2\) needs 3 layers from 4 on, but the last is 4; write wk\(start=2\)"
    with pytest.raises(MixError, match=message):
        LayerModel(tiny_bert, "wk")
    with pytest.raises(MixError, match="needs 9 layers from 4 on, but the last is 4; it cannot be used here"):
        LayerModel(tiny_bert, "wk(window=8)")


def test_pooled_views_and_onnx_are_refused(tiny_bert, sentences):
    views = LayerEncoder(tiny_bert).encode_layers(sentences)
    with pytest.raises(MixError, match=r"reads token states, but these are pooled views \(7, 1, 4, 32\)"):
        parse_mix(WK)(views)
    pytest.importorskip("onnxruntime")
    with pytest.raises(MixError, match=r"reads token states, which ONNX graphs don't give; use the torch backend"):
        LayerModel(LayerEncoder(tiny_bert, backend="onnx"), WK)
