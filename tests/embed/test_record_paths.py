"""Records of vectors hold no private path, and the model and the input are still found."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from layerwise.embed import VectorFiles, portable, resolved
from support.commands import call, call_json, refused
from support.tiny import SENTENCES


def record(model: str, source: str = "-") -> dict:
    return {"model": "digest", "loading": {"name": model}, "source": {"path": source, "digest": "d"}, "columns": ["t"]}


def test_paths_are_relative_where_a_folder_is_shared_and_names_where_it_is_the_root(tmp_path, monkeypatch):
    model = tmp_path / "models" / "bert"
    model.mkdir(parents=True)
    home = tmp_path / "home" / "alice"
    mine = home / "models" / "gpt"
    mine.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    written = portable(record(str(model)), tmp_path / "work" / "vectors")
    assert written["loading"]["name"] == "../../models/bert"
    assert resolved(written, tmp_path / "work" / "vectors")["loading"]["name"] == str(model)
    assert portable(record(str(model)), model.parent)["loading"]["name"] == "./bert"
    assert portable(record(str(mine)), Path("/elsewhere/vectors"))["loading"]["name"] == "./gpt"
    other = portable(record(str(mine)), home.parent / "bob" / "vectors")
    assert other["loading"]["name"] == "./gpt", "nothing of a user's name"
    assert resolved(other, home.parent / "bob" / "vectors")["loading"]["name"] == str(mine), "remembered here"
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "another machine"))
    assert resolved(other, home.parent / "bob" / "vectors")["loading"]["name"] == "./gpt"
    assert resolved(written, tmp_path / "work" / "vectors")["loading"]["name"] == str(model)


def test_names_of_the_hub_and_standard_input_stay():
    for name in ("default", "org/model", "bert"):
        assert portable(record(name), Path("/x")) == resolved(record(name), Path("/x")) == record(name)


def test_a_cache_that_cannot_be_written_or_read_is_no_obstacle(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "file"))
    written = portable(record(str(tmp_path)), None)
    assert resolved(written, None) == written
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "places.json").write_text("[]")
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "cache"))
    assert resolved(written, None) == written


@pytest.fixture
def project(tmp_path, tiny_bert):
    """A folder with a model, texts, vectors, one file of vectors and an index."""
    root = tmp_path / "project"
    shutil.copytree(tiny_bert, root / "model")
    (root / "texts.txt").write_text("\n".join(SENTENCES) + "\n")
    call("embed", root / "model", root / "texts.txt", "-o", root / "out" / "vectors", "--keep", "text")
    call("embed", root / "model", root / "texts.txt", "-o", root / "one.parquet", "--keep", "text")
    call("index", "build", root / "out" / "vectors", "-o", root / "index")
    return root


def test_no_file_holds_an_absolute_path_and_a_project_works_where_it_is_moved(project, tmp_path, monkeypatch):
    manifest = json.loads((project / "out" / "vectors" / "_embed.json").read_text())
    assert (manifest["loading"]["name"], manifest["source"]["path"]) == ("../../model", "../../texts.txt")
    embedded = json.loads(pq.read_schema(project / "one.parquet").metadata[b"layerwise.embed"])
    assert (embedded["loading"]["name"], embedded["source"]["path"]) == ("./model", "./texts.txt")
    for path in project.rglob("*"):
        if path.is_file() and "model" not in path.parts:
            assert str(tmp_path).encode() not in path.read_bytes(), path
    project.rename(tmp_path / "moved")
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "another machine"))
    for place in ("out/vectors", "one.parquet", "index"):
        hit = call_json("query", tmp_path / "moved" / place, SENTENCES[4], "-k", "1")[0]["hits"][0]
        assert hit["columns"]["text"] == SENTENCES[4]
    assert VectorFiles.of(tmp_path / "moved" / "one.parquet").settings["loading"]["name"] == str(
        tmp_path / "moved" / "model"
    )
    assert "7 embedded again" in call("embed", "--verify", tmp_path / "moved" / "out" / "vectors")


def test_vectors_that_are_shipped_without_their_model_ask_for_it(project, tmp_path, monkeypatch, capsys):
    shutil.copytree(project / "out" / "vectors", tmp_path / "shipped" / "vectors")
    error = refused(capsys, monkeypatch, "query", tmp_path / "shipped" / "vectors", "a door")
    assert "the model 'model' that made its vectors is not here; say where it is by --model" in error
    assert str(project) not in error
    hits = call_json("query", tmp_path / "shipped" / "vectors", SENTENCES[4], "--model", project / "model", "-k", "1")
    assert hits[0]["hits"][0]["columns"]["text"] == SENTENCES[4]
