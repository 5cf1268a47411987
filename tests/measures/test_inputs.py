"""What measures are taken on: pairs from files and tasks, logs of trainings, and every input that is refused."""

import csv
import json

import numpy as np
import pytest

from layerwise.data import demo_rows, load_pairs, pairs_in_memory
from layerwise.errors import InputError, LayerwiseError, MixError, ModelError
from layerwise.measures import (
    MEASURES,
    Figure,
    ModelOnPairs,
    measure_attention,
    measure_projection,
    measure_token_matrices,
    measures_of,
    scalar_measures,
    training_curve,
    training_curves,
)
from support.text_pairs import PAIRS, some_pairs


@pytest.fixture(scope="module")
def material(tiny_layers):
    return ModelOnPairs(tiny_layers, some_pairs(), cache=False)


# The pairs


def test_pairs_of_a_file_with_and_without_scores(tmp_path):
    rows = [{"sentence1": "a b", "sentence2": "c", "score": 1.5}, {"sentence1": "d", "sentence2": "e", "score": 2}]
    file = tmp_path / "pairs.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    found = load_pairs(str(file))
    assert (found.left, found.right, found.gold.tolist()) == (["a b", "d"], ["c", "e"], [1.5, 2])
    assert found.described == "pairs.csv: 2 pairs"
    file.write_text("sentence1,sentence2\na,b\nc,d\n")
    assert load_pairs(str(file)).gold is None
    assert load_pairs(str(file)).described == "pairs.csv: 2 pairs, without scores"
    with pytest.raises(InputError, match=r"grade.*; name the columns by --left, --right and --score"):
        load_pairs(str(file), score="grade")
    with pytest.raises(InputError, match=r"'text'.*; name the columns by --left, --right and --score"):
        load_pairs(str(file), columns=("text", "other"))


def test_pairs_of_a_task_by_its_name(tmp_path, pairs_task, monkeypatch):
    monkeypatch.setattr("layerwise.data.pairs.find_tasks", lambda names: [pairs_task])
    assert load_pairs("pairs").described == "pairs, test: 50 pairs"
    assert load_pairs("pairs", split="dev").described == "pairs, dev: 30 pairs"
    with pytest.raises(InputError, match="task 'pairs' has no train rows; it has dev, test: declare them"):
        load_pairs("pairs", split="train")


def test_a_limit_draws_by_a_seed_and_says_so():
    pairs = some_pairs()
    one, again, other = pairs.limited(10), pairs.limited(10), pairs.limited(10, seed=1)
    assert one.left == again.left != other.left
    assert one.described == f"pairs in memory: 10 of {PAIRS} pairs, drawn with seed 0"
    places = [pairs.right.index(text) for text in one.right]
    assert places == sorted(places)
    assert one.gold.tolist() == [pairs.gold[place] for place in places]
    assert pairs.limited(PAIRS) is pairs
    assert len(demo_rows()) == 280


# Trainings


def test_curves_are_what_was_logged(tmp_path):
    lines = [
        {"step": 1, "epoch": 0.5, "loss": 2.0, "grad_norm": 1.5},
        {"step": 2, "loss": 1.0},
        {"step": 2, "eval_spearman": 0.5},
        {"step": 4, "eval_spearman": 0.7, "eval_uniformity": -2},
        {"step": 4, "eval_spearman": 0.75},
        {"step": 3, "loss": None},
    ]
    for folder in ("one", "two/seed-0", "two/seed-1"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = training_curve(tmp_path / "one")
    assert list(found.series) == ["loss", "grad_norm", "eval_spearman", "eval_uniformity"]
    assert found.series["loss"].steps.tolist() == [1, 2, 3]
    assert found.series["loss"].values.tolist()[:2] == [2, 1]
    assert np.isnan(found.series["loss"].values[2])
    assert found.series["eval_spearman"].values.tolist() == [0.5, 0.75]
    assert found.rows()[1] == {"step": 2, "loss": 1, "grad_norm": None, "eval_spearman": 0.5, "eval_uniformity": None}
    assert list(training_curves([tmp_path / "one", tmp_path / "two"])) == ["one", "two/seed-0", "two/seed-1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"step": 1, "loss": 2}\n{"step": 2, "lo', r"metrics.jsonl:2: not JSON; where a killed run left half a line"),
        ('{"loss": 2}\n', r"metrics.jsonl:1: has no step"),
        ("[1]\n", r"metrics.jsonl:1: has no step"),
        ('{"step": 1, "loss": "low"}\n', r"metrics.jsonl:1: loss is 'low', not a number"),
        ("", r"metrics.jsonl: holds no figures"),
        ('{"step": 1}\n', r"metrics.jsonl: holds no figures"),
        (None, r"no metrics.jsonl there; give the folder of one training"),
    ],
)
def test_a_log_that_can_not_be_read_is_named_with_its_line(tmp_path, text, said):
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(InputError, match=said):
        training_curve(tmp_path)


