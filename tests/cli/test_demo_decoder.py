"""The decoder of the demonstration: from the cache, from its package, or told how to get it."""

import hashlib

import pytest

from layerwise.encoder import smollm
from layerwise.errors import ModelError
from support.commands import call, call_json
from support.tiny import save_decoder


@pytest.mark.slow  # cli/test_search_views.py shows the same search
def test_a_decoders_views_are_shown_with_their_cost(tiny_bert, own_cache, tmp_path):
    save_decoder("llama", own_cache / "models" / smollm.NAME)
    found = call_json("demo", tiny_bert, "-o", tmp_path / "out", "--no-report", "--device", "cpu")["decoder"]
    assert set(found["singles"]) == {"mean", "last in eol", "mean in eol"}
    assert found["chosen"]["cost"]["forward_passes"] >= 1
    said = call("demo", tiny_bert, "-o", tmp_path / "out", "--no-report", "--device", "cpu")
    assert "Step 4 of 4: a language model that was not made for embeddings." in said
    assert f"{smollm.NAME}: Spearman x 100 on " in said
    assert found["verdict"]["text"][:20] in said


def test_without_its_package_people_are_told_and_the_rest_goes_on(tiny_bert, tmp_path):
    found = call_json("demo", tiny_bert, "-o", tmp_path / "out", "--no-report", "--device", "cpu")
    assert found["decoder"] == {"note": f"{smollm.NAME} is not installed; {smollm.INSTALL}"}
    assert (tmp_path / "out" / "model" / "modules.json").is_file()
    said = call("demo", tiny_bert, "-o", tmp_path / "out", "--no-report", "--device", "cpu")
    assert f"{smollm.INSTALL}, to see it here." in " ".join(said.split())


def test_weights_that_are_others_are_refused(tmp_path, monkeypatch):
    package = tmp_path / "some_decoder"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / smollm._FILE).write_bytes(b"not the weights")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(smollm, "_PACKAGE", "some_decoder")
    with pytest.raises(ModelError, match=hashlib.sha256(b"not the weights").hexdigest()):
        smollm.smollm2_folder()
