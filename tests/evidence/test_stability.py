"""Agreement of complementary halves."""

import numpy as np
import pytest

from layerwise.errors import InputError
from layerwise.evidence import draw_halves, halves_agreement


@pytest.mark.parametrize("units", [60, 61])
def test_halves_are_complementary_and_equal(units):
    halves = draw_halves(units, 5, 4)
    random = np.random.default_rng(4)
    for first, second in zip(halves[::2], halves[1::2], strict=True):
        order = random.permutation(units)
        assert np.array_equal(first, order[:30])
        assert np.array_equal(second, order[30:60])


def test_groups_stay_in_one_half():
    groups = np.repeat(np.arange(12), 5)
    for first, second in zip(*(iter(draw_halves(60, 5, 0, groups=groups)),) * 2, strict=True):
        assert not set(groups[first]) & set(groups[second])
        assert len(first) == len(second) == 30


def test_agreement_is_the_mean_jaccard_index_of_halves_that_both_choose():
    agreement = halves_agreement([{1, 2}, {2, 3}, {1}, {1}, None, {9}, {4}, set()])
    assert agreement.agreement == pytest.approx((1 / 3 + 1) / 2)
    assert agreement.shares == {1: 0.75, 2: 0.5, 3: 0.25}
    assert list(agreement.shares) == [1, 2, 3]
    assert agreement.choices == ({1, 2}, {2, 3}, {1}, {1})


def test_halves_of_which_none_can_choose_are_refused():
    with pytest.raises(InputError, match="Halves of the queries cannot choose"):
        halves_agreement([None, {1}], unit="queries")
