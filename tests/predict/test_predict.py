"""Predicting after a multitask training: saved and loaded exactly, from files of every format, by the command line."""

import csv
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from layerwise.cli.app import app
from layerwise.encoder import LayerEncoder
from layerwise.errors import InputError, ModelError
from layerwise.model import LayerModel
from layerwise.predict import Predictor, predict_file
from layerwise.predict.predictor import probabilities
from layerwise.predict.saved_tasks import read_tasks
from layerwise.train.multitask.student import build_student
from support.commands import refused
from support.multitasking import RECIPE, read, recipe, save_tasks, task, train_tasks
from support.row_files import write
from support.slow_cases import covering, one_in
from support.tiny import SENTENCES, WORDS

PAIRS = list(zip(SENTENCES, SENTENCES[::-1], strict=True))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = save_tasks(tmp_path_factory.mktemp("tasks"))
    (folder / "mine.toml").write_text(RECIPE)
    return folder


def tasks(data):
    return [task("mood", data, head="mlp"), task("same", data), task("near", data)]


@pytest.fixture(scope="module")
def predictor(data, tiny_bert, tmp_path_factory):
    what = recipe(*tasks(data), steps=5, model={"pooler": "2,4 @ mean", "head": "mlp"})
    folder = tmp_path_factory.mktemp("run")
    return train_tasks(what, folder, encoder=LayerEncoder(tiny_bert, device="cpu")).model


@pytest.fixture(scope="module")
def saved(predictor, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    predictor.save(folder)
    return folder


# The predictor


def test_probabilities_by_hand():
    assert probabilities(np.array([0.0, np.log(3)])) == pytest.approx(np.array([[0.5, 0.5], [0.25, 0.75]]))
    assert probabilities(np.array([[0.0, np.log(3)]])) == pytest.approx(np.array([[0.25, 0.75]]))
    assert probabilities(np.array([[1e4, 0.0], [-1e4, 0.0]])) == pytest.approx(np.array([[1, 0], [0, 1]]))


def test_predictions_are_what_embeddings_and_heads_give(predictor):
    import torch

    texts = [text for text in SENTENCES if len(text) < 50]  # longer ones are cut to the task's 16 tokens
    embeddings = torch.from_numpy(predictor.model.encode(texts))
    with torch.inference_mode():
        logits = predictor.heads["mood"].eval()(embeddings).numpy()
    found = predictor.predict("mood", texts)
    assert found.classes == ("bad", "good")
    assert found.probabilities == pytest.approx(probabilities(logits), abs=1e-5)
    assert found.labels == tuple(found.classes[number] for number in found.probabilities.argmax(axis=1))
    same = predictor.predict("near", [(text, text) for text in SENTENCES])
    assert same.numbers == pytest.approx(np.full(len(SENTENCES), 5.0), abs=1e-4)
    assert (same.classes, same.labels) == ((), ())


def test_predictions_are_the_same_while_the_student_trains(data, tiny_bert):
    what = recipe(*tasks(data), model={"pooler": "attention(cls, mean)", "head": "mlp"})
    rows = read(*what.setups)
    student = build_student(what, rows, LayerEncoder(tiny_bert, device="cpu"), seed=0)
    predictor = student.to_predictor(rows)
    wanted = predictor.predict("near", PAIRS).numbers  # in eval mode
    student.train()
    student.head.eval()  # each module has a mode of its own
    modes = [module.training for module in student.modules()]
    for _ in range(2):
        assert np.array_equal(predictor.predict("near", PAIRS).numbers, wanted)
    assert [module.training for module in student.modules()] == modes
    assert {True, False} <= set(modes)


def test_a_text_is_cut_to_its_tasks_length(data, tiny_bert):
    what = recipe(task("mood", data, max_length=8), task("same", data, max_length=12))
    encoder = LayerEncoder(tiny_bert, device="cpu")
    rows = read(*what.setups)
    predictor = build_student(what, rows, encoder, seed=0).to_predictor(rows)
    words = WORDS[:20]
    assert len(encoder.tokenizer(" ".join(words))["input_ids"]) == len(words) + 2 < encoder.max_length

    def found(name, kept):
        text = " ".join(words[:kept])
        return predictor.predict(name, [text] if name == "mood" else [(text, WORDS[-1])]).probabilities

    for name, length in (("mood", 8), ("same", 12)):
        cut = length - 2  # a token opens, one closes
        assert np.array_equal(found(name, 20), found(name, cut))
        assert not np.allclose(found(name, cut - 1), found(name, cut), atol=1e-6)


def test_a_text_is_cut_to_what_the_encoder_takes_where_that_is_less(saved):
    predictor = Predictor.load(saved, device="cpu", max_length=6)
    long, cut, shorter = (predictor.predict("mood", [" ".join(WORDS[:kept])]) for kept in (9, 4, 3))
    assert np.array_equal(long.probabilities, cut.probabilities)
    assert not np.allclose(shorter.probabilities, cut.probabilities, rtol=0, atol=1e-6)


def test_rows_go_through_a_head_in_parts(predictor, monkeypatch):
    texts = [" ".join(WORDS[start : start + 3]) for start in range(8)]
    whole = predictor.predict("mood", texts)
    monkeypatch.setattr("layerwise.predict.predictor._ROWS", 3)
    parts = predictor.predict("mood", texts)
    assert parts.labels == whole.labels
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, atol=1e-6)


