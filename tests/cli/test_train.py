"""`layerwise train` and `layerwise recipes`: real runs of a handful of steps with a tiny encoder."""

import json
import shutil
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from layerwise.cli.app import app
from layerwise.data import Task
from layerwise.errors import InputError
from layerwise.evaluate import Evaluation, evaluate
from layerwise.model import LayerModel
from layerwise.train import RECIPES, ContrastiveJob, format_spread, load_recipe, parse_recipe, read_metrics, train_seeds
from layerwise.train.loop.scoring import tasks_to_score
from layerwise.train.loop.summary import summarise
from support.commands import check_schema, refused
from support.slow_cases import one_in
from support.tiny import WORDS

STEPS = ["train.batch_size=8", "train.steps=5", "train.precision=float32", "train.learning_rate=1e-3", "dev.every=2"]
LOUD = [*STEPS, "dev.log_every=1", 'dev.test=["stsb"]']


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder with an STS-B of 60 made-up pairs, and texts to train on."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(3)

    def said(words: int) -> str:
        return " ".join(random.choice(WORDS, words))

    pairs = [
        {"sentence1": said(4), "sentence2": said(5), "score": float(random.integers(0, 6)), "split": split}
        for split in ("train", "dev", "test")
        for _ in range(20)
    ]
    (folder / "sts").mkdir()
    pq.write_table(pa.Table.from_pylist(pairs), folder / "sts" / "stsb.parquet")
    (folder / "text.txt").write_text("\n".join(said(int(random.integers(3, 9))) for _ in range(64)) + "\n")
    triples = [{"a": said(4), "b": said(4), "c": said(4)} for _ in range(40)]
    pq.write_table(pa.Table.from_pylist(triples), folder / "triples.parquet")
    return folder


def sets(settings):
    return [part for setting in settings for part in ("--set", setting)]


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def trained(recipe, encoder, data, out, *more, settings=LOUD, text="text.txt"):
    given = ["--data", data, "--data", data / text] if text else ["--data", data]
    return run("train", recipe, "--model", encoder, *given, "-o", out, *sets(settings), *more)


def test_recipes_are_listed_and_printed():
    listed = json.loads(run("recipes", "--json"))
    check_schema(listed, "recipes")
    assert [one["name"] for one in listed] == [*RECIPES.names(), "cs224n"]
    assert {"about", "objectives", "encoder", "reached"} < set(listed[0])
    said = run("recipes")
    assert all(name in said for name in RECIPES.names())
    assert "tasks sst, cfimdb, quora, sts" in said
    assert "layerwise multitask" in said
    assert 'name = "cs224n"' in run("recipes", "cs224n")
    assert [one["name"] for one in json.loads(run("recipes", "cs224n", "--json"))["tasks"]] == listed[-1]["tasks"]
    printed = run("recipes", "sg-opt")
    assert parse_recipe(tomllib.loads(printed)) == load_recipe("sg-opt")  # whole, though the file extends another
    assert "# sg.toml:\n# All sentences of STS-B without their scores" in printed
    assert json.loads(run("recipes", "sg-opt", "--json"))["objectives"][0]["form"] == "opt3"


def test_one_seed_leaves_a_model_with_its_scores(tiny_bert, data, tmp_path):
    out = tmp_path / "run"
    facts = json.loads(trained("small-simcse", tiny_bert, data, out, "--json"))
    check_schema(facts, "train")
    assert facts["models"] == [str(out / "model")]
    assert facts["scores"]["stsb"]["sd"] is None
    assert not list(out.glob("checkpoint-*"))
    result = json.loads((out / "result.json").read_text())
    assert result == facts["results"][0]
    assert result["text"]["kept"] == 64
    assert result["recipe"]["model"]["encoder"] == tiny_bert.name  # without where it lies
    assert result["recipe"]["data"]["files"] == ["text.txt"]
    assert {line["step"] for line in read_metrics(out / "metrics.jsonl")} == {1, 2, 3, 4, 5}
    assert load_recipe(out / "recipe.toml").train.steps == 5
    card = (out / "model" / "README.md").read_text()
    assert "scores.stsb" in card
    assert "small-simcse" in card
    assert str(data) not in card
    plain = SentenceTransformer(str(out / "model"), device="cpu")
    model = LayerModel.load(out / "model", device="cpu")
    assert np.allclose(plain.encode(WORDS[:5]), model.encode(WORDS[:5]), atol=1e-5)
    assert not np.allclose(model.encode(WORDS[:5]), LayerModel.load(tiny_bert, mix="last @ cls").encode(WORDS[:5]))


