"""Recipes: those of the package, strict keys, values of the right kind, overrides, and TOML there and back."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import InputError, LayerwiseError, MissingExtraError
from layerwise.train import RECIPES, ContrastiveJob, load_recipe, parse_recipe, recipe_toml

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


@pytest.mark.parametrize("name", ["prompt-simcse", "prompt-views", "prompt-distil"])
def test_a_full_size_recipe_from_a_prompt_is_its_small_one_for_bert_base(name):
    full, small = load_recipe(name), load_recipe(f"small-{name}{'-two' if name == 'prompt-distil' else ''}")
    assert full.reached.startswith("not measured: no BERT-base here")
    assert (full.model.encoder, full.data.files) == ("bert-base-uncased", load_recipe("simcse-unsup").data.files)
    assert full.model.replaced(encoder="") == small.model
    assert full.objectives == small.objectives
    assert full.data.replaced(files=(), limit=None) == small.data.replaced(files=(), limit=None)
    assert full.train.learning_rate < small.train.learning_rate
    rest = {"learning_rate": 1e-5, "steps": None}
    assert full.train.replaced(**rest) == small.train.replaced(**rest)


def test_every_recipe_is_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "train.md").read_text(encoding="utf-8")
    assert [name for name in RECIPES.names() if f"`{name}`" not in page] == []


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
        ({"trian": {}}, r"mine.toml: Unknown key 'trian'. Did you mean 'train'\?"),
        ({"train": {"learning_rat": 1}}, r"\[train\] unknown key 'learning_rat'. Did you mean 'learning_rate'\?"),
        ({"data": {"file": ["a"]}}, r"\[data\] unknown key 'file'. Did you mean 'files'\?"),
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
        ({"train": {"betas": 0.9}}, r"betas is 0.9; expected a list"),
        ({"train": {"betas": [0.9]}}, r"betas.1 is missing"),
        ({"data": {"files": "wiki.txt"}}, r"files is 'wiki.txt'; expected a list"),
        ({"data": {"stack": 1}}, r"stack is 1; expected true or false"),
        ({"data": {"limit": "all"}}, r"limit is 'all'; expected a whole number"),
        ({"name": 3}, r"name is 3; expected text"),
        ({"train": 3}, r"train is 3; expected a table of settings"),
        ({"objective": {"name": "sg"}}, r"\[\[objective\]\] tables, in double brackets"),
        ({"objective": [{"form": "opt3"}]}, r"an \[\[objective\]\] has no name"),
        ({"objective": []}, r"mine.toml: no \[\[objective\]\]"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(tables, said):
    with pytest.raises(InputError, match=said):
        parsed(**tables)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"train": {"batch_size": 1}}, r"\[train\] batch_size is 1; expected 2 or more"),
        ({"dev": {"task": "", "patience": 3}}, "patience needs dev pairs"),
        ({"dev": {"split": "test"}}, "never picked on test data"),
        ({"model": {"head": "mpl"}}, r"\[model\] Unknown head 'mpl'. Did you mean 'mlp'\? Known: none, mlp"),
        ({"model": {"keep_head": True}}, "keep_head needs head mlp, linear or identity"),
        ({"objective": [{"name": "sg", "column": 1}]}, r"column = 1, but \[data\] has 1 column"),
        ({"objective": [{"name": "info-nce", "temperature": 0.0}]}, "temperature is 0.0; expected a number above 0"),
        ({"objective": [{"name": "info-nce"}, {"name": "info-nce"}]}, r"an \[\[objective\]\] is given twice"),
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
    RECIPES.override(tables, ["train.steps=2", "objective.sg.form=opt1"])
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
    path.write_text('extends = "sg"\n')
    with pytest.raises(InputError, match=r"mine\.tml: the name of a recipe file must end in \.toml"):
        load_recipe(path)


def test_a_recipe_of_the_user_is_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[[objective]]\nname = "sg"\n')
    assert load_recipe(path).name == "mine"
    with pytest.raises(InputError, match="no such recipe file"):
        load_recipe(tmp_path / "other.toml")
    path.write_text("[train\n")
    with pytest.raises(InputError, match=r"mine.toml: is not TOML"):
        load_recipe(path)


def test_single_brackets_are_told_from_double_ones(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[objective]\nname = "info-nce"\n[[objective]]\nname = "sscl"\n')
    with pytest.raises(InputError, match=r"mine.toml: is not TOML: .*; write \[\[objective\]\], in double brackets$"):
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


# Recipes that extend others


def write(path, text):
    path.write_text(text)
    return path


def test_what_a_recipe_extends_is_merged_key_by_key(tmp_path):
    text = 'extends = "small-sg-simcse"\n[train]\nlearning_rate = 1e-4\n[[objective]]\nname = "sg"\nform = "opt2"\n'
    base, mine = load_recipe("small-sg-simcse"), load_recipe(write(tmp_path / "mine.toml", text))
    assert (mine.name, mine.about, mine.reached) == ("mine", "", "")  # these are about another recipe
    assert mine.train == base.train.replaced(learning_rate=1e-4)
    assert (mine.data, mine.model, mine.dev) == (base.data, base.model, base.dev)
    assert mine.objectives == (base.objectives[0].replaced(form="opt2"), base.objectives[1])


def test_objectives_are_added_by_name_and_left_out_by_weight_0(tmp_path):
    text = 'extends = "small-sg-simcse"\n[[objective]]\nname = "sg"\nweight = 0\n[[objective]]\nname = "mlm"\n'
    path = write(tmp_path / "mine.toml", text)
    assert [term.name for term in load_recipe(path).objectives] == ["info-nce", "mlm"]
    back = load_recipe(path, ["objective.sg.form=opt1"])
    assert [(term.name, term.weight) for term in back.objectives] == [("info-nce", 1), ("mlm", 0.1), ("sg", 1)]
    twice = 'extends = "sg"\n[[objective]]\nname = "sg"\n[[objective]]\nname = "sg"\n'
    with pytest.raises(InputError, match="is given twice"):
        load_recipe(write(tmp_path / "twice.toml", twice))


def test_a_file_beside_can_be_extended_and_finds_its_text(tmp_path, monkeypatch):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "a.txt").write_text("x")
    write(tmp_path / "base" / "base.toml", 'extends = "simcse-unsup"\n[data]\nfiles = ["a.txt"]\n')
    path = write(tmp_path / "mine.toml", 'extends = "base/base.toml"\n[train]\nsteps = 3\n')
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    recipe = load_recipe(path)
    assert (recipe.train.steps, recipe.train.batch_size) == (3, 64)
    assert recipe.data.files == (str(tmp_path / "base" / "a.txt"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('extends = "sgg"', r"mine\.toml: extends: Unknown recipe 'sgg'. Did you mean 'sg'\?"),
        ('extends = "none.toml"', r"mine\.toml: extends: .*none\.toml: no such recipe file"),
        ("extends = 3", r"mine\.toml: extends is 3; expected the name of a recipe, or a file"),
        ('extends = "mine.toml"', r"mine\.toml: extends itself: .*mine\.toml -> .*mine\.toml; remove one"),
        ('extends = "../{folder}/mine.toml"', r"mine\.toml: extends itself: "),
        ('extends = "other.toml"', r"mine\.toml: extends itself: .*mine\.toml -> .*other\.toml -> .*mine\.toml"),
        ('extends = "bad.toml"', r"bad\.toml: train is 3; expected a table of settings, \[train\]"),
        ('extends = "sg"\ntrain = 3', r"mine\.toml: train is 3; expected a table of settings"),
        ('extends = "sg"\n[train]\nstep = 3', r"mine\.toml: \[train\] unknown key 'step'. Did you mean 'steps'\?"),
    ],
)
def test_what_can_not_be_extended(tmp_path, text, said):
    write(tmp_path / "other.toml", 'extends = "mine.toml"')
    write(tmp_path / "bad.toml", "train = 3")
    with pytest.raises(InputError, match=said) as error:
        load_recipe(write(tmp_path / "mine.toml", text.replace("{folder}", tmp_path.name)))
    assert "\n" not in str(error.value)


def test_resolved_recipes_are_what_their_whole_files_were():
    """As read before recipes could extend each other."""
    lap = load_recipe("small-lap-sscl-sup")
    assert (
        lap.data.replaced(files=())
        == parsed(data={"columns": ["anchor", "positive", "negative"]}, objective=[{"name": "info-nce"}]).data
    )
    assert lap.model.model_dump(exclude_defaults=True) == {
        "pooler": "attention(cls, mean, last=cls)",
        "head": "mlp",
        "keep_head": True,
    }
    assert [term.model_dump(exclude_defaults=True) for term in lap.objectives] == [
        {},
        {"weight": 0.1, "anchors": "last"},
    ]
    assert lap.train.model_dump(exclude_defaults=True) == {"epochs": 3, "batch_size": 256, "learning_rate": 4e-4}
    assert lap.dev.model_dump(exclude_defaults=True) == {"every": 100, "test": ("sts",)}
    back = load_recipe("bt-sg-opt")
    assert back.data.model_dump(exclude_defaults=True) == {"columns": ("text", "back_translation"), "max_length": 128}
    assert [term.model_dump(exclude_defaults=True) for term in back.objectives] == [{"column": 1}]
    assert back.train.betas == (0.9, 0.9)
    cls = load_recipe("sscl-bert-cls")
    assert [term.model_dump(exclude_defaults=True) for term in cls.objectives] == [{"positives": "self"}]
    assert (cls.model.head, cls.model.width, cls.model.pooler) == ("linear", 256, "last @ cls")


def test_nested_tables_are_written_below_their_listed_one():
    from layerwise.train.recipes.format import _table_toml

    columns = {"left": "a", "right": "b"}
    first = {"name": "near", "columns": columns, "limit": 3, "source": {"kind": "hub", "options": {"paths": ["x"]}}}
    text = "".join(_table_toml("[[task]]", "task", table) for table in (first, {"name": "b"}))
    assert tomllib.loads("x = 1\n" + text) == {"x": 1, "task": [first, {"name": "b"}]}


def test_without_the_extra_recipes_are_read_and_training_shows_the_install_line(monkeypatch):
    monkeypatch.setattr("layerwise.extras.find_spec", lambda name: None)
    recipe = load_recipe("small-simcse")
    with pytest.raises(
        MissingExtraError, match=r"^training needs accelerate, tomli_w: pip install 'layerwise\[train\]'$"
    ):
        ContrastiveJob(recipe, encoder="default")
    with pytest.raises(MissingExtraError, match=r"^writing a recipe needs tomli_w: pip install 'layerwise\[train\]'$"):
        recipe_toml(recipe)
