"""Recipes: those of the package, strict keys, values of the right kind, overrides, and TOML there and back."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import InputError, LayerwiseError
from layerwise.train.recipe import RECIPES, load_recipe, parse_recipe, recipe_toml

PUBLISHED = {
    *("simcse-unsup", "simcse-sup-eq6", "simcse-sup", "sg", "sg-opt", "sg-opt1", "sg-opt2", "bt-sg-opt"),
    *("sscl-bert-cls", "sscl-bert-avg", "sscl-simcse", "sscl-progressive"),
    *("lap-unsup", "lap-sup-eq6", "lap-sup", "diffcse", "diffcse-lap"),
}
PLAIN = {"name": "mine", "objective": [{"name": "info-nce"}]}


def parsed(**tables):
    return parse_recipe(PLAIN | tables, where="mine.toml")


def test_an_objective_of_weight_0_is_left_out():
    left = load_recipe("small-sg-simcse", ["objective.sg.weight=0"]).objectives
    assert [term.name for term in left] == ["info-nce"]


def test_every_published_row_has_a_recipe():
    assert set(RECIPES.names()) >= PUBLISHED


@pytest.mark.parametrize("name", RECIPES.names())
def test_a_shipped_recipe_is_valid_and_says_what_it_is(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.about
    assert "\n" not in recipe.about
    assert recipe.dev.task == "stsb"
    assert recipe.dev.test == ("sts",)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_published_recipe_names_its_encoder_and_cites_its_figure(name):
    recipe = load_recipe(name)
    assert recipe.model.encoder == "bert-base-uncased"
    assert "published: " in recipe.reached
    assert recipe.data.files or name == "bt-sg-opt"  # back-translations are the user's own
    assert all(file.startswith("hub:") for file in recipe.data.files)


@pytest.mark.parametrize("name", [name for name in RECIPES.names() if name.startswith("small-")])
def test_a_small_recipe_takes_any_encoder(name):
    recipe = load_recipe(name)
    assert recipe.model.encoder == ""
    assert recipe.data.files


def test_published_settings_are_those_of_the_papers():
    simcse, supervised, sg = load_recipe("simcse-unsup"), load_recipe("simcse-sup"), load_recipe("sg-opt")
    assert (simcse.train.batch_size, simcse.train.learning_rate, simcse.model.keep_head) == (64, 3e-5, False)
    assert (supervised.train.batch_size, supervised.train.epochs, supervised.model.keep_head) == (512, 3, True)
    assert len(supervised.data.columns) == 3
    assert (sg.train.betas, sg.train.warmup, sg.train.weight_decay) == ((0.9, 0.9), 0.1, 0.01)
    assert (sg.objectives[0].temperature, sg.pull, sg.dev.patience) == (0.01, 0.1, 10)
    assert sg.data.stack
    assert sg.model.freeze == ("embeddings",)


def test_published_settings_of_the_other_papers():
    batch = {name: (load_recipe(name).train.batch_size, load_recipe(name).train.learning_rate) for name in PUBLISHED}
    assert batch["lap-unsup"] == batch["sscl-simcse"] == batch["sscl-progressive"] == (64, 3e-5)
    assert (batch["lap-sup-eq6"], batch["lap-sup"], batch["diffcse"]) == ((256, 1e-5), (256, 2e-5), (64, 7e-6))
    attention, plain, triples = (load_recipe(name) for name in ("lap-sup", "lap-sup-eq6", "simcse-sup"))
    assert (attention.model.pooler, attention.model.keep_head) == ("attention(cls, mean, last=cls)", True)
    assert attention.objectives[0].hard_negative_weight == 1.0  # the authors' code; SimCSE's is 0
    assert (triples.objectives[0].hard_negative_weight, len(plain.data.columns)) == (0.0, 2)
    layers = {name: load_recipe(name).objectives[0].layers for name in ("sscl-simcse", "sscl-progressive")}
    assert layers == {"sscl-simcse": (-2,), "sscl-progressive": (-2, -3)}
    assert load_recipe("sscl-bert-cls").objectives[0].positives == "self"
    contrast, replaced = load_recipe("diffcse").objectives
    assert (contrast.name, replaced.weight, replaced.share) == ("info-nce", 0.005, 0.30)
    assert load_recipe("diffcse").model.head == "mlp-bn"


def test_back_translations_are_read_by_the_frozen_copy_alone():
    recipe = load_recipe("bt-sg-opt")
    assert recipe.frozen.column == 1
    assert recipe.student_columns == 1


@pytest.mark.parametrize("name", RECIPES.names())
def test_written_as_toml_it_is_the_same_recipe(name):
    recipe = load_recipe(name, ["data.limit=500", "train.learning_rate=0.00001", "dev.measures=['uniformity']"])
    assert parse_recipe(tomllib.loads(recipe_toml(recipe))) == recipe


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(1e-9, 1e3), st.lists(st.text("ab\\\"'\n\x7f")))
def test_any_text_and_number_survive_toml(about, rate, files):
    recipe = parsed(about=about, train={"learning_rate": rate}, data={"files": files})
    assert parse_recipe(tomllib.loads(recipe_toml(recipe))) == recipe


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"trian": {}}, r"mine.toml: unknown key 'trian'. Did you mean 'train'\?"),
        ({"train": {"learning_rat": 1}}, r"\[train\]: unknown key 'learning_rat'. Did you mean 'learning_rate'\?"),
        ({"data": {"file": ["a"]}}, r"\[data\]: unknown key 'file'. Did you mean 'files'\?"),
        ({"objective": [{"name": "sg", "fom": "opt3"}]}, r"'sg': unknown key 'fom'. Did you mean 'form'\?"),
    ],
)
def test_an_unknown_key_gets_a_suggestion(tables, said):
    with pytest.raises(InputError, match=said):
        parsed(**tables)


def test_an_unknown_objective_gets_a_suggestion():
    with pytest.raises(LayerwiseError, match=r"Unknown objective 'info-nse'. Did you mean 'info-nce'"):
        parsed(objective=[{"name": "info-nse"}])


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"train": {"batch_size": "many"}}, r"batch_size is 'many'; expected a whole number"),
        ({"train": {"batch_size": 64.0}}, r"batch_size is 64.0; expected a whole number"),
        ({"train": {"learning_rate": True}}, r"learning_rate is True; expected a number"),
        ({"train": {"betas": 0.9}}, r"betas is 0.9; expected a list of a number"),
        ({"train": {"betas": [0.9]}}, r"betas are two numbers from 0 to below 1"),
        ({"data": {"files": "wiki.txt"}}, r"files is 'wiki.txt'; expected a list of text"),
        ({"data": {"stack": 1}}, r"stack is 1; expected true or false"),
        ({"data": {"limit": "all"}}, r"limit is 'all'; expected a whole number"),
        ({"name": 3}, r"name is 3; expected text"),
        ({"train": 3}, r"\[train\]: expected a table of settings"),
        ({"objective": {"name": "sg"}}, r"\[\[objective\]\] tables, in double brackets"),
        ({"objective": [{"form": "opt3"}]}, r"an \[\[objective\]\] has no name"),
        ({"objective": []}, r"has no \[\[objective\]\]"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(tables, said):
    with pytest.raises(InputError, match=said):
        parsed(**tables)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"train": {"batch_size": 1}}, "one-sentence batches have no negatives"),
        ({"dev": {"task": "", "patience": 3}}, "patience needs a dev set"),
        ({"dev": {"split": "test"}}, "never picked on test data"),
        ({"model": {"head": "mpl"}}, r"\[model\] head 'mpl' is not known; known: none, mlp"),
        ({"model": {"keep_head": True}}, "keep_head needs head mlp or linear"),
        ({"objective": [{"name": "sg", "column": 1}]}, r"column = 1, but \[data\] has 1 column"),
        ({"objective": [{"name": "info-nce", "temperature": 0.0}]}, "temperature must be above 0"),
        ({"objective": [{"name": "info-nce"}, {"name": "info-nce"}]}, "an objective comes twice"),
    ],
)
def test_settings_that_can_not_be_are_refused(tables, said):
    with pytest.raises(InputError, match=said):
        parsed(**tables)


def test_a_layer_is_not_judged_before_there_is_an_encoder():
    assert parsed(objective=[{"name": "sscl", "layers": [-99]}]).objectives[0].layers == (-99,)


def test_overrides_change_single_values():
    recipe = load_recipe(
        "small-sscl-simcse",
        [
            "train.learning_rate=1e-4",
            "train.betas=[0.8, 0.99]",
            "model.encoder=my-model",
            "objective.sscl.layers=[-2, -3]",
            "objective.info-nce.weight=0.5",
            "name=mine",
        ],
    )
    assert recipe.train.learning_rate == 1e-4
    assert recipe.train.betas == (0.8, 0.99)
    assert recipe.model.encoder == "my-model"
    assert recipe.objectives[0].layers == (-2, -3)
    assert (recipe.objectives[1].name, recipe.objectives[1].weight) == ("info-nce", 0.5)
    assert recipe.name == "mine"


def test_overrides_leave_the_tables_as_they_were():
    tables = {"train": {"steps": 1}, "objective": [{"name": "sg"}]}
    RECIPES.overridden(tables, ["train.steps=2", "objective.sg.form=opt1"])
    assert tables == {"train": {"steps": 1}, "objective": [{"name": "sg"}]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train.learning_rate", "write table.key=value"),
        ("=3", "write table.key=value"),
        ("trian.steps=3", "no such table. Did you mean 'train.steps'"),
        ("train.a.b=3", "no such table"),
        ("objective.form=opt1", "no such table"),
        ("train.learningrate=3", "unknown key 'learningrate'. Did you mean 'learning_rate'"),
        ("train.steps=few", "steps is 'few'; expected a whole number"),
    ],
)
def test_an_override_that_can_not_be_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        load_recipe("simcse-unsup", [text])


def test_an_unknown_recipe_gets_a_suggestion():
    with pytest.raises(InputError, match=r"Unknown recipe 'simcse-unsupp'. Did you mean 'simcse-unsup'"):
        load_recipe("simcse-unsupp")


def test_a_file_of_another_ending_is_no_recipe(tmp_path):
    path = tmp_path / "mine.tml"
    path.write_text(RECIPES.text("sg")[0])
    with pytest.raises(InputError, match=r"mine\.tml: a recipe file's name ends in \.toml"):
        load_recipe(path)


def test_a_recipe_of_the_user_is_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(RECIPES.text("sg")[0].replace('name = "sg"\nabout', "about", 1))
    assert load_recipe(path).name == "mine"
    with pytest.raises(InputError, match="no such recipe file"):
        load_recipe(tmp_path / "other.toml")
    path.write_text("[train\n")
    with pytest.raises(InputError, match=r"mine.toml: not TOML"):
        load_recipe(path)


def test_single_brackets_are_told_from_double_ones(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[objective]\nname = "info-nce"\n[[objective]]\nname = "sscl"\n')
    with pytest.raises(InputError, match=r"mine.toml: not TOML: .*; write \[\[objective\]\], in double brackets$"):
        load_recipe(path)


def test_a_misspelt_ending_is_told_what_files_end_in():
    with pytest.raises(InputError, match=r"Unknown recipe 'mine.tml'.* Known: bt-sg-opt, .*; or give a file \*.toml$"):
        load_recipe("mine.tml")


def test_files_of_a_recipe_file_may_lie_beside_it(tmp_path, monkeypatch):
    folder = tmp_path / "some where"
    folder.mkdir()
    text = '[data]\nfiles = ["a.txt", "b.txt", "wiki1m.parquet"]\n[[objective]]\nname = "info-nce"\n'
    (folder / "mine.toml").write_text(text)
    (folder / "a.txt").write_text("beside")
    (folder / "b.txt").write_text("beside")
    (tmp_path / "b.txt").write_text("here")
    monkeypatch.chdir(tmp_path)
    found = (str(folder / "a.txt"), "b.txt")  # what is in the current folder comes first
    assert load_recipe(folder / "mine.toml").data.files == (*found, "wiki1m.parquet")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("in the data folder")
    assert load_recipe(folder / "mine.toml", data=str(tmp_path / "data")).data.files[0] == "a.txt"
