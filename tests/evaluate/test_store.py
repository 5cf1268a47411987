"""Stored results: used where nothing that decides them changed, never mistaken for others, made again when damaged."""

import json
import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerwise.data import Task, load_task
from layerwise.errors import InputError
from layerwise.evaluate import (
    LayerSubject,
    Protocol,
    ResultStore,
    SearchedSubject,
    Subject,
    Variant,
    evaluate,
    layer_mixes,
)
from layerwise.kinds import SearchSetting
from layerwise.model import LayerModel
from support.tiny import WORDS, tiny_model, tiny_tokenizer


class Fake(Subject):
    """Embeds by a seed, and counts what it embeds."""

    def __init__(self, labels=("one",), facts=None, seed=0):
        self.labels, self.seed = labels, seed
        self._facts = {"model": "fake", "model_hash": "abc"} if facts is None else facts
        self.embedded = []

    @property
    def name(self):
        return "fake"

    @property
    def variants(self):
        return [Variant(label, facts={"normalize": False}) for label in self.labels]

    def facts(self):
        return self._facts

    def embed(self, texts, role, variants):
        for variant in variants:
            self.embedded.append(variant.label)
            yield np.random.default_rng([self.seed, *variant.label.encode()]).normal(size=(len(texts), 4))


@pytest.fixture
def store(tmp_path) -> ResultStore:
    return ResultStore(tmp_path / "results")


def write_rows(path, rows: list[dict]) -> str:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def class_rows(rows: int = 60) -> list[dict]:
    random = np.random.default_rng(2)
    return [{"text": " ".join(random.choice(WORDS, 4)), "label": "ab"[row % 2]} for row in range(rows)]


def figures_of(found) -> list:
    return [(run.mix, result.figures) for run in found.runs for result in run.results.values()]


def test_the_second_run_embeds_nothing_and_says_the_same(store, pairs_task):
    subject = Fake(("one", "two"))
    first = evaluate(subject, [pairs_task], store=store)
    assert subject.embedded == ["one", "two"]
    second = evaluate(subject, [pairs_task], store=store)
    assert subject.embedded == ["one", "two"]
    assert figures_of(second) == figures_of(first)
    for before, after in zip(first, second, strict=True):
        assert after.stamp == json.loads(json.dumps(before.stamp))
        assert np.abs(after.items - before.items).max() < 1e-9
        assert after.details == before.details


def test_another_headline_is_of_the_same_stored_result(store, pairs_task):
    subject = Fake()
    evaluate(subject, [pairs_task], store=store)
    for aggregation in ("mean", "wmean", "all"):
        found = evaluate(subject, [pairs_task], protocol=Protocol(aggregation=aggregation), store=store)
        result = found.runs[0].results["pairs"]
        plain = "spearman" if aggregation == "all" else f"spearman_{aggregation}"
        assert (result.metric, result.score) == (plain, result.figures[plain])
        assert result.stamp["aggregation"] == aggregation
        assert found.as_dict()["average"] == result.figures[plain]
    by_pearson = pairs_task.replaced(metric="pearson", suite="mine")
    result = evaluate(subject, [by_pearson], store=store).runs[0].results["pairs"]
    assert (result.metric, result.suite, result.stamp["suite"]) == ("pearson", "mine", "mine")
    assert subject.embedded == ["one"]


def test_without_a_store_nothing_is_kept(tmp_path, pairs_task, own_cache):
    subject = Fake()
    for _ in range(2):
        evaluate(subject, [pairs_task])
    assert subject.embedded == ["one", "one"]
    assert not (own_cache / "results").exists()


def test_results_are_in_the_cache_folder_unless_told_otherwise(pairs_task, own_cache):
    evaluate(Fake(), [pairs_task], store=ResultStore())
    assert len(list((own_cache / "results").glob("*.json"))) == 1


def test_fresh_looks_for_nothing_and_keeps_what_is_made(store, pairs_task):
    evaluate(Fake(seed=1), [pairs_task], store=store)
    changed = Fake(seed=2)
    found = evaluate(changed, [pairs_task], store=ResultStore(store.folder, fresh=True))
    assert changed.embedded == ["one"]
    stored = evaluate(Fake(seed=3), [pairs_task], store=store)
    assert figures_of(stored) == figures_of(found)


# Never mistaken for another


