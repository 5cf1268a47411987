"""Which reporting pairs share a sentence with a choosing one, exactly or nearly."""

import importlib.util
from pathlib import Path

import numpy as np

from layerwise.search.apart import near_copies, rows_apart
from layerwise.search.select import random_splits

LEFT = ["A cat sat.", "It rained.", "a cat  sat", "A cat sat.", "Snow fell", "?!"]
RIGHT = ["He left.", "She came.", "Who?", "They ran.", "she CAME", "Prices rose."]
DEV, TEST = np.array([0, 1]), np.array([2, 3, 4, 5])


def test_pairs_with_a_choosing_sentence_are_left_out():
    assert rows_apart(LEFT, RIGHT, DEV, TEST).tolist() == [2, 4, 5]


def test_other_case_spaces_and_punctuation_are_counted_but_not_left_out():
    assert near_copies([(DEV, TEST)], LEFT, RIGHT) == 2
    assert near_copies([(DEV, TEST), (DEV, np.array([5]))], LEFT, RIGHT) == 2


def test_the_benchmark_counts_what_choosing_and_reporting_sentences_share():
    script = Path(__file__).parents[2] / "benchmarks" / "views.py"
    spec = importlib.util.spec_from_file_location("views_benchmark", script)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    random = np.random.default_rng(0)
    texts = [f"sentence {number}" for number in range(300)]
    left, right = (list(random.choice(texts, 500)) for _ in range(2))
    left[0], right[1] = "Sentence  1.", "SENTENCE 2"
    one_set = {"left": left, "right": right, "gold": [0.0] * 500}
    dev = {"left": ["none of these"], "right": ["nor this"], "gold": [1.0]}
    counts = benchmark.apart({"sets": {"mine": one_set}, "dev": dev, "A": ["sentence-1!"], "B": ["another"]})
    splits = random_splits(500, counts["pairs"], counts["splits"], seed=0)
    mine = counts["sets"]["mine"]
    assert mine["reporting"] + mine["left_out"] == sum(len(test) for _, test in splits)
    assert mine["near_copies"] == near_copies(splits, left, right)
    assert counts["fitted_on"] == {"A": len({"sentence 1", "Sentence  1."} & {*left, *right}), "B": 0}
    assert counts["chosen_on"] == 0
