"""Generated mistakes: a sample of those of benchmarks/attacks, each one line of error, exit code 2, nothing written."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

ATTACKS = Path(__file__).parents[2] / "benchmarks" / "attacks"
_SHARE = 12


@pytest.fixture
def mistakes(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ATTACKS), *sys.path])
    yield runpy.run_path(str(ATTACKS / "mistakes.py"))
    for name in ("attack", "calls"):
        sys.modules.pop(name, None)


def test_there_are_more_than_500(mistakes):
    assert len(set(mistakes["generate"]())) > 500


ONCE_ACCEPTED = [
    "embed {model} {latin}.txt -o {new}",
    "analyze {model} --pairs {pairs} --measure toksim -o {new}.json --split no-such-thing",
    "analyze {model} --pairs {pairs} --measure toksim -o {new}.json --pooling no-such-thing",
    "report {model} --pairs {pairs} -o {new}.html --data no-such-thing",
    "fit {model} {text} -o {new} --components=-7",
    "data fetch stsb --to {locked}/new",
    "search {model} {pairs} --save {new} --split no-such-thing",
    "multitask {recipe} --model {model} -o {new} --data no-such-thing",
]


@pytest.mark.slow
def test_generated_mistakes_are_one_line_each(mistakes, tmp_path):
    """One in so many, and those that were once accepted; `make attack` runs all."""
    every = sorted(set(mistakes["generate"]()))
    chosen = [*every[::_SHARE], *ONCE_ACCEPTED]
    assert set(chosen) <= set(every)
    tally = mistakes["mistakes"](np.random.default_rng(0), tmp_path, chosen)
    assert tally.tried == len(chosen)
    assert tally.broken == []
