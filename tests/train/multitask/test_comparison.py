"""The multitask comparison's rows and tables: every row is a recipe, and made-up runs become the tables by hand."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerwise.train import load_multitask_recipe

ROOT = Path(__file__).parents[3]


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

    def write(runs, trials=()):
        (tmp_path / "multitask.json").write_text(json.dumps({"runs": runs}))
        (tmp_path / "multitask_trials.json").write_text(json.dumps({"runs": trials}))
        return multitask_tables

    return write if rows else None


def run(row, seed, encoder="all-MiniLM-L6-v2", *, rate="2e-4", **scores):
    metrics = {"sst": "accuracy", "quora": "accuracy", "sts": "pearson", "cfimdb": "accuracy"}
    dev = {f"{task}/{metrics[task]}": score for task, score in scores.items()}
    sets = ["train.learning_rate=9", f"train.learning_rate={rate}"]  # the last one holds
    return {"row": row, "encoder": encoder, "seed": seed, "sets": sets, "steps": 500, "seconds": 9.0, "dev": dev}


def test_every_row_is_a_recipe_that_differs_from_the_default_row(rows):
    default = load_multitask_recipe("cs224n", rows.sets_of(rows.ROWS["default"], "wiki-mlm-12x384"))
    names = {task.name for task in default.tasks}
    for name, row in rows.ROWS.items():
        recipe = load_multitask_recipe("cs224n", rows.sets_of(row, "wiki-mlm-12x384"))
        assert set(row.tasks) <= names
        assert (recipe != default) == (name != "default" and (bool(row.sets) or not row.based)), name
        assert recipe.train.steps == (500 if row.based else None)
    shipped = load_multitask_recipe("cs224n")
    for encoder in rows.FINAL_ENCODERS:
        final = load_multitask_recipe("cs224n", rows.sets_of(rows.ROWS["final"], encoder))
        assert final.replaced(train=shipped.train) == shipped
        assert final.train.replaced(learning_rate=shipped.train.learning_rate) == shipped.train
    assert rows.FINAL_RATES["all-MiniLM-L6-v2"] == "1e-4"  # the shipped recipe's own, of its own encoder
    assert shipped.train.learning_rate == 1e-4


def test_the_steps_of_table_8_end_at_the_papers_final_model(rows):
    steps = [
        load_multitask_recipe("cs224n", rows.sets_of(rows.ROWS[f"step-{n}"], "wiki-mlm-12x384")) for n in range(1, 5)
    ]
    named = [{setup.name: setup for setup in step.setups} for step in steps]
    assert [tasks["sts"].head for tasks in named] == ["linear", "cosine", "cosine", "cosine"]
    assert [tasks["quora"].objective.features for tasks in named] == [
        "concat",
        "concat",
        "difference-sum",
        "difference-sum",
    ]
    assert [tasks["sst"].head for tasks in named] == ["linear", "linear", "mlp", "mlp"]
    assert [step.train.max_grad_norm for step in steps] == [0, 0, 0, 1]
    assert [
        (step.mixing.weights, tasks["sst"].objective.contrast) for step, tasks in zip(steps, named, strict=True)
    ] == [
        *[("equal", 0.0)] * 3,
        ("inverse-size", 1.0),
    ]


def test_every_row_has_a_place_in_the_tables(rows):
    known = {*rows.GROUPS, rows.SINGLE, rows.FINAL, ""}
    assert {row.group for row in rows.ROWS.values()} == known
    assert set(rows.ALSO) == set(rows.GROUPS) - {rows.VIEWS, rows.STEPS}


def test_tables_say_mean_and_deviation_and_where_joint_training_costs(tables):
    runs = [run("default", seed, sst=0.4 + seed / 10, quora=0.8, sts=0.6) for seed in (0, 1)]
    runs += [run("mlp", 0, sst=0.5, quora=0.7, sts=0.6), run("single-sst", 0, sst=0.45), run("single-sst", 1, sst=0.55)]
    runs += [run("final", 0, sst=0.5, quora=0.8, sts=0.8, cfimdb=0.9)]
    made = tables(runs)
    said = made.multitask_table()
    assert "| heads (table 2) | one linear layer | 0.450 ± 0.071 | 0.800 ± 0.000 | 0.600 ± 0.000 | 0.683" in said
    assert "| heads (table 2) | three layers | 0.500 | 0.700 | 0.600 | 0.667 | SST .319 | 1 |" in said
    assert "| all-MiniLM-L6-v2 | SST-5 | 2e-4 | 0.500 ± 0.071 | 0.450 ± 0.071 |  | -0.050 ± 0.000 |" in said
    assert "Joint training loses on SST-5 (all-MiniLM-L6-v2: -0.050 ± 0.000)." in said
    assert "| all-MiniLM-L6-v2 | 1e-4 | 0.500 | 0.800 | 0.800 | 0.733 | 0.900 | 1 |" in said
    assert "runs of the comparison are still to be made**, of the rows final, four, single-cfimdb" in said


def test_a_task_alone_is_compared_at_its_best_rate_with_all_seeds(tables):
    runs = [run("default", seed, sst=0.5, quora=0.8, sts=0.6) for seed in (0, 1)]
    runs += [run("single-sst", seed, sst=0.4) for seed in (0, 1)]
    trials = [run("single-sst", seed, rate="1e-4", sst=0.6) for seed in (0, 1)]
    trials += [run("single-sst", 0, rate="4e-4", sst=0.9)]  # one seed alone is no better rate
    said = tables(runs, trials).multitask_table()
    assert "| all-MiniLM-L6-v2 | SST-5 | 1e-4 | 0.600 ± 0.000 | 0.500 ± 0.000 |  | -0.100 ± 0.000 |" in said


def test_the_recipe_says_what_it_reached_by_its_own_encoder_and_by_the_best(tables):
    own = run("final", 0, sst=0.5, quora=0.8, sts=0.8, cfimdb=0.9)
    best = run("final", 0, "all-mpnet-base-v2", sst=0.6, quora=0.8, sts=0.8, cfimdb=0.9)
    said = tables([own, best]).multitask_reached()["cs224n"]
    first, second = said.split("; ")
    assert first.startswith("dev: all-MiniLM-L6-v2, rate 1e-4, 1 seed(s): SST-5 0.500, Quora 0.800, STS 0.800")
    assert "overall of the paper's three 0.733 after 500 steps" in first
    assert second.startswith("all-mpnet-base-v2, rate 4e-5, 1 seed(s): SST-5 0.600")


@pytest.mark.slow
def test_a_run_is_trained_written_and_collected(rows, tables, monkeypatch, tiny_bert, tmp_path):
    import measure
    import multitask

    made = tables([])
    words = [f"{word} river {n}" for n in range(8) for word in ("old", "green")]
    splits = ["train"] * 10 + ["dev"] * 6
    (tmp_path / "data/multitask").mkdir(parents=True)
    for name in rows.THREE:
        pairs = {"text": words} if name == "sst" else {"sentence1": words, "sentence2": words[::-1]}
        classes = [row % (5 if name == "sst" else 2) for row in range(16)]
        label = {"score": [float(row % 6) for row in range(16)]} if name == "sts" else {"label": classes}
        pq.write_table(pa.table({**pairs, **label, "split": splits}), tmp_path / f"data/multitask/{name}.parquet")
    monkeypatch.setenv("LAYERWISE_SHARED", str(tmp_path))
    monkeypatch.setattr(multitask, "encoder_folder", lambda _: str(tiny_bert))
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    short = ["train.steps=2", "dev.every=1", "train.batch_size=4"]
    short += [f"objective.{name}.max_length=16" for name in rows.THREE]
    for row in ("default", "mlp"):
        said = multitask.attempt(multitask.Job(row, "all-MiniLM-L6-v2", 0, tuple(short)), tmp_path / "data")
        assert "overall" in said, said
    (one, other) = (json.loads(path.read_text()) for path in sorted((tmp_path / "data").glob("*.json")))
    assert (one["row"], other["row"], one["steps"]) == ("default", "mlp", 2)
    assert set(one["dev"]) == {"sst/accuracy", "quora/accuracy", "sts/pearson", "overall"}
    assert one["recipe"]["train"]["batch_size"] == 4
    assert [task["name"] for task in one["recipe"]["tasks"]] == ["sst", "quora", "sts"]
    multitask.collect(tmp_path / "data", "multitask")
    said = made.multitask_table()
    assert "| heads (table 2) | one linear layer |" in said
    assert "| heads (table 2) | three layers |" in said
    assert "FAILED" in multitask.attempt(multitask.Job("default", "x", 0, ("train.steps=0",)), tmp_path)


def test_without_results_there_is_one_line(tables, tmp_path):
    made = tables([])
    (tmp_path / "multitask.json").unlink()
    assert made.multitask_table() == made.NOT_YET
    assert made.multitask_reached() == {}
