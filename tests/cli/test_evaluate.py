"""`layerwise evaluate`: figures and protocol for people and programs, files, and one line for every mistake."""

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file, save_file

from layerwise.data import find_tasks
from layerwise.evaluate import Evaluation, LayerSubject, Protocol, ResultStore, evaluate, layer_mixes
from support.commands import assert_one_line, call, call_json, run_main
from support.tiny import DEPTH, WORDS, tiny_model

pytestmark = pytest.mark.usefixtures("tiny_models_loaded_once")

TASKS = """
[[task]]
name = "mine"
kind = "sts"
file = "pairs.csv"
columns = { subset = "subset" }
splits = { dev = "dev", test = "test" }

[[task]]
name = "topics"
kind = "classification"
file = "topics.csv"
suite = "mine"
"""

LAYERS = [(), ("--layers", "1,2 @ cls"), ("--layers", "each")]  # the model's mix, another, all layers


def write_csv(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def mine(tmp_path, pairs_task) -> Path:
    """A user's folder: a task file with two tasks, the rows beside it, and one with the pairs alone."""
    write_csv(tmp_path / "pairs.csv", pq.read_table(pairs_task.file).to_pylist())
    random = np.random.default_rng(0)
    topics = [{"text": " ".join(random.choice(WORDS, 3)), "label": "ab"[row % 2]} for row in range(60)]
    write_csv(tmp_path / "topics.csv", topics)
    (tmp_path / "two.toml").write_text(TASKS)
    (tmp_path / "my.toml").write_text(TASKS.split("[[task]]")[0] + "[[task]]" + TASKS.split("[[task]]")[1])
    return tmp_path


def test_json_has_figures_average_and_protocol(tiny_bert, tiny_layers, mine):
    found = call_json("evaluate", tiny_bert, "--tasks", mine / "my.toml")
    expected = evaluate(LayerSubject(tiny_layers), find_tasks([str(mine / "my.toml")])).runs[0].results["mine"]
    assert found["tasks"] == {"mine": expected.figures}
    assert found["average"] == expected.figures["spearman"]
    assert found["averages"] == {"own": found["average"]}
    assert (found["model"], found["mix"]) == (str(tiny_bert), f"{DEPTH} @ mean")
    protocol = found["protocol"]
    assert (protocol["name"], protocol["aggregation"], protocol["split"]) == ("senteval", "all", "test")
    assert (protocol["mix"], protocol["layers"], protocol["pooling"]) == (f"{DEPTH} @ mean", [DEPTH], "mean")
    assert protocol["metrics"] == {"mine": "spearman"}
    assert protocol["stamps"]["mine"]["scored"] == 50
    assert protocol["model_hash"] == expected.stamp["model_hash"]
    assert "torch" in protocol["versions"]


def test_the_table_says_the_same(tiny_bert, mine):
    found = call_json("evaluate", tiny_bert, "--tasks", mine / "my.toml")
    shown = call("evaluate", tiny_bert, "--tasks", mine / "my.toml")
    assert f"{found['tasks']['mine']['spearman']:.2f}" in shown
    assert "protocol senteval" in shown
    assert f"{DEPTH} @ mean" in shown


def test_each_layer_is_every_layer(tiny_bert, mine):
    asked = ("evaluate", tiny_bert, "--tasks", mine / "my.toml")
    assert call_json(*asked, "--layers", "each") == call_json(*asked, "--every-layer")
    others = call_json(*asked, "--layers", "each", "--layers", "1,2", "--pooling", "mean")
    assert [run["mix"] for run in others["runs"]] == ["1,2 @ mean", *layer_mixes(DEPTH, ("mean",))]


def test_every_layer_by_every_pooling(tiny_bert, mine):
    found = call_json("evaluate", tiny_bert, "--tasks", mine / "my.toml", "--every-layer")
    assert [run["mix"] for run in found["runs"]] == layer_mixes(DEPTH)
    assert found["runs"][DEPTH]["tasks"] == call_json("evaluate", tiny_bert, "--tasks", mine / "my.toml")["tasks"]
    means = call_json("evaluate", tiny_bert, "--tasks", mine / "my.toml", "--every-layer", "--pooling", "mean")
    assert means["runs"] == found["runs"][: DEPTH + 1]
    assert found["runs"][DEPTH + 1]["tasks"]["mine"]["spearman"] is None  # [CLS] of layer 0 is the same everywhere
    shown = call("evaluate", tiny_bert, "--tasks", mine / "my.toml", "--every-layer")
    assert all(mix in shown for mix in layer_mixes(DEPTH))


def test_layers_are_repeated(tiny_bert, mine):
    words = ("--layers", "last", "--layers", "0,1 @ cls", "--layers", "last-2")
    found = call_json("evaluate", tiny_bert, "--tasks", mine / "my.toml", *words)
    assert [run["mix"] for run in found["runs"]] == [f"{DEPTH} @ mean", "0,1 @ cls", "3,4 @ mean"]
    assert found["tasks"] == found["runs"][0]["tasks"]


def test_aggregation_and_split(tiny_bert, mine):
    found = call_json("evaluate", tiny_bert, "--tasks", mine / "my.toml", "--aggregate", "wmean", "--split", "dev")
    assert found["average"] == found["tasks"]["mine"]["spearman_wmean"]
    assert found["protocol"]["metrics"] == {"mine": "spearman_wmean"}
    stamp = found["protocol"]["stamps"]["mine"]
    assert (stamp["split"], stamp["aggregation"], stamp["scored"]) == ("dev", "wmean", 30)


def test_seeds_and_two_suites(tiny_bert, mine):
    found = call_json("evaluate", tiny_bert, "--tasks", mine / "two.toml", "--seeds", "5,6")
    assert set(found["tasks"]) == {"mine", "topics"}
    assert found["tasks"]["topics"]["accuracy_sd"] >= 0
    assert found["protocol"]["seeds"] == [5, 6]
    assert found["average"] is None  # correlations and accuracies have no mean
    assert set(found["averages"]) == {"own", "mine"}
    assert "±" in call("evaluate", tiny_bert, "--tasks", mine / "two.toml", "--seeds", "5,6")


def test_a_search_split_by_split(tiny_bert, mine):
    random = np.random.default_rng(1)
    rows = [{"sentence1": a, "sentence2": b, "score": n % 6} for n, (a, b) in enumerate(random.choice(WORDS, (380, 2)))]
    write_csv(mine / "many.csv", rows)
    (mine / "many.toml").write_text('[[task]]\nname = "many"\nkind = "sts"\nfile = "many.csv"\n')
    found = call_json("evaluate", tiny_bert, "--tasks", mine / "many.toml", "--protocol", "lc", "--layers", "search")
    assert found["mix"] == "search"
    assert found["tasks"]["many"]["spearman_sd"] >= 0
    assert found["protocol"]["stamps"]["many"]["split"] == "random splits of all rows"


def test_files_in_every_format(tiny_bert, mine):
    files = [mine / "new" / f"out.{ending}" for ending in ("json", "md", "csv")]
    words = [word for file in files for word in ("--out", file)]
    found = call_json("evaluate", tiny_bert, "--tasks", mine / "my.toml", *words)
    loaded = Evaluation.load(files[0])
    assert loaded.runs[0].results["mine"].figures == found["tasks"]["mine"]
    assert len(loaded.runs[0].results["mine"].items) == 50
    assert f"| {DEPTH} @ mean | {found['average']:.2f} |" in files[1].read_text(encoding="utf-8")
    with files[2].open(encoding="utf-8") as file:
        rows = {row["metric"]: float(row["figure"]) for row in csv.DictReader(file)}
    assert rows == found["tasks"]["mine"]


def test_a_second_run_takes_what_is_stored_and_fresh_does_not(tiny_bert, mine, monkeypatch):
    found = call_json("evaluate", tiny_bert, "--tasks", mine / "my.toml")
    scored = []
    monkeypatch.setattr("layerwise.evaluate.subject.problem_of", lambda *given: scored.append(given) or 1 / 0)
    assert call_json("evaluate", tiny_bert, "--tasks", mine / "my.toml") == found
    with pytest.raises(ZeroDivisionError):
        call("evaluate", tiny_bert, "--tasks", mine / "my.toml", "--fresh")
    assert len(scored) == 1


def test_where_all_is_stored_neither_torch_is_imported_nor_rows_read(tiny_bert, mine):
    asked = [("evaluate", str(tiny_bert), "--tasks", str(mine / "my.toml"), *layers) for layers in LAYERS]
    for words in asked:
        call(*words)
    script = (
        "import sys; from layerwise.cli.app import app\n"
        f"for words in {asked!r}: app(list(words), standalone_mode=False)\n"
        "print([name for name in ('torch', 'transformers', 'scipy', 'sklearn', 'pyarrow') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert ended.stdout.splitlines()[-1] == "[]"
    assert ended.stdout.count("the result was stored before (--fresh") == 2
    assert f"all {3 * (DEPTH + 1)} results were stored before (--fresh" in ended.stdout
    assert len(re.findall(r"; all of it \d+\.\d s", ended.stdout)) == 3


@pytest.mark.parametrize("layers", LAYERS)
def test_where_all_is_stored_no_model_is_loaded(tiny_bert, mine, monkeypatch, layers):
    asked = ("evaluate", tiny_bert, "--tasks", mine / "my.toml", *layers)
    first = call_json(*asked)
    monkeypatch.setattr("layerwise.model.LayerModel.load", lambda *_, **__: pytest.fail("a model was loaded"))
    assert call_json(*asked) == first
    assert "stored before (--fresh" in call(*asked)


def test_a_remembered_model_is_loaded_where_a_result_is_missing(tiny_bert, mine):
    asked = ("evaluate", tiny_bert, "--tasks", mine / "my.toml")
    first = call_json(*asked)
    for path in ResultStore().folder.glob("*.json"):
        path.unlink()
    assert call_json(*asked) == first


def test_a_model_with_other_weights_or_options_is_not_mistaken_for_a_remembered_one(tiny_bert, mine, tmp_path):
    model = shutil.copytree(tiny_bert, tmp_path / "model")
    asked = ("evaluate", model, "--tasks", mine / "my.toml")
    first = call_json(*asked)
    assert call_json(*asked, "--max-length", "5")["average"] != first["average"]
    tiny_model("bert", seed=1).save_pretrained(model)
    assert call_json(*asked)["average"] != first["average"]


def test_a_renamed_model_has_its_new_name(tiny_bert, mine, tmp_path, monkeypatch):
    model = shutil.copytree(tiny_bert, tmp_path / "model")
    first = call_json("evaluate", model, "--tasks", mine / "my.toml")
    renamed = model.rename(tmp_path / "renamed")
    monkeypatch.setattr("layerwise.model.LayerModel.load", lambda *_, **__: pytest.fail("a model was loaded"))
    second = call_json("evaluate", renamed, "--tasks", mine / "my.toml")
    assert (second["model"], second["average"]) == (str(renamed), first["average"])


def test_a_damaged_memory_is_not_used(tiny_bert, mine):
    asked = ("evaluate", tiny_bert, "--tasks", mine / "my.toml")
    first = call_json(*asked)
    (path,) = ResultStore().memory.glob("*.json")
    path.write_text(path.read_text().replace('"4 @ mean"', '"3 @ mean"'))
    assert call_json(*asked) == first
    call("cache", "clear")
    assert [*ResultStore().memory.glob("*"), *ResultStore().rows.glob("*")] == []


def test_what_was_stored_and_what_was_written_is_said(tiny_bert, mine):
    asked = ("evaluate", tiny_bert, "--tasks", mine / "my.toml", "--layers", "last")
    first = call(*asked, "-o", mine / "a.json", "-o", mine / "a.md")
    assert "stored before" not in first
    written = "".join(first.splitlines()).partition("time by task")[0].split("wrote ")[1:]
    assert [path.split("/")[-1] for path in written] == ["a.json", "a.md"]
    assert "1 of 2 results were stored before (--fresh scores again)" in call(*asked, "--layers", "1")
    assert "stored before" not in call(*asked, "--fresh")


def test_stopped_by_hand_it_says_how_to_go_on(tiny_bert, mine, monkeypatch, capfd):
    def stop(*_):
        raise KeyboardInterrupt

    asked = ("evaluate", tiny_bert, "--tasks", mine / "my.toml")
    with monkeypatch.context() as patch:
        patch.setattr("layerwise.evaluate.subject.problem_of", stop)
        code, output, error = run_main(patch, capfd, *asked)
    assert (code, output, error) == (130, "", "error: interrupted; there was no result yet\n")
    call(*asked, "--layers", "1")
    monkeypatch.setattr("layerwise.evaluate.subject.problem_of", stop)
    code, output, error = run_main(monkeypatch, capfd, *asked, "--layers", "1", "--layers", "2")
    assert (code, output) == (130, "")
    assert error == "error: interrupted; results so far are stored: run the same command again to resume\n"


# Suites of the catalogue


@pytest.fixture
def data(tmp_path, pairs_task) -> Path:
    """A data folder that holds every STS file of the catalogue, with few rows."""
    folder = tmp_path / "data"
    table = pq.read_table(pairs_task.file)
    for task in find_tasks(suites=["sts", "sts-raw"]):
        rows = table.to_pylist()
        for row in rows:
            row["split"] = "test" if row["split"] == "test" else "trial" if "sick" in task.file else "dev"
        rows += [dict(row, split="train") for row in rows[:5]]
        (folder / task.file).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / task.file)
    return folder


SEVEN = ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]