def test_the_score_is_that_of_the_saved_model(tiny_bert, data, tmp_path, caplog):
    with caplog.at_level("INFO", "layerwise"):
        trained("small-lap-unsup", tiny_bert, data, tmp_path / "run")
    assert "scoring the trained model on stsb" in caplog.text  # which may take longer than the training
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    again = evaluate(str(tmp_path / "run" / "model"), ["stsb"], data=str(data))
    assert result["scores"]["stsb"] == pytest.approx(again.runs[0].results["stsb"].score, abs=1e-3)
    dev = Evaluation.load(tmp_path / "run" / "evaluation.json").runs[0].results["stsb"]
    assert dev.score == pytest.approx(result["scores"]["stsb"])


def test_several_seeds_have_their_mean(tiny_bert, data, tmp_path):
    said = trained("small-simcse", tiny_bert, data, tmp_path / "run", "--seeds", "0,1", "--keep-checkpoints")
    results = [json.loads((tmp_path / "run" / f"seed-{seed}" / "result.json").read_text()) for seed in (0, 1)]
    scores = [result["scores"]["stsb"] for result in results]
    assert len(set(scores)) == 2
    found = json.loads((tmp_path / "run" / "results.json").read_text())
    assert found["seeds"] == [0, 1]
    assert found["scores"]["stsb"]["mean"] == pytest.approx(np.mean(scores))
    assert found["scores"]["stsb"]["sd"] == pytest.approx(np.std(scores, ddof=1))
    assert found["dev"]["mean"] == pytest.approx(np.mean([result["dev"]["best"] for result in results]))
    assert f"{np.mean(scores):.2f} ± {np.std(scores, ddof=1):.2f}" in said
    assert f'LayerModel.load("{tmp_path}/run/seed-1/model")' in said  # in one line, to copy
    assert list((tmp_path / "run" / "seed-1").glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("recipe", "text", "more"),
    one_in(
        2,
        [
            ("small-sg", "text.txt", []),  # stacked columns, but a text file has one
            ("small-sg-opt", "", []),  # the data folder's own sts/stsb.parquet
            ("small-sscl-progressive", "text.txt", []),
            pytest.param("small-sscl-bert-cls", "text.txt", [], marks=pytest.mark.slow),
            pytest.param(  # trained by train/test_suggestion.py, too
                "small-sup", "triples.parquet", ["--columns", "a,b,c"], marks=pytest.mark.slow
            ),
            ("small-lap-sup-eq6", "triples.parquet", ["--columns", "a,b"]),
            pytest.param("bt-sg-opt", "triples.parquet", ["--columns", "a,b"], marks=pytest.mark.slow),
        ],
    ),
)
def test_recipes_run(recipe, text, more, tiny_bert, data, tmp_path):
    short = [*STEPS, "train.steps=2", "dev.patience=0", "data.max_length=32"]
    out = tmp_path / "run"
    facts = json.loads(
        trained(recipe, tiny_bert, data, out, *more, "--no-test", "--json", settings=short, text=text),
    )
    assert facts["scores"] == {}
    assert not (out / "evaluation.json").exists()
    assert np.isfinite(LayerModel.load(out / "model").encode(WORDS[:4])).all()


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_end(tiny_bert, data, tmp_path):
    recipe = load_recipe("small-simcse", [*LOUD, f'data.files=["{data / "text.txt"}"]'])

    def seeds(out, **options):
        job = ContrastiveJob(recipe, encoder=str(tiny_bert), data=str(data))
        return train_seeds(job, out, seeds=(0, 1), **options)

    def stop(seed, step, *_):
        if (seed, step) == (1, 3):
            raise KeyboardInterrupt

    whole = seeds(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        seeds(tmp_path / "broken", on_step=stop)
    assert json.loads((tmp_path / "broken" / "results.json").read_text())["seeds"] == [0]
    steps = []
    again = seeds(tmp_path / "broken", resume=True, on_step=lambda *step: steps.append(step[:2]))
    assert steps == [(1, 3), (1, 4), (1, 5)]  # seed 0 was finished, seed 1 had a checkpoint of step 2
    assert again.summary["scores"] == whole.summary["scores"]
    losses = [
        [line["loss"] for line in read_metrics(tmp_path / name / "seed-1" / "metrics.jsonl") if "loss" in line]
        for name in ("whole", "broken")
    ]
    assert losses[0] == losses[1]
    models = [LayerModel.load(tmp_path / name / "seed-1" / "model") for name in ("whole", "broken")]
    assert np.array_equal(models[0].encode(WORDS), models[1].encode(WORDS))
    steps.clear()
    assert seeds(tmp_path / "broken", resume=True, on_step=lambda *step: steps.append(step)).results == again.results
    assert steps == []


@pytest.mark.slow
def test_a_training_begun_with_relative_paths_is_resumed_from_any_folder(tiny_bert, data, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    shutil.copy(data / "text.txt", tmp_path / "here" / "own.txt")
    shutil.copytree(tiny_bert, tmp_path / "here" / "encoder")
    options = [*sets(LOUD), "--data", data, "--no-test"]
    monkeypatch.chdir(tmp_path / "here")
    run("train", "small-simcse", "--model", "encoder", "--data", "own.txt", "-o", "run", *options)
    result = (tmp_path / "here" / "run" / "result.json").read_text()
    assert str(tmp_path) not in result, "results say no more than the names of files"
    monkeypatch.chdir(tmp_path / "there")
    again = ["--model", "../here/encoder", "--data", "../here/own.txt", "-o", "../here/run", *options, "--resume"]
    assert "wrote" in run("train", "small-simcse", *again)
    recipe = "../here/run/recipe.toml"
    (tmp_path / "here" / "run" / "result.json").unlink()  # as if it had been killed before its end
    assert "wrote" in run("train", recipe, "--data", data, "-o", "../here/run", "--resume")


def test_resuming_asks_for_the_same_settings(tiny_bert, data, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    trained("small-simcse", tiny_bert, data, out, "--no-test")
    again = ["train", "small-simcse", "--model", tiny_bert, "--data", data, "--data", data / "text.txt", "-o", out]
    again += [*sets(LOUD), "--no-test", "--resume"]
    assert "was started with other settings" in refused(capsys, monkeypatch, *again, "--set", "train.batch_size=4")
    assert "holds seed 0, not 3" in refused(capsys, monkeypatch, *again, "--seeds", "3")
    assert "wrote" in run(*again)
    (out / "result.json").unlink()  # as if it had been killed before its end
    assert "was started with seed 0, not 3" in refused(capsys, monkeypatch, *again, "--seeds", "3")
    (out / "run.json").write_text('{"seed": 0')
    said = refused(capsys, monkeypatch, *again)
    assert "run.json: is not JSON" in said
    assert "remove it to resume without checking them, or give another folder" in said
    (out / "run.json").write_text('{"seed": 3}')
    assert "was started with seed 3, not 0" in refused(capsys, monkeypatch, *again)
    (out / "run.json").unlink()
    assert "wrote" in run(*again)


def test_resuming_asks_for_the_same_rows(tiny_bert, data, tmp_path, capsys, monkeypatch):
    text, out = tmp_path / "text.txt", tmp_path / "run"
    text.write_text((data / "text.txt").read_text())
    recipe = load_recipe("small-simcse", [*LOUD, f'data.files=["{text}"]'])

    def stop(_, step, *__):
        if step == 3:
            raise KeyboardInterrupt

    def seeds(**options):
        return train_seeds(ContrastiveJob(recipe, encoder=str(tiny_bert), data=str(data)), out, **options)

    with pytest.raises(KeyboardInterrupt):
        seeds(on_step=stop)
    lines = text.read_text().splitlines()
    text.write_text("\n".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(InputError, match="was started with other rows in its data; give the same data"):
        seeds(resume=True)
    text.write_text("\n".join(lines))
    assert seeds(resume=True).results[0]["steps"] == 5


def test_the_dev_task_of_the_command_line(tiny_bert, data, tmp_path, capsys, monkeypatch):
    pairs = "".join(
        f"{left},{right},{score}\n" for left, right, score in zip(WORDS, WORDS[1:9], range(8), strict=False)
    )
    (tmp_path / "pairs.csv").write_text("sentence1,sentence2,score\n" + pairs)
    task = tmp_path / "mine.toml"
    task.write_text('[[task]]\nname = "mine"\nkind = "sts"\nfile = "pairs.csv"\n')
    said = trained("small-simcse", tiny_bert, data, tmp_path / "own", "--dev", task, "--no-test", settings=STEPS)
    assert "mine, all rows (picks)" in said
    short = [*STEPS, "data.max_length=32"]
    trained("small-sg-opt", tiny_bert, data, tmp_path / "none", "--dev", "none", "--no-test", settings=short)
    assert "dev" not in json.loads((tmp_path / "none" / "result.json").read_text())
    both = ["train", "small-simcse", "--model", tiny_bert, "--data", data / "text.txt", "-o", tmp_path / "both"]
    both += [*sets(STEPS), "--dev", task, "--set", f'dev.test=["{task}"]']
    assert "the same rows would pick the best step and test it" in refused(capsys, monkeypatch, *both)


def test_ctrl_c_says_how_to_go_on(tiny_bert, data, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("layerwise.train.loop.seeds.train_seeds", stopped)
    words = ["train", "small-simcse", "--model", str(tiny_bert), "-o", str(tmp_path / "run")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 130
    assert result.stderr == "error: interrupted before the first step; nothing was written\n"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").touch()
    assert "with the same command and --resume" in CliRunner().invoke(app, words).stderr


def test_a_full_folder_is_refused_before_anything_is_read(tmp_path, capsys, monkeypatch):
    (tmp_path / "notes.txt").write_text("mine")
    said = refused(capsys, monkeypatch, "train", "small-simcse", "--model", "no-such-model", "-o", tmp_path)
    assert "is not empty; resume with --resume, or give another folder" in said
    assert "is a file" in refused(capsys, monkeypatch, "train", "sg", "-o", tmp_path / "notes.txt")


def test_what_fails_before_a_first_step_leaves_nothing(tiny_bert, data, tmp_path, capsys, monkeypatch):
    out, made = tmp_path / "run", tmp_path / "made"
    made.mkdir()
    plain = ["train", "small-simcse", "--model", tiny_bert, "--data", data, "--data", data / "text.txt", "--no-test"]
    for seeds in ("0", "0,1"):
        refused(capsys, monkeypatch, *plain, "-o", out, "--seeds", seeds, "--set", "data.max_length=999")
        assert not list(out.rglob("*"))
    refused(capsys, monkeypatch, *plain, "-o", made, "--set", "data.max_length=999")
    assert made.is_dir()  # not ours to remove


@pytest.mark.slow
def test_seeds_are_added_and_layouts_not_mixed(tiny_bert, data, tmp_path):
    recipe = load_recipe("small-simcse", [*LOUD, "train.steps=2", f'data.files=["{data / "text.txt"}"]'])

    def seeds(out, *numbers):
        job = ContrastiveJob(recipe, encoder=str(tiny_bert), data=str(data))
        return train_seeds(job, out, seeds=numbers, resume=True)

    seeds(tmp_path / "many", 0, 1)
    seeds(tmp_path / "many", 2)
    assert json.loads((tmp_path / "many" / "results.json").read_text())["seeds"] == [0, 1, 2]
    seeds(tmp_path / "one", 0)
    with pytest.raises(InputError, match="holds the run of one seed, not of several"):
        seeds(tmp_path / "one", 0, 1)


def test_results_tell_no_folders_and_no_other_runs_figure(tiny_bert, data, tmp_path):
    task = tmp_path / "mine.toml"
    task.write_text(
        f'[[task]]\nname = "own"\nkind = "sts"\nfile = "{data}/sts/stsb.parquet"\n'
        'splits = { dev = ["dev"], test = ["test"] }\n'
    )
    more = ["--set", f"dev.task={task}", "--set", "reached=99 points", "--no-test"]
    said = trained("small-simcse", tiny_bert, data, tmp_path / "run", *more)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["dev"]["task"] == "own, dev"
    assert "own, dev (picks)" in said
    assert str(tmp_path) not in json.dumps(result)
    assert result["recipe"]["reached"] == ""


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("[enforce fail at inline_container.cc:664]")]
)
def test_a_full_disk_is_one_line(error, tiny_bert, data, tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise error

    monkeypatch.setattr("layerwise.train.contrastive.trainer.ContrastiveTrainer._save", full)
    plain = ["train", "small-simcse", "--model", tiny_bert, "--data", data, "--data", data / "text.txt", "--no-test"]
    assert "free some space" in refused(capsys, monkeypatch, *plain, "-o", tmp_path / "run", *sets(STEPS))


def test_mistakes_are_one_line(tiny_bert, data, tmp_path, capsys, monkeypatch):
    text, empty, task = data / "text.txt", tmp_path / "empty.txt", tmp_path / "task.toml"
    empty.write_text("\n\n")
    (tmp_path / "noending").write_text("a\nb\n")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    task.write_text(
        f'[[task]]\nname = "own"\nkind = "sts"\nfile = "{data}/sts/stsb.parquet"\nsplits = {{ test = ["test"] }}\n'
    )
    plain = ["--model", tiny_bert, "--data", data, "-o", tmp_path / "out", *sets(STEPS), "--no-test"]
    mistakes = [
        (["simcse-unsub"], "Unknown recipe 'simcse-unsub'. Did you mean 'simcse-unsup'?"),
        (["small-simcse", "--data", text, "--set", "train.batchsize=3"], "Did you mean 'batch_size'?"),
        (["small-simcse", "--data", empty], "empty.txt"),
        (["cs224n"], "cs224n: a recipe of tasks; run it by `layerwise multitask cs224n`"),
        (["bt-sg-opt"], "no text to train on"),
        (["small-sup", "--data", text], "a text file has one column"),
        (["small-simcse", "--data", tmp_path / "none.txt"], "no such file"),
        (["small-simcse", "--data", tmp_path], "names 2 folders"),
        (["small-simcse", "--data", text, "--seeds", "a"], "--seeds 'a'"),
        (["small-simcse", "--data", text, "--seeds", "1,1"], "different numbers from 0"),
        (["small-sg", "--data", text, "--set", f"dev.task={task}"], "has no 'dev' rows"),
        (["small-sg", "--data", text, "--set", "dev.task=''"], "patience needs dev pairs"),
        (["small-sscl-simcse", "--data", text, "--set", "objective.sscl.layers=[-9]"], "-9"),
        ([tmp_path / "latin.toml"], "is not UTF-8 text"),
        (["small-simcse", "--data", tmp_path / "noending"], "name it .txt, .csv, .tsv, .jsonl or .parquet"),
        (["small-simcse", "--data", data / "triples.parquet"], "name its columns with --columns"),
        (["small-simcse", "--data", text, "--set", "steps=3"], "Did you mean 'train.steps'?"),
        (
            ["small-simcse", "--data", text, "--set", "train.steps=0"],
            "small-simcse.toml, changed by --set: [train] steps is 0; expected 1 or more",
        ),
        (["small-simcse", "--data", text, "--seeds", "99999999999999999999"], "from 0 to 2147483647"),
        (["small-simcse", "--data", text, "--set", "data.max_length=999"], "takes at most"),
        (
            ["small-simcse", "--data", text, "--set", "train.batch_size=1"],
            "[train] batch_size is 1; expected 2 or more",
        ),
    ]
    for arguments, expected in mistakes:
        said = refused(capsys, monkeypatch, "train", *arguments[:1], *plain, *arguments[1:])
        assert expected in said
        for path in sorted((tmp_path / "out").rglob("*"), reverse=True):  # what a begun run left
            path.unlink() if path.is_file() else path.rmdir()
    assert "names no encoder" in refused(capsys, monkeypatch, "train", "small-simcse", *plain[2:], "--data", text)


def test_a_suite_goes_on_without_what_is_not_here(data, monkeypatch):
    def offline(task, folder):
        raise InputError(f"{task.name}: no network")

    monkeypatch.setattr("layerwise.data.fetch.fetch_task", offline)
    assert [task.name for task in tasks_to_score(["sts"], str(data))] == ["stsb"]
    assert tasks_to_score([], str(data)) == []
    with pytest.raises(InputError, match="sts12: no network"):
        tasks_to_score(["sts12"], str(data))
    with pytest.raises(InputError, match="none of the test tasks of transfer"):
        tasks_to_score(["transfer"], str(data))
    with pytest.raises(InputError, match=r"Unknown task 'stsbb'. Did you mean 'stsb'"):
        tasks_to_score(["stsbb"], str(data))
    assert all(isinstance(task, Task) for task in tasks_to_score(["STS-B"], str(data)))


def test_a_mean_is_of_all_seeds_or_of_none():
    seeds = [{"seed": 0, "scores": {"a": 1.0, "b": 2.0}}, {"seed": 1, "scores": {"a": 2.0, "b": None}}]
    found = summarise(seeds)
    assert found["scores"]["a"]["mean"] == 1.5
    assert found["scores"]["b"] is None
    assert found["dev"] is None
    assert format_spread(found["scores"]["a"]) == "1.50 ± 0.71"
    assert format_spread(None) == "-"
