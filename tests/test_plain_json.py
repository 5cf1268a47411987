"""Values as JSON knows them: NumPy's become Python's, what is no number becomes null, nothing else changes."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.plain_json import plain_json

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": NAN, 1: (INFINITE, -INFINITE, 2.5)}, {"a": None, "1": [None, None, 2.5]}),
        (np.array([[1.0, NAN], [2.0, 3.0]]), [[1.0, None], [2.0, 3.0]]),
        ([np.float32(0.5), np.int64(3), np.bool_(True), np.float64(NAN)], [0.5, 3, True, None]),
        (np.array(NAN), None),
        (range(3), [0, 1, 2]),
        ("texts stay whole", "texts stay whole"),
        (None, None),
    ],
)
def test_numbers_of_numpy_and_what_is_no_number(value, expected):
    assert plain_json(value) == expected
    assert json.loads(json.dumps(plain_json(value), allow_nan=False)) == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_json_knows_stays_as_it_is(value):
    assert plain_json(value) == value


def test_the_screen_needs_no_numpy_for_it():
    code = "import sys, layerwise.cli.screen; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
