"""One rule for what is constant, in each precision."""

import numpy as np
import pytest

from layerwise.metrics import is_constant, pearson, spearman


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (1 + 1e-15 * np.arange(5), True),
        (1 + 1e-10 * np.arange(5), False),
        ((1 + 1e-8 * np.arange(5)).astype(np.float32), True),
        ((1 + 1e-5 * np.arange(5)).astype(np.float32), False),
        (1e6 + 1e-8 * np.arange(5), True),  # relative to large values
        (np.array([3, 3, 3]), True),
        (np.array([0, 1]), False),
    ],
)
def test_values_are_constant_but_for_rounding(values, expected):
    assert is_constant(values) == expected
    gold = np.arange(len(values)) ** 2.0
    assert np.isnan(spearman(values, gold)) == np.isnan(pearson(gold, values)) == expected


def test_what_is_not_finite_or_alone_has_no_correlation():
    for values in (np.array([1.0, np.inf, 2.0]), np.array([1.0, np.nan, 2.0]), np.ones(1), np.ones(0)):
        assert np.isnan(spearman(values, np.arange(float(len(values)))))
