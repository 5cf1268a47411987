"""A mix prints what it parses, means the layers that its text says, equals a plain loop, and refuses with reasons."""

import dataclasses
import re
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from layerwise.errors import LayerwiseError, MixError
from layerwise.mixes import SCALES, Attention, Concat, Mean, SbertWk, View, parse_mix

LARGE = 24
poolings = st.sampled_from(["mean", "cls", "max"])
layers = st.integers(-LARGE - 1, LARGE)
spans = st.tuples(layers, layers).filter(lambda span: (span[0] < 0) != (span[1] < 0) or span[0] <= span[1])
sets = st.builds(
    lambda items, pooling: Mean.of(*items, pooling=pooling),
    st.lists(layers | spans, min_size=1, max_size=6),
    poolings,
)
weights = st.builds(
    lambda values, pooling: Mean.weighted(values, pooling=pooling),
    st.dictionaries(layers, st.floats(-1, 1000).filter(lambda w: abs(w) > 1e-3), min_size=1).filter(
        lambda values: sum(values.values()) > 0.1
    ),
    poolings,
)
plain = sets | weights
concats = st.builds(Concat, st.lists(plain, min_size=2, max_size=5, unique=True).map(tuple)) | st.builds(
    lambda items, pooling: Concat.of(*items, pooling=pooling),
    st.lists(layers, min_size=1, unique=True),
    poolings,
)
prompted = st.sampled_from(["last in eol", "mean in echo", 'mean in "a; b | c @ d, less 8: {text}"', "mask in means"])
views = st.builds(View, layers, poolings | prompted, st.none() | st.integers(0, 16))
signed = st.floats(-8, 8, allow_subnormal=False).filter(bool) | st.integers(-3, 3).filter(bool)


@st.composite
def means_of_views(draw):
    """Views as they are or less components, by several token poolings, weighted or not, scaled or not."""
    chosen = draw(st.lists(views, min_size=1, max_size=6, unique=True))
    counts = draw(st.just([]) | st.lists(signed, min_size=len(chosen), max_size=len(chosen)))
    assume(not counts or max(counts) > 0)
    return Mean.of(*chosen, scale=draw(st.sampled_from(SCALES)), weights=counts)


attentions = st.builds(
    Attention, poolings | prompted, poolings | prompted, st.just("") | poolings, st.sampled_from(["softmax", "ratio"])
)
tokens = st.builds(SbertWk, st.integers(-9, 9), st.integers(1, 4), layers)


@given(plain | concats | means_of_views() | attentions | tokens)
@settings(max_examples=300)
def test_every_printed_mix_parses_to_itself(mix):
    assert parse_mix(str(mix)) == mix, "normalising twice must not change a digit"
    assert hash(parse_mix(str(mix))) == hash(mix)
    assert eval(repr(mix), {type(mix).__name__: parse_mix}) == mix  # noqa: S307
    try:
        resolved = mix.resolve(LARGE)
    except MixError:
        return
    assert parse_mix(str(resolved)).resolve(LARGE) == resolved == resolved.resolve(LARGE)
    assert resolved.needs.keys() == set(resolved.poolings) == {view.pooling for view in resolved.views}
    assert max(max(layers) for layers in resolved.needs.values()) == resolved.layers[-1] <= LARGE
    assert resolved.width(8) == 8 * len(resolved.parts) if isinstance(mix, Concat) else resolved.width(8) in (8, 16)


