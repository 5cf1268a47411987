"""Word repetition against ESimCSE's formula, written out."""

import numpy as np
import pytest

from layerwise.train.contrastive.repetition import repeat_words

DRAWS = 600


@pytest.mark.parametrize("rate", [0.1, 0.32, 0.9])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 12, 30])
def test_the_number_of_repeated_words_is_that_of_the_paper(rate, count):
    """dup_len ∈ [0, max(2, int(dup_rate · N))], uniform, both ends included; dup_set = sample(range(N), dup_len).

    Sampling is without replacement, so of fewer words than dup_len, all are repeated once.
    """
    words = [f"word{number}" for number in range(count)]
    most = min(count, max(2, int(rate * count)))
    random, numbers, places = np.random.default_rng(0), [], np.zeros(count)
    for text in repeat_words([" ".join(words)] * DRAWS, rate, random):
        repeated = text.split()
        times = [repeated.count(word) for word in words]
        assert set(times) <= {1, 2}
        assert repeated == [word for word, each in zip(words, times, strict=True) for _ in range(each)]  # in order
        numbers.append(len(repeated) - count)
        places += np.array(times) - 1
    assert sorted(set(numbers)) == list(range(most + 1))
    assert np.mean(numbers) == pytest.approx(most / 2, rel=0.15)
    if count:
        assert places.min() > 0  # every word may be repeated
        assert np.abs(places / places.sum() - 1 / count).max() < 0.35 / count**0.5
