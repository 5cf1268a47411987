"""Spaces of layer sets against a filter over all subsets, and the text that they are read from."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import MixError
from layerwise.search import Space, layers_of
from layerwise.search.spaces import highest_layers, mask_of, membership

FORMS = ["all", "up to 4", "at least 2", "exactly 3", "contiguous", "with 0,1", "without 12", "0-6,12"]


def subsets(layers: int) -> list[tuple[int, ...]]:
    return [chosen for size in range(1, layers + 1) for chosen in combinations(range(layers), size)]


def naive(space: Space, layers: int) -> set[tuple[int, ...]]:
    """The sets of a space, by asking every subset."""

    def from_zero(numbers):
        return {number % layers for number in numbers}

    found = set()
    for chosen in subsets(layers):
        fits = [
            space.smallest <= len(chosen) <= (space.largest or layers),
            not space.contiguous or chosen[-1] - chosen[0] + 1 == len(chosen),
            from_zero(space.include) <= set(chosen),
            not from_zero(space.exclude) & set(chosen),
            space.only is None or set(chosen) <= from_zero(space.only),
            space.highest is None or chosen[-1] <= space.highest % layers,
        ]
        if all(fits):
            found.add(chosen)
    return found


def enumerated(space: Space, layers: int, rows: int = 1000) -> list[tuple[int, ...]]:
    return [layers_of(int(mask)) for block in space.masks(layers, rows) for mask in block]


@st.composite
def spaces(draw):
    """An encoder's number of layers, and any combination of settings for it, negative layers among them."""
    layers = draw(st.integers(1, 7))
    number = st.integers(-layers, layers - 1)
    numbers = st.lists(number, max_size=3).map(tuple)
    smallest = draw(st.integers(1, layers + 1))
    space = Space(
        smallest=smallest,
        largest=draw(st.none() | st.integers(smallest, layers + 2)),
        contiguous=draw(st.booleans()),
        include=draw(st.just(()) | numbers),
        exclude=draw(st.just(()) | numbers),
        only=draw(st.none() | st.lists(number, min_size=1, max_size=6).map(tuple)),
        highest=draw(st.none() | number),
    )
    return layers, space


@given(spaces(), st.integers(1, 20))
def test_any_combination_of_settings_gives_the_subsets_that_fit(drawn, rows):
    layers, space = drawn
    expected = naive(space, layers)
    if not expected:
        with pytest.raises(MixError, match=f"No set of layers 0 to {layers - 1} fits the space: .*; loosen one"):
            space.count(layers)
        return
    found = enumerated(space, layers, rows)
    assert len(found) == len(set(found)) == space.count(layers)
    assert set(found) == expected
    assert [len(chosen) for chosen in found] == sorted(len(chosen) for chosen in found)  # small sets first
    assert all(len(block) <= rows for block in space.masks(layers, rows))


@given(spaces())
def test_allowed_masks_of_the_free_layers_are_the_sets_of_the_space(drawn):
    layers, space = drawn
    expected = naive(space, layers)
    try:
        forced, free = space.bits(layers)
    except MixError:
        assert not expected
        return
    masks = [mask_of((*forced, *chosen)) for size in range(len(free) + 1) for chosen in combinations(free, size)]
    allowed = space.allows(np.array(masks, dtype=np.uint64))
    assert {layers_of(mask) for mask, fits in zip(masks, allowed, strict=True) if fits} == expected
    if space.takes_all_sizes:
        assert all(fits == bool(mask) for mask, fits in zip(masks, allowed, strict=True))


@pytest.mark.parametrize(
    ("space", "layers", "count"),
    [
        (Space(), 13, 8191),
        (Space(), 25, 2**25 - 1),
        (Space(), 1, 1),
        (Space(largest=4), 13, 13 + 78 + 286 + 715),
        (Space.exactly(3), 13, 286),
        (Space(contiguous=True), 13, 91),
        (Space(highest=6), 13, 127),
        (Space(include=(0,), exclude=(-1,)), 13, 2**11),
        (Space(only=(0, 1, 12)), 13, 7),
        (Space(include=(0, 1, 2)), 3, 1),
        (Space(largest=2), 63, 63 + 63 * 31),
    ],
)
def test_sizes_of_spaces_worked_out_by_hand(space, layers, count):
    assert space.count(layers) == count


@pytest.mark.parametrize(
    ("text", "space"),
    [
        ("all", Space()),
        ("up to 4", Space(largest=4)),
        ("up-to-4", Space(largest=4)),
        ("at most 4", Space(largest=4)),
        ("<= 4", Space(largest=4)),
        ("<=4", Space(largest=4)),
        ("at least 2", Space(smallest=2)),
        (">=2", Space(smallest=2)),
        ("exactly 3", Space(smallest=3, largest=3)),
        ("=3", Space(smallest=3, largest=3)),
        ("== 3", Space(smallest=3, largest=3)),
        ("contiguous", Space(contiguous=True)),
        ("with 0,1", Space(include=(0, 1))),
        ("include 0-2", Space(include=(0, 1, 2))),
        ("with last", Space(include=(-1,))),
        ("without 12", Space(exclude=(12,))),
        ("exclude -1", Space(exclude=(-1,))),
        ("0-3,12", Space(only=(0, 1, 2, 3, 12))),
        ("-3..-2", Space(only=(-3, -2))),
        ("last-2", Space(only=(-2, -1))),
        ("UP-TO-4", Space(largest=4)),
        ("Up To 4; Without 0", Space(largest=4, exclude=(0,))),
        ("at least 2; up to 4; contiguous", Space(smallest=2, largest=4, contiguous=True)),
        (" exactly 2 ;with 1;0-6 ", Space(smallest=2, largest=2, include=(1,), only=tuple(range(7)))),
        ("all; up to 2", Space(largest=2)),
    ],
)
def test_text_of_a_space_is_read(text, space):
    assert Space.parse(text) == space


