"""`layerwise train --suggest`: for each kind of file and model, what is printed, and the recipe that is written."""

import csv

import pytest

from layerwise.model import LayerModel
from layerwise.train import load_recipe
from support.commands import call, refused
from support.tiny import save_decoder
from support.training import said, save_masked_bert

ROLES = ("anchor", "positive", "negative")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    bert = str(save_masked_bert(folder / "bert"))
    LayerModel(bert, "2 @ cls").save(folder / "sentences")
    return {"bert": bert, "sentences": str(folder / "sentences"), "llama": str(save_decoder("llama", folder / "llama"))}


def write_rows(path, columns, **more):
    texts = [said(40, seed) for seed in range(len(columns))]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*columns, *more])
        rows.writerows([*row, *(value for value in more.values())] for row in zip(*texts, strict=True))
    return path


@pytest.mark.parametrize(
    ("model", "columns", "extends", "pooler", "reason"),
    [
        ("bert", 1, "small-simcse", "last @ mask in means", "a sentence is its own positive"),
        ("bert", 2, "small-sup-eq6", "last @ mask in means", "the second column is the positive"),
        ("bert", 3, "small-sup", "last @ mask in means", "the third a hard negative"),
        ("sentences", 1, "small-simcse", "2 @ cls", "makes sentence embeddings already"),
        ("llama", 1, "smollm-distil", "3 @ last in situation", "--no-labels all --left anchor"),
        ("llama", 2, "small-sup-eq6", "last @ last in eol", "the last token of a prompt"),
    ],
)
def test_a_file_and_a_model_give_a_recipe(models, tmp_path, model, columns, extends, pooler, reason):
    corpus, out = write_rows(tmp_path / "corpus.csv", ROLES[:columns]), tmp_path / "recipe.toml"
    printed = call("train", "--suggest", corpus, "--model", models[model], "-o", out)
    assert printed.startswith(f"{extends}, because of\n- 40 rows of ")
    assert reason in printed
    assert " ".join(printed.split()).endswith(f"wrote {out}: `layerwise train {out}` trains it")
    recipe = load_recipe(out)
    assert (recipe.model.pooler, recipe.data.columns, recipe.data.files) == (pooler, ROLES[:columns], (str(corpus),))
    assert recipe.model.encoder == models[model]
    assert all(f"# {line[2:]}" in out.read_text() for line in printed.splitlines() if line.startswith("- "))


@pytest.mark.parametrize("columns", [1, 2])
def test_labels_are_refused_with_the_command_for_them(models, tmp_path, capsys, monkeypatch, columns):
    corpus, out = write_rows(tmp_path / "corpus.csv", ROLES[:columns], label="1"), tmp_path / "recipe.toml"
    message = refused(capsys, monkeypatch, "train", "--suggest", corpus, "--model", models["bert"], "-o", out)
    kind = ("sentences", "pairs")[columns - 1]
    assert message.startswith(f"error: {corpus}: holds {kind} with labels (column 'label'); declare it in a task file")
    assert f"`layerwise multitask TASKS.toml --model {models['bert']}`" in message
    assert not out.exists()


@pytest.mark.slow
def test_the_search_that_is_suggested_saves_the_teacher(models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("\n".join(said(40)))
    printed = call("train", "--suggest", "corpus.txt", "--model", models["llama"])
    (search,) = [line.split("`")[1] for line in printed.splitlines() if "layerwise search" in line]
    call(*search.split()[1:], "--prompts", "eol")
    (tmp_path / "searched" / "modules.json").stat()
