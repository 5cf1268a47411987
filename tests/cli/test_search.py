"""`layerwise search`: from a file of pairs to a report, a table and a saved model; and every mistake in one line.

The grades of the made-up pairs are the cosines of layers 1 and 3's mean in a tiny encoder: the answer is known.
"""

import csv
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer

from layerwise import LayerEncoder, LayerModel, Search, parse_mix
from layerwise.errors import ModelError
from layerwise.evidence import Fold, fixed_splits
from layerwise.search import ClassProtocol, ClassRows, ClassScorer, Space
from layerwise.search.unlabelled import dropout_passes
from support.commands import assert_one_line, call, call_json, run_main
from support.pair_files import PAIRS, made_up_sentences, write
from support.slow_cases import one_in

pytestmark = pytest.mark.usefixtures("tiny_models_loaded_once", "few_resamples")

POOLINGS = ("mean", "cls", "max")


@pytest.fixture
def few_resamples(monkeypatch):
    """Of the bootstrap, by the command and in the test alike; test_search_kinds takes as many as usual."""
    defaults = Search.__init__.__kwdefaults__
    monkeypatch.setattr(Search.__init__, "__kwdefaults__", defaults | {"n_resamples": 100})


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def made(tiny_bert):
    """The pairs' sentences, views of either side and grades; rows of a file of them."""
    left, right = made_up_sentences()
    encoder = LayerEncoder(tiny_bert, device="cpu")
    views = {name: array.astype(np.float64) for name, array in encoder.encode_layers(left + right, POOLINGS).items()}
    sides = [{name: array[part] for name, array in views.items()} for part in (slice(PAIRS), slice(PAIRS, None))]
    gold = (unit(sides[0]["mean"][:, [1, 3]].mean(1)) * unit(sides[1]["mean"][:, [1, 3]].mean(1))).sum(1)
    labels = (gold > np.median(gold)).astype(int)
    rows = [
        {"sentence1": a, "sentence2": b, "score": float(grade), "label": int(label), "split": "test"}
        for a, b, grade, label in zip(left, right, gold, labels, strict=True)
    ]
    return SimpleNamespace(encoder=encoder, left=left, right=right, views=sides, gold=gold, labels=labels, rows=rows)


def read_table(path):
    """(layers, pooling, score) of each row of a written table."""
    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    return [(tuple(map(int, row["layers"].split(","))), row["pooling"], float(row["score"])) for row in rows]


@pytest.fixture
def pairs(made, tmp_path):
    return write(tmp_path / "pairs.csv", made.rows)


def assert_agrees(said, search):
    """The JSON against a search of the same views."""
    found = search.selection_
    for name, choice in (("chosen", found.chosen), ("last", found.last)):
        assert said[name]["layers"] == list(choice.layers)
        assert said[name]["pooling"] == choice.pooling
        assert said[name]["mix"] == str(choice.mix)
        assert (said[name]["dev"], said[name]["test"]) == pytest.approx((choice.dev, choice.test), abs=1e-5)
    gain = found.gain
    expected = {"mean": gain.mean, "low": gain.low, "high": gain.high, "p_value": gain.p_value}
    assert said["gain"] == pytest.approx(expected, abs=1e-3)
    assert said["candidates"] == found.candidates
    assert [front["layers"] for front in said["front"]] == [list(scored.layers) for scored in found.front]


def direct(made, gold=None, poolings=("mean",), **arguments):
    """A search of the views of the same sentences."""
    sides = [{name: side[name] for name in poolings} for side in made.views]
    texts = list(zip(made.left, made.right, strict=True))
    search = Search(**{"dev": 0.5, **arguments})
    if "@" in arguments.get("metric", ""):
        return search.fit_queries(*sides, gold, texts=texts)
    return search.fit_views(*sides, made.gold if gold is None else gold, texts=texts)


# What it finds, from every format


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_leads_to_the_planted_layers(made, tmp_path, tiny_bert, ending):
    """Read from, and a table written in, this format."""
    renamed = [
        {"id": n, "grade": row["score"], "b": row["sentence2"], "a": row["sentence1"], "part": "test"}
        for n, row in enumerate(made.rows)
    ]
    other = [{"id": 99, "grade": 0.0, "b": "rain", "a": "a door", "part": "train"}]
    path, table = write(tmp_path / f"pairs.{ending}", other + renamed + other), tmp_path / f"table.{ending}"
    columns = ("--left", "a", "--right", "b", "--score", "grade", "--where", "part=test")
    said = call_json("search", tiny_bert, path, *columns, "--table", table)
    assert said["chosen"]["layers"] == [1, 3]
    assert said["chosen"]["test"] == pytest.approx(1, abs=1e-3)
    search = direct(made)
    assert_agrees(said, search)
    rows = read_table(table)
    assert said["candidates"] == "31 sets"
    assert len(rows) == 31
    assert rows[0][:2] == ((1, 3), "mean")
    assert [row[2] for row in rows] == sorted((row[2] for row in rows), reverse=True)
    expected = {found.layers: found.dev for found in search.selection_.table}
    assert {layers: score for layers, _, score in rows} == pytest.approx(expected, abs=1e-5)


