"""Recipes of tasks: from task files, names of the catalogue and inline tables; the same file evaluates."""

import tomllib
from pathlib import Path

import pytest

from layerwise.data import find_tasks, known_tasks, read_task_file
from layerwise.errors import InputError
from layerwise.train import MULTITASK_RECIPES, load_multitask_recipe, multitask_toml, parse_multitask_recipe
from support.multitasking import RECIPE, save_tasks

PLAIN = """
[[task]]
name = "mood"
kind = "classification"
file = "mood.csv"
splits = { train = "train", dev = "dev" }
"""


@pytest.fixture
def folder(tmp_path):
    save_tasks(tmp_path)
    (tmp_path / "plain.toml").write_text(PLAIN)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path


def test_a_task_file_is_a_recipe_with_the_defaults(folder):
    recipe = load_multitask_recipe(folder / "plain.toml", ["objective.mood.head=mlp"])
    assert (recipe.name, [task.name for task in recipe.tasks]) == ("plain", ["mood"])
    assert (recipe.setups[0].head, recipe.objectives[0].max_length) == ("mlp", 128)
    assert recipe.tasks == tuple(read_task_file(folder / "plain.toml"))


def test_tasks_of_files_of_the_catalogue_and_of_the_recipe_itself(folder):
    text = 'tasks = ["plain.toml", "SST-5"]\n' + PLAIN.replace('"mood"', '"again"')
    (folder / "many.toml").write_text(
        text + '[[objective]]\ntask = "sst5"\nweight = 0.5\n[mixing]\nweights = "given"\n'
    )
    recipe = load_multitask_recipe(folder / "many.toml")
    assert [task.name for task in recipe.tasks] == ["mood", "sst5", "again"]
    assert recipe.tasks[1] == known_tasks()["sst5"]
    assert [one.weight for one in recipe.objectives] == [1, 0.5, 1]
    assert parse_multitask_recipe(tomllib.loads(multitask_toml(recipe)), where="many.toml") == recipe
    with pytest.raises(InputError, match=r"two\.toml: .*task 'mood' comes twice"):
        (folder / "two.toml").write_text('tasks = ["plain.toml"]\n' + PLAIN)
        load_multitask_recipe(folder / "two.toml")


def test_a_recipe_with_its_tasks_is_a_task_file(folder):
    tasks = find_tasks([str(folder / "recipe.toml")])
    assert [(task.name, task.kind) for task in tasks] == [
        ("mood", "classification"), ("same", "classification"), ("near", "sts")
    ]  # fmt: skip
    assert tuple(tasks) == load_multitask_recipe(folder / "recipe.toml").tasks


def test_the_file_of_a_task_is_in_the_data_folder_beside_the_recipe_or_here(folder, tmp_path_factory, monkeypatch):
    data, here = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    (here / "mood.csv").write_text("")

    def file(**options):
        return load_multitask_recipe(folder / "plain.toml", **options).tasks[0].file

    assert file() == file(data=str(data)) == str(folder / "mood.csv")
    (data / "mood.csv").write_text("")
    assert file(data=str(data)) == str(data / "mood.csv")
    (folder / "mood.csv").unlink()
    assert file() == "mood.csv"


def test_the_shipped_recipe_reads_and_writes_itself():
    assert MULTITASK_RECIPES.names() == ["cs224n"]
    shipped = load_multitask_recipe("cs224n")
    assert [one.name for one in shipped.tasks] == ["sst", "cfimdb", "quora", "sts"]
    assert [one.max_length for one in shipped.objectives] == [64, 256, 64, 64]
    assert [one.metric for one in shipped.tasks] == ["accuracy", "accuracy", "accuracy", "pearson"]
    assert (shipped.train.batch_size, shipped.train.learning_rate) == (32, 1e-4)
    assert (shipped.mixing.iteration, shipped.objectives[-1].head) == ("temperature", "cosine")
    assert [one.label_names[-1:] for one in shipped.tasks] == [("very positive",), ("positive",), ("duplicate",), ()]
    assert parse_multitask_recipe(tomllib.loads(multitask_toml(shipped))) == shipped


def test_settings_can_be_changed_by_their_place():
    sets = ["objective.sst.head=mlp", "mixing.weights=given", "objective.cfimdb.weight=0", "train.steps=9"]
    changed = load_multitask_recipe("cs224n", sets)
    assert (changed.objectives[0].head, changed.objectives[1].weight, changed.train.steps) == ("mlp", 0, 9)


def test_a_text_that_looks_like_a_number_is_a_text():
    assert load_multitask_recipe("cs224n", ["model.pooler=6"]).model.pooler == "6"
    assert load_multitask_recipe("cs224n", ["model.pooler='6 @ cls'"]).model.pooler == "6 @ cls"
    with pytest.raises(InputError, match="steps is 'six'; expected a whole number"):
        load_multitask_recipe("cs224n", ["train.steps=six"])


