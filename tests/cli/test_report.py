"""`layerwise report`: a file that opens, the answer on the screen, every mistake in one line and nothing written."""

import csv
import errno
import shlex
import shutil
from html import unescape

import pytest

from layerwise.data import load_pairs, pairs_in_memory
from layerwise.measures import ModelOnPairs, measure_layer_scores
from layerwise.model import LayerModel
from layerwise.report import write_page
from support.commands import assert_one_line, call, call_json, run_main
from support.text_pairs import some_pairs
from support.tiny import DEPTH


def write_pairs(path, pairs, columns=("sentence1", "sentence2", "score")):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(pairs.left, pairs.right, pairs.gold, strict=True):
            writer.writerow(row[: len(columns)])
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of pairs: graded, under other names, without scores, one alone, all of one grade."""
    folder = tmp_path_factory.mktemp("my pairs")
    pairs = some_pairs()
    (folder / "page.html").mkdir()
    write_pairs(folder / "graded.csv", pairs)
    write_pairs(folder / "named.csv", pairs, ("a", "b", "grade"))
    write_pairs(folder / "plain.csv", pairs, ("sentence1", "sentence2"))
    write_pairs(folder / "one.csv", some_pairs(1))
    write_pairs(folder / "same.csv", pairs_in_memory(pairs.left, pairs.right, [1.0] * len(pairs)))
    return folder


def words_of(page):
    return unescape(page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def told(files, tiny_bert, tmp_path_factory):
    """A report and what the command said of it."""
    out = tmp_path_factory.mktemp("told") / "report.html"
    return out, call("report", tiny_bert, "--pairs", files / "graded.csv", "--seed", "3", "-o", out)


@pytest.fixture
def without_figures(monkeypatch):
    """For what is not about them: drawing is most of a report's time."""
    monkeypatch.setattr("layerwise.report.build.sections", lambda data: ())


def test_the_answer_is_on_the_screen_and_in_the_file(told, tiny_bert, files):
    out, said = told
    page = words_of(out)
    assert page.startswith("<!doctype html>")
    lines = " ".join(said.split())
    assert lines.endswith("s); open it in a browser")
    assert "A demonstration" not in lines
    material = ModelOnPairs(LayerModel.load(tiny_bert, device="cpu"), load_pairs(str(files / "graded.csv")))
    scores = measure_layer_scores(material, unseen=True, seed=3)
    last = f"{scores.of('mean')[-1]:.4g}".replace("-", "−")
    assert f"mean, layer {DEPTH}: {last}" in page
    assert "graded.csv: 40 pairs" in page
    assert "layers of bert" in page


def test_commands_make_the_report_again(told, tiny_bert, files):
    """A path with a space is quoted; the second command is known to `layerwise analyze`."""
    page = words_of(told[0])
    pairs = f"--pairs '{files / 'graded.csv'}' --limit 1000 --seed 3"
    assert f"layerwise report {tiny_bert} {pairs} -o report.html" in page
    assert f"layerwise analyze {tiny_bert} --measure all {pairs}" in page
    again = f"search {tiny_bert} '{files / 'graded.csv'}' --limit 1000 --seed 3"
    assert f"layerwise {again} --save best" in page
    verdict = call_json(*shlex.split(again))["verdict"]["text"]
    assert verdict in " ".join(told[1].split()), "the report and its command agree"


