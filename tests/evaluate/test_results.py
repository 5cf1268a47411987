"""Results: what is saved is loaded again, number by number; tables for people hold the same figures."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from layerwise.errors import InputError
from layerwise.evaluate import (
    Evaluation,
    Outcome,
    Run,
    TaskResult,
    describe,
    leakage,
    over_seeds,
    shown,
    table,
    to_csv,
    to_markdown,
)
from layerwise.files import read_json, write_json
from support.commands import strict_json

NAN = float("nan")
PROTOCOL = {"name": "senteval", "aggregation": "all", "seeds": [1, 2], "model_hash": "abcdef0123456789"}


def task_result(task: str, suite: str, metric: str, score: float, **more) -> TaskResult:
    stamp = {"task": task, "protocol": "sts", "split": "test", "rows_digest": "d", "model_hash": "abc"}
    stamp["aggregation"] = "all" if suite == "sts" else None
    random = np.random.default_rng(len(task))
    defaults = {"items": random.normal(size=5), "gold": random.normal(size=5)}
    return TaskResult(task, suite, metric, {metric: score, "other": score / 3}, stamp, **(defaults | more))


@pytest.fixture
def found() -> Evaluation:
    """Two mixes, two suites, a figure that is NaN, one with a deviation, one that saw its test text."""
    seen = task_result("stsb", "sts", "spearman", 45.123456789012345)
    seen = replace(seen, stamp=seen.stamp | {"saw_test_text": 0.25})
    results = (
        [seen, task_result("sickr", "sts", "spearman", 48.05), task_result("mr", "transfer", "accuracy", 71.5)],
        [
            task_result("stsb", "sts", "spearman", NAN, details={"subsets": {"a": {"spearman": NAN, "rows": 3}}}),
            task_result("sickr", "sts", "spearman", 40.0),
            task_result("mr", "transfer", "accuracy", 70.25, sd={"accuracy": 0.5, "other": NAN}),
        ],
    )
    mixes = (("12 @ mean", (12,), "mean"), ("0,12 @ cls", (0, 12), "cls"))
    runs = (Run(*mix, {one.task: one for one in own}) for mix, own in zip(mixes, results, strict=True))
    return Evaluation("wiki", PROTOCOL, tuple(runs))


def assert_same(one: Evaluation, other: Evaluation) -> None:
    assert other.model == one.model
    assert [(run.mix, run.layers, run.pooling) for run in other.runs] == [
        (run.mix, run.layers, run.pooling) for run in one.runs
    ]
    for before, after in zip(one, other, strict=True):
        assert (after.task, after.suite, after.metric, after.stamp) == (
            before.task,
            before.suite,
            before.metric,
            before.stamp,
        )
        for name in ("figures", "sd"):
            assert list(getattr(after, name)) == list(getattr(before, name))
            assert np.array_equal(
                list(getattr(after, name).values()), list(getattr(before, name).values()), equal_nan=True
            )
        assert np.abs(after.items - before.items).max() < 1e-9
        assert np.abs(after.gold - before.gold).max() < 1e-9


def test_saved_and_loaded_it_is_the_same(tmp_path, found):
    found.save(tmp_path / "new" / "a.json")
    again = Evaluation.load(tmp_path / "new" / "a.json")
    assert_same(found, again)
    assert again.protocol.items() >= PROTOCOL.items()
    again.save(tmp_path / "b.json")
    assert (tmp_path / "b.json").read_text() == (tmp_path / "new" / "a.json").read_text()
    one = replace(found, runs=found.runs[:1])
    one.save(tmp_path / "one.json")
    assert_same(one, Evaluation.load(tmp_path / "one.json"))


def test_grades_are_written_by_that_name(tmp_path, found):
    found.save(tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text()
    assert '"grades"' in text
    assert '"gold"' not in text


def test_json_has_no_nan_and_the_figures_by_task_and_metric(tmp_path, found):
    found.save(tmp_path / "a.json")
    facts = strict_json((tmp_path / "a.json").read_text())
    assert facts["tasks"]["stsb"]["spearman"] == 45.123456789012345
    assert facts["tasks"]["mr"] == {"accuracy": 71.5, "other": 71.5 / 3}
    assert facts["average"] is None  # of correlations and accuracies there is none
    assert facts["averages"] == {"sts": (45.123456789012345 + 48.05) / 2, "transfer": 71.5}
    assert facts["runs"][1]["tasks"]["stsb"]["spearman"] is None
    assert facts["runs"][1]["tasks"]["mr"]["accuracy_sd"] == 0.5
    assert facts["protocol"]["metrics"] == {"stsb": "spearman", "sickr": "spearman", "mr": "accuracy"}
    assert set(facts["protocol"]["stamps"]) == {"stsb", "sickr", "mr"}
    assert facts["protocol"]["name"] == "senteval"


def test_the_average_is_of_one_suite():
    results = [task_result("stsb", "sts", "spearman", 40.0), task_result("sickr", "sts", "spearman", 50.0)]
    run = Run("12 @ mean", (12,), "mean", {one.task: one for one in results})
    assert run.average == 45.0
    assert Evaluation("m", PROTOCOL, (run,)).as_dict()["average"] == 45.0
    assert "runs" not in Evaluation("m", PROTOCOL, (run,)).as_dict()


def test_markdown_and_csv_hold_what_json_holds(found):
    facts = found.as_dict()
    rows = list(csv.DictReader(io.StringIO(to_csv(found))))
    for run in facts["runs"]:
        own = [row for row in rows if row["mix"] == run["mix"]]
        figures = {(row["task"], row["metric"]): float(row["figure"]) for row in own}
        expected = {
            (task, name): value
            for task, values in run["tasks"].items()
            for name, value in values.items()
            if not name.endswith("_sd")
        }
        assert figures.keys() == expected.keys()
        for key, value in expected.items():
            assert np.array_equal(figures[key], value, equal_nan=True), key
        assert {row["layers"] for row in own} == {" ".join(map(str, run["layers"]))}
        assert {row["pooling"] for row in own} == {run["pooling"]}
    assert {row["sd"] for row in rows if row["metric"] == "accuracy"} == {"", "0.5"}
    assert [row["saw_test_text"] for row in rows if row["task"] == "stsb"] == ["0.25", "0.25", "", ""]
    text = to_markdown(found)
    head, rule, *lines = text.split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (head, *lines)]
    assert cells[0] == ["layers", "stsb", "sickr", "mr", "sts avg"]
    assert cells[1] == ["12 @ mean", "45.12", "48.05", "71.50", "46.59"]
    assert cells[2] == ["0,12 @ cls", "-", "40.00", "70.25 ± 0.50", "-"]
    assert rule == "|---|---|---|---|---|"
    assert "wiki: spearman, accuracy × 100; protocol senteval" in text
    assert "weights abcdef012345" in text


def test_leakage_is_told_of_every_mix(found):
    assert leakage(list(found)) == "saw test text: stsb (25%)"
    assert "saw test text: stsb (25%)" in to_markdown(found)
    assert leakage([task_result("a", "sts", "spearman", 1.0)]) == ""


def test_shown():
    assert [shown(47.944), shown(1.0, 0.126), shown(NAN), shown(1.0, NAN)] == ["47.94", "1.00 ± 0.13", "-", "1.00"]


def test_one_task_has_no_average_column():
    run = Run("12 @ mean", (12,), "mean", {"stsb": task_result("stsb", "sts", "spearman", 40.0)})
    assert table([run]) == (["layers", "stsb"], [["12 @ mean", "40.00"]])
    assert describe(Evaluation("m", PROTOCOL, (run,))).startswith("m: spearman × 100; protocol senteval; STS over all")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[]", "is not a JSON object; give a result of `layerwise evaluate --out`"),
        (b'{"model": "m"}', "no 'results'"),
        (b'{"model": "m", "results": [[{"task": "a"}]]}', "evaluate again"),
        (
            b'{"model": "m", "mix": "a", "layers": [], "pooling": "", "results": [["x"]]}',
            "evaluate again",
        ),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, content, told):
    (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(InputError, match=told) as seen:
        Evaluation.load(tmp_path / "bad.json")
    assert len(str(seen.value).splitlines()) == 1
    assert str(tmp_path / "bad.json") in str(seen.value)


def _without_headline(facts):
    facts["results"][0][0]["figures"] = {"other": 1.0}


def _figures_a_list(facts):
    facts["results"][0][0]["figures"] = [1.0]


def _one_run_missing(facts):
    facts["results"].pop()


def _score_a_text(facts):
    facts["results"][0][0]["figures"]["spearman"] = "high"


@pytest.mark.parametrize("damage", [_without_headline, _figures_a_list, _one_run_missing, _score_a_text])
def test_a_damaged_file_is_one_line(tmp_path, found, damage):
    found.save(tmp_path / "a.json")
    facts = json.loads((tmp_path / "a.json").read_text())
    damage(facts)
    (tmp_path / "a.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match=r"is no result of `layerwise evaluate --out`.*evaluate again"):
        Evaluation.load(tmp_path / "a.json")


def test_files_are_whole_or_not_there(tmp_path, monkeypatch):
    write_json(tmp_path / "a.json", {"a": 1})

    def full(path, *_, **__):
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(InputError, match=r"a\.json: cannot be written: No space left on device"):
        write_json(tmp_path / "a.json", {"a": 2})
    assert read_json(tmp_path / "a.json") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["a.json"]


def test_a_written_file_is_as_readable_as_any_other(tmp_path):
    write_json(tmp_path / "a.json", {})
    (tmp_path / "plain").touch()
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_place_that_cant_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot be written"):
        write_json(tmp_path / "file" / "a.json", {})


def test_seeds_become_mean_and_deviation():
    outcomes = {seed: Outcome({"accuracy": 70.0 + seed}, items=np.array([seed, 0.0])) for seed in (1, 2, 4)}
    found = over_seeds(outcomes)
    assert found.figures == {"accuracy": pytest.approx(72 + 1 / 3)}
    assert found.sd == {"accuracy": pytest.approx(np.std([71, 72, 74], ddof=1))}
    assert found.items.tolist() == [pytest.approx(7 / 3), 0.0]
    assert found.details["seeds"]["2"] == {"accuracy": 72.0}
    assert over_seeds({1: outcomes[1]}) is outcomes[1]
