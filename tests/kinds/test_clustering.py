"""Clustering: V-measure of scikit-learn's k-means by set; resamples equal scikit-learn on drawn rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import v_measure_score

from layerwise.errors import InputError
from layerwise.kinds import prepare
from layerwise.metrics import redraw_v_measure
from support.kind_rows import random_vectors, rows_of, score

TEXTS = [f"text {n % 50}" for n in range(60)]
CLASSES = ["abc"[n % 3] for n in range(60)]


def k_means(vectors, rows):
    model = MiniBatchKMeans(n_clusters=3, batch_size=500, n_init="auto", random_state=42)
    return v_measure_score(
        [CLASSES[row] for row in rows], model.fit(np.stack([vectors[TEXTS[row]] for row in rows])).labels_
    )


def test_all_rows_are_clustered_once():
    vectors = random_vectors(TEXTS)
    outcome = score(prepare(rows_of("clustering", TEXTS, labels=CLASSES)), vectors)
    assert outcome.figures == {"v_measure": pytest.approx(100 * k_means(vectors, range(60)))}
    assert outcome.details == {"classes": 3}
    assert 100 * v_measure_score(outcome.gold, outcome.items) == pytest.approx(outcome.figures["v_measure"])


def test_subsets_are_sets_of_their_own():
    vectors, subsets = random_vectors(TEXTS), ["one" if n < 36 else "two" for n in range(60)]
    outcome = score(prepare(rows_of("clustering", TEXTS, labels=CLASSES, subsets=subsets)), vectors)
    expected = [100 * k_means(vectors, rows) for rows in (range(36), range(36, 60))]
    assert outcome.details["v_measure_by_set"] == pytest.approx(expected)
    assert outcome.figures["v_measure"] == pytest.approx(np.mean(expected))
    assert len(outcome.items) == 0  # a mean of sets has no rows to resample


def test_well_separated_classes_are_found_and_equal_vectors_say_nothing(recwarn):
    far = {text: 100 * np.eye(3, dtype=np.float32)["abc".index(name)] for text, name in zip("xyz", "abc", strict=True)}
    rows = rows_of("clustering", list("xyz") * 20, labels=list("abc") * 20)
    assert score(prepare(rows), far).figures["v_measure"] == pytest.approx(100)
    same = dict.fromkeys("xyz", np.ones(3, dtype=np.float32))
    assert score(prepare(rows), same).figures["v_measure"] == pytest.approx(0)
    assert not recwarn.list


def test_the_sampled_protocol_is_computed_where_it_is_the_metric():
    texts, labels = [f"t{n}" for n in range(200)], ["ab"[n % 2] for n in range(200)]
    rows = rows_of("clustering", texts, labels=labels, metric="v_measure_sampled")
    outcome = score(prepare(rows), random_vectors(texts))
    assert set(outcome.figures) == {"v_measure", "v_measure_sampled"}
    assert outcome.sd["v_measure_sampled"] >= 0
    few = rows_of("clustering", TEXTS[:20], labels=CLASSES[:20], metric="v_measure_sampled")
    with pytest.raises(InputError, match=r"^20 rows are too few for v_measure_sampled, of which it takes 4 %"):
        score(prepare(few), random_vectors(TEXTS))


@given(st.integers(0, 2**32 - 1))
def test_resamples_are_scored_as_scikit_learn_scores_drawn_rows(seed):
    random = np.random.default_rng(seed)
    clusters, classes = random.integers(0, 4, 30), random.integers(0, 3, 30)
    draws = random.integers(30, size=(5, 30))
    counts = np.stack([np.bincount(draw, minlength=30) for draw in draws]).astype(float)
    expected = [v_measure_score(classes[draw], clusters[draw]) for draw in draws]
    assert redraw_v_measure(clusters.astype(float), classes.astype(float), counts) == pytest.approx(expected, abs=1e-9)


def test_one_class_is_refused():
    with pytest.raises(InputError, match=r"^task 'rows': all rows have one class; clusters need 2 or more$"):
        prepare(rows_of("clustering", ["a", "b"], labels=["x", "x"]))
    with pytest.raises(InputError, match=r"all rows of subset 'two' have one class"):
        prepare(rows_of("clustering", list("abcd"), labels=list("xyzz"), subsets=["one", "one", "two", "two"]))