@given(plain | concats | means_of_views())
def test_terms_are_what_is_combined(mix):
    assume(mix.components is None and mix.scale == "none")
    try:
        resolved = mix.resolve(LARGE)
    except MixError:
        assume(False)
    array = np.random.default_rng(1).normal(size=(3, len(resolved.poolings), len(resolved.layers), 2))
    expected = np.zeros((3, resolved.width(2) // 2, 2))
    for view, share, number in resolved.terms:
        expected[:, number] += (
            share * array[:, resolved.poolings.index(view.pooling), resolved.layers.index(view.layer)]
        )
    np.testing.assert_allclose(
        resolved.combine(array), expected.reshape(3, -1), atol=1e-9 * np.abs(expected).max() + 1e-9
    )


@given(weights)
def test_resolving_renumbers_weights_and_changes_none(mix):
    assume(mix.weights)
    numbers = [view.layer % (LARGE + 1) for span in mix.spans for view in span.views]
    expected = dict(zip(numbers, mix.weights, strict=True))
    assume(len(expected) == len(mix.weights))
    resolved = mix.resolve(LARGE)
    assert dict(zip(resolved.layers, resolved.weights, strict=True)) == expected


@given(st.lists(layers | spans, min_size=1, max_size=6))
def test_a_set_is_the_layers_that_python_would_slice(items):
    numbers = list(range(LARGE + 1))
    pairs = [(item, item) if isinstance(item, int) else item for item in items]
    expected = [numbers[numbers[first] : numbers[last] + 1] for first, last in pairs]
    assume(all(expected))
    mix = Mean.of(*items).resolve(LARGE)
    assert mix.layers == tuple(sorted(set().union(*expected)))
    assert parse_mix(str(mix)) == mix == mix.resolve(LARGE)


@pytest.mark.parametrize("depth", [6, 12, 24])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("last", lambda last: (last,)),
        ("first-last", lambda last: (1, last)),
        ("0+last", lambda last: (0, last)),
        ("last-4", lambda last: (last - 3, last - 2, last - 1, last)),
        ("all", lambda last: tuple(range(last + 1))),
        ("-3..-2", lambda last: (last - 2, last - 1)),
        ("2..-3", lambda last: tuple(range(2, last - 1))),
    ],
)
def test_names_resolve_by_depth(text, expected, depth):
    assert parse_mix(text).resolve(depth).layers == expected(depth)


def test_what_means_the_same_layers_is_equal():
    assert parse_mix("last").resolve(12) == parse_mix("12")
    assert parse_mix("last") != parse_mix("12")
    assert parse_mix("last").resolve(6) != parse_mix("12")
    assert parse_mix("1-3,12") == parse_mix("12, 3,2 ,1, 2-3") == Mean.of(12, (1, 3))
    assert parse_mix("last-1") == parse_mix("-1") == parse_mix("last")
    assert parse_mix("last-13").resolve(12) == parse_mix("all").resolve(12) == parse_mix("0-12")
    assert parse_mix("concat(1,12)") != parse_mix("concat(12,1)")
    assert parse_mix("last @ cls") != parse_mix("last")
    assert parse_mix("last", pooling="max") == parse_mix("last@max")
    assert parse_mix("last @ cls", pooling="max").pooling == "cls", "the text's own pooling goes first"


@pytest.mark.parametrize("text", ["1-3,12", "1:0.25,12:0.75", "concat(12,1)"])
def test_mixes_are_frozen_values(text):
    mix = parse_mix(text)
    assert {mix: "kept"}[parse_mix(text)] == "kept"
    for field in dataclasses.fields(mix):
        with pytest.raises(dataclasses.FrozenInstanceError, match=field.name):
            setattr(mix, field.name, None)
    assert str(mix) == f"{text} @ mean"


VIEWS = np.random.default_rng(0).normal(size=(5, 13, 4)).astype(np.float32)
NAIVE = {
    "last": lambda v: v[12],
    "first-last": lambda v: (v[1] + v[12]) / 2,
    "0+last": lambda v: (v[0] + v[12]) / 2,
    "last-4": lambda v: (v[9] + v[10] + v[11] + v[12]) / 4,
    "0,1,12": lambda v: (v[0] + v[1] + v[12]) / 3,
    "all": lambda v: sum(v[i] for i in range(13)) / 13,
    "1:1,-1:3": lambda v: (v[1] + 3 * v[12]) / 4,
    "2:3,5:-1": lambda v: (3 * v[2] - v[5]) / 2,
    "concat(-1,3)": lambda v: np.array([*v[12], *v[3]]),
}


