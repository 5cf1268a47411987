"""Views in prompts given as text to `evaluate` and `embed`: the same numbers as the Python API's."""

import numpy as np
import pytest

from layerwise.data import find_tasks
from layerwise.encoder import LayerEncoder
from layerwise.evaluate import LayerSubject, evaluate
from layerwise.model import LayerModel
from support.commands import call, call_json
from support.pair_files import write
from support.text_pairs import some_pairs
from support.tiny import DEPTH, SENTENCES, save_decoder

VIEWS = "views(2 @ mean; 3 @ last in eol; 4 @ mean in echo; unit)"


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return save_decoder("gpt2", tmp_path_factory.mktemp("decoder") / "gpt2")


@pytest.fixture
def task(tmp_path):
    pairs = some_pairs()
    rows = zip(pairs.left, pairs.right, pairs.labels, strict=True)
    write(tmp_path / "pairs.csv", [{"sentence1": a, "sentence2": b, "score": float(s)} for a, b, s in rows])
    (tmp_path / "task.toml").write_text('[[task]]\nname = "mine"\nkind = "sts"\nfile = "pairs.csv"\n')
    return tmp_path / "task.toml"


def test_evaluate_scores_views_in_prompts(gpt2, task):
    by_command = call_json("evaluate", gpt2, "--tasks", task, "--views", VIEWS, "--device", "cpu")
    model = LayerModel(LayerEncoder(gpt2, device="cpu"), VIEWS)
    (expected,) = evaluate(LayerSubject(model), find_tasks([str(task)])).runs[0].results.values()
    assert by_command["tasks"]["mine"] == expected.figures
    assert by_command["mix"] == VIEWS


def test_evaluate_scores_every_layer_in_a_prompt(gpt2, task):
    options = ["--views", "each", "--pooling", "mean, last in eol", "--device", "cpu"]
    mixes = call_json("evaluate", gpt2, "--tasks", task, *options)["matrix"]["mixes"]
    assert mixes == [f"{layer} @ {name}" for name in ("mean", "last in eol") for layer in range(DEPTH + 1)]


def test_embed_writes_views_in_prompts(gpt2, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES))
    vectors = tmp_path / "vectors.npy"
    call("embed", gpt2, tmp_path / "texts.txt", "-o", vectors, "--mix", VIEWS, "--device", "cpu")
    expected = LayerModel(LayerEncoder(gpt2, device="cpu"), VIEWS).encode(SENTENCES)
    assert np.allclose(np.load(vectors), expected, atol=1e-6)
