"""Result folders of mteb in `compare`: written by the real mteb, for our models and for made-up scores."""

import json

import numpy as np
import pytest

from layerwise.data import Task, TaskRows
from layerwise.errors import InputError
from layerwise.evaluate import Evaluation, LayerSubject, MtebEncoder, evaluate, read_mteb_folder
from layerwise.model import LayerModel
from support.commands import assert_one_line, call, call_json, run_main
from support.kind_rows import rows_of
from support.mteb_tasks import import_mteb, mteb_task
from support.pair_files import made_up_sentences
from support.row_files import write

pytest.importorskip("datasets")


def graded(seed: int) -> TaskRows:
    left, right = made_up_sentences()
    return rows_of("sts", left, right, np.random.default_rng(seed).random(len(left)).tolist())


@pytest.fixture(scope="module")
def written(tiny_layers, tmp_path_factory):
    """The folders of two of our models, by the real mteb on two tasks; and the rows of the first task."""
    mteb = import_mteb()
    from mteb.cache import ResultCache

    root = tmp_path_factory.mktemp("mteb")
    rows = {f"OurPairs{seed}": graded(seed) for seed in (1, 2)}
    for mix in ("1,3", "4"):
        bridge = MtebEncoder(LayerModel(tiny_layers.encoder, mix), name=f"me/tiny{mix[0]}")
        tasks = [mteb_task(of_task, name) for name, of_task in rows.items()]
        mteb.evaluate(bridge, tasks, cache=ResultCache(root), show_progress_bar=False)
    return root, rows["OurPairs1"]


@pytest.fixture(scope="module")
def ours(written, tiny_layers, tmp_path_factory) -> Evaluation:
    """The first of the models on the rows of the first task, by `evaluate`."""
    folder, (_, rows) = tmp_path_factory.mktemp("ours"), written
    columns = zip(rows.left, rows.right, rows.labels, strict=True)
    write(folder / "pairs.csv", [{"sentence1": a, "sentence2": b, "score": score} for a, b, score in columns])
    task = Task(name="pairs", kind="sts", file=str(folder / "pairs.csv"))
    return evaluate(LayerSubject(tiny_layers, ["1,3"], cache=False), [task])


@pytest.mark.slow
def test_the_scores_are_ours_on_the_same_rows(written, ours):
    evaluation = read_mteb_folder(written[0] / "results" / "me__tiny1")
    assert evaluation.model == "me/tiny1"
    (run,) = evaluation.runs
    assert run.mix.endswith("1,3 @ mean")
    assert list(run.results) == ["OurPairs1", "OurPairs2"]
    result, figures = run.results["OurPairs1"], ours.runs[0].results["pairs"].figures
    assert result.score == pytest.approx(figures["spearman"], abs=1e-4)  # mteb writes six digits of a share
    assert result.figures["cosine_pearson"] == pytest.approx(figures["pearson"], abs=1e-4)


def test_our_own_results_have_no_task_in_common(written, ours, tmp_path, monkeypatch, capfd):
    """Though model and rows are the same: mteb's files have other names for tasks, and nothing to tell rows by."""
    ours.save(tmp_path / "ours.json")
    refused = run_main(monkeypatch, capfd, "compare", written[0] / "results" / "me__tiny1", tmp_path / "ours.json")
    assert_one_line(*refused, "no task in common: one has OurPairs1, OurPairs2, the other pairs")


def test_two_folders_are_compared_and_ranked(written):
    root, _ = written
    folders = [root / "results" / name for name in ("me__tiny1", "me__tiny4")]
    said = call_json("compare", *folders, "--resamples", "20")
    runs = [read_mteb_folder(folder).runs[0] for folder in folders]
    for name, line in said["tasks"].items():
        assert (line["a"], line["b"]) == (runs[0].results[name].score, runs[1].results[name].score)
        assert line["gain"] is None
        assert line["note"] == "no scores of single rows for this protocol"
    (ranking,) = said["rankings"]
    assert ranking["suite"] == "mteb"
    means = sorted((run.average for run in runs), reverse=True)
    assert [run["mean"] for run in ranking["runs"]] == pytest.approx(means)
    assert "mteb: mean of 2 tasks, against the best" in call("compare", *folders)


def test_splits_and_subsets(tmp_path):
    """As in mteb's files of multilingual tasks; the mean of the subsets is a split's score."""
    scores = {
        "test": [{"main_score": 0.5, "hf_subset": "de"}, {"main_score": 0.7, "hf_subset": "en", "f1": 0.2}],
        "dev": [{"main_score": 0.1, "hf_subset": "de", "f1": 0.4}],
    }
    folder = tmp_path / "me__model" / "revision"
    folder.mkdir(parents=True)
    (folder / "Bi.json").write_text(json.dumps({"task_name": "Bi", "dataset_revision": "9", "scores": scores}))
    (run,) = read_mteb_folder(tmp_path).runs
    assert {name: result.score for name, result in run.results.items()} == pytest.approx(
        {"Bi, test": 60, "Bi, dev": 10}
    )
    assert run.results["Bi, test"].details == {"subsets": {"de": 50.0, "en": 70.0}}
    assert run.results["Bi, dev"].figures == pytest.approx({"main_score": 10, "f1": 40})
    assert run.mix == "revision"


def test_other_rows_are_not_compared(tmp_path):
    for name, revision in (("a", "1"), ("b", "2")):
        (tmp_path / name).mkdir()
        facts = {"task_name": "T", "dataset_revision": revision, "scores": {"test": [{"main_score": 0.5}]}}
        (tmp_path / name / "T.json").write_text(json.dumps(facts))
    said = call_json("compare", tmp_path / "a", tmp_path / "b")
    assert said["tasks"]["T"]["note"] == "made on other rows"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no results of mteb"),
        ({"a/x/T.json": "{}"}, "T.json: is no result of mteb: no 'task_name'"),
        ({"a/x/T.json": '{"task_name": "T", "scores": {}}'}, "T.json: is no result of mteb: it has no scores"),
        (
            {"a/x/T.json": '{"task_name": "T", "scores": {"test": [{}]}}'},
            "T.json: is no result of mteb: no 'main_score'",
        ),
        ({"a/x/T.json": "[1]"}, "T.json"),
        ({"a/x/T.json": "{}", "a/y/T.json": "{}"}, r"holds results of 2 models or revisions \(a/x, a/y\)"),
    ],
)
def test_a_folder_that_is_none_is_refused(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_mteb_folder(tmp_path)


def test_the_folder_of_a_training_is_refused_with_the_files_to_give(tmp_path, monkeypatch, capfd):
    evaluations = [tmp_path / f"seed-{seed}" / "evaluation.json" for seed in (0, 1)]
    for path in evaluations:
        path.parent.mkdir()
        path.write_text("{}")
    said = f"is the folder of a training; give its evaluation: {', '.join(map(str, evaluations))}"
    assert_one_line(*run_main(monkeypatch, capfd, "compare", tmp_path, tmp_path), said)


def test_the_command_says_it_in_one_line(tmp_path, monkeypatch, capfd):
    assert_one_line(*run_main(monkeypatch, capfd, "compare", tmp_path, tmp_path), "holds no results of mteb; give the")