@pytest.mark.parametrize("text", NAIVE)
def test_a_mix_of_views_equals_a_plain_loop(text):
    mix = parse_mix(text)
    expected = np.array([NAIVE[text](sentence.astype(np.float64)) for sentence in VIEWS])
    found = mix(VIEWS)
    assert found.dtype == np.float32
    assert found.shape == (5, mix.width(4))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    tensor = mix(torch.from_numpy(VIEWS))
    assert tensor.dtype == torch.float32
    np.testing.assert_allclose(tensor.numpy(), expected, atol=1e-6)
    assert np.array_equal(mix(VIEWS[None, :, :, :]), found[None]), "any dimensions in front"
    assert np.array_equal(mix(VIEWS[0]), found[0])


@given(st.one_of(sets, weights, concats))
@settings(max_examples=50)
def test_numpy_and_torch_mix_alike_and_combine_takes_the_picked_layers(mix):
    assume(len(mix.poolings) == 1)
    views = np.random.default_rng(1).normal(size=(3, LARGE + 1, 2))
    try:
        resolved = mix.resolve(LARGE)
    except MixError:
        assume(False)
    picked = resolved.combine(views[:, None, list(resolved.layers)])
    np.testing.assert_allclose(mix(views), picked, atol=1e-9)
    np.testing.assert_allclose(mix(torch.from_numpy(views)).numpy(), picked, atol=1e-9)
    assert picked.shape == (3, resolved.width(2))


def test_weights_are_stored_with_a_sum_of_one_sorted_and_without_zeros():
    mix = Mean.weighted({12: 3, 1: 1})
    assert (mix.layers, mix.weights, mix.shares) == ((1, 12), (0.25, 0.75), (0.25, 0.75))
    assert Mean.weighted({3: 2, 4: 0, 5: 2}) == parse_mix("5:7,3:7")
    assert parse_mix("4:0,5:2").layers == (5,), "a layer of weight 0 is not needed"
    assert parse_mix("3:2,5:-1").weights == (2.0, -1.0)
    assert parse_mix("1:0.5,3:0.5") == parse_mix("views(1,3 @ mean)") == parse_mix("1,3"), "equal weights are none"
    assert parse_mix("views(3*1,1*12 @ mean)") == parse_mix("1:0.75,12:0.25")