@pytest.mark.parametrize(
    ("pooler", "head"), one_in(3, covering(["last @ cls", "2 @ mean", "attention(cls, mean)"], ["none", "linear"]))
)
def test_saved_and_loaded_predicts_exactly_the_same(data, tiny_bert, tmp_path, pooler, head):
    what = recipe(*tasks(data), steps=2, model={"pooler": pooler, "head": head})
    before = train_tasks(what, tmp_path / "run", encoder=LayerEncoder(tiny_bert, device="cpu")).model
    before.save(tmp_path / "model")
    after = Predictor.load(tmp_path / "model", device="cpu")
    for name, inputs in (("mood", SENTENCES), ("same", PAIRS), ("near", PAIRS)):
        one, other = before.predict(name, inputs), after.predict(name, inputs)
        assert (one.classes, one.labels) == (other.classes, other.labels)
        assert np.array_equal(one.probabilities, other.probabilities)
        assert np.array_equal(one.numbers, other.numbers)
    assert after.setup("same").task.splits == before.setup("same").task.splits
    assert after.setup("same").objective == before.setup("same").objective
    after.save(tmp_path / "again")
    assert (tmp_path / "again" / "tasks.json").read_text() == (tmp_path / "model" / "tasks.json").read_text()


def test_the_encoder_alone_is_a_sentence_transformer(saved, predictor, data):
    plain = SentenceTransformer(str(saved), device="cpu")
    assert np.allclose(plain.encode(SENTENCES), predictor.model.encode(SENTENCES), atol=1e-5)
    model = LayerModel.load(saved, device="cpu")
    assert {record.what for record in model.fitted_on} == {"encoder"}
    assert model.training["tasks"]["mood"]["labels"] == ["bad", "good"]
    assert str(data) not in "".join(path.read_text() for path in saved.rglob("*.json"))


