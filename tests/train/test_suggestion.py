"""What is suggested for a file and a model: the recipe, its reasons, and that it runs."""

import csv
import json

import numpy as np
import pytest

from layerwise import LayerModel
from layerwise.errors import InputError
from layerwise.train import ContrastiveJob, load_recipe, pairs_task, suggest, train
from support.slow_cases import one_in
from support.tiny import save_decoder
from support.training import said, save_masked_bert


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    return str(save_masked_bert(tmp_path_factory.mktemp("masked") / "bert"))


def write_csv(path, header, count=40, **values):
    columns = [said(count, seed) for seed in range(len(header))]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*header, *values])
        for number, row in enumerate(zip(*columns, strict=True)):
            rows.writerow([*row, *(value(number) for value in values.values())])
    return str(path)


def suggested(tmp_path, corpus, model, **options):
    suggestion = suggest(corpus, model=model, **options)
    (tmp_path / "recipe.toml").write_text(suggestion.toml)
    return suggestion, load_recipe(tmp_path / "recipe.toml")


@pytest.mark.parametrize(
    ("header", "texts", "extends"),
    one_in(
        2,
        [
            (["text"], ("text",), "small-simcse"),
            (["positive", "anchor"], ("anchor", "positive"), "small-sup-eq6"),
            (["one", "other"], ("one", "other"), "small-sup-eq6"),
            (["negative", "positive", "anchor"], ("anchor", "positive", "negative"), "small-sup"),
        ],
    ),
)
def test_columns_decide_the_recipe_and_it_runs(tmp_path, masked, header, texts, extends):
    corpus = write_csv(tmp_path / "corpus.csv", header, source=lambda row: "here" if row % 2 else "there")
    suggestion, recipe = suggested(tmp_path, corpus, masked)
    assert (suggestion.extends, recipe.data.columns) == (extends, texts)
    assert recipe.model.pooler == "last @ mask in means"
    assert recipe.train.batch_size == 4
    assert any(f"40 rows of {('sentences', 'pairs', 'triples')[len(texts) - 1]}" in line for line in suggestion.reasons)
    assert any("small-prompt-views" in line for line in suggestion.reasons) == (extends == "small-simcse")
    short = load_recipe(tmp_path / "recipe.toml", ["train.steps=2", "data.max_length=16"])
    assert train(ContrastiveJob(short), tmp_path / "run", device="cpu").facts["steps"] == 2


@pytest.mark.slow
def test_a_decoders_views_teach_an_encoder(tmp_path, masked):
    decoder = LayerModel(
        str(save_decoder("llama", tmp_path / "llama")), "views(2*1,-1*2 @ mean; 4 @ last in eol; unit)"
    )
    decoder.save(tmp_path / "searched")
    (tmp_path / "corpus.txt").write_text("\n".join(said(60)))
    sets = [f'objective.distil.teacher="{tmp_path}/searched"', f'data.files=["{tmp_path}/corpus.txt"]', "dev.task="]
    recipe = load_recipe("small-prompt-views", [*sets, "train.steps=2", "train.batch_size=8", "data.max_length=16"])
    trained = train(ContrastiveJob(recipe, encoder=masked), tmp_path / "run", device="cpu")
    assert (trained.facts["steps"], str(trained.model.mix)) == (2, "4 @ mask in means")
    assert trained.facts["teacher"]["mix"] == str(decoder.mix)
    assert np.isfinite(trained.model.encode(said(3))).all()


@pytest.mark.slow
def test_a_decoder_learns_its_own_searched_views(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("\n".join(said(40)))
    llama = str(save_decoder("llama", tmp_path / "llama"))
    suggestion, recipe = suggested(tmp_path, "corpus.txt", llama)
    assert suggestion.extends == "smollm-distil"
    assert [term.teacher for term in recipe.objectives] == ["searched"]
    assert (recipe.model.pooler, recipe.model.dropout, recipe.train.steps) == ("3 @ last in situation", 0.0, 100)
    (search,) = [line for line in suggestion.reasons if "layerwise search" in line]
    assert search.endswith(f"`layerwise search {llama} corpus.txt --no-labels all --prompts auto --save searched`")
    LayerModel(llama, "views(2*1,-1*2 @ mean; 4 @ last in eol; unit)").save("searched")
    short = load_recipe("recipe.toml", ["train.steps=2", "data.max_length=16"])
    assert train(ContrastiveJob(short), tmp_path / "run", device="cpu").facts["steps"] == 2
    pairs = write_csv(tmp_path / "pairs.csv", ["left", "right"], score=lambda row: row % 5)
    (tmp_path / "dev.toml").write_text(pairs_task(pairs))
    suggestion, _ = suggested(tmp_path, "corpus.txt", llama, dev="dev.toml")
    assert f"layerwise search {llama} dev.toml --remove mean --corpus corpus.txt" in suggestion.reasons[1]
    triples = write_csv(tmp_path / "triples.csv", ["anchor", "positive", "negative"])
    suggestion, recipe = suggested(tmp_path, triples, llama)
    assert (suggestion.extends, recipe.model.pooler) == ("small-sup", "last @ last in eol")


def test_a_sentence_encoder_keeps_its_pooling(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(said(40)))
    corpus = str(tmp_path / "corpus.txt")
    finished, recipe = suggested(tmp_path, corpus, "default")
    assert (recipe.model.pooler, recipe.train.learning_rate) == ("6 @ mean", 2e-5)
    assert any("makes sentence embeddings already" in line for line in finished.reasons)
    assert not any("small-prompt-views" in line for line in finished.reasons)


@pytest.mark.slow
def test_graded_pairs_pick_the_best_step(tmp_path, masked):
    corpus = write_csv(tmp_path / "corpus.csv", ["text"])
    pairs = write_csv(tmp_path / "pairs.csv", ["left side", "right side"], score=lambda row: row % 5)
    (tmp_path / "dev.toml").write_text(pairs_task(pairs))
    suggestion, recipe = suggested(tmp_path, corpus, masked, dev=str(tmp_path / "dev.toml"))
    assert any("picks the best step" in line for line in suggestion.reasons)
    short = load_recipe(tmp_path / "recipe.toml", ["train.steps=2", "dev.every=1", "data.max_length=16"])
    assert train(ContrastiveJob(short), tmp_path / "run", device="cpu").facts["dev"]["task"] == "dev-pairs, all rows"
    assert recipe.dev.test == ()


def test_mistakes_are_told(tmp_path, masked):
    labelled = write_csv(tmp_path / "labelled.csv", ["text"], label=lambda row: row % 2)
    with pytest.raises(
        InputError, match=r"holds sentences with labels .*`layerwise multitask TASKS.toml --model my-model`"
    ):
        suggest(labelled, model="my-model")
    (tmp_path / "numbers.jsonl").write_text("\n".join(json.dumps({"n": number}) for number in range(9)))
    with pytest.raises(InputError, match="none of its columns n holds texts"):
        suggest(str(tmp_path / "numbers.jsonl"), model=masked)
    (tmp_path / "one.txt").write_text("a sentence\n")
    with pytest.raises(InputError, match=r"has 1 row\(s\); give two or more"):
        suggest(str(tmp_path / "one.txt"), model=masked)
    with pytest.raises(InputError, match="dev pairs have two columns of texts and one of scores"):
        pairs_task(labelled)
    with pytest.raises(InputError, match="Unknown task"):
        suggest(labelled, model=masked, dev="nothing")