def test_suites_by_name(tiny_bert, data, monkeypatch):
    found = call_json("evaluate", tiny_bert, "--suite", "sts", "--data", data)
    assert list(found["tasks"]) == SEVEN
    assert found["average"] == pytest.approx(np.mean([found["tasks"][name]["spearman"] for name in SEVEN]))
    assert found["protocol"]["stamps"]["sts12"]["as_published"] is False
    monkeypatch.setenv("LAYERWISE_DATA", str(data))
    assert call_json("evaluate", tiny_bert)["tasks"] == found["tasks"]  # sts is what is meant without any name
    raw = call_json("evaluate", tiny_bert, "--suite", "sts-raw")
    assert all(name.endswith("-raw") for name in raw["tasks"])
    both = call_json("evaluate", tiny_bert, "--tasks", "STS-B,sick-r", "--tasks", "sts12")
    assert list(both["tasks"]) == ["stsb", "sickr", "sts12"]


# Mistakes


MISTAKES = {
    "{bert} --tasks stsbb": ("Unknown task 'stsbb'. Did you mean 'stsb'? Known: sts12", "NAME.toml"),
    "{bert} --suite stss": ("Unknown suite 'stss'. Did you mean 'sts'? Known: sts", "all"),
    "{bert} --tasks {tmp}/my.toml --protocol sentevl": (
        "Unknown protocol 'sentevl'. Did you mean 'senteval'? Known: senteval, senteval-mlp, lc",
    ),
    "{bert} --tasks {tmp}/my.toml --aggregate median": (
        "Unknown aggregation 'median'. Did you mean 'mean'? Known: all",
    ),
    "{bert} --tasks {tmp}/my.toml --split val": ("Unknown split 'val'. Known: train, dev, test",),
    "{bert} --tasks {tmp}/my.toml --split train": ("task 'mine' has no train rows; it has dev, test",),
    "{bert} --tasks {tmp}/my.toml --seeds one": ("--seeds 'one': give whole numbers with commas between",),
    "{bert} --tasks {tmp}/my.toml --seeds 1,1": ("seeds are (1, 1); give one or more different numbers from 0",),
    "{bert} --tasks {tmp}/my.toml --layers lastt": ("'lastt' is not a layer", "'last'"),
    "{bert} --tasks {tmp}/my.toml --layers 9": ("There is no layer 9", "layers 0 to 4"),
    "{bert} --tasks {tmp}/my.toml --every-layer --pooling mid": ("Unknown token pooling 'mid'", "cls, last, mask, max"),
    "{bert} --tasks {tmp}/my.toml --layers search": ("layers cannot be searched for task 'mine'", "--protocol lc"),
    "{bert} --tasks {tmp}/my.toml --layers search --layers 1": ("--layers search cannot be combined",),
    "{bert} --tasks {tmp}/my.toml --protocol lc": ("350",),
    "{bert} --tasks {tmp}/my.toml --out {tmp}/out.xlsx": (
        "out.xlsx: its ending '.xlsx' is not one of .json, .md, .csv",
    ),
    "{bert} --tasks {tmp}/my.toml --out {tmp}/my.toml/out.md": (
        "out.md: ",
        "my.toml is a file, not a folder; give another path",
    ),
    "{bert} --tasks {tmp}/none.toml": ("none.toml: cannot be read: No such file", "TOML with a [[task]] table"),
    "{bert} --tasks {tmp}/broken.toml": ("broken.toml: is not TOML: ",),
    "{bert} --tasks {tmp}/hollow.toml": ("hollow.toml: no [[task]] table",),
    "{bert} --tasks {tmp}/lost.toml": (
        "lost.csv: no such file of task 'lost', and there is no data folder; check the path",
    ),
    "{bert} --tasks {tmp}/columns.toml": (
        "pairs.csv",
        "no column 'grade'",
        "needed: sentence1 (left)",
        "name the columns of your file in its [[task]], such as columns =",
    ),
    "{bert} --tasks {tmp}/words.toml": ("pairs.csv:2:", "sentence1", "is not a number; every row needs one"),
    "{bert} --tasks {tmp}/kind.toml": (
        "kind.toml: task ",
        "Unknown kind 'parsing'",
        "bitext, classification, clustering, fewshot",
    ),
    "{bert} --suite sts --data {tmp}/nowhere": ("nowhere: the data folder does not exist; create it, name another",),
    "{tmp}/nowhere --tasks {tmp}/my.toml": ("nowhere: no such model folder",),
    "{bert} --tasks {tmp}/my.toml --max-length 99": ("max_length 99 is not possible", "2 to 60 tokens"),
    "{bert} --tasks {tmp}/flat.toml": ("50 pairs, 1 different scores: a correlation needs 2",),
}