def test_a_folder_is_whole_or_not_there(predictor, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("layerwise.predict.saved_tasks.save_file", full)
    with pytest.raises(ModelError, match="No space left on device; nothing was changed there"):
        predictor.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_what_is_no_model_of_tasks_is_refused(saved, tiny_bert, tmp_path):
    import shutil

    with pytest.raises(ModelError, match=r"no tasks.json, so it has no tasks to predict; train one with"):
        Predictor.load(tiny_bert, device="cpu")
    broken = shutil.copytree(saved, tmp_path / "broken")
    (broken / "checksums.json").unlink()  # which would tell before
    shutil.copy(broken / "tasks" / "same.safetensors", broken / "tasks" / "mood.safetensors")
    with pytest.raises(
        ModelError, match=r"mood.safetensors: its weights are not those of the head in tasks.json; save"
    ):
        Predictor.load(broken)
    (broken / "tasks" / "mood.safetensors").unlink()
    with pytest.raises(ModelError, match=r"mood.safetensors: cannot be read: .*; the folder is incomplete"):
        Predictor.load(broken, device="cpu")
    for change, said in (
        (
            lambda facts: facts["tasks"][0]["objective"].update(head="lineal"),
            "Unknown head of classification 'lineal'",
        ),
        (
            lambda facts: facts["tasks"][0].pop("labels"),
            "is damaged: 'labels'; the file lists the tasks of a saved model",
        ),
        (lambda facts: facts.update(format=9), "its format is 9, this version reads 2; update layerwise"),
    ):
        facts = json.loads((saved / "tasks.json").read_text())
        change(facts)
        (broken / "tasks.json").write_text(json.dumps(facts))
        with pytest.raises(ModelError, match=said):
            Predictor.load(broken, device="cpu")


DAMAGES = [
    (
        lambda facts: facts["tasks"][0].update(task=["mood"]),
        r"tasks.json: is damaged: task is \['mood'\]; expected a table",
    ),
    (
        lambda facts: facts["tasks"][0].update(labels=["bad", "bad"]),
        r"labels \['bad', 'bad'\] of task 'mood': a class comes",
    ),
    (lambda facts: facts["tasks"][0].update(labels="ab"), "labels 'ab' of task 'mood': expected a list of texts"),
    (
        lambda facts: facts["tasks"][0].update(labels=[0, 1]),
        r"labels \[0, 1\] of task 'mood': expected a list of texts",
    ),
    (lambda facts: facts["tasks"][0].update(labels=["bad"]), "tasks.json: task 'mood': labels: 1 class"),
    (lambda facts: facts["tasks"][2].update(labels=["a", "b"]), r"of task 'near', which predicts numbers"),
    (
        lambda facts: facts["tasks"][0]["task"].update(labels=["x", "y", "z"]),
        "task 'mood' has 2 labels, but declares 3",
    ),
    (lambda facts: facts["tasks"].append(facts["tasks"][0]), "two tasks have one name: mood, same, near, mood"),
    (lambda facts: facts.update(tasks=5), "tasks.json: is damaged: "),
]


@pytest.mark.parametrize(("change", "said"), DAMAGES)
def test_damaged_tasks_are_one_line(saved, tmp_path, change, said):
    import shutil

    broken = shutil.copytree(saved, tmp_path / "broken")
    facts = json.loads((saved / "tasks.json").read_text())
    change(facts)
    (broken / "tasks.json").write_text(json.dumps(facts))
    with pytest.raises(ModelError, match=said) as caught:
        read_tasks(broken, 32)
    assert str(caught.value).startswith(str(broken / "tasks.json"))
    assert "\n" not in str(caught.value)


def test_wrong_inputs_are_refused(predictor):
    with pytest.raises(InputError, match=r"Unknown task 'moood'. Did you mean 'mood'\? Known: mood, near, same"):
        predictor.predict("moood", SENTENCES)
    with pytest.raises(InputError, match="row 0 is 'one'; task 'same' takes pairs of texts"):
        predictor.predict("same", ["one", "two"])
    with pytest.raises(InputError, match=r"row 1 is \('a', 'b'\); task 'mood' takes one text a row"):
        predictor.predict("mood", ["one", ("a", "b")])
    with pytest.raises(InputError, match="no rows to predict"):
        predictor.predict("mood", [])
    with pytest.raises(InputError, match="inputs is one string"):
        predictor.predict("mood", "one")
    for wrong in (5, None, ("a", "b", "c"), {"a", "b"}, np.array("a"), np.array([["a", "b"], ["c", "d"]])):
        with pytest.raises(InputError, match=r"row 1 is .*; task 'same' takes pairs of texts"):
            predictor.predict("same", [("a", "b"), wrong])
    with pytest.raises(InputError, match="sentence 0 is 5, not a text"):
        predictor.predict("same", [("a", 5)])
    with pytest.raises(InputError, match="inputs is 5; give a list of texts, or of pairs of texts"):
        predictor.predict("same", 5)
    assert predictor.predict("same", np.array([["a", "b"]])).labels == predictor.predict("same", [["a", "b"]]).labels


# Scores


# Files


def read_out(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("out", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_files_keep_their_columns_and_gain_predictions(predictor, tmp_path, ending, out):
    rows = [{"id": number, "a": one, "b": other} for number, (one, other) in enumerate(PAIRS)]
    source = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), source)
    elif ending == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        write(source, rows)
        if ending == "tsv":
            source.write_text("id\ta\tb\n" + "".join(f"{row['id']}\t{row['a']}\t{row['b']}\n" for row in rows))
    done = predict_file(predictor, "same", str(source), tmp_path / f"out.{out}")
    wanted, found = predictor.predict("same", PAIRS), read_out(tmp_path / f"out.{out}")
    assert done.rows == len(found) == 7
    assert sum(done.counts.values()) == 7
    assert list(found[0]) == ["id", "a", "b", "predicted_label", "probability_0", "probability_1"]
    assert [int(row["id"]) for row in found] == list(range(7))
    assert [row["b"] for row in found] == SENTENCES[::-1]
    assert tuple(row["predicted_label"] for row in found) == wanted.labels
    assert [float(row["probability_1"]) for row in found] == wanted.probabilities[:, 1].tolist()
    assert [path.name for path in tmp_path.glob("*.part")] == []


def test_a_text_file_and_columns_of_other_names(predictor, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES))
    predict_file(predictor, "mood", str(tmp_path / "texts.txt"), tmp_path / "out.jsonl")
    assert [row["text"] for row in read_out(tmp_path / "out.jsonl")] == SENTENCES
    write(tmp_path / "pairs.csv", [{"x": one, "y": other} for one, other in PAIRS])
    predict_file(predictor, "near", str(tmp_path / "pairs.csv"), tmp_path / "out.csv", columns=("x", "y"))
    found = [float(row["predicted_score"]) for row in read_out(tmp_path / "out.csv")]
    assert found == predictor.predict("near", PAIRS).numbers.tolist()