OTHERS = {
    "weights": ({"model": "fake", "model_hash": "other"}, {}),
    "setting": ({"model": "fake", "model_hash": "abc", "max_length": 9}, {}),
    "split": (None, {"split": "dev"}),
    "protocol": (None, {"name": "lc"}),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_model_or_protocol_is_scored_anew(store, tmp_path, other):
    random = np.random.default_rng(4)
    rows = [
        {"sentence1": f"{a} {b}", "sentence2": b, "score": n % 6, "split": "test" if n > 9 else "dev"}
        for n, (a, b) in enumerate(random.choice(WORDS, (400, 2)))
    ]
    file = write_rows(tmp_path / "rows.parquet", rows)
    task = Task(name="many", kind="sts", file=file, splits={"dev": "dev", "test": "test"})
    facts, protocol = OTHERS[other]
    evaluate(Fake(), [task], store=store)
    subject = Fake(facts=facts)
    evaluate(subject, [task], protocol=Protocol(**protocol), store=store)
    assert subject.embedded == ["one"]
    assert len(list(store.folder.glob("*.json"))) == 2


def test_where_a_model_was_found_makes_no_difference(store, pairs_task):
    evaluate(Fake(), [pairs_task], store=store)
    moved = Fake(facts={"model": "elsewhere", "model_hash": "abc"})
    result = evaluate(moved, [pairs_task], store=store).runs[0].results["pairs"]
    assert moved.embedded == []
    assert result.stamp["model"] == "elsewhere"


def test_what_has_no_weights_to_know_it_by_is_never_stored(store, pairs_task, caplog):
    caplog.set_level(logging.INFO)
    first, second = (Fake(facts={"model": "fake", "model_hash": ""}, seed=seed) for seed in (1, 2))
    scores = [evaluate(subject, [pairs_task], store=store).runs[0].average for subject in (first, second)]
    assert scores[0] != scores[1]
    assert "its results are not stored" in caplog.text


@pytest.mark.parametrize("change", ["text", "score", "subset", "row order", "split"])
def test_other_rows_are_scored_anew(store, tmp_path, pairs_task, change):
    rows = pq.read_table(pairs_task.file).to_pylist()
    evaluate(Fake(), [pairs_task], store=store)
    if change == "text":
        rows[3]["sentence1"] += " again"
    elif change == "score":
        rows[3]["score"] += 1
    elif change == "subset":  # the same two names, otherwise shared out
        for row in rows:
            row["subset"] = "xy"[row["subset"] == "x"]
    elif change == "row order":
        rows.reverse()
    else:
        rows[3]["split"] = "dev"
    subject = Fake()
    evaluate(subject, [pairs_task.replaced(file=write_rows(tmp_path / "rows.parquet", rows))], store=store)
    assert subject.embedded == ["one"]


def test_only_mixes_that_are_missing_are_made(store, pairs_task):
    evaluate(Fake(("one",)), [pairs_task], store=store)
    subject = Fake(("two", "one"))
    found = evaluate(subject, [pairs_task], store=store)
    assert subject.embedded == ["two"]
    assert [run.mix for run in found.runs] == ["two", "one"]
    assert figures_of(found) == figures_of(evaluate(Fake(("two", "one")), [pairs_task]))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("classification", {"seeds": (1, 2)}, {"seeds": (1,)}),
        ("classification", {"seeds": (1,)}, {"seeds": (1,), "name": "senteval-mlp"}),
        ("retrieval", {}, {"search": SearchSetting(probes=3)}),
    ],
)
def test_seeds_and_settings_decide_where_they_matter(store, tmp_path, kind, one, other):
    pairs = [{"query": word, "passage": word[::-1]} for word in WORDS[:20]]
    rows = pairs if kind == "retrieval" else class_rows()
    task = Task(name="rows", kind=kind, file=write_rows(tmp_path / "rows.parquet", rows))
    subject = Fake()
    evaluate(subject, [task], protocol=Protocol(**one), store=store)
    evaluate(subject, [task], protocol=Protocol(**one), store=store)
    before = len(subject.embedded)
    evaluate(subject, [task], protocol=Protocol(**other), store=store)
    assert len(subject.embedded) == 2 * before


def test_seeds_make_no_difference_where_nothing_is_random(store, pairs_task):
    subject = Fake()
    for protocol in (Protocol(seeds=(1,)), Protocol(seeds=(2, 3)), Protocol("senteval-mlp")):
        evaluate(subject, [pairs_task], protocol=protocol, store=store)
    assert subject.embedded == ["one"]


def test_seeds_make_no_difference_where_dev_rows_choose(store, tmp_path):
    parts = ("train", "dev", "test")
    rows = [row | {"split": parts[number % 3]} for number, row in enumerate(class_rows(90))]
    file, splits = write_rows(tmp_path / "rows.parquet", rows), {part: part for part in parts}
    task = Task(name="rows", kind="classification", file=file, splits=splits)
    subject = Fake()
    for seeds in ((1,), (2, 3)):
        evaluate(subject, [task], protocol=Protocol(seeds=seeds), store=store)
    assert subject.embedded == ["one"]
    evaluate(subject, [task], protocol=Protocol("senteval-mlp", seeds=(1,)), store=store)
    assert subject.embedded == ["one", "one"]


def test_what_was_there_is_counted(store, pairs_task):
    evaluate(Fake(("one",)), [pairs_task], store=store)
    assert store.hits == 0
    evaluate(Fake(("one", "two")), [pairs_task], store=store)
    assert store.hits == 1


