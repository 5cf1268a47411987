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
from layerwise.mixes import LayerConcat, LayerSet, LayerWeights, parse_mix

LARGE = 24
poolings = st.sampled_from(["mean", "cls", "max"])
layers = st.integers(-LARGE - 1, LARGE)
spans = st.tuples(layers, layers).filter(lambda span: (span[0] < 0) != (span[1] < 0) or span[0] <= span[1])
sets = st.builds(
    lambda items, pooling: LayerSet.of(*items, pooling=pooling),
    st.lists(layers | spans, min_size=1, max_size=6),
    poolings,
)
weights = st.builds(
    lambda values, pooling: LayerWeights.of(values, pooling=pooling),
    st.dictionaries(layers, st.floats(-1, 1000).filter(lambda w: abs(w) > 1e-3), min_size=1).filter(
        lambda values: sum(values.values()) > 0.1
    ),
    poolings,
)
concats = st.builds(
    lambda items, pooling: LayerConcat(tuple(items), pooling=pooling),
    st.lists(layers, min_size=1, unique=True),
    poolings,
)


@given(sets | concats)
def test_a_printed_set_or_concatenation_parses_to_itself(mix):
    assert parse_mix(str(mix)) == mix
    assert hash(parse_mix(str(mix))) == hash(mix)
    assert eval(repr(mix), {type(mix).__name__: parse_mix}) == mix  # noqa: S307


@given(weights)
def test_printed_weights_parse_to_themselves(mix):
    assert parse_mix(str(mix)) == mix, "normalising twice must not change a digit"


@given(weights)
def test_resolving_renumbers_weights_and_changes_none(mix):
    expected = {layer % (LARGE + 1): weight for layer, weight in mix.weights}
    assume(len(expected) == len(mix.weights))
    assert dict(mix.resolve(LARGE).weights) == expected


@given(st.lists(layers | spans, min_size=1, max_size=6))
def test_a_set_is_the_layers_that_python_would_slice(items):
    numbers = list(range(LARGE + 1))
    pairs = [(item, item) if isinstance(item, int) else item for item in items]
    expected = [numbers[numbers[first] : numbers[last] + 1] for first, last in pairs]
    assume(all(expected))
    mix = LayerSet.of(*items).resolve(LARGE)
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
    assert parse_mix("1-3,12") == parse_mix("12, 3,2 ,1, 2-3") == LayerSet.of(12, (1, 3))
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
    views = np.random.default_rng(1).normal(size=(3, LARGE + 1, 2))
    try:
        resolved = mix.resolve(LARGE)
    except MixError:
        assume(False)
    picked = resolved.combine(views[:, list(resolved.layers)])
    np.testing.assert_allclose(mix(views), picked, atol=1e-9)
    np.testing.assert_allclose(mix(torch.from_numpy(views)).numpy(), picked, atol=1e-9)
    assert picked.shape == (3, resolved.width(2))


def test_weights_are_stored_with_a_sum_of_one_sorted_and_without_zeros():
    assert LayerWeights.of({12: 3, 1: 1}).weights == ((1, 0.25), (12, 0.75))
    assert LayerWeights.of({3: 2, 4: 0, 5: 2}) == parse_mix("5:7,3:7")
    assert parse_mix("4:0,5:2").layers == (5,), "a layer of weight 0 is not needed"
    assert parse_mix("3:2,5:-1").weights == ((3, 2.0), (5, -1.0))


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
        ("concat(1,12,1)", r"A concatenation has a layer twice: concat\(1,12,1\)"),
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
        ("concat(-1,12)", r"a layer twice: concat\(12,12\)"),
        ("-1:1,12:1", r"two weights: \[12, 12\]"),
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
        LayerSet.of(1, pooling="attention")
    with pytest.raises(LayerwiseError, match="'mean @ cls' is no token pooling"):
        parse_mix("last @ mean @ cls")


@pytest.mark.parametrize(
    "make", [LayerSet.of, lambda: LayerConcat(()), lambda: LayerWeights.of({})], ids=["set", "concat", "weights"]
)
def test_no_layers_make_no_mix(make):
    with pytest.raises(MixError, match=r"at least one layer|positive sum"):
        make()


def test_a_backwards_range_is_refused_however_it_is_given():
    with pytest.raises(MixError, match="3-1 runs backwards"):
        LayerSet.of((3, 1))


@pytest.mark.parametrize("text", ["last", "2..-1", "concat(1,-1)", "-1:1,1:1"])
def test_layers_are_known_only_once_the_depth_is(text):
    with pytest.raises(MixError, match=r"counts from the last layer: call resolve\(depth\) first"):
        _ = parse_mix(text).layers


def test_layer_numbers_may_come_from_numpy():
    chosen = np.array([1, 12])
    assert LayerSet.of(*chosen) == LayerSet.of(1, 12)
    assert str(LayerConcat(tuple(chosen))) == "concat(1,12) @ mean"
    assert LayerWeights.of(dict.fromkeys(chosen, np.float32(1))) == LayerWeights.of({1: 1, 12: 1})


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