# Bad input, and the registry


def test_what_can_not_be_measured_is_refused(tiny_layers, material):
    pairs = some_pairs(6)
    plain = ModelOnPairs(tiny_layers, pairs_in_memory(pairs.left, pairs.right), cache=False)
    constant = ModelOnPairs(tiny_layers, pairs_in_memory(pairs.left, pairs.right, [1.0] * 6), cache=False)
    for graded in ("scores", "chosen", "projection"):
        assert MEASURES[graded].graded
        with pytest.raises(InputError, match="the pairs have no scores, which this measure needs"):
            MEASURES[graded](plain)
        with pytest.raises(InputError, match=r"6 pair\(s\), all of the same score"):
            MEASURES[graded](constant)
    with pytest.raises(ModelError, match=r"its mix 4 @ mean has no attention over layers; train one"):
        measure_attention(material)
    with pytest.raises(InputError, match=r"Unknown method 'umap'. Known: pca, tsne"):
        measure_projection(material, "umap")
    with pytest.raises(InputError, match="2 pairs make no picture; give 4 or more"):
        measure_projection(material, pairs=2)
    with pytest.raises(MixError, match="There is no layer 5: this encoder has layers 0 to 4"):
        measure_token_matrices(material, layers=[5])
    with pytest.raises(InputError, match="the sentence is empty"):
        measure_token_matrices(material, "  ")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: pairs_in_memory(["a"], ["b", "c"]), "1 and 2 texts, 1 scores: the lengths differ"),
        (lambda: pairs_in_memory(["a"], ["b"], [1, 2]), "1 and 1 texts, 2 scores: the lengths differ"),
        (lambda: pairs_in_memory([], []), "pairs in memory: no pairs"),
        (lambda: pairs_in_memory(["a"], ["b"], [float("nan")]), "score 0 is nan, not a finite number"),
        (lambda: pairs_in_memory(["a"] * 2, ["b"] * 2, [1.0, None]), "score 1 is nan, not a finite number; give one"),
        (lambda: some_pairs().limited(1), "a limit of 1 pairs is not possible; give 2 or more"),
        (lambda: load_pairs("stbs"), r"Unknown task 'stbs'. Did you mean 'stsb'\?"),
        (lambda: load_pairs("nowhere.csv"), "nowhere.csv: no such file"),
        (lambda: load_pairs("mr"), r"'mr' is a classification task; measures are taken on one task of graded pairs"),
    ],
)
def test_pairs_that_are_none_are_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()


def test_every_measure_has_a_name_a_reading_and_a_table(material):
    names = {"attention", "chosen", "cka", "geometry", "pairs", "projection", "scores", "setsim", "spectrum"}
    assert {measure.name for measure in measures_of("model")} == names | {"tokens", "toksim"}
    assert {measure.name for measure in measures_of("models")} == {"against"}
    assert {measure.name for measure in measures_of("trainings")} == {"training", "negatives"}
    for measure in map(MEASURES.__getitem__, MEASURES):
        assert measure.title
        assert measure.reading.endswith(".")
    for measure in measures_of("model"):
        if measure.name == "attention":
            continue
        rows = measure(material, seed=1, sentence="the old river", unknown="left out").rows()
        assert rows
        assert {tuple(row) for row in rows} == {tuple(rows[0])}
    with pytest.raises(LayerwiseError, match=r"Unknown measure 'toksin'. Did you mean 'toksim'\?"):
        MEASURES["toksin"]


def test_scalar_measures_are_the_last_layers_and_the_mixs(material):
    scalars = scalar_measures()
    assert sorted(scalars) == ["alignment", "layer-similarity", "token-similarity", "uniformity"]
    numbers = {name: scalar(material.model, material.pairs) for name, scalar in scalars.items()}
    assert numbers["token-similarity"] == pytest.approx(MEASURES["toksim"](material).means[-1], rel=1e-5)
    assert numbers["layer-similarity"] == pytest.approx(MEASURES["setsim"](material).of("mean")[-1], rel=1e-5)
    geometry = MEASURES["geometry"](material)  # the lowest score is 0, so both take the same pairs for alike
    assert numbers["uniformity"] == pytest.approx(geometry.uniformity[-1], rel=1e-4)
    assert numbers["alignment"] == pytest.approx(geometry.alignment[-1], rel=1e-4)
    without = pairs_in_memory(material.pairs.left, material.pairs.right)
    assert np.isnan(scalars["alignment"](material.model, without))


def test_a_figure_names_a_section_that_is_there():
    with pytest.raises(InputError, match=r"Unknown section 'sapce'. Did you mean 'space'\?"):
        Figure(lambda values, theme: None, section="sapce")
