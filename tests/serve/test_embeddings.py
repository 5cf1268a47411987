"""Embeddings over HTTP equal `LayerModel.encode`, whatever they are asked for and batched with."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from layerwise.errors import ModelError
from layerwise.model import LayerModel
from support.serving import running, vectors_of
from support.tiny import SENTENCES, WORDS

NEAR = {"rtol": 0, "atol": 1e-5}


def test_embeddings_equal_encode(server, tiny_layers):
    answer = server.post("/v1/embeddings", model="tiny", input=SENTENCES).json()
    np.testing.assert_allclose(vectors_of(answer), tiny_layers.encode(SENTENCES), **NEAR)
    assert [item["index"] for item in answer["data"]] == list(range(len(SENTENCES)))
    assert answer["model"] == "tiny"
    tokens = sum(tiny_layers.encoder.token_counts(SENTENCES))
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


@pytest.mark.parametrize(
    "mix",
    ["0", "last-2", "1,3 @ cls", "1:0.25,3:0.75", "concat(1,3)", "last @ cls | last @ mean", "2 @ max", "wk(start=1)",
     "views(1,3 @ mean; -0.5*2 @ cls; unit)", 'last in "It means {text} ."'.replace("last", "4 @ last"),
     'views(1 @ mean; 4 @ last in "It means {text} ."; unit)', '2 @ mean | 3 @ mean in "{text} {text}"'],
)  # fmt: skip
def test_every_mix_equals_encode(server, tiny_layers, mix):
    expected = tiny_layers.with_mix(mix).encode(SENTENCES)
    np.testing.assert_allclose(server.embed(input=SENTENCES, layers=mix), expected, **NEAR)


def test_mixed_requests_at_once_equal_encode(server, tiny_layers):
    random = np.random.default_rng(3)
    mixes = [
        None,
        "0",
        "1",
        "1-3 @ cls",
        "concat(0,4)",
        'last @ last in "Rain {text}"',
        "all",
        "wk(start=1)",
        "last-2 @ max",
    ]
    requests = [
        (
            [" ".join(random.choice(WORDS, random.integers(1, 40))) for _ in range(random.integers(1, 20))],
            mixes[random.integers(len(mixes))],
            ("float", "base64")[random.integers(2)],
            bool(random.integers(2)),
        )
        for _ in range(60)
    ]

    def ask(request):
        texts, mix, encoding, normalize = request
        more = {} if mix is None else {"layers": mix}
        return server.embed(input=texts, encoding_format=encoding, normalize=normalize, **more)

    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(ask, requests))
    for (texts, mix, _, normalize), vectors in zip(requests, answers, strict=True):
        if mix == "all":
            expected = tiny_layers.encoder.encode_layers(texts).reshape(-1, vectors.shape[1])
        else:
            expected = (tiny_layers if mix is None else tiny_layers.with_mix(mix)).encode(texts)
        if normalize:
            expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(vectors, expected, **NEAR)


@pytest.fixture
def on_onnx(tiny_bert, tmp_path_factory, monkeypatch):
    """The tiny BERT by ONNX; its graphs are exported once for all tests of this file."""
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path_factory.getbasetemp() / "served-graphs"))
    return LayerModel.load(tiny_bert, device="cpu", backend="onnx")


@pytest.mark.slow
def test_onnx_gives_the_same_numbers_with_two_graphs(on_onnx, tiny_layers):
    with running({"tiny": on_onnx}) as server:
        for mix in (None, "0,4", "1-4 @ cls", "concat(0,4)", "last @ max | 2 @ mean"):
            expected = (tiny_layers if mix is None else tiny_layers.with_mix(mix)).encode(SENTENCES)
            more = {} if mix is None else {"layers": mix}
            np.testing.assert_allclose(server.embed(input=SENTENCES, **more), expected, **NEAR)
        prompted = '1 @ last in "a {text}"'
        expected = tiny_layers.with_mix(prompted).encode(SENTENCES)
        np.testing.assert_allclose(server.embed(input=SENTENCES, layers=prompted), expected, **NEAR)
        sessions = on_onnx.encoder._onnx._sessions
        assert len({(layers, poolings) for _, layers, poolings, _ in sessions}) == 2
        assert {cores for *_, cores in sessions} == {1, server.service.settings.cores_of_worker}


def until_graphs_are_made():
    while any(thread.name.startswith("graph-") for thread in threading.enumerate()):
        time.sleep(0.01)


@pytest.mark.slow
def test_onnx_runs_fewer_blocks_for_low_layers_once_their_graph_is_there(on_onnx, tiny_layers, monkeypatch):
    read, highest = on_onnx.encoder.read, []

    def spied(tokens, mask, layers, poolings, places=None):
        highest.append(max(layers))
        return read(tokens, mask, layers, poolings, places)

    def ask(mix):
        vectors = server.embed(input=SENTENCES[:3], layers=mix)
        np.testing.assert_allclose(vectors, tiny_layers.with_mix(mix).encode(SENTENCES[:3]), **NEAR)

    with running({"tiny": on_onnx}) as server:
        monkeypatch.setattr(on_onnx.encoder, "read", spied)
        for mix, depth in (("1", 2), ("0,2 @ cls", 2), ("3 @ max", 3), ("1 @ mean | 3 @ cls", 3), ("1,4", 4)):
            ask(mix)
            until_graphs_are_made()
            highest.clear()
            ask(mix)
            assert set(highest) == {depth}, mix
    sessions = on_onnx.encoder._onnx._sessions
    assert {len(layers) for _, layers, _, _ in sessions} == {1, 3, 4, 5}, "four graphs for all that was asked for"


def test_a_shallow_graph_that_cannot_be_made_is_logged_and_all_blocks_run(on_onnx, tiny_layers, monkeypatch, caplog):
    read = on_onnx.encoder.read

    def failing(tokens, mask, layers, poolings, places=None):
        if max(layers) == 2:
            raise ModelError("this encoder cannot be exported")
        return read(tokens, mask, layers, poolings, places)

    with running({"tiny": on_onnx}) as server:
        monkeypatch.setattr(on_onnx.encoder, "read", failing)
        expected = tiny_layers.with_mix("1").encode(SENTENCES)
        for _ in range(2):
            np.testing.assert_allclose(server.embed(input=SENTENCES, layers="1"), expected, **NEAR)
            until_graphs_are_made()
    assert caplog.text.count("layers up to 2 run all blocks: this encoder cannot be exported") == 1
