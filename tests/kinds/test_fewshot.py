"""Few-shot classification: draws equal mteb's loop written out, figures equal scikit-learn's."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from layerwise.errors import InputError
from layerwise.kinds import prepare
from layerwise.kinds.fewshot import _figures, few_shot_draws
from support.kind_rows import random_vectors, rows_of, score


def plain_draws(labels, shots):
    """A list that is shuffled again and again by the same seed; the first rows of each label."""
    order, draws = list(range(len(labels))), []
    for _ in range(10):
        np.random.RandomState(42).shuffle(order)
        counts, drawn = Counter(), []
        for row in order:
            if counts[labels[row]] < shots:
                drawn.append(row)
                counts[labels[row]] += 1
        draws.append(drawn)
    return draws


@given(st.lists(st.integers(0, 4), min_size=2, max_size=80), st.integers(1, 10))
def test_draws_are_those_of_a_plain_loop(labels, shots):
    assert [draw.tolist() for draw in few_shot_draws(np.array(labels), shots)] == plain_draws(labels, shots)


def some_rows(classes=("2", "10", "1"), **declared):
    labels = [classes[n % len(classes)] for n in range(120)]
    texts = [f"text {n}" for n in range(120)]
    return rows_of("fewshot", texts, labels=labels, splits={"train": range(80), "test": range(80, 120)}, **declared)


def test_figures_are_scikit_learns_on_these_draws():
    rows = some_rows()
    vectors = random_vectors(rows.left)
    outcome = score(prepare(rows), vectors)
    features, numbers = np.stack([vectors[text] for text in rows.left]), np.array([int(name) for name in rows.labels])
    accuracies, macro, right = [], [], []
    for draw in plain_draws(rows.labels[:80], 8):
        model = LogisticRegression(max_iter=100, random_state=42).fit(features[draw], numbers[draw])
        predicted = model.predict(features[80:])
        right.append(predicted == numbers[80:])
        accuracies.append(100 * right[-1].mean())
        macro.append(100 * f1_score(numbers[80:], predicted, average="macro"))
    assert outcome.figures["accuracy"] == pytest.approx(np.mean(accuracies))
    assert outcome.figures["f1_macro"] == pytest.approx(np.mean(macro))
    assert outcome.sd["accuracy"] == pytest.approx(np.std(accuracies, ddof=1))
    assert outcome.items == pytest.approx(np.mean(right, axis=0))
    assert "ap" not in outcome.figures
    assert "ap" in score(prepare(some_rows(("a", "b"))), vectors).figures


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30))
def test_f1_is_scikit_learns(rows):
    gold, predicted = np.array(rows).T
    figures = _figures(gold, predicted)
    for average in ("macro", "weighted"):
        expected = 100 * f1_score(gold, predicted, average=average, zero_division=0)
        assert figures[f"f1_{average}"] == pytest.approx(expected, abs=1e-12)


def test_only_drawn_and_tested_rows_are_embedded():
    rows = some_rows(shots=1)
    drawn = {row for draw in plain_draws(rows.labels[:80], 1) for row in draw}
    assert set(prepare(rows).texts[""]) == {rows.left[row] for row in (*drawn, *range(80, 120))}


def test_without_train_rows_or_with_one_class_it_is_refused():
    with pytest.raises(InputError, match=r"^task 'rows' has no train rows to draw from; declare splits = \{ train"):
        prepare(rows_of("fewshot", ["a", "b"], labels=["x", "y"]))
    with pytest.raises(InputError, match=r"^task 'rows': all train rows have one class"):
        prepare(some_rows(("a",)))
