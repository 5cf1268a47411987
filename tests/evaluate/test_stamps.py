"""Every result says how it was made: task, rows, protocol, model, versions, and whether the model saw its test text."""

from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from layerwise.data import Source, Task, load_task
from layerwise.evaluate import LayerSubject, Protocol, ResultStore, SearchedSubject, evaluate
from layerwise.model import Head, LayerModel
from layerwise.postprocess import ENCODER, FittedOn, Whitening
from layerwise.version import __version__
from support.tiny import WORDS


def stamp_of(subject, task, **options) -> dict:
    return evaluate(subject, [task], **options).runs[0].results[task.name].stamp


def test_a_stamp_of_graded_pairs(tiny_layers, pairs_task):
    stamp = stamp_of(LayerSubject(tiny_layers, ["1,3 @ cls"]), pairs_task, protocol=Protocol(aggregation="wmean"))
    weights, tokenizer = tiny_layers.encoder.fingerprint()
    told = {
        "task": "pairs",
        "suite": "own",
        "kind": "sts",
        "split": "test",
        "rows": {"dev": 30, "test": 50},
        "scored": 50,
        "rows_digest": load_task(pairs_task).digest,
        "as_published": None,
        "empty_texts": 0,
        "aggregation": "wmean",
        "protocol": "sts",
        "model": tiny_layers.encoder.name,
        "model_hash": weights,
        "tokenizer_hash": tokenizer,
        "max_length": 60,
        "dtype": "float32",
        "backend": "torch",
        "prompts": {},
        "default_prompt": None,
        "mix": "1,3 @ cls",
        "layers": [1, 3],
        "pooling": "cls",
        "normalize": False,
        "mix_digest": tiny_layers.replaced(mix="1,3 @ cls").mix_digest(),
        "saw_test_text": None,
        "source": "",
        "note": "",
    }
    assert {name: stamp[name] for name in told} == told
    assert stamp["versions"]["layerwise"] == __version__
    for package in ("torch", "numpy", "scipy", "sentence-transformers"):
        assert stamp["versions"][package] == version(package)
    assert set(stamp) == {*told, "versions"}


def test_the_dev_split_says_so(tiny_layers, pairs_task):
    stamp = stamp_of(LayerSubject(tiny_layers), pairs_task, protocol=Protocol(split="dev"))
    assert (stamp["split"], stamp["scored"]) == ("dev", 30)


@pytest.fixture
def class_file(tmp_path) -> str:
    random = np.random.default_rng(3)
    rows = [
        {"text": " ".join(random.choice(WORDS, 4)), "label": "ab"[row % 2], "split": "test" if row % 3 else "train"}
        for row in range(160)
    ]
    rows[7]["text"] = "  "
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    return str(tmp_path / "rows.parquet")


def test_stamps_of_classes_name_seeds_and_splits(tiny_layers, class_file):
    folded = Task(name="folded", kind="classification", file=class_file)
    stamp = stamp_of(LayerSubject(tiny_layers), folded, protocol=Protocol(seeds=(4, 5)))
    told = ("protocol", "seeds", "split", "rows", "scored", "aggregation", "empty_texts")
    assert [stamp[name] for name in told] == ["senteval", [4, 5], "folds of all rows", {"all": 160}, 160, None, 1]
    fixed = Task(name="fixed", kind="classification", file=class_file, splits={"train": "train", "test": "test"})
    stamp = stamp_of(LayerSubject(tiny_layers), fixed, protocol=Protocol(seeds=(4,)))
    assert [stamp[name] for name in ("split", "rows", "scored")] == ["test", {"train": 54, "test": 106}, 106]
    stamp = stamp_of(LayerSubject(tiny_layers), fixed, protocol=Protocol("lc"))
    assert [stamp[name] for name in told[:5]] == [
        "lc",
        [0],
        "random splits of all rows",
        {"train": 54, "test": 106},
        160,
    ]


