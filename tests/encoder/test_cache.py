"""Cached views equal fresh ones, need no second pass, and are refused when damaged, foreign or of other settings."""

import json
import logging
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import platformdirs
import pytest
import torch
import transformers as hf

from layerwise import LayerEncoder, ViewCache
from layerwise.digests import text_digest
from layerwise.encoder import tokenizer_fingerprint
from layerwise.errors import InputError
from layerwise.places import default_cache_folder
from support.slow_cases import one_in
from support.tiny import DEPTH, SENTENCES, VOCABULARY, WIDTH, tiny_tokenizer

SHAPE = (len(SENTENCES), DEPTH + 1, WIDTH)


@pytest.fixture
def bert(tiny_bert) -> LayerEncoder:
    return LayerEncoder(tiny_bert, device="cpu")


@pytest.fixture
def passes(bert) -> list[int]:
    """One entry for every batch that the model is given."""
    assert bert.depth == DEPTH  # the reader looks at the model once; that does not count
    batches: list[int] = []
    bert.model.register_forward_pre_hook(lambda *_: batches.append(1))
    return batches


@pytest.fixture
def cache(tmp_path) -> ViewCache:
    return ViewCache(tmp_path / "views")


def names(cache: ViewCache) -> list[str]:
    return [entry.name for entry in cache.entries()]


@pytest.fixture
def entry(bert, cache) -> Path:
    """A good entry of the sentences' mean views."""
    bert.encode_layers(SENTENCES, cache=cache)
    return cache.folder / names(cache)[0]


def test_the_second_call_runs_no_pass_and_gives_the_same(bert, passes, cache):
    fresh = bert.encode_layers(SENTENCES)
    first = bert.encode_layers(SENTENCES, cache=cache)
    assert np.array_equal(first, fresh)
    passes.clear()
    second = bert.encode_layers(SENTENCES, cache=cache)
    assert passes == []
    assert np.array_equal(second, fresh)
    for views in (first, second):
        assert isinstance(views, np.memmap)
        assert (views.shape, views.dtype) == (SHAPE, np.float32)
        with pytest.raises(ValueError, match="read-only"):
            views[0] = 0


def test_another_process_would_find_them_too(bert, tiny_bert, cache, entry):
    other = LayerEncoder(tiny_bert, device="cpu", tokens_per_batch=16)
    other.model.register_forward_pre_hook(lambda *_: pytest.fail("a forward pass")) if other.depth else None
    assert np.array_equal(other.encode_layers(SENTENCES, cache=cache), bert.encode_layers(SENTENCES))


def test_picked_layers_come_from_the_views_of_all(bert, passes, cache, entry):
    fresh = bert.encode_layers(SENTENCES)
    passes.clear()
    picked = bert.encode_layers(SENTENCES, layers=[-1, 0, 2], cache=cache)
    assert passes == []
    assert np.array_equal(picked, fresh[:, [4, 0, 2]])


def test_only_missing_poolings_are_built_and_in_one_pass(bert, passes, cache, entry):
    built = (entry / "views.npy").stat().st_mtime_ns
    passes.clear()
    fresh = bert.encode_layers(SENTENCES, ["max", "mean", "cls"])
    alone = len(passes)
    passes.clear()
    found = bert.encode_layers(SENTENCES, ["max", "mean", "cls"], cache=cache)
    assert len(passes) == alone
    assert list(found) == ["max", "mean", "cls"]
    for pooling, views in found.items():
        np.testing.assert_allclose(views, fresh[pooling], rtol=0, atol=1e-6)
    assert len(names(cache)) == 3
    assert (entry / "views.npy").stat().st_mtime_ns == built


def other_tokenizer(folder: Path) -> Path:
    """The same words under other numbers."""
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    river, rain = VOCABULARY["river"], VOCABULARY["rain"]
    swapped = text.replace(f'"river": {river}', f'"river": {rain}').replace(f'"rain": {rain}', f'"rain": {river}')
    assert swapped != text
    (folder / "tokenizer.json").write_text(swapped, encoding="utf-8")
    return folder


