"""The multitask comparison's rows and tables: every row is a recipe, and made-up runs become the tables by hand."""

import json
from pathlib import Path

import pytest

from layerwise.multitask.build import check_trainable
from layerwise.multitask.recipe import load_multitask_recipe

ROOT = Path(__file__).parents[1]


@pytest.fixture
def rows(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import multitask_rows

    return multitask_rows


@pytest.fixture
def tables(rows, monkeypatch, tmp_path):
    """The tables of runs that are given."""
    import evaluation_tables
    import multitask_tables

    monkeypatch.setattr(evaluation_tables, "RESULTS", tmp_path)
    monkeypatch.setattr(multitask_tables, "RESULTS", tmp_path)

    def write(runs):
        (tmp_path / "multitask.json").write_text(json.dumps({"runs": runs}))
        return multitask_tables

    return write if rows else None


def run(row, seed, encoder="all-MiniLM-L6-v2", **scores):
    metrics = {"sst": "accuracy", "quora": "accuracy", "sts": "pearson", "cfimdb": "accuracy"}
    dev = {f"{task}/{metrics[task]}": score for task, score in scores.items()}
    return {"row": row, "encoder": encoder, "seed": seed, "steps": 500, "seconds": 9.0, "dev": dev}


def test_every_row_is_a_recipe_that_differs_from_the_default_row(rows):
    default = load_multitask_recipe("cs224n", rows.sets_of(rows.ROWS["default"], "wiki-mlm-12x384"))
    names = {task.name for task in default.tasks}
    for name, row in rows.ROWS.items():
        recipe = load_multitask_recipe("cs224n", rows.sets_of(row, "wiki-mlm-12x384"))
        check_trainable(recipe)
        assert set(row.tasks) <= names
        assert (recipe != default) == (name != "default" and (bool(row.sets) or not row.based)), name
        assert recipe.train.steps == (500 if row.based else None)
    assert load_multitask_recipe("cs224n") == load_multitask_recipe("cs224n", rows.sets_of(rows.ROWS["final"], "any"))


def test_every_row_has_a_place_in_the_tables(rows):
    known = {*rows.GROUPS, rows.SINGLE, rows.FINAL, ""}
    assert {row.group for row in rows.ROWS.values()} == known
    assert set(rows.ALSO) == set(rows.GROUPS) - {rows.VIEWS}


def test_tables_say_mean_and_deviation_and_where_joint_training_costs(tables):
    runs = [run("default", seed, sst=0.4 + seed / 10, quora=0.8, sts=0.6) for seed in (0, 1)]
    runs += [run("mlp", 0, sst=0.5, quora=0.7, sts=0.6), run("single-sst", 0, sst=0.45), run("single-sst", 1, sst=0.55)]
    runs += [run("final", 0, sst=0.5, quora=0.8, sts=0.8, cfimdb=0.9)]
    made = tables(runs)
    said = made.multitask_table()
    assert "| heads (table 2) | one linear layer | 0.450 ± 0.071 | 0.800 ± 0.000 | 0.600 ± 0.000 | 0.683" in said
    assert "| heads (table 2) | three layers | 0.500 | 0.700 | 0.600 | 0.667 | SST .319 | 1 |" in said
    assert "| all-MiniLM-L6-v2 | SST-5 | 0.500 ± 0.071 | 0.450 ± 0.071 |  | -0.050 ± 0.000 |" in said
    assert "Joint training costs on SST-5 (all-MiniLM-L6-v2: -0.050 ± 0.000)." in said
    assert "| all-MiniLM-L6-v2 | 0.500 | 0.800 | 0.800 | 0.733 | 0.900 | 1 |" in said
    assert "overall of the paper's three 0.733" in made.multitask_reached()["cs224n"]


def test_without_results_there_is_one_line(tables, tmp_path):
    made = tables([])
    (tmp_path / "multitask.json").unlink()
    assert made.multitask_table() == made.NOT_YET
    assert made.multitask_reached() == {}