def test_a_stamp_names_no_seeds_where_nothing_is_random(tmp_path, tiny_layers):
    parts = ("train", "dev", "test")
    rows = [{"text": f"{word} {n}", "label": n % 2, "split": parts[n % 3]} for n, word in enumerate(WORDS * 2)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    task = Task(
        name="chosen", kind="classification", file=str(tmp_path / "rows.parquet"), splits={part: part for part in parts}
    )
    assert "seeds" not in stamp_of(LayerSubject(tiny_layers), task)
    assert stamp_of(LayerSubject(tiny_layers), task, protocol=Protocol("senteval-mlp", seeds=(4,)))["seeds"] == [4]


def test_lc_has_no_aggregation(tmp_path, tiny_layers):
    rows = [
        {"sentence1": a, "sentence2": b, "score": n % 5}
        for n, (a, b) in enumerate(np.random.default_rng(1).choice(WORDS, (370, 2)))
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    task = Task(name="many", kind="sts", file=str(tmp_path / "rows.parquet"))
    found = evaluate(LayerSubject(tiny_layers), [task], protocol=Protocol("lc", aggregation="mean"))
    result = found.runs[0].results["many"]
    assert (result.metric, result.stamp["aggregation"], result.stamp["scored"]) == ("spearman", None, 370)


def test_retrieval_has_a_protocol_too(tmp_path, tiny_layers):
    rows = [{"query": word, "passage": word[::-1]} for word in WORDS[:12]]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    stamp = stamp_of(
        LayerSubject(tiny_layers), Task(name="asked", kind="retrieval", file=str(tmp_path / "rows.parquet"))
    )
    assert stamp["protocol"] == "search"
    assert stamp["search"]["probes"] == 16


def test_published_rows_are_told_from_others(tiny_layers, pairs_task):

    source = Source(kind="hub", repo="owner/name", revision="0123456789abcdef", reader="datasets")
    digest = load_task(pairs_task).digest
    for given, told in ((digest, True), ("0" * 32, False)):
        task = pairs_task.replaced(digest=given, source=source, note="a note")
        stamp = stamp_of(LayerSubject(tiny_layers), task)
        assert (stamp["as_published"], stamp["source"], stamp["note"]) == (
            told,
            "hub:owner/name@0123456789ab",
            "a note",
        )


# What a model saw


@pytest.fixture
def test_texts(pairs_task) -> list[str]:
    rows = load_task(pairs_task)
    return rows.pick(rows.splits["test"]).texts


OTHER_TEXT = [f"{a} {b} now" for a in WORDS[:8] for b in WORDS[:8]]


def whitened(model: LayerModel, texts: list[str], **record) -> LayerModel:
    return model.with_postprocess(Whitening(8).fit(model.encode(texts), **record))


def test_nothing_recorded_is_none(tiny_layers, pairs_task):
    assert stamp_of(LayerSubject(tiny_layers), pairs_task)["saw_test_text"] is None
    unknown = whitened(tiny_layers, OTHER_TEXT)
    assert stamp_of(LayerSubject(unknown), pairs_task)["saw_test_text"] is None


def test_whitening_on_test_sentences_says_so(tmp_path, tiny_layers, pairs_task, test_texts):
    seen = whitened(tiny_layers, test_texts, fitted_on=FittedOn.of(test_texts, source="pairs test"))
    found = evaluate(LayerSubject(seen), [pairs_task])
    assert found.runs[0].results["pairs"].stamp["saw_test_text"] == 1.0
    some = test_texts[:40] + OTHER_TEXT
    part = whitened(tiny_layers, some, fitted_on=FittedOn.of(some, source="a part"))
    assert 0.3 < stamp_of(LayerSubject(part), pairs_task)["saw_test_text"] < 0.5
    seen.save(tmp_path / "seen")
    loaded = LayerModel.load(tmp_path / "seen", device="cpu")
    assert stamp_of(LayerSubject(loaded), pairs_task)["saw_test_text"] == 1.0


def test_a_stamp_says_what_stands_behind_the_layers(tiny_layers, pairs_task):
    assert "behind" not in stamp_of(LayerSubject(tiny_layers), pairs_task)
    told = whitened(tiny_layers, OTHER_TEXT, fitted_on=FittedOn.of(OTHER_TEXT, source="other.txt"))
    words = "whitening fitted on 64 sentences of other.txt"
    assert stamp_of(LayerSubject(told), pairs_task)["behind"] == words
    assert "behind" not in stamp_of(LayerSubject(told, ["last"]), pairs_task)  # left out with other layers
    head = Head(torch.eye(32)[:16], activation="tanh")
    dense = LayerModel(tiny_layers.encoder, "last", heads=[head])
    assert stamp_of(LayerSubject(dense), pairs_task)["behind"] == "a linear layer (tanh, 32 to 16 numbers)"
    both = whitened(dense, OTHER_TEXT)
    expected = "a linear layer (tanh, 32 to 16 numbers), then whitening fitted on 64 sentences of unknown text"
    assert stamp_of(LayerSubject(both), pairs_task)["behind"] == expected


def test_whitening_on_other_text_is_clean(tiny_layers, pairs_task):
    clean = whitened(tiny_layers, OTHER_TEXT, fitted_on=FittedOn.of(OTHER_TEXT, source="other"))
    assert stamp_of(LayerSubject(clean), pairs_task)["saw_test_text"] == 0.0


def test_a_part_fitted_on_unknown_text_is_not_called_clean(tiny_layers, pairs_task, test_texts):
    clean = whitened(tiny_layers, OTHER_TEXT, fitted_on=FittedOn.of(OTHER_TEXT, source="other"))
    assert stamp_of(LayerSubject(whitened(clean, OTHER_TEXT)), pairs_task)["saw_test_text"] is None
    seen = whitened(tiny_layers, test_texts, fitted_on=FittedOn.of(test_texts, source="pairs test"))
    assert stamp_of(LayerSubject(whitened(seen, OTHER_TEXT)), pairs_task)["saw_test_text"] == 1.0


def test_another_mix_of_an_encoder_that_saw_the_text_says_so_and_heads_are_left_out(
    tiny_layers, pairs_task, test_texts
):
    encoder = LayerModel(
        tiny_layers.encoder, "last", fitted_on=[FittedOn.of(test_texts, source="training", what=ENCODER)]
    )
    for mixes in ((), ("1 @ cls",)):
        assert stamp_of(LayerSubject(encoder, mixes), pairs_task)["saw_test_text"] == 1.0
    searched = SearchedSubject(encoder)
    assert searched.saw(test_texts, searched.variants[0]) == 1.0
    head = whitened(tiny_layers, test_texts, fitted_on=FittedOn.of(test_texts, source="pairs test"))
    assert stamp_of(LayerSubject(head, ["last"]), pairs_task)["saw_test_text"] is None


def test_a_stored_figure_tells_what_is_known_today(tmp_path, tiny_layers, pairs_task, test_texts):
    store = ResultStore(tmp_path)
    nobody_said = whitened(tiny_layers, test_texts)
    assert stamp_of(LayerSubject(nobody_said), pairs_task, store=store)["saw_test_text"] is None
    told = whitened(tiny_layers, test_texts, fitted_on=FittedOn.of(test_texts, source="pairs test"))
    assert stamp_of(LayerSubject(told), pairs_task, store=store)["saw_test_text"] == 1.0
    assert len(list(tmp_path.glob("*.json"))) == 1