@pytest.fixture
def mistakes(mine) -> Path:
    """Beside the good task file some bad ones."""

    def task(name: str, more: str = "", *, kind: str = "sts", file: str = "pairs.csv") -> None:
        text = f'[[task]]\nname = "{name}"\nkind = "{kind}"\nfile = "{file}"\n{more}\n'
        (mine / f"{name}.toml").write_text(text)

    task("lost", file="lost.csv")
    task("columns", 'columns = { label = "grade" }')
    task("words", 'columns = { label = "sentence1" }')
    task("kind", kind="parsing")
    task("flat", file="flat.csv")
    (mine / "broken.toml").write_text("[[task\n")
    (mine / "hollow.toml").write_text("a = 1\n")
    write_csv(mine / "flat.csv", [{"sentence1": word, "sentence2": "a", "score": 3} for word in (WORDS * 2)[:50]])
    return mine


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(monkeypatch, capfd, tiny_bert, mistakes, words):
    monkeypatch.delenv("LAYERWISE_DATA", raising=False)
    arguments = words.format(bert=tiny_bert, tmp=mistakes).split()
    assert_one_line(*run_main(monkeypatch, capfd, "evaluate", *arguments), *MISTAKES[words])


def test_a_data_folder_of_the_environment_that_is_not_there(monkeypatch, capfd, tiny_bert, tmp_path):
    monkeypatch.setenv("LAYERWISE_DATA", str(tmp_path / "nowhere"))
    told = ("nowhere: LAYERWISE_DATA does not exist; create it, name another, or leave it out to fetch tasks",)
    assert_one_line(*run_main(monkeypatch, capfd, "evaluate", tiny_bert, "--suite", "sts"), *told)