RAGGED = [{"text": "a river", "id": 1}, {"note": "new", "text": "a door"}, {"text": "rain"}]


def ragged(folder):
    path = folder / "rows.jsonl"
    path.write_text("\ufeff" + "\n\n".join(json.dumps(row) for row in RAGGED), encoding="utf-8")
    return str(path)


def test_rows_of_jsonl_keep_the_keys_that_each_has(predictor, tmp_path):
    predict_file(predictor, "mood", ragged(tmp_path), tmp_path / "out.jsonl")
    found = read_out(tmp_path / "out.jsonl")
    added = ["predicted_label", "probability_bad", "probability_good"]
    assert [list(row) for row in found] == [[*row, *added] for row in RAGGED]
    assert [{name: row[name] for name in own} for row, own in zip(found, RAGGED, strict=True)] == RAGGED


@pytest.mark.parametrize(("ending", "nothing"), [("csv", ""), ("parquet", None)])
def test_keys_that_some_rows_have_are_columns_of_a_table(predictor, tmp_path, ending, nothing):
    predict_file(predictor, "mood", ragged(tmp_path), tmp_path / f"out.{ending}")
    found = read_out(tmp_path / f"out.{ending}")
    assert list(found[0])[:3] == ["text", "id", "note"]
    assert [row["note"] for row in found] == [nothing, "new", nothing]
    assert [str(row["id"]) for row in found] == ["1", str(nothing), str(nothing)]


def test_a_row_of_jsonl_without_its_text_is_named(predictor, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n\n{"words": "two"}\n')
    with pytest.raises(InputError, match=r"rows.jsonl:3: no column 'text'; it has 'words'; say which .* --columns"):
        predict_file(predictor, "mood", str(tmp_path / "rows.jsonl"), tmp_path / "out.csv")
    (tmp_path / "bad.jsonl").write_bytes(b'{"text": "one"}\n{"text": "\xff"}\n')
    with pytest.raises(InputError, match=r"bad.jsonl:2: not UTF-8"):
        predict_file(predictor, "mood", str(tmp_path / "bad.jsonl"), tmp_path / "out.csv")
    (tmp_path / "half.jsonl").write_text('{"text": "one", "note": "\\ud800"}\n')
    with pytest.raises(InputError, match=r"out.jsonl: a value of the input holds half a surrogate pair"):
        predict_file(predictor, "mood", str(tmp_path / "half.jsonl"), tmp_path / "out.jsonl")


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_two_columns_of_one_name_are_refused(predictor, tmp_path, ending):
    source = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table([["river"], ["door"]], names=["text", "text"]), source)
    else:
        source.write_text("text,text\nriver,door\n".replace(",", "\t" if ending == "tsv" else ","))
    with pytest.raises(InputError, match=rf"rows.{ending}: the column 'text' comes twice; rename one of them"):
        predict_file(predictor, "mood", str(source), tmp_path / "out.csv")