def test_no_path_is_told_but_what_the_user_gave(told, tiny_bert, files, tmp_path):
    out, _ = told
    rest = words_of(out).replace(str(tiny_bert), "").replace(str(files), "")
    for place in (tiny_bert.parent, out.parent, tmp_path.parent):
        assert str(place) not in rest


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")  # report/test_build draws those of two models
def test_two_models_are_compared_by_names_that_differ(files, tiny_bert, tiny_folders, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(tiny_folders["bert" if name == "one" else "roberta"], tmp_path / name / "model")
    out = tmp_path / "both.html"
    found = call_json("report", tmp_path / "one/model", "--against", tmp_path / "two/model",
                      "--pairs", files / "graded.csv", "-o", out)  # fmt: skip
    assert "one " in found["answer"][0]
    assert "two" in found["answer"][0]
    page = words_of(out)
    assert "The layers of one against two" in page
    rest = (
        page.replace(str(tmp_path / "one/model"), "").replace(str(tmp_path / "two/model"), "").replace(str(files), "")
    )
    assert str(tmp_path) not in rest


@pytest.mark.usefixtures("without_figures")
def test_json_says_where_and_what(files, tiny_bert, tmp_path):
    out = tmp_path / "new" / "folder" / "r.HTML"
    found = call_json("report", tiny_bert, "--pairs", files / "graded.csv", "--limit", "25", "-o", out)
    assert found["report"] == str(out)
    assert found["bytes"] == out.stat().st_size
    assert len(found["answer"]) == 2
    assert "graded.csv: 25 of 40 pairs, drawn with seed 0" in words_of(out)


@pytest.mark.usefixtures("without_figures")
def test_other_columns_are_named_in_the_commands(files, tiny_bert, tmp_path):
    out = tmp_path / "r.html"
    columns = ["--left", "a", "--right", "b", "--score", "grade"]
    call("report", tiny_bert, "--pairs", files / "named.csv", *columns, "-o", out)
    assert "--left a --right b --score grade --limit 1000" in words_of(out)


@pytest.mark.slow
def test_prompts_get_a_section(files, tiny_bert, tmp_path):
    out = tmp_path / "r.html"
    call("report", tiny_bert, "--pairs", files / "graded.csv", "--prompts", "means", "-o", out)
    page = words_of(out)
    assert "What prompts and poolings are worth" in page
    assert "mask in means, layer 1: " in page
    assert f"layerwise report {tiny_bert} --prompts means" in page


@pytest.mark.slow
def test_pairs_without_scores_get_a_report_that_says_so(files, tiny_bert, tmp_path):
    out = tmp_path / "r.html"
    said = " ".join(call("report", tiny_bert, "--pairs", files / "plain.csv", "-o", out).split())
    assert "cannot be said: the pairs have no grades." in said
    page = words_of(out)
    assert "plain.csv: 40 pairs, without scores" in page
    assert "What each layer is worth" not in page
    assert "layerwise search" not in page


@pytest.mark.slow  # the README's commands write such a report, too
def test_the_default_model_on_pairs_of_the_package(tmp_path):
    out = tmp_path / "r.html"
    said = " ".join(call("report", "default", "-o", out).split())
    assert "all-MiniLM-L6-v2" in said
    assert "A demonstration on pairs written for it; give --pairs for your own" in said
    page = words_of(out)
    assert "layerwise report default --limit 1000 --seed 0 -o r.html" in page
    assert out.stat().st_size < 5e6


MISTAKES = {
    "html folder": (["-o", "{files}/page.html"], "page.html: is a folder; give the name of a file"),
    "folder": (["-o", "{tmp}"], "a report is an HTML file; name one that ends in .html"),
    "ending": (["-o", "{tmp}/r.pdf"], "a report is an HTML file; name one that ends in .html"),
    "file as folder": (["-o", "{files}/one.csv/r.html"], "one.csv is a file, not a folder; give another path"),
    "no file": (["--pairs", "{tmp}/no.csv"], "no.csv"),
    "no task": (["--pairs", "stsc"], "stsc"),
    "split of a file": (["--pairs", "{files}/graded.csv", "--split", "dev"], "graded.csv: --split is for tasks"),
    "no column": (["--pairs", "{files}/graded.csv", "--left", "texts"], "name the columns by --left, --right"),
    "no score column": (["--pairs", "{files}/graded.csv", "--score", "points"], "points"),
    "one pair": (["--pairs", "{files}/one.csv"], "a correlation needs different"),
    "one grade": (["--pairs", "{files}/same.csv"], "40 pair(s), all of the same score"),
    "limit": (["--limit", "1"], "a limit of 1 pairs is not possible; give 2 or more"),
    "itself": (["--against", "{model}"], "a model against itself says nothing; give another one to --against"),
    "itself by a slash": (["--against", "{model}/"], "a model against itself says nothing"),
    "no other model": (["--against", "{tmp}/nowhere"], "nowhere: no such model folder"),
    "no prompt": (["--prompts", "meens"], "meens"),
    "prompts without grades": (["--pairs", "{files}/plain.csv", "--prompts", "auto"], "which needs graded pairs"),
    "no training": (["--train", "{tmp}/nothing"], "no metrics.jsonl there"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_nothing_is_written(mistake, files, tiny_bert, tmp_path, monkeypatch, capfd):
    options, part = MISTAKES[mistake]
    places = {"tmp": tmp_path / "here", "files": files, "model": tiny_bert}
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    filled = [option.format(**places) for option in options]
    assert_one_line(*run_main(monkeypatch, capfd, "report", tiny_bert, *filled), part)
    assert list((tmp_path / "here").iterdir()) == []


def test_an_unknown_model_is_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert_one_line(*run_main(monkeypatch, capfd, "report", tmp_path / "nowhere"), "nowhere: no such model folder")
    assert list(tmp_path.iterdir()) == []


def test_interrupted_nothing_is_written(tiny_bert, files, tmp_path, monkeypatch, capfd):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("layerwise.report.data.measure_model", interrupted)
    out = tmp_path / "r.html"
    code, _, error = run_main(monkeypatch, capfd, "report", tiny_bert, "--pairs", files / "graded.csv", "-o", out)
    assert code == 130
    assert error.splitlines()[-1].startswith("error: interrupted; no report was written")
    assert not out.exists()


def test_a_place_without_permission_is_refused_before_a_model_is_loaded(tiny_bert, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("layerwise.files.os.access", lambda *_: False)
    arguments = (tiny_bert, "-o", tmp_path / "r.html")
    assert_one_line(*run_main(monkeypatch, capfd, "report", *arguments), "r.html: cannot be written: no permission in")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_figures")
def test_a_full_disk_is_one_line_and_leaves_nothing(tiny_bert, files, tmp_path, monkeypatch, capfd):
    def full(_file):
        raise OSError(errno.ENOSPC, "No space left on device")

    def write(page, path):
        monkeypatch.setattr("layerwise.files.os.fsync", full)  # once everything is measured and cached
        return write_page(page, path)

    monkeypatch.setattr("layerwise.report.page.write_page", write)
    arguments = (tiny_bert, "--pairs", files / "graded.csv", "-o", tmp_path / "out" / "r.html")
    code = run_main(monkeypatch, capfd, "report", *arguments)
    assert_one_line(*code, "r.html: cannot be written: No space left on device; free some space")
    assert list((tmp_path / "out").iterdir()) == []


def test_every_layer_on_tasks(tiny_bert, tiny_folders, files, tmp_path, monkeypatch, capfd):
    """The matrix of an evaluation is a section; another model's, or one without layers, is refused."""
    (tmp_path / "task.toml").write_text(f'[[task]]\nname = "mine"\nkind = "sts"\nfile = "{files / "graded.csv"}"\n')
    scored, single, page = tmp_path / "layers.json", tmp_path / "single.json", tmp_path / "page.html"
    evaluate = ("evaluate", tiny_bert, "--tasks", tmp_path / "task.toml")
    made = call_json(*evaluate, "--every-layer", "--pooling", "mean", "-o", scored)
    call(*evaluate, "-o", single)
    report = ("report", tiny_bert, "--pairs", files / "graded.csv", "-o", page)
    monkeypatch.setattr("layerwise.report.build.SECTIONS", {})  # the figures of the measures are drawn above
    call(*report, "--tasks", scored)
    words = words_of(page)
    best = max(range(DEPTH + 1), key=lambda layer: made["matrix"]["scores"][0][layer])
    assert 'id="tasks"' in words
    assert f"The last layer is the best of {int(best == DEPTH)} of 1 tasks" in words
    assert f"--tasks {scored}" in words
    page.unlink()
    ended = run_main(monkeypatch, capfd, *report, "--tasks", single)
    assert_one_line(*ended, "single.json: has no single layers; write it by layerwise evaluate MODEL --layers each")
    other = next(path for name, path in tiny_folders.items() if path != tiny_bert)
    ended = run_main(monkeypatch, capfd, "report", other, *report[2:], "--tasks", scored)
    assert_one_line(*ended, "whose weights are others; evaluate this model")
    ended = run_main(monkeypatch, capfd, *report, "--tasks", tmp_path / "none.json")
    assert_one_line(*ended, "none.json: no such file; give a result of")
    assert not page.exists()