def test_rows_that_are_nowhere_and_no_network(monkeypatch, capfd, tiny_bert, tmp_path):
    def no_network(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("layerwise.data.fetch.urlopen", no_network)
    ended = run_main(monkeypatch, capfd, "evaluate", tiny_bert, "--tasks", "sts12", "--data", tmp_path)
    code, output, error = ended
    last = error.splitlines()[-1]  # before it, what is being fetched
    told = ("cannot be fetched", "run `layerwise data fetch`, or put sts/sts12.parquet into a data folder (--data")
    assert_one_line(code, output, last, *told)


def test_a_task_of_a_suite_whose_rows_are_nowhere_is_left_out(monkeypatch, caplog, tiny_bert, data):
    def no_network(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("layerwise.data.fetch.urlopen", no_network)
    (data / "sts" / "sts12.parquet").unlink()
    assert list(call_json("evaluate", tiny_bert, "--suite", "sts", "--data", data)["tasks"]) == SEVEN[1:]
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("sts12 is left out: its rows are not on this machine: ")
    assert warning.endswith("or put sts/sts12.parquet into a data folder (--data, LAYERWISE_DATA)")


def test_a_mistake_is_told_before_a_model_is_loaded(monkeypatch, capfd, tmp_path):
    """A missing data folder need not wait for a model."""
    monkeypatch.setattr("layerwise.evaluate.load.load_subject", lambda *_, **__: pytest.fail("a model was loaded"))
    ended = run_main(monkeypatch, capfd, "evaluate", "default", "--suite", "sts", "--data", tmp_path / "nowhere")
    assert_one_line(*ended, "the data folder does not exist")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--layers lastt", "'lastt' is not a layer"),
        ("--layers search --layers 1", "--layers search cannot be combined"),
        ("--every-layer --pooling mid", "Unknown token pooling 'mid'"),
    ],
)
def test_layers_are_read_before_a_model_is_loaded_or_rows_are_fetched(monkeypatch, capfd, mine, words, told):
    monkeypatch.setattr("layerwise.evaluate.load.load_subject", lambda *_, **__: pytest.fail("a model was loaded"))
    monkeypatch.setattr("layerwise.data.fetch.fetch_task", lambda *_, **__: pytest.fail("rows were fetched"))
    ended = run_main(monkeypatch, capfd, "evaluate", "default", "--tasks", "sts12", *words.split())
    assert_one_line(*ended, told)


def test_nan_embeddings_are_one_line(monkeypatch, capfd, tmp_path, tiny_bert, mine):
    shutil.copytree(tiny_bert, tmp_path / "nan")
    weights = load_file(tmp_path / "nan" / "model.safetensors")
    weights["encoder.layer.3.output.dense.bias"][:] = float("nan")
    save_file(weights, tmp_path / "nan" / "model.safetensors", metadata={"format": "pt"})
    ended = run_main(monkeypatch, capfd, "evaluate", tmp_path / "nan", "--tasks", mine / "my.toml")
    assert_one_line(*ended, "the weights hold NaN or infinite numbers, e.g. in encoder.layer.3.output.dense.bias")


@pytest.mark.slow
def test_the_protocols_of_the_command_are_those_of_the_library(tiny_bert, tiny_layers, mine):
    found = call_json("evaluate", tiny_bert, "--tasks", mine / "two.toml", "--protocol", "senteval-mlp", "--seeds", "3")
    tasks = find_tasks([str(mine / "two.toml")])
    expected = evaluate(LayerSubject(tiny_layers), tasks, protocol=Protocol("senteval-mlp", seeds=(3,))).runs[0].results
    assert found["tasks"]["topics"]["accuracy"] == expected["topics"].score