def test_the_json_holds_what_programs_ask_for(made, tiny_bert, pairs):
    said = call_json("search", tiny_bert, pairs, "--pooling", "mean,cls,max", "--dev", 25, "--splits", 2, "--seed", 3)
    numbers = [
        *(said[name][key] for name, key in (("chosen", "dev"), ("chosen", "test"), ("last", "dev"), ("last", "test"))),
        *(said["gain"][key] for key in ("mean", "low", "high", "p_value")),
        *(said["seconds"][key] for key in ("views", "search")),
    ]
    assert all(type(number) is float for number in numbers)
    assert [type(layer) for layer in said["chosen"]["layers"]] == [int, int]
    assert said["chosen"]["pooling"] == "mean"
    assert said["candidates"] == "93 sets"
    assert said["gain"]["low"] <= said["gain"]["mean"] <= said["gain"]["high"]
    assert 0 < said["gain"]["p_value"] <= 1
    assert said["gain"]["mean"] == pytest.approx(said["chosen"]["test"] - said["last"]["test"], abs=1e-9)
    assert min(said["seconds"].values()) > 0
    assert said["protocol"] == {
        "metric": "spearman",
        "space": "all sets",
        "unit": "pairs",
        "choosing": 25,
        "reporting": 35,
        "left_out": 0,
        "near_copies": 0,
        "seen_sentences": 0,
        "splits": 2,
        "seed": 3,
        "options": {"method": "auto", "head": False},
    }
    assert [split["mix"] for split in said["splits"]] == ["1,3 @ mean", "1,3 @ mean"]
    assert {"1", "3"} <= said["stability"]["layers"].keys() <= set("01234")
    assert sum(said["stability"]["poolings"].values()) == pytest.approx(1)
    assert 0 <= said["stability"]["agreement"] <= 1
    assert said["unlabelled"] is None
    assert any("25 pairs choose among 93 sets" in warning for warning in said["warnings"])
    assert said["saved"] is None
    assert_agrees(said, direct(made, poolings=POOLINGS, dev=25, splits=2, seed=3))


def test_the_same_seed_gives_the_same_and_people_are_told_the_same(tiny_bert, pairs):
    options = ("--dev", 0.4, "--splits", 2, "--max-layer", 3, "--layers", "up to 2", "--compare-unlabelled")
    first, again = (call_json("search", tiny_bert, pairs, *options, "--seed", 5) for _ in range(2))
    other = call_json("search", tiny_bert, pairs, *options, "--seed", 6)
    assert {**first, "seconds": 0} == {**again, "seconds": 0}
    assert (first["protocol"]["choosing"], first["protocol"]["reporting"]) == (24, 36)
    assert first["last"]["test"] != other["last"]["test"], "other splits"

    told = call("search", tiny_bert, pairs, *options, "--seed", 5)
    flat = " ".join(told.split())
    best, last = first["chosen"], first["last"]
    assert "10 sets of layers, spearman x 100; 24 pairs choose, 36 others report, means of 2 splits" in flat
    assert f"best found {best['mix']} {100 * best['dev']:.1f} {100 * best['test']:.1f}" in flat
    assert f"last layer {last['mix']} {100 * last['dev']:.1f} {100 * last['test']:.1f}" in flat
    assert f"chosen without labels {first['unlabelled']['mix']} {100 * first['unlabelled']['test']:.1f}" in flat
    assert first["verdict"]["text"] in flat
    loss = re.search(r"highest layer 3 @ \S+ \S+ (\S+)", flat)
    kept = float(loss[1]) if first["verdict"]["use"].startswith("3 @") else 100 * best["test"]
    told = f"{kept - 100 * last['test']:+.1f}".replace("-", "\N{MINUS SIGN}")
    assert re.search(rf"Against the last layer of the whole model: {re.escape(told)} \[\S+, \S+\] \(95 %\)\.", flat)
    assert len(first["front"]) > 1
    for found in first["front"]:
        line = f"{found['layers'][-1]} {found['mix']} {100 * found['dev']:.1f} {100 * found['test']:.1f}"
        assert line in flat
    for warning in first["warnings"]:
        assert f"Note: {warning}." in flat


# Metrics, spaces, methods


@pytest.mark.parametrize("metric", ["pearson", "cosine_ap", "cosine_accuracy", "mrr@10", "recall@2"])
def test_every_kind_of_metric(made, tiny_bert, pairs, metric):
    is_retrieval, has_labels = "@" in metric, metric in ("cosine_ap", "cosine_accuracy")
    labels = ("--score", "label") if has_labels else ()
    said = call_json("search", tiny_bert, pairs, "--metric", metric, *labels, "--layers", "up to 2")
    assert said["protocol"]["metric"] == metric
    gold = np.arange(PAIRS) if is_retrieval else made.labels if has_labels else made.gold
    assert_agrees(said, direct(made, gold, metric=metric, space="up to 2"))


