"""`layerwise analyze`: tables for people, JSON and files for programs, and every mistake in one line."""

import csv
import errno
import json
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from layerwise.cli.analyze import _cell
from layerwise.data import demo_rows, load_pairs
from layerwise.measures import MEASURES, ModelOnPairs, measure_layer_scores, measure_toksim
from support.commands import assert_one_line, call, call_json, run_main, strict_json
from support.finished_trainings import finish, log
from support.slow_cases import some_slow
from support.text_pairs import some_pairs
from support.tiny import DEPTH

pytestmark = pytest.mark.usefixtures("tiny_models_loaded_once")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of pairs with and without scores, and the folder of a training."""
    folder = tmp_path_factory.mktemp("analyze")
    pairs = some_pairs()
    for name, scored in (("graded.csv", True), ("plain.csv", False)):
        with (folder / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["sentence1", "sentence2", *["score"] * scored])
            for left, right, grade in zip(pairs.left, pairs.right, pairs.gold, strict=True):
                writer.writerow([left, right, *[grade] * scored])
    (folder / "run").mkdir()
    (folder / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "eval_spearman": 0.5}\n')
    for seed, score in enumerate((0.5, 0.7)):
        log(folder / "seeds" / f"seed-{seed}", eval_spearman={2: score, 4: score + 0.1})
    for layer, score in ((2, 60.0), (11, 70.0)):
        finish(folder / f"layer-{layer}", [layer], dev=score)
    return folder


def texts_in(svg):
    """What a figure says: its words, and what its points tell."""
    root = ET.parse(svg).getroot()  # noqa: S314 - written by the command under test
    assert root.tag.endswith("svg")
    words = " ".join("".join(element.itertext()) for element in root.iter() if element.tag.endswith("text"))
    return words, [element.get("data-label") for element in root.iter() if element.get("data-label")]


def test_json_holds_what_the_library_measures(tiny_bert, tiny_layers, files):
    found = call_json(
        "analyze", tiny_bert, "--pairs", files / "graded.csv", "--measure", "scores,toksim", "--device", "cpu"
    )
    material = ModelOnPairs(tiny_layers, load_pairs(str(files / "graded.csv")))
    assert list(found["measures"]) == ["scores", "toksim"]
    scores = found["measures"]["scores"]
    assert scores["rows"][2]["max"] == pytest.approx(measure_layer_scores(material).of("max")[2], abs=1e-3)
    assert scores["rows"][0]["cls"] is None  # NaN, which JSON does not know
    assert scores["reading"].startswith("Spearman x 100")
    np.testing.assert_allclose(
        [row["toksim"] for row in found["measures"]["toksim"]["rows"]], measure_toksim(material).means, atol=1e-5
    )
    assert found["pairs"] == "graded.csv: 40 pairs"
    assert found["mix"] == f"{DEPTH} @ mean"
    assert found["left_out"] == {}


def test_all_measures_are_shown_and_what_is_not_possible_is_said(tiny_bert, files):
    shown = call("analyze", tiny_bert, "--pairs", files / "graded.csv", "--measure", "all")
    for title in ("Score by layer", "TokSim", "SetSim", "Geometry", "CKA", "What a search chooses", "Token matrices"):
        assert title in shown
    assert "attention is left out: " in shown
    assert "has no attention over layers" in shown
    assert "nan" not in shown
    plain = call_json("analyze", tiny_bert, "--pairs", files / "plain.csv", "--measure", "all")
    assert set(plain["left_out"]) == {"attention", "chosen", "projection", "scores"}
    assert "the pairs have no scores" in plain["left_out"]["scores"]
    assert plain["measures"]["geometry"]["rows"][0]["alignment"] is None


def test_without_measures_and_pairs_the_first_few_on_the_demonstration_pairs(tiny_bert):
    shown = call("analyze", tiny_bert, "--limit", 12, "--seed", 3)
    assert "demonstration pairs of the package: 12 of 280 pairs, drawn with seed 3" in shown
    assert "give --pairs for your own" in shown
    assert "Score by layer and token pooling" in shown
    assert "What a search chooses" not in shown


def test_a_sentence_and_layers_for_its_token_matrices(tiny_bert):
    options = ("--measure", "tokens", "--sentence", "the old river", "--layers", "0,-1", "--limit", 2)
    rows = call_json("analyze", tiny_bert, *options)["measures"]["tokens"]["rows"]
    assert len(rows) == 2 * 5
    assert {row["layer"] for row in rows} == {0, DEPTH}
    assert rows[1]["1 the"] == pytest.approx(1)


def test_another_model_and_a_training_beside_it(tiny_bert, tiny_folders, files):
    options = ("--pairs", files / "graded.csv", "--against", tiny_folders["roberta"], "--train", files / "run")
    found = call_json("analyze", tiny_bert, *options)
    assert list(found["measures"]) == ["against", "training run"]
    assert found["measures"]["against"]["rows"][0]["figure"] == "score of the own mix"
    assert str(tiny_folders["roberta"]) in found["measures"]["against"]["notes"][0]
    assert found["measures"]["training run"]["rows"][0] == {"step": 1, "loss": 2.5, "eval_spearman": None}
    assert "Compared with another model" in call("analyze", tiny_bert, *options)


def test_results_are_written_as_json_and_csv(tiny_bert, files, tmp_path):
    options = ("analyze", tiny_bert, "--pairs", files / "graded.csv", "--measure")
    shown = call(*options, "pairs", "-o", tmp_path / "pairs.csv")
    assert f"wrote {tmp_path / 'pairs.csv'}" in shown.replace("\n", "")
    with (tmp_path / "pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    assert float(rows[3]["layer 2"]) <= 1
    call(*options, "cka", "--measure", "setsim", "--pooling", "max", "-o", tmp_path / "some.json")
    written = strict_json((tmp_path / "some.json").read_text())
    assert list(written["measures"]) == ["cka", "setsim"]
    assert json.dumps(written["measures"]["cka"]["rows"][0]).startswith('{"layer": 0, "0": ')


FIGURES = {
    "scores": "mean, layer 2: ",
    "setsim": "cls, layer 1: ",
    "toksim": f"bert, layer {DEPTH}: ",
    "geometry": "anisotropy",
    "spectrum": ", direction 1: ",
    "cka": "",
    "tokens": "",
    "chosen": "layer 0: chosen in ",
    "chosen --figure sizes": "best set, 2 layers: ",
    "chosen --figure without": "best set, without layer 1: ",
    "chosen --figure pairs": "last layer, ",
    "projection": "",
}
DRAWN_ELSEWHERE = {  # report/test_build draws all; this draws one without, and one with, the name of a figure
    *("setsim", "toksim", "geometry", "spectrum", "cka", "tokens"),
    *("chosen", "chosen --figure without", "chosen --figure pairs"),
}


@pytest.mark.parametrize("given", some_slow(FIGURES, slow=DRAWN_ELSEWHERE))
def test_a_measure_is_drawn_into_a_file(given, tiny_bert, files, tmp_path):
    out = tmp_path / "figure.svg"
    shown = call(
        "analyze", tiny_bert, "--pairs", files / "graded.csv", "--measure", *given.split(), "-o", out, "--device", "cpu"
    )
    assert "figure.svg" in shown.replace("\n", "")
    _, points = texts_in(out)
    assert points
    assert any(FIGURES[given] in point for point in points), points[:5]


def test_points_of_a_figure_are_the_numbers_of_the_table(tiny_bert, files, tmp_path):
    options = ("analyze", tiny_bert, "--pairs", files / "graded.csv", "--measure", "toksim")
    rows = call_json(*options, "-o", tmp_path / "a.svg")["measures"]["toksim"]["rows"]
    _, points = texts_in(tmp_path / "a.svg")
    drawn = [float(point.rpartition(": ")[2].replace("\u2212", "-")) for point in points]
    assert drawn == pytest.approx([row["toksim"] for row in rows], rel=1e-3)


def test_light_and_dark_figures_differ_and_are_made_the_same_way_twice(tiny_bert, files, tmp_path):
    made = {}
    for name, theme in (("a.png", "light"), ("b.png", "dark"), ("c.png", "light"), ("d.PNG", "dark")):
        options = ("--pairs", files / "graded.csv", "--measure", "setsim", "--theme", theme)
        call("analyze", tiny_bert, *options, "-o", tmp_path / name)
        made[name] = (tmp_path / name).read_bytes()
        assert made[name].startswith(b"\x89PNG")
    assert made["a.png"] == made["c.png"] != made["b.png"] == made["d.PNG"]


def test_two_models_in_one_figure_and_one_table_each(tiny_bert, tiny_folders, files, tmp_path):
    options = ("analyze", tiny_bert, "--against", tiny_folders["roberta"], "--pairs", files / "graded.csv")
    found = call_json(*options, "--measure", "toksim", "-o", tmp_path / "both.svg")
    assert list(found["measures"]) == ["toksim roberta", "toksim bert"]
    _, points = texts_in(tmp_path / "both.svg")
    assert {point.partition(",")[0] for point in points} == {"roberta", "bert"}
    call(*options, "-o", tmp_path / "changes.svg")
    words, points = texts_in(tmp_path / "changes.svg")
    assert "score of the own mix" in words
    assert any("roberta" in point for point in points)


def test_differences_are_the_model_less_what_it_is_compared_with(tiny_bert, tiny_folders, files):
    options = ("--against", tiny_folders["roberta"], "--pairs", files / "graded.csv")
    row = call_json("analyze", tiny_bert, *options)["measures"]["against"]["rows"][0]
    own = call_json("analyze", tiny_bert, "--pairs", files / "graded.csv", "--measure", "scores")
    assert list(row) == ["figure", "model", "against", "difference", "better"]
    assert row["model"] == pytest.approx(own["measures"]["scores"]["rows"][-1]["own mix"], abs=1e-3)
    assert row["difference"] == pytest.approx(row["model"] - row["against"])
    told = call("analyze", tiny_bert, *options)
    assert f"model: {tiny_bert}; against: {tiny_folders['roberta']}" in told


def test_a_number_that_is_not_zero_is_not_shown_as_zero():
    shown = {5e-6: "5e-06", -5e-6: "-5e-06", 0.0: "0.000", 0.0004: "0.0004", 0.0005: "0.001", 12.34: "12.3"}
    assert {value: _cell(value, 3, 24) for value in shown} == shown


def test_trainings_are_drawn_without_a_model_and_seeds_as_a_band(files, tmp_path):
    found = call_json("analyze", "--train", files / "seeds", "--train", files / "run", "-o", tmp_path / "curve.svg")
    assert list(found) == ["measures"]
    assert list(found["measures"]) == ["training seeds/seed-0", "training seeds/seed-1", "training run"]
    _, points = texts_in(tmp_path / "curve.svg")
    assert points == ["seeds, step 2: 0.6 (0.5 to 0.7)", "seeds, step 4: 0.7 (0.6 to 0.8)", "run, step 2: 0.5"]


def test_layers_as_negatives(files, tmp_path):
    options = ("analyze", "--train", files / "layer-2", "--train", files / "layer-11", "--measure", "negatives")
    assert "Layers as negatives" in call(*options, "-o", tmp_path / "negatives.svg")
    _, points = texts_in(tmp_path / "negatives.svg")
    assert points == ["layer 2: 60", "layer 11: 70"]
    assert [row["mean"] for row in call_json(*options)["measures"]["negatives"]["rows"]] == [60, 70]


MISTAKES = {
    "{bert} --measure toksin": ("Unknown measure 'toksin'. Did you mean 'toksim'? Known: against, attention, chosen",),
    "{bert} --measure all,cka": ("--measure all stands alone",),
    "{bert} --pairs {files}/plain.csv --measure scores": ("plain.csv: the pairs have no scores, which scores needs",),
    "{bert} --pairs {files}/plain.csv --score grade": ("grade", "name the columns by --left, --right and --score"),
    "{bert} --pairs stbs": ("Unknown task 'stbs'. Did you mean 'stsb'?",),
    "{bert} --pairs {files}/none.csv": ("none.csv: no such file",),
    "{bert} --pairs {files}/graded.csv --split dev": ("graded.csv: --split is for tasks", "leave it out"),
    "{bert} --measure attention": ("has no attention over layers",),
    "{bert} --measure tokens --layers 1,x": ("--layers '1,x': give layer numbers with commas between",),
    "{bert} --measure tokens --layers 9": ("There is no layer 9",),
    "{bert} --measure scores --layers 9": ("--layers is for --measure tokens", "leave --layers"),
    "{bert} --sentence x": ("--sentence is for --measure tokens",),
    "{bert} --measure projection --method umap": ("Unknown method 'umap'. Known: pca, tsne",),
    "{bert} --measure cka --pooling men": ("Unknown token pooling 'men'. Did you mean 'mean'? Known: cls, mean, max",),
    "{bert} --limit 1": ("a limit of 1 pairs is not possible",),
    "{bert} --train {files}": ("no metrics.jsonl there",),
    "{bert} -o {files}/x.txt": ("its ending '.txt' is none of .json, .csv",),
    "": ("analyze is of a model, and none was named",),
    "--measure toksim --train {files}/run": ("--measure toksim is of a model, and none was named",),
    "--against {bert} --train {files}/run": ("--against is of a model, and none was named",),
    "{bert} --against {bert}": ("a model against itself says nothing",),
    "{bert} --measure negatives": ("--measure negatives is of trainings; name their folders by --train",),
    "--train {files}/run --measure negatives": ("run: no result.json there",),
    "--train {files}/seeds -o {files}/x.csv": ("a CSV file holds one table, not 2",),
    "{bert} --train {files}/run --measure cka -o {files}/x.svg": ("a figure shows one measure, not 2",),
    "{bert} -o {files}/x.svg": ("a figure shows one measure, not 4; name one --measure, or see `layerwise report`",),
    "{bert} -o {files}": ("its ending '' is none of .json, .csv",),
    "{bert} -o {files}/graded.csv/x.json": ("graded.csv is a file, not a folder; give another path",),
    "{bert} --measure cka --theme blue": ("Unknown theme 'blue'. Known: light, dark",),
    "{bert} --measure cka --figure sizes": ("--figure is for --measure chosen, which is not asked for",),
    "{bert} --measure against": ("--measure against is of two models; name the other by --against",),
    "{bert} --measure chosen --figure bars": (
        "Unknown figure 'bars'. Did you mean 'pairs'? Known: halves, sizes, without, pairs",
    ),
    "{bert} --measure pairs -o {files}/x.png": ("pairs has no figure of its own; write it as .json or .csv",),
    "{bert} -o {files}/x.pdf": ("its ending '.pdf' is none of .json, .csv, .png, .svg",),
    "{bert} -o {files}/x.csv": ("a CSV file holds one table, not 4; name one --measure",),
    "{files}/nowhere --measure cka": ("nowhere: no such model folder",),
}


@pytest.mark.parametrize("given", MISTAKES)
def test_a_mistake_is_one_line(given, tiny_bert, files, monkeypatch, capfd):
    arguments = given.format(bert=tiny_bert, files=files).split()
    assert_one_line(*run_main(monkeypatch, capfd, "analyze", *arguments), *MISTAKES[given])


@pytest.mark.parametrize("name", ["x.json", "x.csv", "x.svg"])
def test_a_full_disk_is_one_line_and_leaves_nothing(name, tiny_bert, tmp_path, monkeypatch, capfd):
    def full(_file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("layerwise.files.os.fsync", full)
    options = ("--measure", "setsim", "--limit", "5", "--device", "cpu", "-o", tmp_path / "out" / name)
    code = run_main(monkeypatch, capfd, "analyze", tiny_bert, *options)
    assert_one_line(*code, f"{name}: cannot be written: No space left on device; free some space")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_place_without_permission_is_refused_before_a_model_is_loaded(tiny_bert, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("layerwise.files.os.access", lambda *_: False)
    monkeypatch.setattr("layerwise.model.LayerModel.load", lambda *_, **__: pytest.fail("a model was loaded"))
    arguments = (tiny_bert, "--measure", "cka", "-o", tmp_path / "new" / "x.svg")
    assert_one_line(*run_main(monkeypatch, capfd, "analyze", *arguments), "x.svg: cannot be written: no permission in")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_made_for_a_figure(tiny_bert, files, tmp_path):
    out = tmp_path / "new" / "x.svg"
    call("analyze", tiny_bert, "--pairs", files / "graded.csv", "--measure", "setsim", "-o", out)
    assert texts_in(out)


def test_all_measures_are_listed():
    shown = call("analyze", "--list")
    for name in MEASURES:
        assert f" {name} " in shown


@pytest.mark.shared
def test_a_task_by_its_name(shared, tiny_bert):
    found = call_json(
        "analyze",
        tiny_bert,
        "--pairs",
        "stsb",
        "--split",
        "dev",
        "--data",
        shared / "data",
        "--measure",
        "setsim",
        "--limit",
        5,
    )
    assert found["pairs"] == "stsb, dev: 5 of 1,500 pairs, drawn with seed 0"
    assert len(found["measures"]["setsim"]["rows"]) == DEPTH


def test_the_demonstration_pairs_are_graded():
    assert demo_rows().gold is not None
