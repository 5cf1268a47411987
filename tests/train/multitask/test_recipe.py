"""Recipes of tasks: from task files, names of the catalogue and inline tables; the same file evaluates."""

import tomllib

import pytest

from layerwise.data import find_tasks, known_tasks, read_task_file
from layerwise.errors import InputError
from layerwise.train import load_multitask_recipe, multitask_toml, parse_multitask_recipe
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
