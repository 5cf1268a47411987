"""The best set for every number of blocks, and the cheapest that is as good as what the verdict says to use."""

import numpy as np
import pytest

from layerwise.errors import InputError
from layerwise.search import Choice, LayerSearch, bootstrap_gain


def layers_of_noise(noise, *, pairs=300, width=16, own=0.01, seed=0):
    """Views whose layers' similarities are the grade but for so much noise each, nearly the same in all of them."""
    random = np.random.default_rng(seed)
    gold = random.uniform(-0.9, 0.9, pairs)
    shared = random.normal(size=pairs)
    left, right = np.zeros((2, pairs, len(noise), width))
    for layer, much in enumerate(noise):
        cosine = np.clip(gold + much * (shared + own * random.normal(size=pairs)), -1, 1)
        left[:, layer, 0] = 1
        right[:, layer, 0], right[:, layer, 1] = cosine, np.sqrt(1 - cosine**2)
    return left, right, gold


def test_a_middle_layer_that_is_as_good_as_the_last_is_named():
    search = LayerSearch(space="up to 1").fit(*layers_of_noise([2.0, 0.3, 0.301, 0.299]))
    assert search.verdict_.use.layers == (3,)
    assert search.cheaper_.choice.layers == (1,)
    assert search.cheaper_.blocks == 1
    assert search.cheaper_.against.low > -0.01
    expected = Choice(search.front_[1].mix, 0.0), search.last_, search.parts_[0][1]
    assert search.cheaper_.against == bootstrap_gain(search.problems_, [expected])
    assert str(search.cheaper_).startswith("layer 1 @ mean, 1 block instead of 3, ")


def test_a_layer_that_loses_more_than_a_point_is_not_as_good():
    search = LayerSearch(space="up to 1").fit(*layers_of_noise([2.0, 0.5, 0.5, 0.2]))
    assert search.verdict_.use.layers == (3,)
    assert search.cheaper_ is None


def test_a_loss_that_may_be_more_than_a_point_is_not_as_good():
    """The estimates differ by less than a point, but of so few pairs nobody can tell."""
    search = LayerSearch(space="up to 1").fit(*layers_of_noise([2.0, 0.51, 0.5], pairs=60, own=0.3, seed=5))
    middle, last = search.front_[1], search.last_
    assert abs(middle.test - last.test) < 0.01
    gain = bootstrap_gain(search.problems_, [(middle, last, search.parts_[0][1])])
    assert gain.low < -0.01
    assert search.cheaper_ is None


def test_what_is_cheaper_is_compared_with_what_the_verdict_says_to_use():
    left, right, gold = layers_of_noise([2.0, 0.2, 0.19, 1.0])  # the last layer is worse than both
    search = LayerSearch(space="up to 1").fit(left, right, gold)
    assert search.verdict_.use.layers == (2,)
    assert search.verdict_.is_gain
    assert search.cheaper_.choice.layers == (1,)
    assert search.cheaper_.instead_of == 2
    assert abs(search.cheaper_.against.mean) < 0.01 < search.report_.gain.mean


def test_unseen_scores_of_the_front_are_of_the_pairs_that_did_not_choose():
    search = LayerSearch().fit(*layers_of_noise([0.9, 0.8, 0.7, 0.6]))
    unseen = search.unseen_scores([choice.mix for choice in search.front_])[:, 0]
    assert [choice.test for choice in search.front_] == pytest.approx(unseen, abs=1e-12)
    assert [choice.dev for choice in search.front_] == sorted(choice.dev for choice in search.front_)


def test_of_several_splits_each_reports_its_own_choice():
    left, right, gold = layers_of_noise([0.9, 0.8, 0.8, 0.8, 0.79], pairs=80)
    search = LayerSearch(splits=3).fit(left, right, gold)
    for best in search.front_:
        own = []
        for dev, test in search.parts_:
            one = LayerSearch(parts=[(dev, test)]).fit(left, right, gold)
            own.append([choice.test for choice in one.front_ if choice.layers[-1] <= best.layers[-1]][-1])
        assert best.test == pytest.approx(np.mean(own), abs=1e-9)


def test_a_second_fit_forgets_the_first():
    search = LayerSearch(space="up to 1").fit(*layers_of_noise([2.0, 0.3, 0.301, 0.299]))
    assert search.cheaper_ is not None
    search.fit(*layers_of_noise([2.0, 0.5, 0.5, 0.2]))
    assert search.cheaper_ is None
    assert search.front_[-1].test == pytest.approx(search.best_.test)


def test_without_pairs_that_report_nothing_is_called_as_good():
    search = LayerSearch(dev=None).fit(*layers_of_noise([0.9, 0.8, 0.7]))
    assert all(choice.test is None for choice in search.front_)
    with pytest.raises(InputError, match="none are left to report"):
        _ = search.cheaper_
