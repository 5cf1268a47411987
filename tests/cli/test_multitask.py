"""`layerwise multitask`: a training and its files, and mistakes in one line."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from layerwise.cli.app import app
from layerwise.evaluate import Evaluation
from layerwise.model import LayerModel
from layerwise.train import load_multitask_recipe, read_metrics
from support.commands import call as run
from support.commands import check_schema, refused
from support.multitasking import RECIPE, save_tasks
from support.row_files import write
from support.tiny import WORDS


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = save_tasks(tmp_path_factory.mktemp("tasks"))
    (folder / "mine.toml").write_text(RECIPE)
    return folder


@pytest.mark.slow  # test_train.py shows it of a training on sentences, which resumes by the same code
def test_a_training_begun_with_relative_paths_is_resumed_from_any_folder(tiny_bert, data, tmp_path, monkeypatch):
    shutil.copytree(data, tmp_path / "here")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run("multitask", "mine.toml", "--model", tiny_bert, "-o", "run", "--device", "cpu")
    monkeypatch.chdir(tmp_path / "there")
    again = ["--model", tiny_bert, "-o", "../here/run", "--device", "cpu", "--resume"]
    assert "wrote" in run("multitask", "../here/mine.toml", *again)
    (tmp_path / "here" / "run" / "result.json").unlink()  # as if it had been killed before its end
    assert "wrote" in run("multitask", "../here/run/recipe.toml", *again)


def test_a_training_and_its_predictions_by_the_command_line(tiny_bert, data, tmp_path, capsys, monkeypatch):
    given = ["multitask", data / "mine.toml", "--model", tiny_bert, "--data", data, "-o", tmp_path / "run"]
    given += ["--device", "cpu", "--seeds", "0,1"]
    said = run(*given)
    assert "mean ± sd of 2 seeds" in said
    assert all(f"{name}/" in said for name in ("mood", "same", "near"))
    assert "majority class" in " ".join(said.split())
    assert "frozen embeddings" in " ".join(said.split())
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["seeds"] == [0, 1]
    folder = tmp_path / "run" / "seed-1"
    names = {path.name for path in folder.iterdir()}
    assert {"metrics.jsonl", "model", "recipe.toml", "result.json"} <= names
    assert not any(name.startswith("checkpoint") for name in names)
    overall = [result["dev"]["scores"]["overall"] for result in results["results"]]
    assert results["dev"]["overall"]["mean"] == pytest.approx(np.mean(overall))
    assert {line["step"] for line in read_metrics(folder / "metrics.jsonl")} == {1, 2, 3, 4}
    assert load_multitask_recipe(folder / "recipe.toml").train.steps == 4
    again = json.loads(run(*given, "--resume", "--json"))
    check_schema(again, "multitask")
    assert again["results"] == results["results"]
    assert "is not empty; resume with --resume" in refused(capsys, monkeypatch, *given)
    other = refused(capsys, monkeypatch, *given, "--resume", "--set", "train.steps=9")
    assert "was started with other settings (train.steps: 4, now 9), see" in other
    elsewhere = refused(capsys, monkeypatch, *given, "--resume", "--set", "task.near.scale=[0, 9]")
    assert "was started with other settings (tasks.2" in elsewhere
    (folder / "result.json").unlink()
    (folder / "run.json").write_text('{"seed": 7}')
    assert "was started with seed 7, not 1" in refused(capsys, monkeypatch, *given, "--resume")

    model, out = folder / "model", tmp_path / "out.parquet"
    said = run("predict", model, "--task", "same", data / "same.csv", "-o", out, "--device", "cpu")
    assert said.startswith("56 rows (0: ")
    table = pq.read_table(out).to_pylist()
    dev = [row for row in table if row["split"] == "dev"]
    right = np.mean([row["label"] == row["predicted_label"] for row in dev])
    assert right == results["results"][1]["dev"]["scores"]["same/accuracy"]
    told = json.loads(
        run(
            "predict", model, "--task", "mood", data / "mood.csv", "-o", tmp_path / "o.csv", "--json", "--device", "cpu"
        )
    )
    check_schema(told, "predict")
    assert told["rows"] == 56


def broken(data, folder, name, change):
    """The data folder with one file changed."""
    import shutil

    shutil.copytree(data, folder)
    file = folder / f"{name}.csv"
    with file.open(newline="") as lines:
        rows = change(list(csv.DictReader(lines)))
    if rows:
        write(file, rows)
    else:
        file.write_text("text,label,split\n")
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: [{"words": row["text"], **row} | {"text": ""} for row in rows], "column 'text' is empty"),
        (lambda rows: [{"label": row["label"], "split": row["split"]} for row in rows], "no column 'text'; it has"),
        (
            lambda rows: [*rows, {"text": "new", "label": "odd", "split": "dev"}],
            "'odd', a label never seen in training",
        ),
        (lambda rows: [], "mood.csv: no rows; needed: text (left), label (label), split (split)"),
        (lambda rows: [*rows, {"text": "new", "label": "odd", "split": "train"}], "'odd' has one example in train"),
    ],
)
def test_mistakes_of_the_data_are_one_line(tiny_bert, data, tmp_path, capsys, monkeypatch, change, said):
    folder = broken(data, tmp_path / "data", "mood", change)
    given = ["multitask", data / "mine.toml", "--model", tiny_bert, "--data", folder, "-o", tmp_path / "run"]
    assert said in refused(capsys, monkeypatch, *given)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_python_lines_of_the_docs_run(data, tiny_bert, tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs/multitask.md").read_text(encoding="utf-8")
    (tmp_path / "my-encoder").symlink_to(tiny_bert)
    (tmp_path / "my-tasks.toml").write_text(RECIPE.replace('"mood"', '"reviews"'))
    for name in ("mood", "same", "near"):
        (tmp_path / f"{name}.csv").symlink_to(data / f"{name}.csv")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(page.split("```python")[1].split("```")[0], names)  # noqa: S102 - the page's own lines
    assert set(names["result"].summary["dev"]["overall"]) == {"mean", "sd"}
    assert names["predictor"].predict("reviews", ["Good.", "Bad."]).probabilities.shape == (2, 2)


def test_an_interrupt_is_told_and_gone_on_from(tiny_bert, data, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("layerwise.train.loop.seeds.train", stopped)
    given = ["multitask", data / "mine.toml", "--model", tiny_bert, "--data", data, "-o", tmp_path / "run"]
    result = CliRunner().invoke(app, [str(part) for part in given])
    assert result.exit_code == 130
    assert result.stderr.endswith("error: interrupted before the first step; nothing was written\n")
    assert not (tmp_path / "run").exists()


def train_mine(data, encoder, out, *more):
    return run("multitask", data / "mine.toml", "--model", encoder, "--data", data, "-o", out, "--device", "cpu", *more)


@pytest.mark.slow
def test_the_embeddings_are_scored_on_test_tasks(tiny_bert, data, tmp_path):
    pairs = [{"sentence1": "river", "sentence2": " ".join(WORDS[n : n + 3]), "score": n % 6} for n in range(12)]
    write(data / "pairs.csv", pairs)
    (data / "test.toml").write_text('[[task]]\nname = "pairs"\nkind = "sts"\nfile = "pairs.csv"\n')
    tested = ["--set", f'dev.test=["{data / "test.toml"}"]']
    said = train_mine(data, tiny_bert, tmp_path / "run", *tested, "--seeds", "0,1", "--keep-checkpoints")
    assert "embeddings on test tasks" in said
    result = json.loads((tmp_path / "run" / "seed-1" / "result.json").read_text())
    evaluation = Evaluation.load(tmp_path / "run" / "seed-1" / "evaluation.json")
    assert result["scores"] == {"pairs": evaluation.runs[0].results["pairs"].score}
    assert {"dev", "best", "protocol"} <= result.keys()
    summary = json.loads((tmp_path / "run" / "results.json").read_text())
    assert set(summary["scores"]["pairs"]) == {"mean", "sd"}
    assert {path.name for path in (tmp_path / "run" / "seed-1").glob("checkpoint-*")} == {
        "checkpoint-2",
        "checkpoint-4",
    }
    model = LayerModel.load(tmp_path / "run" / "seed-1" / "model", device="cpu")
    assert model.training["scores"] == result["scores"]
    compared = run("compare", *(tmp_path / "run" / seed / "evaluation.json" for seed in ("seed-0", "seed-1")))
    assert "pairs" in compared
    train_mine(data, tiny_bert, tmp_path / "untested", *tested, "--no-test")
    assert not (tmp_path / "untested" / "evaluation.json").exists()
    assert not list((tmp_path / "untested").glob("checkpoint-*"))


@pytest.mark.slow
def test_a_run_without_its_settings_resumes(tiny_bert, data, tmp_path, capsys, monkeypatch):
    """A recipe that cannot be read is one line; without it, the settings are not compared."""
    train_mine(data, tiny_bert, tmp_path / "run", "--keep-checkpoints")
    whole = json.loads((tmp_path / "run" / "result.json").read_text())
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "run" / "run.json").unlink()
    (tmp_path / "run" / "recipe.toml").write_text('[[task]]\nname = "mood"\nfile = "mood.csv"\nkind = "pairs"\n')
    shutil.rmtree(tmp_path / "run" / "checkpoint-4")
    given = ["multitask", data / "mine.toml", "--model", tiny_bert, "--data", data, "-o", tmp_path / "run", "--resume"]
    error = refused(capsys, monkeypatch, *given)
    assert "recipe.toml: task 'mood': " in error
    assert error.endswith("correct it, or remove it to resume without comparing the settings")
    (tmp_path / "run" / "recipe.toml").unlink()
    run(*given, "--device", "cpu")
    resumed = json.loads((tmp_path / "run" / "result.json").read_text())
    assert {key: resumed[key] for key in ("dev", "best", "steps")} == {
        key: whole[key] for key in ("dev", "best", "steps")
    }