def test_real_models_differ_by_weights_mix_head_and_prompt(store, tmp_path, tiny_layers, pairs_task):
    tiny_model("bert", seed=5).save_pretrained(tmp_path / "other")
    tiny_tokenizer().save_pretrained(tmp_path / "other")
    encoder = tiny_layers.encoder
    models = [
        tiny_layers,
        LayerModel(encoder, "last @ cls"),
        LayerModel(encoder, "last", normalize=True),
        LayerModel(encoder, "last", prompts={"query": "q "}),
        LayerModel(encoder, "last", prompts={"plain": "the "}, default_prompt_name="plain"),
        LayerModel.load(tmp_path / "other", device="cpu"),
        LayerModel.load(encoder.folder.root, device="cpu", max_length=5),
    ]
    for number, model in enumerate(models, 1):
        evaluate(LayerSubject(model), [pairs_task], store=store)
        assert len(list(store.folder.glob("*.json"))) == number, model


def test_a_search_over_other_poolings_is_another_result(store, tmp_path, tiny_layers):
    random = np.random.default_rng(4)
    rows = [
        {"sentence1": f"{a} {b}", "sentence2": f"{b} {c}", "score": float(random.integers(6))}
        for a, b, c in random.choice(WORDS, (420, 3))
    ]
    task = Task(name="many", kind="sts", file=write_rows(tmp_path / "rows.parquet", rows))
    for number, poolings in enumerate((("mean",), ("mean", "cls")), 1):
        found = evaluate(SearchedSubject(tiny_layers, poolings), [task], protocol=Protocol("lc"), store=store)
        assert len(list(store.folder.glob("*.json"))) == number
        result = found.runs[0].results["many"]
        assert result.stamp["pooling"] == "+".join(poolings)
        assert len(result.details["chosen"]) == 5
    with pytest.raises(InputError, match=r"layers cannot be searched for task 'many' under the protocol 'senteval'"):
        evaluate(SearchedSubject(tiny_layers), [task])


# Damage and interruption


DAMAGED = [b"", b"{", b"[]", b"\xff", b'{"key": 1}', b'{"task": "a"}', "list of figures", "no headline", "other key"]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_result_is_made_again(store, pairs_task, content, caplog):
    found = evaluate(Fake(), [pairs_task], store=store)
    (file,) = store.folder.glob("*.json")
    if isinstance(content, str):
        facts = json.loads(file.read_text())
        changes = {"list of figures": {"figures": []}, "no headline": {"figures": {"a": 1}}, "other key": {"key": "x"}}
        content = json.dumps(facts | changes[content]).encode()
    file.write_bytes(content)
    subject = Fake()
    again = evaluate(subject, [pairs_task], store=store)
    assert subject.embedded == ["one"]
    assert figures_of(again) == figures_of(found)
    assert "stored result" in caplog.text
    evaluate(subject, [pairs_task], store=store)
    assert subject.embedded == ["one"]


def test_a_stored_figure_with_one_digit_changed_is_not_used(store, pairs_task, caplog):
    found = evaluate(Fake(), [pairs_task], store=store)
    (file,) = store.folder.glob("*.json")
    facts = json.loads(file.read_text())
    facts["figures"] = {name: value + 1e-9 for name, value in facts["figures"].items()}
    file.write_text(json.dumps(facts))
    again = evaluate(Fake(), [pairs_task], store=store)
    assert figures_of(again) == figures_of(found)
    assert "a stored result is damaged; the task is scored again" in caplog.text


def test_an_interrupted_run_goes_on_where_it_was(store, tmp_path, pairs_task):
    tasks = [pairs_task, pairs_task.replaced(name="pairs-2")]
    labels = ("one", "two", "three")
    subject, seen = Fake(labels), []

    def stop(task, variant, result):
        seen.append((task.name, variant.label))
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(subject, tasks, store=store, progress=stop)
    assert len(list(store.folder.glob("*.json"))) == 4
    second, seen = Fake(labels), []
    found = evaluate(second, tasks, store=store, progress=lambda task, variant, _: seen.append(variant.label))
    assert second.embedded == ["two", "three"]  # of the second task
    assert len(seen) == 6
    assert figures_of(found) == figures_of(evaluate(Fake(labels), tasks))


def test_views_are_read_once_for_all_mixes_and_never_again(store, tiny_bert, pairs_task, monkeypatch):
    model = LayerModel.load(tiny_bert, device="cpu")
    passed = []
    model.encoder.reader  # noqa: B018 - its own checks run the model, once
    model.encoder.model.register_forward_pre_hook(
        lambda _, __, given: passed.append(len(given["input_ids"])), with_kwargs=True
    )
    mixes = layer_mixes(model.encoder.depth)
    assert len(mixes) == 15
    evaluate(LayerSubject(model, mixes), [pairs_task], store=store)
    rows = load_task(pairs_task)
    texts = len(rows.pick(rows.splits["test"]).texts)
    assert sum(passed) == texts
    evaluate(LayerSubject(model, ["last-2", "0,1 @ max"]), [pairs_task], store=store)
    assert sum(passed) == texts  # other mixes, the same views
    monkeypatch.setattr("layerwise.evaluate.subject.problem_of", lambda *_: pytest.fail("scored again"))
    evaluate(LayerSubject(model, mixes), [pairs_task], store=store)
    assert sum(passed) == texts


def test_no_tasks_are_refused():
    with pytest.raises(InputError, match=r"^no tasks; name some, or a suite$"):
        evaluate(Fake(), [])