def test_a_highest_layer_goes_with_the_text():
    assert Space.parse("up to 2", highest=6) == Space(largest=2, highest=6)
    assert Space.parse("all", highest=6).count(13) == 127


@pytest.mark.parametrize(
    ("text", "layers", "expected"),
    [
        ("without 0; without 4", 5, Space(exclude=(0, 4))),
        ("with 0; with 1", 5, Space(include=(0, 1))),
        ("0-3; 2-4", 5, Space(only=(2, 3))),
        ("up to 2; up to 3", 5, Space(largest=2)),
    ],
)
def test_every_condition_that_is_joined_holds(text, layers, expected):
    assert set(enumerated(Space.parse(text), layers)) == naive(expected, layers)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("", ""),
        ("some", "some"),
        ("up to", "up to"),
        ("up to four", "up to four"),
        ("with", "with"),
        ("with x", "x"),
        ("without 1.5", "1.5"),
        ("up to 4; sideways", "sideways"),
        ("up to 4;", ""),
        ("5-2", "5-2"),
        ("with 0..-1", "0..-1"),
        ("1:0.3,2:0.7", "1:0.3,2:0.7"),
        ("concat(1,2)", r"concat\(1,2\)"),
        ("without all", "all"),
    ],
)
def test_text_that_is_no_space_lists_the_forms(text, term):
    with pytest.raises(MixError, match=f"'{term}' (is no space of|names no plain) layers") as error:
        Space.parse(text)
    assert "\n" not in str(error.value)
    assert all(f"'{form}'" in str(error.value) for form in FORMS)
    assert "';'" in str(error.value)


def test_a_pooling_in_the_text_of_a_space_is_not_silently_dropped():
    with pytest.raises(MixError, match="a space is 'all'"):
        Space.parse("0-6 @ cls")


@pytest.mark.parametrize("settings_", [{"smallest": 0}, {"largest": 0}, {"smallest": 3, "largest": 2}])
def test_sizes_that_no_set_has_are_refused_when_the_space_is_made(settings_):
    with pytest.raises(MixError, match="No set has"):
        Space(**settings_)
    for text in ("up to 0", "at least 4; up to 3", "exactly 0"):
        with pytest.raises(MixError, match="No set has"):
            Space.parse(text)


@pytest.mark.parametrize(
    ("space", "shown"),
    [
        (Space(smallest=9), "9 or more layers"),
        (Space(include=(0,), exclude=(0,)), "with 0, without 0"),
        (Space(include=(3,), highest=2), "with 3, none above 2"),
        (Space(include=(0, 4), contiguous=True, largest=3), "up to 3 layers, contiguous, with 0,4"),
        (Space(only=()), "only "),
        (Space(only=(0, 1), exclude=(0, 1)), "without 0,1, only 0,1"),
        (Space(largest=1, include=(0, 1)), "exactly 1 layers, with 0,1"),
        (Space(contiguous=True, only=(0, 2, 4), smallest=2), "2 or more layers, contiguous, only 0,2,4"),
    ],
)
def test_a_space_without_members_says_what_it_asked_for(space, shown):
    assert not naive(space, 8)
    with pytest.raises(MixError, match=f"No set of layers 0 to 7 fits the space: {shown}; loosen one"):
        space.count(8)


@pytest.mark.parametrize("settings_", [{"include": (8,)}, {"exclude": (-9,)}, {"only": (0, 8)}, {"highest": 8}])
def test_layers_that_the_encoder_has_not_are_refused(settings_):
    with pytest.raises(MixError, match=r"There is no layer -?[89]: this encoder has layers 0 to 7"):
        Space(**settings_).count(8)


def test_more_layers_than_a_mask_has_bits_are_refused():
    with pytest.raises(MixError, match="64 layers are more than a search can take"):
        Space(largest=1).count(64)


@pytest.mark.parametrize(
    ("space", "shown"),
    [
        (Space(), "all sets"),
        (Space.exactly(3), "exactly 3 layers"),
        (Space(smallest=2, largest=4), "2 or more layers, up to 4 layers"),
        (Space(contiguous=True, highest=6), "contiguous, none above 6"),
        (Space(include=(0, 1), exclude=(-1,)), "with 0,1, without -1"),
    ],
)
def test_a_space_prints_its_conditions(space, shown):
    assert str(space) == shown


@given(st.lists(st.sets(st.integers(0, 62), min_size=1), min_size=1, max_size=20))
def test_masks_hold_their_layers(sets):
    masks = np.array([mask_of(chosen) for chosen in sets], dtype=np.uint64)
    assert [layers_of(int(mask)) for mask in masks] == [tuple(sorted(chosen)) for chosen in sets]
    assert highest_layers(masks).tolist() == [max(chosen) for chosen in sets]
    expected = [[float(layer in chosen) for layer in range(63)] for chosen in sets]
    assert membership(masks, 63).tolist() == expected


@pytest.mark.parametrize(
    ("space", "layer"),
    [("all", 4), ("up to 2", 4), ("without 4", 3), ("0-2", 2), ("with 1", 1), ("with 1,2", None), ("exactly 2", None)],
)
def test_the_highest_single_layer_of_a_space(space, layer):
    assert Space.parse(space).highest_single(5) == layer
    assert Space.parse("all", highest=2).highest_single(5) == 2