def test_retrieval_by_graded_rows(made, tiny_bert, tmp_path):
    """A query may have several passages, a passage several queries, and a grade of 0 is none."""
    passages = [made.right[2 * (n // 2) : 2 * (n // 2) + 2] for n in range(20)]  # shared by two queries
    rows = [
        {"query": made.left[n], "passage": passage, "grade": grade}
        for n in range(20)
        for passage, grade in zip(passages[n], ((2, 1), (1, 0))[n % 2], strict=True)
    ]
    path = write(tmp_path / "queries.jsonl", rows)
    columns = ("--left", "query", "--right", "passage", "--score", "grade")
    said = call_json("search", tiny_bert, path, "--metric", "ndcg@5", *columns, "--dev", 10)
    views = made.views[0]["mean"][:20], made.views[1]["mean"][:20]
    grades = [{n: 2.0, n + 1: 1.0} if n % 2 == 0 else {n - 1: 1.0} for n in range(20)]
    texts = [(made.left[n], *(passages[n] if n % 2 == 0 else passages[n][:1])) for n in range(20)]
    assert_agrees(said, Search(metric="ndcg@5", dev=10).fit_queries(*views, grades, texts=texts))
    assert said["protocol"]["reporting"] == 10


SPACES = {
    "exactly 3": ((), 10),
    "contiguous": ((), 15),
    "with 0,1": ((), 8),
    "without 4": ((), 15),
    "0-1,4": ((), 7),
    "at least 2; without 0": ((), 11),
    "all": (("--max-layer", 2), 7),
    "with 1": (("--max-layer", 1), 2),
}


@pytest.mark.parametrize("text", SPACES)
def test_spaces_as_text(tiny_bert, pairs, tmp_path, text):
    options, count = SPACES[text]
    table = tmp_path / "table.csv"
    call("search", tiny_bert, pairs, "--no-labels", "pairs", "--layers", text, *options, "--table", table)
    rows = read_sets(table)
    assert len(rows) == len(set(rows)) == count
    highest = int(options[1]) if options else 4
    assert all(layers[-1] <= highest for layers in rows)


def read_sets(path):
    with path.open(newline="") as file:
        return [tuple(map(int, row["layers"].split(","))) for row in csv.DictReader(file)]


@pytest.mark.parametrize("method", ["beam", "greedy", "weights"])
def test_every_method(made, tiny_bert, pairs, monkeypatch, method):
    monkeypatch.setattr("layerwise.search.weights._STEPS", 40)
    said = call_json("search", tiny_bert, pairs, "--method", method)
    assert set(said["chosen"]["layers"]) >= {1, 3}
    assert said["chosen"]["dev"] > 0.97
    if method != "weights":
        assert_agrees(said, direct(made, method=method))


def test_a_space_without_the_last_layer_is_searched_whatever_is_chosen_without_labels(made, tiny_folders, pairs):
    """No set of layer 0 passes the guard of the choice without labels, which is only shown for comparison."""
    said = call_json("search", tiny_folders["mpnet"], pairs, "--layers", "0")
    assert said["chosen"]["layers"] == [0]
    assert said["unlabelled"] is None


def test_pairs_that_all_share_sentences_cannot_report(made, tiny_bert, tmp_path, monkeypatch, capfd):
    few = made.left[:4]
    rows = [
        {"sentence1": a, "sentence2": b, "score": n % 5} for n, (a, b) in enumerate((a, b) for a in few for b in few)
    ]
    ended = run_main(monkeypatch, capfd, "search", tiny_bert, write(tmp_path / "few.csv", rows))
    assert_one_line(*ended, "few.csv: 8 of 8 reporting pairs share a sentence with one that chooses and are left out")


def test_an_encoder_without_dropout_says_why_nothing_was_chosen_without_labels(tiny_folders, pairs):
    said = call_json("search", tiny_folders["modernbert"], pairs, "--compare-unlabelled")
    why = "ModernBertModel has no dropout: two passes would be equal; give pairs of text instead"
    assert f"nothing is chosen without labels: {why}" in said["warnings"]
    assert "chosen without labels" not in call("search", tiny_folders["modernbert"], pairs)


@pytest.mark.slow
def test_onnx_chooses_the_same(made, tiny_bert, pairs):
    said = call_json("search", tiny_bert, pairs, "--backend", "onnx", "--compare-unlabelled")
    assert said["chosen"]["layers"] == [1, 3]
    assert any("not with ONNX" in warning for warning in said["warnings"])


# What it saves


SAVED = {
    "": (3, "1,3 @ mean"),
    "--max-layer 2 --pooling mean,cls --dev 20": (2, None),
    "--layers 0": (0, "0 @ mean"),
    "--method weights": (None, None),
}


@pytest.mark.parametrize("options", one_in(2, SAVED))
def test_the_saved_model_gives_the_chosen_mixes_embeddings(made, tiny_bert, pairs, tmp_path, monkeypatch, options):
    monkeypatch.setattr("layerwise.search.weights._STEPS", 40)
    blocks, mix = SAVED[options]
    out = tmp_path / "new" / "model"
    said = call_json("search", tiny_bert, pairs, *options.split(), "--save", out)
    assert said["saved"] == str(out)
    use = parse_mix(said["verdict"]["use"])
    assert str(use) == (mix or str(use))
    assert not (blocks and max(use.layers) > blocks)

    encoder = LayerEncoder(tiny_bert, device="cpu")
    expected = LayerModel(encoder, use).encode(made.left)
    model = LayerModel.load(out)
    assert (model.mix.layers, model.mix.pooling) == (use.layers, use.pooling)
    assert np.abs(model.encode(made.left) - expected).max() < 1e-5
    assert np.abs(SentenceTransformer(str(out), device="cpu").encode(made.left) - expected).max() < 1e-5
    kept = json.loads((out / "config.json").read_text())["num_hidden_layers"] if use.layers != (0,) else 0
    assert kept == max(use.layers)
    assert model.encoder.depth >= kept


def test_the_model_card_says_how_the_layers_were_chosen(tiny_bert, pairs, tmp_path):
    said = call_json("search", tiny_bert, pairs, "--save", tmp_path / "model", "--splits", 2, "--dev", 20)
    card = (tmp_path / "model" / "README.md").read_text()
    chosen = f"the best of 31 sets by spearman on 20 pairs (2 splits). {said['verdict']['text']}"
    assert f"| how it was chosen | {chosen} |" in card
    assert "| blocks kept | 3 of 4 |" in card
    assert call_json("info", tmp_path / "model")["mix_chosen"] == chosen


def test_overwrite_replaces_a_folder_and_nothing_else_does(monkeypatch, capfd, tiny_bert, pairs, tmp_path):
    out = tmp_path / "model"
    out.mkdir()
    call("search", tiny_bert, pairs, "--no-labels", "pairs", "--layers", "2", "--save", out)
    assert str(LayerModel.load(out).mix) == "2 @ mean", "an empty folder is filled"
    (out / "old.txt").touch()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert_one_line(
        *run_main(monkeypatch, capfd, "search", tiny_bert, pairs, "--save", out),
        "model: is not empty; give another folder, or --overwrite",
    )
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    told = call("search", tiny_bert, pairs, "--save", out, "--overwrite")
    assert "Saved the model of 1,3 @ mean in " in told
    assert str(LayerModel.load(out).mix) == "1,3 @ mean"
    assert not (out / "old.txt").exists()


# Without labels


def assert_unlabelled(said, search, *, pairs=PAIRS, saved=None):
    """All that the JSON says, against a search of the same views."""
    found = search.selection_
    for name, choice in (("chosen", found.chosen), ("last", found.last)):
        layers = (list(choice.layers), choice.pooling, str(choice.mix))
        assert (said[name]["layers"], said[name]["pooling"], said[name]["mix"]) == layers
        assert said[name]["dev"] == pytest.approx(choice.dev, rel=1e-4)
        assert said[name]["test"] is None
    assert said["last"]["mix"] == "4 @ mean"
    assert said["seconds"].keys() == {"views", "search"}
    assert min(said["seconds"].values()) > 0
    few = f"{pairs} pairs choose among {found.candidates}: with fewer than 100, which of the good ones "
    assert [warning[: len(few)] for warning in said["warnings"]] == [few]
    assert (said["candidates"], said["saved"], said["prompts"]) == (found.candidates, saved, ["", ""])
    assert (said["gain"], said["cheaper"], said["tasks"]) == (None, None, None)
    assert said["verdict"]["has_evidence"] is False
    proposal = said["criteria"]["proposals"][0]
    assert (proposal["mix"], said["criteria"]["name"]) == (said["chosen"]["mix"], proposal["criterion"])


def test_without_labels_by_dropout(made, tiny_bert, pairs, tmp_path):
    rows = [{"sentence1": row["sentence1"]} for row in made.rows]
    said = call_json("search", tiny_bert, write(tmp_path / "a.csv", rows), "--no-labels", "dropout", "--seed", 2)
    expected = Search(seed=2).fit_views(*dropout_passes(made.encoder, made.left, ["mean"]))
    assert_unlabelled(said, expected)


def test_without_labels_by_pairs(made, tiny_bert, tmp_path):
    rows = [{"title": row["sentence1"], "body": row["sentence2"]} for row in made.rows]
    path, out, table = write(tmp_path / "a.jsonl", rows), tmp_path / "model", tmp_path / "table.parquet"
    options = ("--no-labels", "pairs", "--left", "title", "--right", "body", "--pooling", "mean,max")
    said = call_json("search", tiny_bert, path, *options, "--save", out, "--table", table)
    sides = [{name: side[name] for name in ("mean", "max")} for side in made.views]
    expected = Search().fit_views(*sides)
    assert_unlabelled(said, expected, saved=str(out))
    assert str(LayerModel.load(out).mix) == said["chosen"]["mix"]
    chosen = f"without labels, by pairs: the best of 62 sets. {said['verdict']['text']}"
    assert f"| how it was chosen | {chosen} |" in (out / "README.md").read_text()
    assert pq.read_table(table).num_rows == 62
    told = " ".join(call("search", tiny_bert, path, *options, "--save", tmp_path / "other").split())
    assert f"Saved the model of {said['chosen']['mix']} in " in told
    assert f"Note: {said['warnings'][0]}." in told
    assert said["verdict"]["text"] in told
    assert f"chosen by pairs {said['chosen']['mix']} " in told


def test_without_labels_by_neighbouring_lines(made, tiny_bert, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(made.left))
    said = call_json("search", tiny_bert, path, "--no-labels", "neighbours")
    views = made.views[0]["mean"]
    assert_unlabelled(said, Search().fit_views(views[:-1], views[1:]), pairs=PAIRS - 1)


def test_without_labels_only_the_rows_of_a_split(made, tiny_bert, tmp_path):
    rows = [row | {"split": "dev" if n < 20 else "test"} for n, row in enumerate(made.rows)]
    write(tmp_path / "pairs.csv", rows)
    splits = 'splits = { dev = ["dev"], test = ["test"] }'
    (tmp_path / "mine.toml").write_text(f'[[task]]\nname = "mine"\nkind = "sts"\nfile = "pairs.csv"\n{splits}\n')
    said = call_json("search", tiny_bert, tmp_path / "mine.toml", "--no-labels", "pairs", "--split", "dev")
    views = [side["mean"][:20] for side in made.views]
    assert_unlabelled(said, Search().fit_views(*views), pairs=20)


@pytest.mark.parametrize("words", [("--layers", "0-7"), ("--max-layer", "5")])
def test_layers_that_the_model_has_not_are_refused_before_texts_are_read(monkeypatch, capfd, tiny_bert, pairs, words):
    def encode(*_, **__):
        raise ModelError("texts were read")

    monkeypatch.setattr("layerwise.encoder.LayerEncoder.encode_layers", encode)
    assert_one_line(*run_main(monkeypatch, capfd, "search", tiny_bert, pairs, *words), "There is no layer 5")
    assert_one_line(*run_main(monkeypatch, capfd, "search", tiny_bert, pairs), "texts were read")


# Mistakes

UNLOADED = {  # refused before a model is looked for
    "{tmp}/none.csv": ("none.csv: no such file",),
    "{csv} --left text": ("pairs.csv: no column 'text'; it has 'sentence1', 'sentence2', 'score', 'label', 'split'",),
    "{csv} --right text": ("pairs.csv: no column 'text'",),
    "{csv} --score grade": ("pairs.csv: no column 'grade'",),
    "{csv} --where part=dev": ("pairs.csv: no column 'part'",),
    "{csv} --where split=dev": ("pairs.csv: no rows with split = dev",),
    "{csv} --where split": ("--where 'split' is not COLUMN=VALUE",),
    "{csv} --score sentence1": ("pairs.csv:2: sentence1 ", "is not a number"),
    "{csv} --score split --metric mrr@10": ("pairs.csv:2: split 'test' is not a number",),
    "{tmp}/gap.csv": ("gap.csv:3: column 'sentence2' is empty",),
    "{tmp}/nan.csv": ("nan.csv:4: score 'nan' is not a number",),
    "{tmp}/constant.csv": ("constant.csv: All 60 scores are 3: constant scores say nothing about layers",),
    "{tmp}/few.csv": ("few.csv: 4 pairs are too few to choose layers by; give at least 10",),
    "{tmp}/eight.csv": ("eight.csv: 8 pairs, 4 of which choose, are too few",),
    "{csv} --dev 56": ("pairs.csv: 60 pairs, 56 of which choose, are too few", "must be left to report"),
    "{csv} --dev 60": ("60 pairs, 60 of which choose",),
    "{csv} --dev 0.99": ("60 pairs, 59 of which choose",),
    "{csv} --dev 0": ("--dev 0 is not possible: some must choose",),
    "{csv} --dev -3": ("--dev -3 is not possible",),
    "{csv} --dev nan": ("--dev nan is not possible",),
    "{csv} --dev inf": ("--dev inf is not possible",),
    "{csv} --splits -1": ("--splits -1 is not possible; give 1 or more",),
    "{csv} --splits 0": ("--splits 0 is not possible; give 1 or more",),
    "{csv} --seed -1": ("--seed -1 is negative",),
    "{csv} --metric spearmann": ("Unknown metric 'spearmann'. Did you mean 'spearman'?", "mrr@10"),
    "{csv} --metric mrr@0": ("'mrr@0': the cut-off must be 1 or more",),
    "{csv} --metric cosine_accuracy": ("pairs.csv: Score 0 is ", "but cosine_accuracy needs labels 0 and 1"),
    "{csv} --pooling men": ("Unknown token pooling 'men'. Did you mean 'mean'?",),
    "{csv} --pooling mean,": ("'' is no token pooling",),
    "{csv} --method magic": ("Unknown method 'magic'. Known: auto, exhaustive, beam, greedy, weights",),
    "{csv} --layers some": ("'some' is no space of layers", "'up to 4'"),
    "{csv} --layers 1@cls": ("a space has no token pooling",),
    "{csv} --layers exactly-0": ("or more and 0 or fewer layers, at least one",),
    "{csv} --table {tmp}/t.xlsx": ("t.xlsx: a table is written as .csv, .tsv, .jsonl, .parquet",),
    "{csv} --table {csv}/t.csv": ("t.csv: ", "pairs.csv is a file, not a folder; give another path"),
    "{csv} --save {full}": ("full: is not empty and holds no model, so it is not overwritten; give another folder",),
    "{csv} --save {csv}": ("pairs.csv: is a file; give a folder",),
    "{csv} --save {csv}/model": ("model: ", "pairs.csv is a file, not a folder; give another path"),
    "{csv} --no-labels magic": ("Unknown --no-labels 'magic'. Known: dropout, pairs, neighbours",),
    "{csv} --no-labels pairs --metric pearson": ("--metric is for graded pairs; leave it out with --no-labels",),
    "{csv} --no-labels all --dev 5": ("--dev is for graded pairs",),
    "{csv} --no-labels dropout --splits 2": ("--splits is for graded pairs",),
    "{csv} --no-labels pairs --score label": ("--score is for graded pairs",),
    "{csv} --split test": ("pairs.csv: --split is for tasks; take rows of a file by a column: --where split=test",),
    "{csv} --pooling all": ("--pooling all is for a search of views; add --prompts auto or --scale unit",),
    "{tmp}/gap.txt --no-labels neighbours": ("gap.txt:2: the line is empty; give a text, or drop the row",),
    "{csv} --no-labels pairs --method magic": ("Unknown method 'magic'. Known: auto",),
    "{csv} --no-labels pairs --method weights": ("--method weights needs pairs with scores or labels",),
    "{csv} --metric mrr@10 --method weights": ("Layer weights need pairs with scores or labels",),
    "{csv} --no-labels dropout --pooling men": ("Unknown token pooling 'men'. Did you mean 'mean'?",),
    "{csv} --no-labels neighbours --seed -1": ("--seed -1 is negative",),
    "{tmp}/few.csv --no-labels dropout": ("few.csv: 4 sentences are too few to choose layers by; give 5 or more",),
    "{csv} --metric recall@3 --head": ("--head is for metrics of pairs, not for recall@3; leave it out",),
    "{csv}": ("a model was loaded",),
    "{csv} --no-labels pairs": ("a model was loaded",),
}
TINY = {  # refused by what the model is, or by what the search meets
    "{csv} --layers at-least-6": ("No set of layers 0 to 4 fits the space: 6 or more layers; loosen",),
    "{csv} --layers exactly-4 --max-layer 2": (
        "No set of layers 0 to 4 fits the space: exactly 4 layers, none above 2",
    ),
    "{csv} --layers 3 --max-layer 2": ("No set of layers 0 to 4 fits the space: only 3, none above 2",),
    "{csv} --max-layer 5": ("There is no layer 5: this encoder has layers 0 to 4",),
    "{csv} --layers 0-7": ("There is no layer 5", "layers 0 to 4"),
    "{tmp}/zero.csv --metric mrr@10 --score label": ("zero.csv", "relevant"),
    "{tmp}/few.csv --metric mrr@10 --dev 3": ("few.csv: 4 queries, 3 of which choose, are too few",),
    "{tmp}/few.csv --no-labels pairs": ("4 sentences are too few to choose layers by; give 5",),
    "{tmp}/few.csv --no-labels dropout": ("4 sentences are too few to choose layers by; give 5",),
    "{tmp}/one.csv --no-labels neighbours": ("too few",),
    "{csv} --no-labels pairs --method magic": ("Unknown method 'magic'",),
    "{csv} --no-labels dropout --pooling men": ("Unknown token pooling 'men'",),
    "{csv} --head": ("bert: has no head after its mix; --head needs just one, so leave it out",),
    "{csv} --no-labels pairs --head": ("bert: has no head after its mix",),
    "{csv} --no-labels dropout --backend onnx": ("Dropout runs with the torch backend only",),
}


@pytest.fixture(scope="module")
def places(made, tmp_path_factory):
    """Files of all kinds of mistakes, none of which writes anything beside them."""
    tmp_path, rows = tmp_path_factory.mktemp("places"), made.rows
    pairs = write(tmp_path / "pairs.csv", rows)

    def changed(name, place, **change):
        write(tmp_path / name, [row | (change if place in (None, n) else {}) for n, row in enumerate(rows)])

    changed("gap.csv", 1, sentence2=" ")
    changed("nan.csv", 2, score="nan")
    changed("constant.csv", None, score=3)
    changed("zero.csv", None, label=0)
    for name, count in (("few", 4), ("eight", 8), ("one", 1)):
        write(tmp_path / f"{name}.csv", rows[:count])
    (tmp_path / "gap.txt").write_text("a door\n\na river\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    return {"tmp": tmp_path, "csv": pairs, "full": tmp_path / "full"}


def assert_refused(monkeypatch, capfd, model, command, places, parts):
    tmp = places["tmp"]
    words = command.format(**places).split()
    if "--layers" in words:  # a space's text, with hyphens for blanks
        place = words.index("--layers") + 1
        words[place] = words[place].replace("exactly-", "exactly ").replace("at-least-", "at least ")
    words += [] if "--save" in words else ["--save", str(tmp / "saved")]
    words += [] if "--table" in words else ["--table", str(tmp / "written.csv")]
    before = set(tmp.rglob("*"))
    assert_one_line(*run_main(monkeypatch, capfd, "search", model, *words), *parts)
    assert set(tmp.rglob("*")) == before, "nothing is written"


@pytest.mark.parametrize("command", UNLOADED)
def test_a_mistake_is_one_line_before_a_model_is_loaded(monkeypatch, capfd, tiny_bert, places, command):
    def load(*_, **__):
        raise ModelError("a model was loaded")

    monkeypatch.setattr("layerwise.model.LayerModel.load", load)
    assert_refused(monkeypatch, capfd, tiny_bert, command, places, UNLOADED[command])


def test_a_model_that_is_not_there_is_one_line(monkeypatch, capfd, places):
    parts = ("nowhere: no such model folder",)
    assert_refused(monkeypatch, capfd, places["tmp"] / "nowhere", "{csv}", places, parts)


@pytest.mark.parametrize("command", TINY)
def test_a_mistake_is_one_line(monkeypatch, capfd, tiny_bert, places, command):
    assert_refused(monkeypatch, capfd, tiny_bert, command, places, TINY[command])


def test_without_dropout_there_are_no_dropout_passes(monkeypatch, capfd, tiny_folders, places):
    parts = ("ModernBertModel has no dropout: two passes would be equal; give pairs of text instead",)
    assert_refused(monkeypatch, capfd, tiny_folders["modernbert"], "{csv} --no-labels dropout", places, parts)


@pytest.mark.slow
def test_the_same_in_a_process_of_its_own(tiny_bert, places, forks):
    done = forks.run("layerwise", "search", tiny_bert, places["tmp"] / "constant.csv", "--json")
    assert_one_line(done.returncode, done.stdout, done.stderr, "constant.csv: All 60 scores are 3")


# The real thing


@pytest.mark.slow
@pytest.mark.shared
def test_a_real_encoder_on_real_pairs(shared, tmp_path):
    table = pq.read_table(shared / "data" / "sts" / "stsb.parquet", filters=[("split", "=", "dev")])
    path = tmp_path / "stsb.parquet"
    pq.write_table(table.slice(0, 50), path)
    model = shared / "models" / "wiki-mlm-12x384"
    said = call_json("search", model, path, "--where", "split=dev")
    assert said["candidates"] == "8,191 sets"
    assert said["chosen"]["dev"] >= said["last"]["dev"]
    assert said["gain"]["mean"] == pytest.approx(said["chosen"]["test"] - said["last"]["test"], abs=1e-9)
    last = said["verdict"]["use"] == said["last"]["mix"]
    assert last == (said["gain"]["low"] <= 0)


# Tasks


def task_file(folder, text, rows):
    write(folder / "rows.csv", rows)
    (folder / "task.toml").write_text(f'[[task]]\nname = "mine"\nfile = "rows.csv"\n{text}\n')
    return folder / "task.toml"


def test_a_task_of_graded_pairs_is_its_file(made, tiny_bert, tmp_path, pairs):
    task = task_file(tmp_path, 'kind = "sts"\nmetric = "pearson"', made.rows)
    by_task, by_file = (call_json("search", tiny_bert, path) for path in (task, pairs))
    assert by_task["protocol"]["metric"] == "pearson"
    assert_agrees(by_task, direct(made, metric="pearson"))
    assert_agrees(by_file, direct(made))
    assert call_json("search", tiny_bert, task, "--metric", "spearman")["chosen"] == by_file["chosen"]


def test_the_dev_rows_of_a_task_choose_and_its_test_rows_report(made, tiny_bert, tmp_path):
    parts = ["test"] * 20 + ["train"] * 5 + ["dev"] * 35
    rows = [row | {"split": part} for row, part in zip(made.rows, parts, strict=True)]
    splits = 'kind = "sts"\nsplits = { train = "train", dev = "dev", test = "test" }'
    task, out = task_file(tmp_path, splits, rows), tmp_path / "model"
    said = call_json("search", tiny_bert, task, "--save", out)
    order = np.r_[25:60, 0:20]
    sides = [{"mean": side["mean"][order]} for side in made.views]
    texts = [(made.left[n], made.right[n]) for n in order]
    fixed = Search(parts=[(np.arange(35), np.arange(35, 55))]).fit_views(*sides, made.gold[order], texts=texts)
    assert_agrees(said, fixed)
    assert (said["protocol"]["choosing"], said["protocol"]["reporting"]) == (35, 20)
    assert "on 35 pairs (1 split)" in (out / "README.md").read_text()
    random = call_json("search", tiny_bert, task, "--dev", 30, "--splits", 2)
    assert (random["protocol"]["choosing"], random["protocol"]["splits"]) == (30, 2)


def test_a_task_of_queries_and_passages(made, tiny_bert, tmp_path):
    rows = [{"query": row["sentence1"], "passage": row["sentence2"]} for row in made.rows]
    said = call_json("search", tiny_bert, task_file(tmp_path, 'kind = "retrieval"', rows))
    same = write(tmp_path / "same.csv", rows)
    options = ("--left", "query", "--right", "passage", "--metric", "mrr@10")
    plain = call_json("search", tiny_bert, same, *options)
    assert said["protocol"] == plain["protocol"]
    assert said["chosen"] == plain["chosen"]
    assert said["protocol"]["metric"] == "mrr@10"


def class_rows(made, parts):
    words = [("river", "rain"), ("door", "clock")]
    return [
        {"text": f"{row['sentence1']} {words[number % 2][number % 3 > 0]}", "label": number % 2, "split": part}
        for number, (row, part) in enumerate(zip(made.rows, parts, strict=True))
    ]


@pytest.mark.slow
def test_a_task_of_classes(made, tiny_bert, tmp_path):
    parts = ["train"] * 30 + ["dev"] * 15 + ["test"] * 15
    rows = class_rows(made, parts)
    text = 'kind = "classification"\nsplits = { train = "train", dev = "dev", test = "test" }'
    task, table, out = task_file(tmp_path, text, rows), tmp_path / "table.csv", tmp_path / "model"
    said = call_json("search", tiny_bert, task, "--layers", "up to 2", "--table", table, "--save", out)
    views = made.encoder.encode_layers([row["text"] for row in rows], "mean")
    texts = [(row["text"],) for row in rows]
    splits = fixed_splits([(np.arange(45), np.arange(45, 60))], texts=texts, units=60, unit="rows")
    splits = replace(splits, folds=((Fold(np.arange(30), np.arange(30, 45)),),))
    prepared = ClassRows.of({"mean": views}, [str(row["label"]) for row in rows])
    scorer = ClassScorer(prepared, splits, ClassProtocol(outer=1, inner=1), Space.parse("up to 2"))
    for name, scored in (("chosen", scorer.best), ("last", scorer.last)):
        assert said[name]["layers"] == list(scored.layers)
        assert said[name]["test"] == pytest.approx(scored.test)
    assert (said["candidates"], said["protocol"]["splits"]) == ("15 sets", 1)
    assert len(read_table(table)) == 15
    assert said["gain"]["low"] <= 0 <= said["gain"]["high"], "15 rows tell little"
    assert said["verdict"]["keep_last_layer"] is True
    assert LayerModel.load(out).mix.layers == (4,)
    assert LayerModel.load(out).fitted_on == ()
    told = call("search", tiny_bert, task, "--layers", "up to 2")
    assert "15 sets of layers, accuracy x 100; 45 rows choose, 15 others report" in told
    assert "Keep the last layer. No combination is reliably better on your 60 rows" in told


def test_classes_choose_among_token_poolings(made, tiny_bert, tmp_path):
    parts = ["train"] * 30 + ["dev"] * 15 + ["test"] * 15
    rows = class_rows(made, parts)
    text = 'kind = "classification"\nsplits = { train = "train", dev = "dev", test = "test" }'
    task = task_file(tmp_path, text, rows)
    singles = ("--layers", "exactly 1")
    alone = {name: call_json("search", tiny_bert, task, *singles, "--pooling", name) for name in ("mean", "cls")}
    said = call_json("search", tiny_bert, task, *singles, "--pooling", "cls,mean")
    assert said["candidates"] == f"{sum(int(one['candidates'].split()[0]) for one in alone.values())} sets"
    assert said["chosen"]["dev"] == max(one["chosen"]["dev"] for one in alone.values())
    assert said["chosen"]["mix"] in {one["chosen"]["mix"] for one in alone.values()}
    assert said["chosen"]["test"] == alone[said["chosen"]["pooling"]]["chosen"]["test"]
    assert said["last"] == alone["mean"]["last"], "the last layer is that of the model's own pooling"
    assert said["splits"][0]["mix"] == said["chosen"]["mix"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ('kind = "sts"', ("--left", "a"), "task.toml: is a task, which declares its columns"),
        ('kind = "classification"', ("--metric", "f1"), "layers are searched by accuracy"),
        ('kind = "classification"', ("--head",), "--head is for pairs, but task 'mine' has classes"),
        ('kind = "retrieval"\nduplicates = true\ncolumns = { label = "label" }', (), "is of duplicates"),
    ],
)
def test_what_can_not_be_searched_for_a_task(made, tmp_path, monkeypatch, capfd, text, options, message):
    rows = [{**row, "text": "a", "query": row["sentence1"], "passage": row["sentence2"]} for row in made.rows]
    path = task_file(tmp_path, text, rows)
    code, output, error = run_main(monkeypatch, capfd, "search", "nowhere", path, *options)
    assert_one_line(code, output, error, message)
