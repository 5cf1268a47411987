"""Bitext mining: F1 equals scikit-learn's, every sentence a class."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score

from layerwise.kinds import prepare
from support.kind_rows import random_vectors, rows_of, score


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.floats(0, 2))
def test_figures_are_scikit_learns(seed, sentences, noise):
    random = np.random.default_rng(seed)
    left, right = ([f"{side}{n}" for n in range(sentences)] for side in "ab")
    vectors = random_vectors(left, seed=seed)
    for a, b in zip(left, right, strict=True):
        vectors[b] = (vectors[a] + noise * random.normal(size=6)).astype(np.float32)
    outcome = score(prepare(rows_of("bitext", left, right)), vectors)
    units = [np.stack([vectors[text] / np.linalg.norm(vectors[text]) for text in side]) for side in (left, right)]
    predicted, gold = (units[0] @ units[1].T).argmax(1), np.arange(sentences)
    options = {"average": "weighted", "zero_division": 0}
    assert outcome.figures["accuracy"] == pytest.approx(100 * (predicted == gold).mean())
    assert outcome.figures["f1"] == pytest.approx(100 * f1_score(gold, predicted, **options))
    assert outcome.figures["precision"] == pytest.approx(100 * precision_score(gold, predicted, **options))
    assert 100 * outcome.items.mean() == pytest.approx(outcome.figures["f1"])


def test_a_sentence_that_all_choose_has_little_f1():
    vectors = {"a": np.eye(3)[0], "b": np.eye(3)[0], "x": np.eye(3)[0], "y": np.eye(3)[1]}
    outcome = score(prepare(rows_of("bitext", ["a", "b"], ["x", "y"])), vectors)
    assert outcome.figures["accuracy"] == 50
    assert outcome.figures["f1"] == pytest.approx(100 * (2 / 3 + 0) / 2)


def test_only_test_rows_are_mined():
    rows = rows_of("bitext", ["a", "b", "c"], ["x", "y", "z"], splits={"dev": [0], "test": [1, 2]})
    assert prepare(rows).texts == {"": ["b", "c", "y", "z"]}
    outcome = score(prepare(rows_of("bitext", ["a"], ["x"], metric="accuracy")), random_vectors(["a", "x"]))
    assert outcome.items.tolist() == [1.0]
