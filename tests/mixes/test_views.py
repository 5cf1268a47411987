"""Means of views: texts, numbers, what is taken away, and what is refused."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import InputError, MixError
from layerwise.mixes import Centres, Mean, View, fit_centres, parse_mix


def some_views(texts=40, views=3, width=12, seed=0):
    random = np.random.default_rng(seed)
    scales = np.linspace(3, 0.1, width)
    return torch.from_numpy(random.normal(size=(texts, views, width)) * scales + random.normal(size=(views, width)))


@pytest.mark.parametrize(
    "text",
    [
        "views(5,9 @ mean; 12 @ cls; unit)",
        "views(3 @ last in eol; 0,2-4 @ mean in echo; unit; less mean)",
        "views(3 @ mean; 4 @ weighted-mean; less 8)",
        "views(9 @ mean; 2*5,9 @ mean less 8; 3 @ last in eol less mean; unit)",
        'views(3 @ mean in "{text} less 8" less 2; 1 @ last in "{text}: less mean")',
        'views(3 @ mean in "a; b | c @ d: {text}"; 1 @ last in "say \\"{text}\\"" over text; unit; less 1)',
    ],
)
def test_texts_are_read_and_printed_again(text):
    mix = parse_mix(text)
    assert str(mix) == text
    assert parse_mix(str(mix)) == mix


@given(words=st.text(max_size=30).filter(lambda text: "{" not in text and "[" not in text))
def test_prompts_may_hold_any_sign(words):
    pooling = f"mean in {json.dumps('a' + words + '{text}')}"
    mix = Mean.of(3, pooling=pooling)
    both = Mean.of(View(3, pooling), View(1), View(2), scale="unit")
    assert parse_mix(str(mix)) == mix
    assert parse_mix(str(both)) == both
    joined = parse_mix(f"{mix} | last @ cls")
    assert parse_mix(str(joined)) == joined


def test_a_set_of_layers_may_be_of_a_prompt():
    mix = parse_mix("-1 @ last in eol").resolve(12)
    assert (mix.layers, mix.poolings, mix.needs) == ((12,), ("last in eol",), {"last in eol": (12,)})
    assert parse_mix('last @ last in "This sentence : \\"{text}\\" means in one word:\\""').resolve(12) == mix


def test_every_pooling_needs_its_own_layers():
    mix = parse_mix("views(5,9 @ mean; 12 @ cls; unit)")
    assert mix.needs == {"mean": (5, 9), "cls": (12,)}
    assert mix.layers == (5, 9, 12)
    assert parse_mix("1 @ mean | 2-3 @ cls").needs == {"mean": (1,), "cls": (2, 3)}


def test_the_mean_as_it_is_and_of_length_one():
    views = torch.randn(6, 2, 3, 8)  # two poolings of layers 1, 2, 4
    plain, unit = parse_mix("views(1,4 @ mean; 2 @ cls)"), parse_mix("views(1,4 @ mean; 2 @ cls; unit)")
    picked = torch.stack([views[:, 0, 0], views[:, 0, 2], views[:, 1, 1]], dim=1)
    assert torch.allclose(plain.combine(views), picked.mean(1))
    expected = (picked / picked.norm(dim=-1, keepdim=True)).mean(1)
    assert torch.allclose(unit.combine(views), expected, atol=1e-6)
    assert np.allclose(unit.combine(views.numpy()), expected.numpy(), atol=1e-6)
    zero = torch.zeros(2, 2, 3, 8)
    assert torch.equal(unit.combine(zero), torch.zeros(2, 8))


def test_what_is_taken_away_is_what_numpy_finds():
    views = some_views()
    centres = fit_centres(views, 2)
    for view in range(3):
        rows = views[:, view].numpy()
        mean = rows.mean(0)
        _, _, directions = np.linalg.svd(rows - mean)
        top = directions[:2]
        assert np.allclose(centres.means[view].numpy(), mean)
        assert np.abs(np.abs(centres.directions[view].numpy() @ top.T) - np.eye(2)).max() < 1e-6
        left = rows - mean - (rows - mean) @ top.T @ top
        assert np.allclose(centres.taken_from(views)[:, view].numpy(), left, atol=1e-6)
        assert np.allclose(centres.taken_from(views.numpy())[:, view], left, atol=1e-6)


def test_a_mix_takes_away_before_it_scales():
    views = some_views()
    mix = parse_mix("views(0,1 @ mean; 1 @ cls; unit; less 1)").with_fitted(fit_centres(views, 1))
    stacked = torch.zeros(40, 2, 2, 12, dtype=views.dtype)
    stacked[:, 0, 0], stacked[:, 0, 1], stacked[:, 1, 1] = views[:, 0], views[:, 1], views[:, 2]
    left = fit_centres(views, 1).taken_from(views)
    expected = (left / left.norm(dim=-1, keepdim=True)).mean(1)
    assert torch.allclose(mix.combine(stacked), expected, atol=1e-6)
    assert mix.resolve(12).fitted is not None
    assert mix == parse_mix(str(mix)), "two mixes are equal by what they say"


def test_a_view_counts_as_it_is_and_without_what_all_share():
    views = some_views(views=2)
    mix = parse_mix("views(4 @ mean; 3*3,4 @ mean less 2; 3 @ mean less mean; unit)")
    assert (mix.needs, mix.poolings, mix.components) == ({"mean": (3, 4)}, ("mean",), 2)
    fitted = fit_centres(views, 2)
    centres = fitted.pick([1, 0, 1, 0]).partly([None, 2, 2, 0])
    given = mix.with_fitted(centres)
    less, mean = fitted.taken_from(views), views - views.mean(0)
    forms = torch.stack([views[:, 1], less[:, 0], less[:, 1], mean[:, 0]], dim=1)
    weights = torch.tensor([1.0, 3.0, 1.0, 1.0], dtype=views.dtype)[:, None]
    expected = (torch.nn.functional.normalize(forms, dim=-1) * weights).sum(1) / 6
    torch.testing.assert_close(given.combine(views[:, None]), expected)
    assert parse_mix("views(4 @ mean less 8; 3 @ cls less 8)") == parse_mix("views(4 @ mean; 3 @ cls; less 8)")


def test_zero_components_are_the_mean_alone():
    views = some_views()
    assert torch.allclose(fit_centres(views, 0).taken_from(views), views - views.mean(0))
    assert torch.allclose(fit_centres(views, 3).first(0).taken_from(views), views - views.mean(0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("views()", "is not a layer"),
        ("views(unit)", "needs at least one set"),
        ("views(1 @ mean; 2 @ mean)", "a token pooling twice"),
        ("views(1 @ mean less 8; 2 @ mean less 8)", "a token pooling twice"),
        ("views(1 @ mean less 8; 2 @ cls; less 2)", "both of a set and of all"),
        ("views(1 @ mean less many)", "is no token pooling"),
        ("views(1:0.5,2:0.5 @ mean)", "is no set of layers"),
        ("views(1 @ mean; huge)", "is not a layer"),
        ("views(1 @ nothing)", "Unknown token pooling"),
    ],
)
def test_texts_that_are_no_views_are_refused(text, message):
    with pytest.raises((MixError, InputError), match=message):
        parse_mix(text)


def test_means_that_were_not_fitted_are_asked_for():
    mix = parse_mix("views(1 @ mean; less 2)")
    with pytest.raises(MixError, match="not fitted"):
        mix.combine(torch.randn(3, 1, 1, 8))
    with pytest.raises(MixError, match="has 1 views, less 2, but its means are of 3"):
        mix.with_fitted(fit_centres(some_views(), 2))
    with pytest.raises(MixError, match="needs views by mean and cls"):
        parse_mix("views(1 @ mean; 2 @ cls)").combine(torch.randn(3, 1, 2, 8))
    with pytest.raises(MixError, match="40 components of 40 texts"):
        fit_centres(some_views(), 40)
    assert (
        Centres(torch.zeros(1, 2), torch.zeros(1, 0, 2)).digest()
        != Centres(torch.ones(1, 2), torch.zeros(1, 0, 2)).digest()
    )


def test_views_may_count_against_others():
    mix = parse_mix("views(3*5,-1*9 @ mean; -0.5*1 @ cls; unit)")
    assert mix.weights == (3.0, -1.0, -0.5)
    assert str(mix) == "views(3*5,-1*9 @ mean; -0.5*1 @ cls; unit)"
    assert parse_mix(str(mix)) == mix
    assert sum(map(abs, mix.shares)) == pytest.approx(1)
    views = torch.randn(4, 2, 3, 8)  # layers 1, 5, 9
    picked = torch.nn.functional.normalize(torch.stack([views[:, 0, 1], views[:, 0, 2], views[:, 1, 0]], dim=1), dim=-1)
    expected = (picked * torch.tensor([3.0, -1.0, -0.5])[:, None]).sum(1) / 4.5
    assert torch.allclose(mix.combine(views), expected, atol=1e-6)
    assert parse_mix("views(1-3*4 @ mean; unit)").weights == (1, 1, 1, 3)  # layers 1 to 4, not minus three times 4


def test_views_may_count_several_times():
    mix = parse_mix("views(3*26,30 @ mean in echo; 2.5*1 @ last; unit)")
    assert mix.weights == (3.0, 1.0, 2.5)
    assert str(mix) == "views(3*26,30 @ mean in echo; 2.5*1 @ last; unit)"
    assert parse_mix(str(mix)) == mix
    assert parse_mix("views(1*26,30 @ mean; unit)") == parse_mix("views(26,30 @ mean; unit)")
    views = torch.randn(4, 2, 3, 8)  # layers 1, 26, 30
    picked = torch.nn.functional.normalize(torch.stack([views[:, 0, 1], views[:, 0, 2], views[:, 1, 0]], dim=1), dim=-1)
    expected = (picked * torch.tensor([3.0, 1.0, 2.5])[:, None]).sum(1) / 6.5
    assert torch.allclose(mix.combine(views), expected, atol=1e-6)
    for weights in ((-2.0, -1.0), (1.0, 0.0), (1.0, float("nan")), (1.0, float("inf"))):
        with pytest.raises(MixError, match="numbers above 0"):
            Mean.of(1, 2, weights=weights)
    with pytest.raises(MixError, match="one for each view"):
        Mean.of(1, 2, weights=(2.0,))
    with pytest.raises(MixError, match="layer by layer"):
        Mean.of((0, -1), weights=(2.0,))
    counted = Mean.of(3, -4, scale="unit", weights=(2.0, 1.0)).resolve(4)
    assert (counted.layers, counted.weights) == ((1, 3), (1.0, 2.0)), "weights move with their layers"
    with pytest.raises(MixError, match="cannot be less -3"):
        Mean.of(1, 2, remove=-3)