def left_tokenizer(folder: Path) -> Path:
    """Long sentences lose their beginning."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation_side": "left"}), encoding="utf-8")
    return folder


def other_weights(folder: Path) -> Path:
    model = hf.AutoModel.from_pretrained(folder)
    with torch.no_grad():
        model.encoder.layer[2].output.dense.weight.mul_(1.5)
    model.save_pretrained(folder)
    return folder


def other_activation(folder: Path) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_act": "relu"}), encoding="utf-8")
    return folder


@pytest.mark.parametrize("change", [other_tokenizer, left_tokenizer, other_weights, other_activation])
def test_another_model_or_tokenizer_has_its_own_entry(change, tiny_bert, cache, tmp_path):
    folder = change(shutil.copytree(tiny_bert, tmp_path / "other"))
    first, other = (LayerEncoder(path, device="cpu", max_length=6) for path in (tiny_bert, folder))
    fresh = other.encode_layers(SENTENCES)
    assert np.abs(first.encode_layers(SENTENCES, cache=cache) - fresh).max() > 0.01, "the change must show"
    assert np.array_equal(other.encode_layers(SENTENCES, cache=cache), fresh)
    assert len(names(cache)) == 2


@pytest.mark.parametrize("options", [{"max_length": 5}, {"dtype": "bfloat16"}])
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_other_settings_have_their_own_entry(options, tiny_bert, cache, entry):
    other = LayerEncoder(tiny_bert, device="cpu", **options)
    fresh = other.encode_layers(SENTENCES)
    assert np.array_equal(other.encode_layers(SENTENCES, cache=cache), fresh)
    assert len(names(cache)) == 2


@pytest.mark.parametrize(
    "texts",
    [SENTENCES[::-1], SENTENCES[:-1], [*SENTENCES[:-1], "rain"], [], SENTENCES * 2],
    ids=["order", "fewer", "changed", "none", "twice"],
)
def test_other_texts_have_their_own_entry(texts, bert, cache, entry):
    assert np.array_equal(bert.encode_layers(texts, cache=cache), bert.encode_layers(texts))
    assert len(names(cache)) == 2


def test_weights_changed_in_place_are_seen(bert, cache, entry):
    before = bert.encode_layers(SENTENCES, cache=cache)
    with torch.no_grad():
        bert.model.encoder.layer[0].output.dense.weight.mul_(2)
    after = bert.encode_layers(SENTENCES, cache=cache)
    assert np.abs(after - before).max() > 0.1
    assert np.array_equal(after, bert.encode_layers(SENTENCES))
    with torch.no_grad():
        bert.model.encoder.layer[0].output.dense.weight.div_(2)
    assert np.array_equal(bert.encode_layers(SENTENCES, cache=cache), before)
    assert len(names(cache)) == 2


def test_texts_are_told_apart_where_they_end():
    assert text_digest(["ab", "c"]) != text_digest(["a", "bc"]) != text_digest(["abc"])
    assert text_digest([]) != text_digest([""])


def test_a_tokenizers_fingerprint_is_of_its_settings_not_of_its_last_call():
    tokenizer = tiny_tokenizer()
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(SENTENCES, truncation=True, max_length=5, padding=True)
    assert tokenizer_fingerprint(tokenizer) == before
    tokenizer.add_tokens(["upstream"])
    assert tokenizer_fingerprint(tokenizer) != before


def test_python_tokenizers_of_one_vocabulary_are_told_apart(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY), encoding="utf-8")
    lower, exact = (
        hf.BertJapaneseTokenizer(str(vocabulary), word_tokenizer_type="basic", do_lower_case=case)
        for case in (True, False)
    )
    assert lower("The river")["input_ids"] != exact("The river")["input_ids"]
    assert tokenizer_fingerprint(lower) != tokenizer_fingerprint(exact)


def flip_a_byte(entry: Path) -> None:
    data = bytearray((entry / "views.npy").read_bytes())
    data[-7] ^= 1
    (entry / "views.npy").write_bytes(data)


def cut_the_views(entry: Path) -> None:
    data = (entry / "views.npy").read_bytes()
    (entry / "views.npy").write_bytes(data[: len(data) // 2])


def lose_the_views(entry: Path) -> None:
    (entry / "views.npy").unlink()


def cut_the_manifest(entry: Path) -> None:
    text = (entry / "manifest.json").read_text()
    (entry / "manifest.json").write_text(text[: len(text) // 2])


def lose_the_manifest(entry: Path) -> None:
    (entry / "manifest.json").unlink()


def change_manifest(**changes):
    def change(entry: Path) -> None:
        facts = json.loads((entry / "manifest.json").read_text())
        (entry / "manifest.json").write_text(json.dumps(facts | changes))

    return change


def another_model_in_manifest(entry: Path) -> None:
    facts = json.loads((entry / "manifest.json").read_text())
    change_manifest(key=facts["key"] | {"model": "0" * 64})(entry)


@pytest.mark.parametrize(
    ("damage", "reason"),
    one_in(
        2,
        [
            (flip_a_byte, "its checksum differs from the manifest's"),
            (cut_the_views, "its checksum differs from the manifest's"),
            (lose_the_views, "its views are missing"),
            (cut_the_manifest, "its manifest is missing or damaged"),
            (lose_the_manifest, "its manifest is missing or damaged"),
            (change_manifest(key={"model": "x"}), "its manifest lacks facts"),
            (change_manifest(key=None), "its manifest lacks facts"),
            (change_manifest(format=0), "it was made for another model, text or setting"),
            (change_manifest(crc32=None), "its checksum differs from the manifest's"),
            (another_model_in_manifest, "it was made for another model, text or setting"),
        ],
    ),
)
def test_a_damaged_entry_is_refused_and_built_again(damage, reason, bert, passes, cache, entry, caplog):
    fresh = bert.encode_layers(SENTENCES)
    damage(entry)
    passes.clear()
    with caplog.at_level(logging.WARNING):
        found = bert.encode_layers(SENTENCES, cache=cache)
    assert caplog.messages == [f"{entry}: cached views are refused and built again: {reason}"]
    assert np.array_equal(found, fresh)
    assert len(passes) > 0
    passes.clear()
    assert np.array_equal(bert.encode_layers(SENTENCES, cache=cache), fresh)
    assert passes == []
    assert names(cache) == [entry.name]


@pytest.mark.parametrize("files", [["manifest.json"], ["manifest.json", "views.npy"]])
def test_another_entrys_files_copied_in_are_refused(files, bert, cache, entry, caplog):
    bert.encode_layers(SENTENCES, "max", cache=cache)
    (foreign,) = (cache.folder / name for name in names(cache) if name != entry.name)
    for name in files:
        shutil.copy(foreign / name, entry / name)
    assert np.array_equal(bert.encode_layers(SENTENCES, cache=cache), bert.encode_layers(SENTENCES))
    assert "it was made for another model, text or setting" in caplog.text


def test_a_file_where_an_entry_should_be_is_refused_and_replaced(bert, cache, entry):
    shutil.rmtree(entry)
    entry.write_text("not a folder")
    assert np.array_equal(bert.encode_layers(SENTENCES, cache=cache), bert.encode_layers(SENTENCES))
    assert (entry / "manifest.json").is_file()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_build_leaves_nothing(error, tiny_bert, cache):
    encoder = LayerEncoder(tiny_bert, device="cpu", tokens_per_batch=24)
    assert encoder.depth == DEPTH
    seen = []

    def break_in_the_middle(*_) -> None:
        seen.append(len(list(cache.entries())))
        if len(seen) == 3:
            raise error("stopped")

    handle = encoder.model.register_forward_pre_hook(break_in_the_middle)
    with pytest.raises(error, match="stopped"):
        encoder.encode_layers(SENTENCES, ["mean", "cls"], cache=cache)
    assert seen == [1, 1, 1], "while it is built, it can be seen"
    assert list(cache.entries()) == []
    assert list(cache.folder.iterdir()) == []
    handle.remove()
    found = encoder.encode_layers(SENTENCES, cache=cache)
    assert np.array_equal(found, encoder.encode_layers(SENTENCES))


def test_views_that_another_process_finished_first_are_kept(bert, cache, monkeypatch, tmp_path):
    fresh = bert.encode_layers(SENTENCES)
    other = ViewCache(tmp_path / "other")
    bert.encode_layers(SENTENCES, cache=other)
    fill = bert._fill

    def slow_fill(*args) -> None:
        fill(*args)
        shutil.copytree(other.folder, cache.folder, dirs_exist_ok=True)

    monkeypatch.setattr(bert, "_fill", slow_fill)
    assert np.array_equal(bert.encode_layers(SENTENCES, cache=cache), fresh)
    assert names(cache) == names(other)


def test_entries_say_what_they_hold(bert, tiny_bert, cache, entry):
    bert.encode_layers(SENTENCES[:2], "cls", cache=cache)
    found = {tuple(e.manifest["key"]["shape"]): e for e in cache.entries()}
    assert set(found) == {SHAPE, (2, DEPTH + 1, WIDTH)}
    assert found[SHAPE].name == entry.name
    assert found[SHAPE].bytes == sum(file.stat().st_size for file in entry.iterdir())
    assert found[SHAPE].bytes > 4 * np.prod(SHAPE)
    assert found[SHAPE].manifest["label"] == str(tiny_bert)
    key = found[SHAPE].manifest["key"]
    assert (key["pooling"], key["max_length"], key["dtype"]) == ("mean", 60, "float32")
    assert (key["model"], key["tokenizer"]) == bert.fingerprint()


def test_clear_frees_what_it_says(bert, cache, entry):
    bert.encode_layers(SENTENCES[:2], "cls", cache=cache)
    sizes = {e.name: e.bytes for e in cache.entries()}
    assert cache.clear("no such name") == 0
    assert cache.clear(entry.name[:10]) == sizes.pop(entry.name)
    assert names(cache) == list(sizes)
    assert cache.clear() == sum(sizes.values())
    assert names(cache) == []
    assert cache.clear() == 0


def test_a_cache_that_was_never_written_is_empty(cache):
    assert names(cache) == []
    assert cache.clear() == 0
    assert not cache.folder.exists(), "looking makes no folder"


def test_leftovers_of_a_killed_run_are_listed_cleared_and_never_read(bert, cache):
    leftover = cache.folder / "building-abc" / "0123456789abcdef"
    leftover.mkdir(parents=True)
    (leftover / "views.npy").write_bytes(b"x" * 1000)
    (found,) = cache.entries()
    assert (found.name, found.manifest) == ("building-abc", {})
    assert found.bytes >= 1000
    assert np.array_equal(bert.encode_layers(SENTENCES, cache=cache), bert.encode_layers(SENTENCES))
    assert cache.clear("building-") >= 1000
    assert len(names(cache)) == 1


def test_clear_leaves_what_a_running_process_is_building(bert, cache, monkeypatch):
    whole, freed = bert.encode_layers(SENTENCES), []
    fill = bert._fill

    def clear_meanwhile(*arguments):
        fill(*arguments)
        freed.append(cache.clear())

    monkeypatch.setattr(bert, "_fill", clear_meanwhile)
    assert np.array_equal(bert.encode_layers(SENTENCES, cache=cache), whole)
    assert freed == [0]
    assert len(names(cache)) == 1
    assert names(cache)[0].startswith("building-") is False


def test_a_full_disk_is_met_before_the_work(bert, passes, cache, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1000, 990, 10))
    needed = 2 * 4 * int(np.prod(SHAPE))
    with pytest.raises(
        InputError,
        match=rf"{cache.folder}: {needed:,} bytes are needed to cache these views and 10 are free; "
        r"make room with `layerwise cache clear`, or set LAYERWISE_CACHE to another disk",
    ):
        bert.encode_layers(SENTENCES, ["mean", "cls"], cache=cache)
    assert passes == []
    assert names(cache) == []


def test_a_folder_that_can_not_be_written_is_refused_with_a_remedy(bert, passes, tmp_path):
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "views"):
        with pytest.raises(InputError, match=r"views cannot be cached here: .*; set LAYERWISE_CACHE to another folder"):
            bert.encode_layers(SENTENCES, cache=ViewCache(folder))
    assert passes == []


def test_the_default_folder_follows_the_variable(bert, own_cache, monkeypatch, tmp_path):
    assert default_cache_folder() == own_cache
    bert.encode_layers(SENTENCES, cache=True)
    assert [path.name for path in own_cache.iterdir()] == ["views"]
    assert len(names(ViewCache())) == len(names(ViewCache(own_cache / "views"))) == 1
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "elsewhere"))
    assert names(ViewCache()) == []
    monkeypatch.setenv("LAYERWISE_CACHE", "~/views-of-mine")
    assert default_cache_folder() == Path.home() / "views-of-mine"
    for unset in ("", None):
        monkeypatch.setenv("LAYERWISE_CACHE", unset) if unset == "" else monkeypatch.delenv("LAYERWISE_CACHE")
        assert default_cache_folder() == Path(platformdirs.user_cache_dir("layerwise"))