HELP = re.escape("a mix is layers such as 'last', 'last-4', 'first-last', '0+last', 'all'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"'': '' is not a layer; {HELP}"),
        ("1,,2", "'1,,2': '' is not a layer"),
        ("@ mean", "'' is not a layer"),
        ("middle", f"'middle': 'middle' is not a layer; {HELP}"),
        ("Last", "'Last' is not a layer"),
        ("1.5", "'1.5' is not a layer"),
        ("1-2-3", "'1-2-3' is not a layer"),
        ("last-", "'last-' is not a layer"),
        ("last-0", "'last-0': last-k needs a k of 1 or more"),
        ("3-1", "'3-1': the range 3-1 runs backwards"),
        ("0, -2..-4", r"the range -2\.\.-4 runs backwards"),
        ("last @", f"'last @': no pooling after '@'; {HELP}"),
        ("concat()", r"'concat\(\)': '' is not a layer"),
        ("concat(last)", "'last' is not a layer"),
        ("concat(1,2", r"'concat\(1' is not a layer"),
        ("concat(1,12,1)", r"A concatenation has a part twice: concat\(1,12,1\)"),
        ("1:0.5,1:0.5", r"A layer has two weights: \[1, 1\]"),
        ("1:half", f"'half' is not a weight; {HELP}"),
        ("1:0.5,2", "'' is not a weight"),
        ("1-3:0.5", "'1-3' is not a layer"),
        ("1:nan", "must be finite and have a positive sum; this sum is nan"),
        ("1:inf", "must be finite and have a positive sum"),
        ("1:inf,2:-inf", "must be finite and have a positive sum"),
        ("1:1e308,2:1e308", "must be finite and have a positive sum"),
        ("1:0,2:0", r"positive sum; this sum is 0\.0"),
        ("1:1,2:-1", r"positive sum; this sum is 0\.0"),
        ("1:-1", r"positive sum; this sum is -1\.0"),
    ],
)
def test_texts_that_are_no_mix_are_refused(text, message):
    with pytest.raises(MixError, match=message):
        parse_mix(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("13", "There is no layer 13: this encoder has layers 0 to 12, or -13 to -1 from the last"),
        ("1-13", "There is no layer 13: this encoder has layers 0 to 12, or -13 to -1 from the last"),
        ("-14", "There is no layer -14: this encoder has layers 0 to 12"),
        ("last-14", "There is no layer -14: this encoder has layers 0 to 12"),
        ("13:1", "There is no layer 13: this encoder has layers 0 to 12"),
        ("concat(1,13)", "There is no layer 13: this encoder has layers 0 to 12"),
        ("5..-12", r"The range 5\.\.-12 is empty: this encoder has layers 0 to 12"),
        ("concat(-1,12)", r"a part twice: concat\(12,12\)"),
        ("-1:1,12:2", r"two weights: \[12, 12\]"),
    ],
)
def test_layers_that_an_encoder_has_not_are_refused_with_those_it_has(text, message):
    with pytest.raises(MixError, match=message):
        parse_mix(text).resolve(12)
    with pytest.raises(MixError, match=message):
        parse_mix(text)(VIEWS)


def test_an_unknown_pooling_is_refused_with_a_guess():
    with pytest.raises(LayerwiseError, match=r"Unknown token pooling 'maen'. Did you mean 'mean'\? Known: cls, last"):
        parse_mix("last @ maen")
    with pytest.raises(LayerwiseError, match=r"Unknown token pooling 'attention'. Known: cls, last, mask, max, mean"):
        Mean.of(1, pooling="attention")
    with pytest.raises(LayerwiseError, match="'mean @ cls' is no token pooling"):
        parse_mix("last @ mean @ cls")


@pytest.mark.parametrize("make", [Mean.of, Concat.of, lambda: Mean.weighted({})], ids=["set", "concat", "weights"])
def test_no_layers_make_no_mix(make):
    with pytest.raises(MixError, match=r"at least one layer|positive sum"):
        make()


def test_a_backwards_range_is_refused_however_it_is_given():
    with pytest.raises(MixError, match="3-1 runs backwards"):
        Mean.of((3, 1))


@pytest.mark.parametrize("text", ["last", "2..-1", "concat(1,-1)", "-1:1,1:1"])
def test_layers_are_known_only_once_the_depth_is(text):
    with pytest.raises(MixError, match=r"counts from the last layer: call resolve\(depth\) first"):
        _ = parse_mix(text).layers


def test_layer_numbers_may_come_from_numpy():
    chosen = np.array([1, 12])
    assert Mean.of(*chosen) == Mean.of(1, 12)
    assert str(Concat.of(*chosen)) == "concat(1,12) @ mean"
    assert Mean.weighted(dict.fromkeys(chosen, np.float32(1))) == Mean.weighted({1: 1, 12: 1})


def test_a_huge_range_costs_no_memory_before_it_is_refused():
    tracemalloc.start()
    mix = parse_mix("0-300000")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert str(mix) == "0-300000 @ mean"
    assert peak < 1_000_000, f"{peak:,} bytes for one range: a typing error could take all memory"
    with pytest.raises(MixError, match="There is no layer 300000"):
        mix.resolve(12)
    with pytest.raises(MixError, match="no encoder has so many layers"):
        parse_mix("views(0-99999999999 @ mean; 1 @ cls)")
