"""The paired bootstrap: equal to a loop that draws rows and asks SciPy; what can't be compared says why."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from layerwise.errors import InputError
from layerwise.evaluate import Evaluation, LayerSubject, Protocol, Run, TaskResult, compare_runs, evaluate
from support.commands import assert_one_line, call, call_json, run_main
from support.slow_cases import one_in

STAMP = {"rows_digest": "d", "protocol": "sts", "split": "test"}
KINDS = {"accuracy": "classification", "mrr@10": "retrieval", "mrr@3": "retrieval"}


def result(task="sts1", metric="spearman", *, items, gold=(), score=None, **stamp) -> TaskResult:
    """As an evaluation would leave it."""
    items, gold = np.asarray(items, dtype=float), np.asarray(gold, dtype=float)
    if score is None:
        score = 100 * (float(spearmanr(items, gold)[0]) if metric == "spearman" else items.mean())
    facts = STAMP | {"kind": KINDS.get(metric, "sts")} | stamp
    return TaskResult(task, "own", metric, {metric: score}, facts, items=items, gold=gold)


def run(*results: TaskResult) -> Run:
    return Run("12 @ mean", (12,), "mean", {one.task: one for one in results})


def some(seed: int, rows: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    gold = random.integers(0, 6, rows).astype(float)
    return gold + noise * random.normal(size=rows), gold


def naive(one: TaskResult, other: TaskResult, score, seed: int, resamples: int) -> np.ndarray:
    """Draw rows, score both on them, take the difference."""
    random = np.random.default_rng([seed, 0])
    found = []
    for _ in range(resamples):
        rows = random.integers(len(one.items), size=len(one.items))
        found.append(100 * (score(other.items[rows], one.gold[rows]) - score(one.items[rows], one.gold[rows])))
    return np.array(found)


SCORES = {
    "spearman": lambda items, gold: spearmanr(items, gold)[0],
    "pearson": lambda items, gold: pearsonr(items, gold)[0],
}


@pytest.mark.parametrize("metric", one_in(2, SCORES))
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_correlations_are_redrawn_as_a_plain_loop_does(metric, seed):
    (weak, gold), (strong, _) = some(seed, 40, 3.0), some(seed, 40, 1.0)
    weak = np.round(weak, 1)  # with ties
    scores = [100 * SCORES[metric](items, gold) for items in (weak, strong)]
    one, other = (
        result(metric=metric, items=items, gold=gold, score=score)
        for items, score in zip((weak, strong), scores, strict=True)
    )
    (line,) = compare_runs(run(one), run(other), seed=seed, resamples=150)
    differences = naive(one, other, SCORES[metric], seed, 150)
    assert line.gain.mean == pytest.approx(scores[1] - scores[0])
    assert (line.gain.low, line.gain.high) == pytest.approx(tuple(np.quantile(differences, (0.025, 0.975))), abs=1e-8)
    tail = min((differences <= 0).sum(), (differences >= 0).sum())
    assert line.gain.p_value == pytest.approx(min(1, 2 * (tail + 1) / 151))


@pytest.mark.parametrize("metric", ["accuracy", "mrr@10", "mrr@3"])
def test_means_are_redrawn_as_a_plain_loop_does(metric):
    random = np.random.default_rng(2)
    one, other = (result(metric=metric, items=random.integers(0, 2, 50), gold=np.zeros(50)) for _ in range(2))
    (line,) = compare_runs(run(one), run(other), seed=9, resamples=200)
    differences = naive(one, other, lambda items, gold: items.mean(), 9, 200)
    assert (line.gain.low, line.gain.high) == pytest.approx(tuple(np.quantile(differences, (0.025, 0.975))))
    assert line.gain.mean == pytest.approx(100 * (other.items.mean() - one.items.mean()))


def test_rows_are_drawn_block_by_block_with_the_same_outcome(monkeypatch):
    (items, gold), (others, _) = some(1, 40, 2.0), some(1, 40, 1.0)
    runs = run(result(items=items, gold=gold)), run(result(items=others, gold=gold))
    whole = compare_runs(*runs, resamples=100)
    monkeypatch.setattr("layerwise.evidence.resamples._BLOCK", 40 * 7)  # 7 resamples at once
    assert compare_runs(*runs, resamples=100) == whole


def test_a_run_against_itself_gains_nothing():
    items, gold = some(3, 60, 1.0)
    (line,) = compare_runs(run(result(items=items, gold=gold)), run(result(items=items, gold=gold)))
    assert (line.gain.mean, line.gain.low, line.gain.high, line.gain.p_value) == (0, 0, 0, 1)


def test_a_clearly_better_run_is_no_chance_and_a_clearly_worse_one_neither():
    (weak, gold), (strong, _) = some(4, 300, 8.0), some(4, 300, 0.3)
    runs = run(result(items=weak, gold=gold)), run(result(items=strong, gold=gold))
    (better,), (worse,) = compare_runs(*runs), compare_runs(*reversed(runs))
    assert better.gain.p_value < 0.01
    assert better.gain.low > 0
    assert worse.gain.p_value < 0.01
    assert worse.gain.mean == -better.gain.mean


def test_nearly_equal_runs_may_be_chance():
    items, gold = some(5, 50, 1.0)
    other = items + 0.01 * np.random.default_rng(0).normal(size=50)
    (line,) = compare_runs(run(result(items=items, gold=gold)), run(result(items=other, gold=gold)))
    assert line.gain.low <= 0 <= line.gain.high
    assert line.gain.p_value > 0.05


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"rows_digest": "e"}, "made on other rows"),
        ({"split": "dev"}, "other splits: test and dev"),
        ({"metric": "pearson"}, "other metrics: spearman and pearson"),
        ({"protocol": "lc"}, "other protocols: sts and lc"),
        ({"items": []}, "no scores of single rows for"),
        ({"items": [1.0, 2]}, "no scores of single rows for"),
    ],
)
def test_what_cant_be_compared_says_why_and_the_rest_is(change, note):
    items, gold = some(6, 30, 1.0)
    fine = [result("fine", items=items, gold=gold), result("fine2", items=items, gold=gold)]
    one = result("odd", items=items, gold=gold)
    other = result("odd", **({"items": items, "gold": gold, "score": 50.0} | change))
    lines = compare_runs(run(one, *fine), run(other, *fine), resamples=10)
    assert [line.task for line in lines] == ["odd", "fine", "fine2", "average"]
    assert lines[0].gain is None
    assert note in lines[0].note
    assert lines[-1].note == "of 2 tasks"


def test_means_of_subsets_cant_be_redrawn():
    items, gold = some(6, 30, 1.0)
    one = result(metric="spearman_mean", items=items, gold=gold, score=50.0)
    (line,) = compare_runs(run(one), run(one))
    assert line.note == "spearman_mean cannot be resampled; evaluate with --aggregate all"


def test_the_average_is_the_mean_of_the_tasks_on_the_same_resamples():
    (weak, gold), (strong, _) = some(7, 80, 3.0), some(7, 80, 1.0)
    pairs = [(weak, strong), (np.round(weak), np.round(strong))]
    a, b = (run(*(result(f"t{n}", items=pair[side], gold=gold) for n, pair in enumerate(pairs))) for side in (0, 1))
    *lines, average = compare_runs(a, b, resamples=300)
    assert average.task == "average"
    assert average.a == pytest.approx(np.mean([line.a for line in lines]))
    assert average.gain.mean == pytest.approx(np.mean([line.gain.mean for line in lines]))
    assert average.gain.high - average.gain.low < max(line.gain.high - line.gain.low for line in lines)
    assert [line.task for line in compare_runs(run(a.results["t0"]), b)] == ["t0"]  # of one task there is no average


def test_bad_comparisons_are_refused():
    items, gold = some(8, 30, 1.0)
    one, other = run(result("a", items=items, gold=gold)), run(result("b", items=items, gold=gold))
    with pytest.raises(InputError, match=r"no task in common: one has a, the other b"):
        compare_runs(one, other)
    with pytest.raises(InputError, match=r"0 resamples are not possible; give 1 or more"):
        compare_runs(one, one, resamples=0)


# The command


@pytest.fixture
def files(tmp_path, tiny_layers, pairs_task):
    mixes = {"a.json": ["last"], "b.json": ["1", "2 @ cls"]}
    for name, own in mixes.items():
        evaluate(LayerSubject(tiny_layers, own), [pairs_task]).save(tmp_path / name)
    return tmp_path / "a.json", tmp_path / "b.json"


def test_the_command_says_the_same_in_json_and_as_a_table(files):
    found = call_json("compare", *files, "--resamples", 200, "--seed", 5)
    a, b = (Evaluation.load(file) for file in files)
    (line,) = compare_runs(a.runs[0], b.runs[0], resamples=200, seed=5)
    assert found["tasks"]["pairs"] == json.loads(json.dumps(line.as_dict()))
    assert (found["a"]["mix"], found["b"]["mix"]) == ("4 @ mean", "1 @ mean")
    assert (found["resamples"], found["seed"]) == (200, 5)
    shown = call("compare", *files, "--resamples", 200, "--seed", 5)
    assert f"{line.gain.mean:+.2f}" in shown
    assert f"{line.gain.low:+.2f} to {line.gain.high:+.2f}" in shown
    assert "by 1 @ mean" in shown


def test_the_command_takes_another_mix_of_a_file(files):
    found = call_json("compare", *files, "--mix-b", "2 @ cls", "--resamples", 50)
    assert found["b"]["mix"] == "2 @ cls"
    same = call_json("compare", files[1], files[1], "--resamples", 50)["tasks"]["pairs"]["gain"]
    assert same == {"mean": 0, "low": 0, "high": 0, "p_value": 1}


def test_other_splits_are_not_taken_for_the_same(tmp_path, tiny_layers, pairs_task, files):
    evaluate(LayerSubject(tiny_layers), [pairs_task], protocol=Protocol(split="dev")).save(tmp_path / "dev.json")
    line = call_json("compare", files[0], tmp_path / "dev.json")["tasks"]["pairs"]
    assert line["gain"] is None
    assert line["note"] == "other splits: test and dev"
    assert "other splits: test and dev" in call("compare", files[0], tmp_path / "dev.json")


def test_seeds_that_decided_nothing_are_no_reason_against(tmp_path):
    items = np.random.default_rng(0).integers(0, 2, (2, 30))
    one, other, third = (result(metric="accuracy", items=items[n % 2], **more) for n, more in enumerate(SEEDS))
    assert compare_runs(run(one), run(other))[0].gain is not None  # files of older versions named seeds all the same
    (line,) = compare_runs(run(one), run(third))
    assert line.note == "other seeds: [1] and [2]"


SEEDS = ({"seeds": [1]}, {}, {"seeds": [2]})
MISTAKES = {
    "{a} {tmp}/nowhere.json": "nowhere.json: no such file; give a result",
    "{a} {tmp}/text.json": "text.json: is not JSON: ",
    "{a} {tmp}/list.json": "list.json: is not a JSON object; give a result of `layerwise evaluate --out`",
    "{a} {tmp}/other.json": "other.json: is no result of `layerwise evaluate --out`: no 'results'",
    "{a} {tmp}/hollow.json": "hollow.json: is no result of `layerwise evaluate --out`",
    "{a} {b} --mix-a 9": "a.json: no mix '9'; it has 4 @ mean",
    "{a} {b} --resamples 0": "0 resamples are not possible",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(monkeypatch, capfd, tmp_path, files, words):
    contents = {"text": "no json", "list": "[1]", "other": "{}", "hollow": '{"model": "m", "results": [["x"]]}'}
    for name, text in contents.items():
        (tmp_path / f"{name}.json").write_text(text)
    arguments = words.format(a=files[0], b=files[1], tmp=tmp_path).split()
    assert_one_line(*run_main(monkeypatch, capfd, "compare", *arguments), MISTAKES[words])
