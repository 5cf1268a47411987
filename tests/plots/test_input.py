"""What can't be drawn is refused in one line that says what came and what to do."""

import re

import numpy as np
import pytest

from layerwise import plots
from layerwise.errors import InputError
from layerwise.plots import MarkedMix

NAN = float("nan")
CASES = {
    "no series": ("layer_curves", {"scores": {}}, "scores: expected at least one named series"),
    "no mapping": ("layer_curves", {"scores": [1, 2]}, "scores: expected at least one named series"),
    "empty": ("layer_curves", {"scores": {"a": []}}, "scores of 'a': the shape is (0,); expected (n), not empty"),
    "text": ("layer_curves", {"scores": {"a": ["x"]}}, "scores of 'a': not all values are numbers"),
    "ragged": ("layer_curves", {"scores": {"a": [[1], [1, 2]]}}, "scores of 'a': not all values are numbers"),
    "infinite": ("layer_curves", {"scores": {"a": [1, np.inf]}}, "scores of 'a': value inf at (1,); give finite"),
    "all NaN": ("layer_curves", {"scores": {"a": [NAN, NAN]}}, "scores of 'a': every value is NaN"),
    "nine": ("layer_curves", {"scores": {str(k): [1] for k in range(9)}}, "scores: 9 series came; at most 8"),
    "last": ("layer_curves", {"scores": {"a": [1]}, "last": "b"}, "Unknown curve 'b'. Known: a"),
    "last NaN": ("layer_curves", {"scores": {"a": [1, NAN]}, "last": "a"}, "last: the last layer has no score"),
    "mix beyond": (
        "layer_curves",
        {"scores": {"a": [1, 2]}, "best": MarkedMix(2.0, (0, 7))},
        "best: layer 7 is not there; the layers are 0 to 1",
    ),
    "mix NaN": ("layer_curves", {"scores": {"a": [1]}, "best": MarkedMix(NAN)}, "best: value nan at (0,)"),
    "no model": ("layer_curves_by_model", {"scores": {}}, "scores: expected at least one model"),
    "unlike": (
        "layer_curves_by_model",
        {"scores": {"a": {"mean": [1]}, "b": {"cls": [1]}}},
        "scores: expected at least one model, and the same poolings",
    ),
    "best of none": (
        "layer_curves_by_model",
        {"scores": {"a": {"mean": [1]}}, "best": {"b": MarkedMix(1.0)}},
        "Unknown model 'b'. Known: a",
    ),
    "runs": ("convergence", {"steps": {"a": [1]}, "scores": {"b": [1]}}, "scores are of b, steps of a; name the same"),
    "steps": ("convergence", {"steps": {"a": [1, 2]}, "scores": {"a": [[1, 2, 3]]}}, "expected (n, 2), not empty"),
    "words": ("convergence", {"steps": {"a": [1]}, "scores": {"a": ["x"]}}, "scores of 'a': not all values are"),
    "sizes": (
        "score_by_size",
        {"sizes": [1, 2], "scores": {"a": [1]}},
        "scores of 'a': the shape is (1,); expected (2)",
    ),
    "sd": (
        "score_by_pairs",
        {"pairs": [1, 2], "scores": {"a": [1, 2]}, "sd": {"b": [1, 1]}},
        "Unknown curve 'b'. Known: a",
    ),
    "no pairs": ("score_by_pairs", {"pairs": [0, 2], "scores": {"a": [1, 2]}}, "pairs: 0 cannot be on a logarithmic"),
    "level": (
        "score_without_layer",
        {"layers": [0], "scores": {"a": [1]}, "full": NAN},
        "none left out: value nan at (0,)",
    ),
    "chosen": ("layers_chosen", {"shares": [0.5], "best": [1]}, "best: layer 1 is not there"),
    "share": ("layers_chosen", {"shares": [50]}, "shares: 50 is no share; give numbers from 0 to 1"),
    "negatives": ("layer_negatives", {"layers": [0, 1], "mean": [1]}, "mean: 1 came for 2 layers; give one for each"),
    "negative sd": (
        "layer_negatives",
        {"layers": [0], "mean": [1], "sd": [1, 2]},
        "sd: the shape is (2,); expected (1)",
    ),
    "tokens": ("token_matrices", {"tokens": ["a"], "matrices": [np.eye(2)], "layers": [0]}, "expected (n, 1, 1)"),
    "layers": ("token_matrices", {"tokens": ["a"], "matrices": [[[1]]], "layers": [0, 1]}, "layers: 2 came for 1"),
    "many": ("token_matrices", {"tokens": ["a"] * 41, "matrices": [], "layers": []}, "41 tokens cannot be read"),
    "matrix": ("layer_likeness", {"matrix": [1, 2]}, "matrix: the shape is (2,); expected (n, n), not empty"),
    "matrix NaN": ("layer_likeness", {"matrix": [[1, NAN]]}, "matrix: value nan at (0, 1); give finite numbers"),
    "sentences": ("attention_map", {"weights": [[1]], "sentences": []}, "sentences: 0 came for 1 rows of weights"),
    "views": ("view_scores", {"scores": {"a": [1], "b": [1, 2]}}, "scores of 'b': 2 came for 1 layers of 'a'"),
    "no view": ("view_scores", {"scores": {"a": [1]}, "chosen": [("a", 1)]}, "chosen: layer 1 is not there"),
    "label": ("attention_map", {"weights": [[1]], "sentences": [3]}, "A label is 3; expected a text"),
    "weights": ("attention_weights", {"weights": {"a": [1], "b": [1, 2]}}, "weights: the lengths differ: 'a' 1, 'b' 2"),
    "points": ("pair_map", {"points": {"a": np.ones((3, 2, 3))}, "grades": [1, 2, 3]}, "expected (3, 2, 2), not empty"),
    "no points": ("pair_map", {"points": {}, "grades": [1]}, "points: expected at least one model's"),
    "texts": ("pair_map", {"points": {"a": np.ones((1, 2, 2))}, "grades": [1], "texts": []}, "0 came for 1 pairs"),
    "measures": ("geometry_by_layer", {"measures": {}}, "measures: expected at least one measure"),
    "own": (
        "geometry_by_layer",
        {"measures": {"rank": {"a": [1]}}, "mix": {"rank": {"b": 1.0}}},
        "Unknown model 'b'. Known: a",
    ),
    "one": ("before_after_curves", {"scores": {"a": [1]}}, "scores: 1 model(s) came; before and after are two"),
    "after": ("dumbbells", {"measures": ["a"], "before": [1], "after": [1, 2]}, "after: 2 came for 1 measures"),
    "tiny shares": ("spectra", {"shares": {"a": [0.0, 0.0]}}, "shares of 'a': every value is NaN"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_in_one_line(case):
    name, arguments, message = CASES[case]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        getattr(plots, name)(**arguments)
    assert "\n" not in str(caught.value)


def test_arguments_are_given_by_name():
    for name in plots.__all__:
        function = getattr(plots, name)
        if name in ("save_figure", "inline_svg", "theme_css") or not callable(function) or isinstance(function, type):
            continue
        with pytest.raises(TypeError, match="positional argument"):
            function({"a": [1.0]})
