"""Pairs with labels: every figure equals a plain loop over thresholds; resamples equal drawing and scoring again."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from layerwise.errors import InputError
from layerwise.kinds import prepare
from layerwise.metrics import redraw_average_precision, threshold_scores
from support.kind_rows import random_vectors, rows_of, score

SIMILARITIES = {
    "cosine": lambda a, b: a @ b / (np.linalg.norm(a) * np.linalg.norm(b)),
    "dot": lambda a, b: a @ b,
    "euclidean": lambda a, b: -np.linalg.norm(a - b),
    "manhattan": lambda a, b: -np.abs(a - b).sum(),
}


def by_thresholds(similarities, labels) -> tuple[float, float]:
    """The best accuracy and F1 over all thresholds between two different similarities."""
    levels = np.unique(similarities)
    accuracies, scores = [0.0], [0.0]
    for low, high in pairwise(levels):
        predicted = similarities > (low + high) / 2
        right = (predicted & (labels == 1)).sum()
        accuracies.append((predicted == labels).mean())
        scores.append(2 * right / (predicted.sum() + labels.sum()))
    return max(accuracies), max(scores)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), min_size=2, max_size=40))
def test_thresholds_never_split_ties(pairs):
    similarities, labels = (np.array(column) for column in zip(*pairs, strict=True))
    if labels.sum() == 0:
        return
    scores = threshold_scores(similarities.astype(float), labels)
    accuracy, f1 = by_thresholds(similarities, labels)
    assert (scores["accuracy"], scores["f1"]) == pytest.approx((accuracy, f1))
    assert scores["ap"] == pytest.approx(average_precision_score(labels, similarities))


def test_four_similarities_and_the_best_of_them():
    left, right = [f"a{n}" for n in range(30)], [f"b{n % 20}" for n in range(30)]
    labels = [float(n % 3 == 0) for n in range(30)]
    vectors = random_vectors(left + right)
    outcome = score(prepare(rows_of("pair-classification", left, right, labels)), vectors)
    for name, similarity in SIMILARITIES.items():
        values = [similarity(vectors[a], vectors[b]) for a, b in zip(left, right, strict=True)]
        expected = 100 * average_precision_score(labels, values)
        assert outcome.figures[f"{name}_ap"] == pytest.approx(expected, abs=1e-4), name
    for key in ("ap", "accuracy", "f1"):
        assert outcome.figures[f"max_{key}"] == max(outcome.figures[f"{name}_{key}"] for name in SIMILARITIES)
    assert outcome.figures["max_ap"] == outcome.figures[f"{outcome.details['best']}_ap"]
    assert 100 * average_precision_score(outcome.gold, outcome.items) == pytest.approx(outcome.figures["max_ap"])


def test_items_are_of_the_metric():
    left, right = ["a", "b", "c"], ["d", "e", "f"]
    vectors = random_vectors(left + right)
    rows = rows_of("pair-classification", left, right, [0.0, 1.0, 0.0], metric="dot_ap")
    dots = [vectors[a] @ vectors[b] for a, b in zip(left, right, strict=True)]
    assert score(prepare(rows), vectors).items == pytest.approx(dots)


@given(st.integers(0, 2**32 - 1))
def test_resamples_are_scored_as_scikit_learn_scores_drawn_pairs(seed):
    random = np.random.default_rng(seed)
    similarities = np.round(random.normal(size=25), 1)  # with ties
    labels = (random.random(25) < 0.4).astype(float)
    draws = random.integers(25, size=(6, 25))
    counts = np.stack([np.bincount(draw, minlength=25) for draw in draws]).astype(float)
    scores = redraw_average_precision(similarities, labels, counts)
    for draw, value in zip(draws, scores, strict=True):
        if labels[draw].sum():
            assert value == pytest.approx(average_precision_score(labels[draw], similarities[draw]))
        else:
            assert np.isnan(value)


def test_pairs_of_one_label_are_refused():
    with pytest.raises(InputError, match=r"^task 'rows': all pairs have the label 1; give pairs of both, 0 and 1$"):
        prepare(rows_of("pair-classification", ["a", "b"], ["c", "d"], [1.0, 1.0]))
