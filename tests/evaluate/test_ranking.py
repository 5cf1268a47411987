"""Rankings: equal to plain loops that draw rows and tasks; ties, suites, what is left out; the command."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm, spearmanr, t

from layerwise.errors import InputError
from layerwise.evaluate import Evaluation, LayerSubject, Run, TaskResult, evaluate, rank_runs
from layerwise.evaluate.ranking import FEWEST_TASKS
from support.commands import assert_one_line, call, call_json, run_main

STAMP = {"rows_digest": "d", "protocol": "p", "split": "test"}


def result(task, items, *, suite="own", gold=(), score=None, metric="accuracy", **stamp):
    items = np.asarray(items, dtype=float)
    score = 100 * items.mean() if score is None else score
    return TaskResult(task, suite, metric, {metric: score}, STAMP | stamp, items=items, gold=np.asarray(gold))


def run(*results):
    return Run("12 @ mean", (12,), "mean", {one.task: one for one in results})


def accuracies(seed, runs, tasks, rows=60, better=0.0):
    """Runs of coin tosses on some tasks; the first run is better by so much."""
    random = np.random.default_rng(seed)
    chances = [0.5 + better * (number == 0) for number in range(runs)]
    return {
        f"run {number}": run(*(result(f"task {task}", random.random(rows) < chance) for task in range(tasks)))
        for number, chance in enumerate(chances)
    }


def reached(estimates, deviations, freedom):
    """Intervals of max-t over all pairs, written out: (runs,), (resamples, runs)"""
    best, pairs = int(estimates.argmax()), list(combinations(range(len(estimates)), 2))
    errors = {pair: (deviations[:, pair[0]] - deviations[:, pair[1]]).std() for pair in pairs}
    largest = [max(abs(row[i] - row[j]) / errors[i, j] for i, j in pairs) for row in deviations]
    to_best = [0.0 if run == best else errors[min(run, best), max(run, best)] for run in range(len(estimates))]
    width = t.isf(norm.sf(np.quantile(largest, 0.95)), freedom) * np.array(to_best)
    return np.stack([estimates - width, estimates + width], axis=1)


def ends(ranking, by, names):
    found = {one.name: getattr(one, by) for one in ranking.runs}
    return np.array([(found[name].low, found[name].high) for name in names])


def test_rows_are_resampled_as_a_plain_loop_does():
    random = np.random.default_rng(1)
    gold = random.integers(0, 6, 40).astype(float)
    sides = {name: gold + noise * random.normal(size=40) for name, noise in (("a", 1.0), ("b", 2.0), ("c", 4.0))}
    scores = {name: 100 * spearmanr(items, gold)[0] for name, items in sides.items()}
    runs = {
        name: run(result("sts", items, gold=gold, score=scores[name], metric="spearman"))
        for name, items in sides.items()
    }
    (ranking,) = rank_runs(runs, seed=3, resamples=100)
    draws = np.random.default_rng([3, 0]).integers(40, size=(100, 40))
    best = max(scores, key=scores.get)
    redrawn = {
        name: np.array([100 * spearmanr(items[rows], gold[rows])[0] for rows in draws]) for name, items in sides.items()
    }
    deviations = np.stack([redrawn[name] - scores[name] for name in sides], axis=1)
    estimates = np.array([scores[name] - scores[best] for name in sides])
    assert [one.name for one in ranking.runs] == sorted(scores, key=scores.get, reverse=True)
    assert np.allclose(ends(ranking, "by_rows", sides), reached(estimates, deviations, 39), atol=1e-8)
    assert ranking.runs[0].by_tasks is None


def test_tasks_are_resampled_as_a_plain_loop_does():
    runs = accuracies(4, 3, 6)
    (ranking,) = rank_runs(runs, seed=2, resamples=150)
    counts = np.random.default_rng([2, 6]).multinomial(6, [1 / 6] * 6, size=150)
    scores = np.array([[one.score for one in each.results.values()] for each in runs.values()])
    means = scores.mean(1)
    redrawn = np.array([[np.repeat(own, count).mean() for own in scores] for count in counts])
    deviations = np.sqrt(6 / 5) * (redrawn - means)
    assert np.allclose(ends(ranking, "by_tasks", runs), reached(means - means.max(), deviations, 5), atol=1e-8)


def test_a_run_that_is_better_stands_alone():
    (ranking,) = rank_runs(accuracies(0, 4, 6, rows=400, better=0.2))
    assert ranking.tied("rows") == ranking.tied("tasks") == ["run 0"]
    assert ranking.runs[0].by_rows == type(ranking.runs[0].by_rows)(0.0, 0.0, 0.0)


@pytest.mark.slow
def test_equal_runs_are_tied_though_they_are_many():
    # other seeds for the tosses than for the resamples: NumPy's seeds s and [s, 0] are the same
    drawn = (rank_runs(accuracies(10_000 + seed, 20, 1), resamples=500, seed=seed)[0] for seed in range(200))
    assert np.mean([len(ranking.tied("rows")) == 20 for ranking in drawn]) >= 0.9


@pytest.mark.parametrize("tasks", [6, 20])
def test_runs_that_are_equal_over_tasks_are_tied(tasks):
    random = np.random.default_rng(6)
    tied = []
    for seed in range(200):
        scores = 50 + 10 * random.normal(size=(5, tasks)) + 20 * random.normal(size=tasks)
        runs = {
            str(k): run(*(result(f"t{n}", [], score=own) for n, own in enumerate(row))) for k, row in enumerate(scores)
        }
        tied.append(len(rank_runs(runs, resamples=500, seed=seed)[0].tied("tasks")) == 5)
    assert np.mean(tied) >= 0.9


def test_the_same_run_twice_is_tied():
    items = np.random.default_rng(0).random(30) < 0.5
    (ranking,) = rank_runs({"a": run(result("t", items)), "b": run(result("t", items))})
    assert ranking.tied("rows") == ["a", "b"]
    assert ranking.tied("tasks") == []


def test_means_of_several_suites_count_alike():
    items = np.random.default_rng(0).random((2, 30)) < 0.5
    runs = {
        name: run(*(result(f"x{k}", own, suite="x", score=score) for k in range(3)), result("y", own, suite="y"))
        for name, own, score in (("a", items[0], 10.0), ("b", items[1], 20.0))
    }
    x, y, both = rank_runs(runs)
    assert [one.suite for one in (x, y, both)] == ["x", "y", "all suites"]
    means = {one.name: one.mean for one in both.runs}
    assert means == {
        name: pytest.approx((score + 100 * own.mean()) / 2)
        for name, own, score in (("a", items[0], 10.0), ("b", items[1], 20.0))
    }
    assert both.tasks == ("x0", "x1", "x2", "y")


def test_tasks_without_rows_count_for_the_means():
    tasks = range(FEWEST_TASKS)
    runs = {
        name: run(*(result(f"t{k}", [], score=float(k + better), metric="ndcg@10") for k in tasks))
        for name, better in (("a", 0), ("b", 5))
    }
    (ranking,) = rank_runs(runs)
    assert ranking.resampled == ()
    assert [one.by_rows for one in ranking.runs] == [None, None]
    assert ranking.tied("tasks") == ["b"]  # better on each task, by as much
    assert ranking.runs[1].scores == {f"t{k}": float(k) for k in tasks}


def test_what_cannot_be_compared_is_left_out_and_told():
    items = np.random.default_rng(0).random((2, 30)) < 0.5
    fine = [result("fine", own) for own in items]
    a = run(fine[0], result("rows", items[0]), result("alone", items[0]), result("nan", [], score=float("nan")))
    b = run(fine[1], result("rows", items[1], rows_digest="e"), result("nan", [], score=1.0))
    (ranking,) = rank_runs({"a": a, "b": b})
    assert ranking.tasks == ("fine",)
    notes = {"rows": "made on other rows", "alone": "only 1 of 2 results have it", "nan": "a score is not a number"}
    assert ranking.left_out == notes


def test_a_run_without_a_score_is_left_out_of_many():
    items = np.random.default_rng(0).random((2, 30)) < 0.5
    runs = {name: run(result("one", own)) for name, own in zip(("a", "b"), items, strict=True)}
    (ranking,) = rank_runs(runs | {"0 @ cls": run(result("one", [], score=float("nan")))})
    assert {one.name for one in ranking.runs} == {"a", "b"}
    assert ranking.left_out == {"0 @ cls": "it has no score on one"}


def test_bad_rankings_are_refused():
    one, other = run(result("a", [1, 0])), run(result("b", [1, 0]))
    with pytest.raises(InputError, match=r"no task that all results have can be compared: a: only 1 of 2"):
        rank_runs({"one": one, "other": other})
    with pytest.raises(InputError, match=r"a ranking needs two runs or more"):
        rank_runs({"one": one})
    with pytest.raises(InputError, match=r"0 resamples are not possible; give 1 or more"):
        rank_runs({"one": one, "other": one}, resamples=0)


# The command


@pytest.fixture
def files(tmp_path, tiny_layers, pairs_task):
    for name, mixes in {"a": ["last"], "b": ["1", "2 @ cls"], "c": ["0"]}.items():
        evaluate(LayerSubject(tiny_layers, mixes), [pairs_task]).save(tmp_path / f"{name}.json")
    return [tmp_path / f"{name}.json" for name in "abc"]


def test_several_results_are_ranked(files):
    facts = call_json("compare", *files, "--resamples", 100, "--seed", 5)
    runs = {Evaluation.load(file).runs[0].mix: Evaluation.load(file).runs[0] for file in files}
    (ranking,) = rank_runs(runs, resamples=100, seed=5)
    assert facts["rankings"][0]["tied_by_rows"] == ranking.tied("rows")
    assert [one["name"] for one in facts["rankings"][0]["runs"]] == [one.name for one in ranking.runs]
    shown = call("compare", *files, "--resamples", 100, "--seed", 5)
    worst = ranking.runs[-1]
    assert f"{worst.by_rows.low:+.2f} to {worst.by_rows.high:+.2f}" in shown
    assert shown.index(ranking.runs[0].name) < shown.index(worst.name)


def test_the_mixes_of_one_result_are_ranked(files):
    (ranking,) = call_json("compare", files[1], "--resamples", 50)["rankings"]
    assert {one["name"] for one in ranking["runs"]} == {"1 @ mean", "2 @ cls"}
    (all_of_two,) = call_json("compare", *files[:2], "--all-mixes", "--resamples", 50)["rankings"]
    assert len(all_of_two["runs"]) == 3


def test_equal_names_are_told_apart_by_their_files(files):
    (ranking,) = call_json("compare", files[0], files[0], files[1], "--resamples", 50)["rankings"]
    names = [one["name"] for one in ranking["runs"]]
    assert f"4 @ mean ({files[0]})" in names
    assert f"4 @ mean ({files[0]})'" in names


def test_the_ranking_is_drawn(files, tmp_path):
    for ending in ("svg", "png"):
        assert "wrote" in call("compare", *files, "--resamples", 50, "-o", tmp_path / f"ties.{ending}")
    assert "1 @ mean" in (tmp_path / "ties.svg").read_text(encoding="utf-8")


MISTAKES = {
    "{a}": "a ranking needs two runs or more; give other results, or a result of several mixes",
    "{a} {b} {tmp}/nowhere.json": "nowhere.json: no such file",
    "{a} {b} -o ties.pdf": "ties.pdf: its ending '.pdf' is none of .svg, .png",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(monkeypatch, capfd, tmp_path, files, words):
    arguments = words.format(a=files[0], b=files[1], tmp=tmp_path).split()
    assert_one_line(*run_main(monkeypatch, capfd, "compare", *arguments), MISTAKES[words])
