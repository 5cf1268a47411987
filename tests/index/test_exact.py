"""Exact search: what numpy says, in any order of blocks; whose vectors they are; and files that are no vectors."""

import numpy as np
import pytest

from layerwise.data import RowSource
from layerwise.embed import EmbedJob, ModelChoice, run_embed
from layerwise.errors import InputError
from layerwise.index import ExactIndex, model_of
from layerwise.model import LayerModel
from support.tiny import SENTENCES, save_tiny


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_the_nearest_are_those_of_numpy(vectors, similarity, monkeypatch):
    monkeypatch.setattr("layerwise.index.exact._ROWS", 7)  # several blocks
    queries = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    found = ExactIndex(vectors, similarity=similarity).search(queries, 9)
    unit = (lambda v: v / np.linalg.norm(v, axis=1, keepdims=True)) if similarity == "cosine" else (lambda v: v)
    scores = unit(queries) @ unit(vectors).T
    expected = np.argsort(-scores, axis=1)[:, :9]
    np.testing.assert_array_equal(found.rows, expected)
    np.testing.assert_allclose(found.scores, np.take_along_axis(scores, expected, 1), rtol=1e-5)


def test_equal_ones_come_by_their_rows_and_never_more_than_there_are():
    index = ExactIndex(np.ones((3, 2), dtype=np.float32))
    found = index.search(np.ones((1, 2), dtype=np.float32), 10)
    assert found.rows.tolist() == [[0, 1, 2]]
    assert (len(index), index.width, index.columns(0)) == (3, 2, {})
    with pytest.raises(InputError, match=r"queries have the shape \(1, 3\); this index has vectors of 2 numbers"):
        index.search(np.ones((1, 3), dtype=np.float32), 1)


def test_the_model_that_made_the_vectors_is_known_by_any_backend(tiny_bert, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(SENTENCES), encoding="utf-8")
    choice = ModelChoice(str(tiny_bert), options={"device": "cpu"})
    run_embed(EmbedJob(RowSource.of(str(file), ("text", "text"))), choice, tmp_path / "vectors")
    index = ExactIndex.read(tmp_path / "vectors")
    model = LayerModel.load(tiny_bert, device="cpu")
    assert model_of(index.settings, index.width, model) is model
    mixed = model_of(index.settings, index.width, model.with_mix("1 @ max"))
    assert mixed.mix == model.mix  # its encoder with the mix of the vectors
    onnx = LayerModel.load(tiny_bert, device="cpu", backend="onnx")
    assert model_of(index.settings, index.width, onnx) is onnx
    other = LayerModel.load(save_tiny("electra", tmp_path / "electra"), device="cpu")
    assert model_of(index.settings, index.width, other) is None
    row = int(index.search(model.encode(SENTENCES[1:2]), 1).rows[0, 0])
    assert index.columns(row)["text"] == SENTENCES[1]


def test_what_holds_no_vectors_is_refused(tmp_path, vectors):
    np.save(tmp_path / "some.npy", vectors)
    assert len(ExactIndex.read(tmp_path / "some.npy")) == 50
    (tmp_path / "bad.npy").write_bytes(b"no array")
    (tmp_path / "bad.parquet").write_bytes(b"no table")
    for name, message in (
        ("bad.npy", "is damaged"),
        ("bad.parquet", "is damaged"),
        ("none", "none: no such file or folder"),
    ):
        with pytest.raises(InputError, match=message):
            ExactIndex.read(tmp_path / name)
    with pytest.raises(InputError, match="similarity of an index"):
        ExactIndex(vectors, similarity="euclid")