def test_the_input_is_not_written_over(predictor, tmp_path):
    source = write(tmp_path / "rows.csv", [{"text": "one"}])
    (tmp_path / "same.csv").symlink_to(source)
    before = source.read_bytes()
    for out in (source, tmp_path / "same.csv"):
        with pytest.raises(
            InputError, match=f"{out.name}: is the input itself, which would be lost; give another file"
        ):
            predict_file(predictor, "mood", str(source), out)
    assert source.read_bytes() == before


def test_an_existing_file_is_written_over_only_if_asked(predictor, tmp_path):
    source = write(tmp_path / "rows.csv", [{"text": "one"}])
    (tmp_path / "out.csv").write_text("precious")
    with pytest.raises(InputError, match=r"out\.csv: exists already; give another name, or --overwrite"):
        predict_file(predictor, "mood", str(source), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "precious"
    predict_file(predictor, "mood", str(source), tmp_path / "out.csv", overwrite=True)
    assert (tmp_path / "out.csv").read_text().startswith("text,predicted_label")


def test_texts_are_counted_as_they_are_embedded(predictor, tmp_path):
    source, counted = write(tmp_path / "rows.csv", [{"text": text} for text in ("one", "two", "one", "three")]), []
    predict_file(predictor, "mood", str(source), tmp_path / "out.csv", progress=counted.append)
    assert sum(counted) == 3, "each different text once"


def test_classes_are_called_by_the_names_that_the_task_gives(data, tiny_bert, tmp_path):
    named = task("same", data, labels=("0", "1"), label_names=("different", "alike"))
    encoder = LayerEncoder(tiny_bert, device="cpu")
    trained = train_tasks(recipe(named, steps=1), tmp_path / "run", encoder=encoder)
    assert trained.facts["tasks"]["same"]["labels"] == ["different", "alike"]
    trained.model.save(tmp_path / "model")
    loaded = Predictor.load(tmp_path / "model", device="cpu")
    assert loaded.predict("same", PAIRS).classes == ("different", "alike")
    done = predict_file(loaded, "same", str(data / "same.csv"), tmp_path / "out.jsonl")
    assert list(done.counts) == ["different", "alike"]
    rows = read_out(tmp_path / "out.jsonl")
    assert list(rows[0])[-3:] == ["predicted_label", "probability_different", "probability_alike"]
    assert {row["predicted_label"] for row in rows} <= {"different", "alike"}


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([{"words": "one"}], {}, "no column 'text'; it has 'words'; say which hold the texts with --columns"),
        ([{"text": "one"}, {"text": " "}], {}, r"rows.csv:3: column 'text' is empty"),
        ([{"text": "one"}], {"columns": ("a", "b")}, "--columns names 2; task 'mood' takes 1"),
        ([{"text": "one", "predicted_label": 1}], {}, "has a column 'predicted_label' already"),
    ],
)
def test_files_that_can_not_be_predicted(predictor, tmp_path, rows, options, said):
    source = write(tmp_path / "rows.csv", rows)
    with pytest.raises(InputError, match=said):
        predict_file(predictor, "mood", str(source), tmp_path / "out.csv", **options)
    assert not (tmp_path / "out.csv").exists()


# Recipes