def test_a_set_value_that_does_not_fit_is_not_blamed_on_the_file_alone():
    with pytest.raises(
        InputError, match=r"^cs224n\.toml, changed by --set: \[mixing\] temperature 2 has no effect with"
    ):
        load_multitask_recipe("cs224n", ["mixing.iteration=cycling"])
    with pytest.raises(
        InputError, match=r"^cs224n\.toml, changed by --set: objective of task 'sts': weight 0\.3 .* or weight = 1$"
    ):
        load_multitask_recipe("cs224n", ["mixing.weights=inverse-size"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "Unknown key 'x'"),
        ("[mixing]\nfrozen = true", r"\[mixing\] unknown key 'frozen'. Did you mean 'frozen_encoder'"),
        ("[task]\nname = 'a'", r"tasks are written as \[\[task\]\] tables, in double brackets"),
        ("[[task]]\nname = 'a'", "task 'a': kind is missing"),
        ("[[task]]\nkind = 'sts'", r"number 1: name is missing"),
        ("", r"no tasks; name task files, tasks = .*, or write \[\[task\]\] tables"),
        ("tasks = 'a.toml'", "tasks is 'a.toml'; expected a list of task files and names"),
        ("tasks = ['stsc']", "Unknown task 'stsc'"),
        ("tasks = ['none.toml']", r"none\.toml: cannot be read: No such file"),
        ("tasks = ['stsb']\n[[objective]]\nhead = 'mlp'", r"\[\[objective\]\]: task is missing"),
        (
            RECIPE.replace('splits = {train = ["train"], dev = "dev"}', 'splits = "dev"'),
            "splits is 'dev'; expected a t",
        ),
        (RECIPE.replace("max_length = 16", 'max_length = "long"'), "max_length is 'long'; expected a whole number"),
        (RECIPE.replace('"cosine"', '"cosin"'), "task 'near': Unknown head of sts 'cosin'"),
        ("[", "not TOML"),
    ],
)
def test_wrong_recipes_are_refused_with_their_place(tmp_path, text, said):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InputError, match=said):
        load_multitask_recipe(tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [("[task]\nname = 'a'", "in double brackets"), ("train = 5", "train is 5; expected a table of settings")],
)
@pytest.mark.parametrize("sets", ["objective.a.head=mlp", "train.steps=3"])
def test_values_are_put_into_tables_alone(tmp_path, text, said, sets):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InputError, match=rf"mine\.toml.*: .*{said}"):
        load_multitask_recipe(tmp_path / "mine.toml", [sets])


def test_labels_may_be_written_as_numbers(tmp_path):
    given = 'name = "a"\nkind = "classification"\nfile = "a.csv"\nsplits = {train = "train", dev = "dev"}\n'
    (tmp_path / "mine.toml").write_text(f"[[task]]\n{given}labels = [0, 1.0, true]\n")
    assert load_multitask_recipe(tmp_path / "mine.toml").tasks[0].labels == ("0", "1", "True")


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (
            ["objective.sts5.head=mlp"],
            r"Unknown task 'sts5'. Did you mean 'sts'\? Known: sst, cfimdb",
        ),
        (["task.sts5.metric=pearson"], r"Unknown task 'sts5'. Did you mean 'sts'\?"),
        (["trian.steps=3"], r"no such table. Did you mean 'train.steps'\?"),
    ],
)
def test_wrong_sets_are_refused(sets, said):
    with pytest.raises(InputError, match=said):
        load_multitask_recipe("cs224n", sets)
    with pytest.raises(InputError, match=r"Unknown recipe 'cs224'. Did you mean 'cs224n'\?"):
        load_multitask_recipe("cs224")


def test_the_recipe_of_the_docs_is_one():
    page = (Path(__file__).parents[3] / "docs/multitask.md").read_text(encoding="utf-8")
    found = parse_multitask_recipe(tomllib.loads(page.split("```toml")[1].split("```")[0]))
    assert [task.name for task in found.tasks] == ["reviews", "near"]


def test_what_a_recipe_leaves_out_is_what_was_found_best(tmp_path):
    given = 'kind = "sts"\nfile = "a.csv"\nsplits = {train = "train", dev = "dev"}\n'
    (tmp_path / "mine.toml").write_text(f'[model]\nhead = "mlp"\n[[task]]\nname = "near"\n{given}')
    found = load_multitask_recipe(tmp_path / "mine.toml")
    assert (found.model.pooler, found.model.head) == ("last @ mean", "mlp")
    assert (found.setups[0].head, found.tasks[0].metric) == ("cosine", "spearman")
    assert load_multitask_recipe(tmp_path / "mine.toml", ["model.pooler=last @ cls"]).model.pooler == "last @ cls"


def test_a_recipe_extends_another(folder):
    """Tasks are merged by name, objectives by task; files lie beside the recipe that names them."""
    (folder / "sub").mkdir()
    (folder / "sub" / "child.toml").write_text(
        'extends = "../recipe.toml"\n[mixing]\nweights = "given"\n[[task]]\nname = "near"\nmetric = "spearman"\n'
        '[[objective]]\ntask = "same"\nweight = 0\n[[objective]]\ntask = "mood"\nhead = "mlp"\n'
    )
    base, child = load_multitask_recipe(folder / "recipe.toml"), load_multitask_recipe(folder / "sub" / "child.toml")
    assert child.name == "child"
    assert [Path(task.file).resolve() for task in child.tasks] == [Path(task.file) for task in base.tasks]
    assert [task.metric for task in child.tasks] == ["accuracy", "accuracy", "spearman"]
    assert [(one.weight, one.head, one.max_length) for one in child.objectives] == [
        (1, "mlp", 16), (0, "", 16), (1, "cosine", 16)
    ]  # fmt: skip
    assert [setup.name for setup in child.trained] == ["mood", "near"]
    assert parse_multitask_recipe(tomllib.loads(multitask_toml(child))) == child
