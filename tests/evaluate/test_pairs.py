"""Our correlation is SciPy's, what has none is refused, and the demonstration pairs are fit to show something."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from layerwise.data import demo_corpus, demo_pairs
from layerwise.errors import InputError
from layerwise.kinds import score_sts
from layerwise.metrics import cosine, spearman


def at_angles(degrees) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of vectors of unequal lengths whose angles are given."""
    radians = np.radians(np.asarray(degrees, dtype=np.float64))
    left = np.tile([2.0, 0.0], (len(radians), 1))
    return left, 3 * np.stack([np.cos(radians), np.sin(radians)], axis=1)


def test_cosine_of_known_angles():
    assert cosine(*at_angles([0, 60, 90, 180])) == pytest.approx([1, 0.5, 0, -1], abs=1e-12)


def test_cosine_of_a_zero_vector_is_zero():
    assert cosine(np.zeros((1, 3)), np.ones((1, 3))).tolist() == [0.0]


def test_cosine_is_computed_in_float64():
    left = np.full((1, 3), 1e-30, dtype=np.float32)
    assert cosine(left, left) == pytest.approx([1.0], abs=1e-12)


def test_known_correlations():
    left, right = at_angles([10, 20, 30, 40])
    assert spearman(cosine(left, right), np.array([4.0, 3.0, 2.0, 1.0])) == pytest.approx(1)
    assert spearman(cosine(left, right), np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(-1)
    # ranks 4, 3, 2, 1 against 4, 2.5, 2.5, 1: 4.5 / sqrt(5 * 4.5)
    assert spearman(cosine(left, right), np.array([3.0, 2.0, 2.0, 1.0])) == pytest.approx(np.sqrt(0.9))


@given(
    st.lists(st.tuples(st.sampled_from([0, 15, 30, 90]), st.sampled_from([0, 1, 2.5, 5])), min_size=2, max_size=30)
    .filter(lambda pairs: len({angle for angle, _ in pairs}) > 1)
    .filter(lambda pairs: len({score for _, score in pairs}) > 1)
)
@settings(deadline=None)
def test_equals_scipy_with_ties_on_both_sides(pairs):
    angles, gold = map(np.array, zip(*pairs, strict=True))
    expected = spearmanr(-angles, gold).statistic
    assert spearman(cosine(*at_angles(angles)), gold) == pytest.approx(expected, abs=1e-12)


@pytest.mark.filterwarnings("error")
def test_equal_similarities_have_no_correlation():
    left, right = at_angles([30, 30, 30])
    assert np.isnan(spearman(cosine(left, right), np.array([1.0, 2.0, 3.0])))


GOLD = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("left", "right", "gold", "message"),
    [
        (3, 3, np.array([1.0, 2.0]), "^3 and 3 embeddings for 2 scores: the lengths differ"),
        (3, 2, GOLD, "^3 and 2 embeddings for 3 scores: the lengths differ"),
        (3, 3, np.array([2.0, 2.0, 2.0]), "^3 pairs, 1 different scores: a correlation needs 2"),
        (1, 1, np.array([2.0]), "^1 pairs, 1 different scores: a correlation needs 2"),
        (0, 0, np.array([]), "^0 pairs, 0 different scores: a correlation needs 2"),
        (3, 3, np.array([1.0, np.nan, 3.0]), "^score 1 is not a finite number"),
        (3, 3, np.array([1.0, 2.0, -np.inf]), "^score 2 is not a finite number"),
    ],
)
def test_bad_input_is_refused(left, right, gold, message):
    vectors = np.random.default_rng(0).normal(size=(2, 3, 4))
    with pytest.raises(InputError, match=message):
        score_sts(vectors[0, :left], vectors[1, :right], gold)


def test_demo_pairs_are_many_graded_and_of_several_kinds():
    pairs = demo_pairs()
    assert len(pairs) >= 240
    scores = Counter(pair.score for pair in pairs)
    assert min(scores) == 0
    assert max(scores) == 5
    assert len(scores) >= 6, "a rank correlation needs grades, not two heaps"
    assert max(scores.values()) < len(pairs) / 2
    for names in (Counter(pair.topic for pair in pairs), Counter(pair.kind for pair in pairs)):
        assert len(names) >= 4
        assert min(names.values()) >= 5, "each is more than an anecdote"


def test_demo_pairs_hold_no_duplicates_and_no_empty_text():
    pairs = demo_pairs()
    assert all(text == text.strip() != "" for p in pairs for text in (p.sentence1, p.sentence2, p.topic, p.kind))
    unordered = Counter(frozenset((pair.sentence1.casefold(), pair.sentence2.casefold())) for pair in pairs)
    assert {len(pair) for pair in unordered} == {2}, "no sentence is paired with itself"
    assert max(unordered.values()) == 1


def test_demo_corpus_is_fit_to_search_in():
    corpus = demo_corpus()
    assert len(corpus) >= 50
    assert len({text.casefold() for text in corpus}) == len(corpus)
    assert all(text == text.strip() != "" for text in corpus)


def test_embeddings_that_are_no_numbers_are_refused():
    left = np.array([[1.0, 0.0], [np.nan, 1.0], [0.5, 0.5]])
    with pytest.raises(InputError, match="pair 1 has an embedding with NaN"):
        score_sts(left, np.ones((3, 2)), GOLD)


def test_pairs_of_equal_sentences_have_no_correlation():
    vectors = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    assert np.isnan(spearman(cosine(vectors, vectors), np.arange(50.0))), "not that of rounding errors"