# The command line


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_table_from_standard_input_is_what_its_file_is(saved, data, tmp_path, monkeypatch, ending):
    with (data / "mood.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    source = write(tmp_path / f"rows.{ending}", rows)
    run("predict", saved, source, "--task", "mood", "-o", tmp_path / f"file.{ending}", "--device", "cpu")
    given = ["predict", saved, "-", "--task", "mood", "--input-format", ending, "-o", tmp_path / f"pipe.{ending}"]
    result = CliRunner().invoke(app, [*map(str, given), "--device", "cpu"], input=source.read_bytes())
    assert result.exit_code == 0, result.output
    assert (tmp_path / f"pipe.{ending}").read_text() == (tmp_path / f"file.{ending}").read_text()
    assert len((tmp_path / f"pipe.{ending}").read_text().splitlines()) == len(rows) + (ending != "jsonl")


def test_standard_input_is_called_so_in_mistakes(saved, tmp_path):
    given = ["predict", saved, "-", "--task", "mood", "--input-format", "csv", "-o", tmp_path / "out.csv"]
    result = CliRunner().invoke(app, [*map(str, given), "--device", "cpu"], input=b"body\nriver\n")
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith("standard input: no column 'text'; it has 'body'")


def test_the_task_is_asked_for_where_there_are_several(saved, data, tiny_bert, tmp_path, capsys, monkeypatch):
    said = refused(capsys, monkeypatch, "predict", saved, data / "mood.csv", "-o", tmp_path / "out.csv")
    assert said.endswith("model: has the tasks mood, same, near; say which with --task")
    one = train_tasks(recipe(task("mood", data), steps=1), tmp_path / "run", encoder=str(tiny_bert)).model
    one.save(tmp_path / "one")
    assert "56 rows" in run("predict", tmp_path / "one", data / "mood.csv", "-o", tmp_path / "out.csv")


def test_the_folder_of_a_training_is_told_from_its_model(saved, data, tmp_path, capsys, monkeypatch):
    shutil.copytree(saved, tmp_path / "run" / "seed-3" / "model")
    given = ["--task", "mood", data / "mood.csv", "-o", tmp_path / "out.csv"]
    said = refused(capsys, monkeypatch, "predict", tmp_path / "run", *given)
    assert said.endswith(f"run: the folder of a training, not of a model; give {tmp_path / 'run/seed-3/model'}")


def test_the_card_says_what_can_be_predicted(saved):
    card = (saved / "README.md").read_text()
    tasks = card[card.index("## Tasks") : card.index("## Use")]
    assert "| mood | classification: text | bad, good |" in tasks
    assert "| near | sts: a, b | a number from 0 to 5 |" in tasks
    assert "layerwise predict" in tasks
    assert card.index("## Use") < card.index("SentenceTransformer(")


def test_mistakes_of_the_command_line_are_one_line(saved, data, tmp_path, capsys, monkeypatch):
    def said(*more):
        return refused(capsys, monkeypatch, "predict", saved, "--device", "cpu", *more)

    out = ["-o", tmp_path / "out.csv"]
    assert "Unknown task 'mod'. Did you mean 'mood'?" in said("--task", "mod", data / "mood.csv", *out)
    assert "no column 'text'; it has 'a', 'b'" in said("--task", "mood", data / "same.csv", *out)
    assert "no such file" in said("--task", "mood", data / "moood.csv", *out)
    assert "names no format" in said("--task", "mood", data / "mood.csv", "-o", tmp_path / "out.xls")
    (tmp_path / "empty.csv").write_text("")
    assert "the file is empty" in said("--task", "mood", tmp_path / "empty.csv", *out)
    (tmp_path / "none.jsonl").write_text("")
    assert "no rows to predict" in said("--task", "mood", "--columns", "text", tmp_path / "none.jsonl", *out)
    assert "names no encoder; give one with --model" in refused(
        capsys, monkeypatch, "multitask", data / "mine.toml", "--data", data, "-o", tmp_path / "run"
    )
    monkeypatch.delenv("LAYERWISE_DATA", raising=False)
    nowhere = refused(capsys, monkeypatch, "multitask", "cs224n", "-o", tmp_path / "run")
    assert "multitask/sst.parquet: no such file" in nowhere
    assert "no such file of task 'sst', and there is no data folder" in nowhere
    (tmp_path / "file").write_text("")
    assert "is a file; give a folder" in refused(
        capsys, monkeypatch, "multitask", data / "mine.toml", "-o", tmp_path / "file", "--model", "default"
    )
