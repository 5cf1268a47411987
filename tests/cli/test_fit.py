"""`layerwise fit`: baselines fitted on text, saved with the model, and known by evaluations for what they saw."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from layerwise.cli.app import app, main
from layerwise.data import load_task
from layerwise.model import LayerModel
from support.commands import check_schema
from support.tiny import WORDS


@pytest.fixture
def sentences_file(tmp_path):
    random = np.random.default_rng(0)
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(" ".join(random.choice(WORDS, 5)) for _ in range(200)) + "\n\n")
    return path


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(capsys, monkeypatch, *arguments) -> str:
    monkeypatch.setattr("sys.argv", ["layerwise", *map(str, arguments)])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err.strip()
    assert said.startswith("error: ")
    assert "Traceback" not in said
    return said.splitlines()[-1]


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tiny_bert, sentences_file, capsys, monkeypatch):
    said = refused(capsys, monkeypatch, "fit", "no-such-model", sentences_file, "-o", sentences_file / "m")
    assert "sentences.txt is a file, not a folder; give another path" in said


def test_a_full_disk_is_one_line_and_leaves_nothing(tiny_bert, sentences_file, tmp_path, forks):
    """Files of this process may have 20 kB; the model has more."""
    script = (
        "import resource, sys; from layerwise.cli.app import main; import layerwise.model.layer_model\n"
        "import layerwise.model.save as save; real = save._write\n"
        "def write(*arguments):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); return real(*arguments)\n"
        "save._write = write; main()"
    )
    done = forks.run(script, "fit", tiny_bert, sentences_file, "-o", tmp_path / "out" / "m")
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "m: cannot be written: " in line
    assert "File too large" in line
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "out").iterdir())


def test_whitening_is_saved_as_a_plain_model(tiny_bert, sentences_file, tmp_path):
    facts = json.loads(run("fit", tiny_bert, sentences_file, "-o", tmp_path / "w", "--dimensions", 8, "--json"))
    check_schema(facts, "fit")
    assert facts["width"] == 8
    assert facts["fitted"]["what"] == "whitening"
    assert facts["fitted"]["sentences"] == 200  # the empty line is not one
    texts = sentences_file.read_text().split("\n")[:200]
    embeddings = LayerModel.load(tmp_path / "w").encode(texts)
    assert np.allclose(np.cov(embeddings.T, bias=True), np.eye(8), atol=2e-3)
    assert np.abs(embeddings.mean(0)).max() < 1e-3
    host = SentenceTransformer(str(tmp_path / "w"), device="cpu")
    assert np.abs(host.encode(texts) - embeddings).max() < 1e-4


@pytest.mark.parametrize("kind", ["components", "flow"])
def test_others_are_saved_and_loaded(kind, tiny_bert, sentences_file, tmp_path):
    said = run("fit", tiny_bert, sentences_file, "-o", tmp_path / "m", "--with", kind, "--epochs", 1, "--mix", "1,2")
    assert "sentences.txt" in said
    model = LayerModel.load(tmp_path / "m")
    assert str(model.mix) == "1,2 @ mean"
    assert len(model.fitted_on) == 1
    plain = LayerModel.load(tiny_bert, mix="1,2").encode(["a b"])
    assert not np.allclose(model.encode(["a b"]), plain)


def test_a_normalised_model_is_fitted_before_its_normalising(tiny_bert, sentences_file, tmp_path):
    LayerModel(str(tiny_bert), "last", normalize=True).save(tmp_path / "unit")
    run("fit", tmp_path / "unit", sentences_file, "-o", tmp_path / "m", "--with", "components")
    model = LayerModel.load(tmp_path / "m")
    assert not model.normalize
    assert len(model.heads) == 1


def test_an_evaluation_says_what_was_seen(tiny_bert, pairs_task, sentences_file, tmp_path):
    rows = load_task(pairs_task)
    seen = tmp_path / "seen.txt"
    seen.write_text("\n".join(rows.pick(rows.splits["test"]).texts))
    toml = f'[[task]]\nname = "pairs"\nkind = "sts"\nfile = "{pairs_task.file}"\nsplits = {{ test = ["test"] }}\n'
    (tmp_path / "task.toml").write_text(toml)
    for text, expected in ((seen, 1.0), (sentences_file, 0.0)):
        run("fit", tiny_bert, text, "-o", tmp_path / "m", "--with", "components", "--overwrite")
        found = json.loads(run("evaluate", tmp_path / "m", "--tasks", tmp_path / "task.toml", "--json"))
        assert found["protocol"]["stamps"]["pairs"]["saw_test_text"] == expected
        shown = run("evaluate", tmp_path / "m", "--tasks", tmp_path / "task.toml")
        assert ("saw test text: pairs (100%)" in shown) == (expected == 1.0)


def test_the_table_says_what_stands_behind_the_layers(tiny_bert, pairs_task, sentences_file, tmp_path):
    toml = f'[[task]]\nname = "pairs"\nkind = "sts"\nfile = "{pairs_task.file}"\nsplits = {{ test = ["test"] }}\n'
    (tmp_path / "task.toml").write_text(toml)
    run("fit", tiny_bert, sentences_file, "-o", tmp_path / "m", "--with", "whitening")
    told = "behind 4 @ mean: whitening fitted on 200 sentences of sentences.txt"
    shown = run("evaluate", tmp_path / "m", "--tasks", tmp_path / "task.toml", "-o", tmp_path / "out.md")
    assert told in " ".join(shown.split())
    assert told in (tmp_path / "out.md").read_text(encoding="utf-8")
    assert "behind" not in run("evaluate", tiny_bert, "--tasks", tmp_path / "task.toml")


def test_a_full_folder_is_refused_before_anything_is_read(tiny_bert, sentences_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "layerwise.model.layer_model.LayerModel.load", lambda *_, **__: pytest.fail("a model was loaded")
    )
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").touch()
    said = refused(capsys, monkeypatch, "fit", tiny_bert, sentences_file, "-o", full)
    assert said == f"error: {full}: is not empty and holds no model, so it is not overwritten; give another folder"
    said = refused(capsys, monkeypatch, "fit", tiny_bert, sentences_file, "-o", sentences_file)
    assert said.endswith("sentences.txt: is a file; give a folder")
    (full / "config.json").touch()
    said = refused(capsys, monkeypatch, "fit", tiny_bert, sentences_file, "-o", full)
    assert said == f"error: {full}: is not empty; give another folder, or --overwrite"


def test_mistakes_are_one_line(tiny_bert, sentences_file, tmp_path, capsys, monkeypatch):
    out = tmp_path / "m"
    said = refused(capsys, monkeypatch, "fit", tiny_bert, sentences_file, "-o", out, "--with", "whitenin")
    assert "Known: whitening, components, flow" in said
    (tmp_path / "one.txt").write_text("one sentence\n")
    said = refused(capsys, monkeypatch, "fit", tiny_bert, tmp_path / "one.txt", "-o", out)
    assert "1 sentences are too few to fit on" in said
    said = refused(capsys, monkeypatch, "fit", tiny_bert, sentences_file, "-o", out, "--dimensions", 99)
    assert "dimensions 99 is not possible" in said
    (tmp_path / "table.csv").write_text("body\nhello\n")
    said = refused(capsys, monkeypatch, "fit", tiny_bert, tmp_path / "table.csv", "-o", out)
    assert "no column 'text'" in said
    assert not out.exists()
