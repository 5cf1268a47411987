"""What recipes say they reached is what the runs in benchmarks/results reached with the recipes' own settings."""

import re
from pathlib import Path

import pytest

from layerwise.train import RECIPES, load_recipe

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CLAIMED = [name for name in RECIPES.names() if re.match(r"\d", load_recipe(name).reached)]


@pytest.fixture(scope="module")
def tables():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        import training_tables

        yield training_tables


def test_every_figure_cites_runs(tables):
    assert sorted(tables.measured()) == sorted(CLAIMED)


@pytest.mark.parametrize("name", CLAIMED)
def test_a_recipe_trains_what_it_cites(name, tables):
    """A setting of the run is that of the recipe, or named in the line."""
    recipe = load_recipe(name)
    for run in tables.measured()[name]:
        cited = run["training"]["recipe"]
        both = {
            "data.limit": (cited["data"]["limit"], recipe.data.limit),
            "data.max_length": (cited["data"]["max_length"], recipe.data.max_length),
            "train.steps": (cited["train"]["steps"], recipe.train.steps),
            "train.batch_size": (cited["train"]["batch_size"], recipe.train.batch_size),
            "train.learning_rate": (cited["train"]["learning_rate"], recipe.train.learning_rate),
            "train.warmup": (cited["train"]["warmup"], recipe.train.warmup),
            "train.betas": (tuple(cited["train"]["betas"]), recipe.train.betas),
            "model.pooler": (cited["model"]["pooler"], recipe.model.pooler),
        }
        if recipe.train.steps is None:
            both["train.epochs"] = (cited["train"]["epochs"], recipe.train.epochs)
        else:
            assert f"{recipe.train.steps:,} steps" in recipe.reached or "train.steps=" in recipe.reached
        for key, (there, here) in both.items():
            assert there == here or f"{key}={there}" in recipe.reached, key
        for key, (there, _) in tables.different_settings(run, name).items():
            assert f"{key}=" in recipe.reached, (key, there)


def test_a_setting_that_differs_is_named(tables):
    (run,) = tables.measured()["small-prompt-distil"]
    train = run["training"]["recipe"]["train"] | {"learning_rate": 1.0}
    other = {**run, "training": {**run["training"], "recipe": {**run["training"]["recipe"], "train": train}}}
    assert tables.different_settings(run, "small-prompt-distil") == {}
    assert tables.different_settings(other, "small-prompt-distil") == {"train.learning_rate": (1.0, 5e-4)}
