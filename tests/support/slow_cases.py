"""Parametrisations of which `make test` runs a part that covers them; the rest is slow, for `make test-all`."""

from collections.abc import Container, Iterable, Sequence
from itertools import product

import pytest
from _pytest.mark.structures import ParameterSet


def some_slow(cases: Iterable, *, slow: Container) -> list:
    """The cases in their order; those named are slow."""
    return [_case(case, is_slow=case in slow) for case in cases]


def most_slow(cases: Iterable, *, now: Container) -> list:
    """The cases in their order; all but those named are slow."""
    return [_case(case, is_slow=case not in now) for case in cases]


def one_in(count: int, cases: Iterable) -> list:
    """The cases in their order; the first of each `count` is not slow."""
    return [_case(case, is_slow=bool(number % count)) for number, case in enumerate(cases)]


def covering(*axes: Iterable) -> list:
    """All combinations of values; enough of them that each value occurs are not slow."""
    values = [list(axis) for axis in axes]
    count = max(map(len, values))
    now = {tuple(number % len(axis) for axis in values) for number in range(count)}
    numbers = product(*(range(len(axis)) for axis in values))
    return [_case(tuple(axis[n] for axis, n in zip(values, place, strict=True)), place not in now) for place in numbers]


def _case(case: object, is_slow: bool) -> object:
    if isinstance(case, ParameterSet):
        return case._replace(marks=[*case.marks, pytest.mark.slow]) if is_slow else case
    values: Sequence = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow if is_slow else ())
