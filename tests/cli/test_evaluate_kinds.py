"""`layerwise evaluate` on the kinds beyond STS and classes: suites, the matrix of tasks by layers, one-line errors."""

import numpy as np
import pytest

from layerwise.data import GROUPS, find_tasks
from support.commands import assert_one_line, call, call_json, run_main
from support.row_files import write
from support.tiny import DEPTH, WORDS

TASKS = """
[[task]]
name = "topics"
kind = "clustering"
file = "topics.csv"

[[task]]
name = "answers"
kind = "reranking"
file = "answers.csv"

[[task]]
name = "library"
kind = "retrieval"
file = "judged.csv"
corpus = { file = "books.csv" }
metric = "ndcg@10"
"""


@pytest.fixture
def mine(tmp_path):
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, 5)) for _ in range(60)]
    write(tmp_path / "topics.csv", [{"text": text, "label": "ab"[n % 2]} for n, text in enumerate(texts)])
    write(tmp_path / "answers.csv", [{"query": WORDS[n // 4], "text": texts[n], "label": n % 2} for n in range(40)])
    write(tmp_path / "books.csv", [{"id": n, "text": text} for n, text in enumerate(texts)])
    write(tmp_path / "judged.csv", [{"query": WORDS[n], "passage": n} for n in range(10)])
    (tmp_path / "tasks.toml").write_text(TASKS)
    return tmp_path


def test_figures_of_three_kinds_and_the_stored_second_run(tiny_bert, mine, monkeypatch):
    made = call_json("evaluate", tiny_bert, "--tasks", mine / "tasks.toml", "-o", mine / "a.json")
    assert set(made["tasks"]["library"]) >= {"ndcg@10", "mrr@10", "recall@100", "map@1000"}
    assert set(made["tasks"]["answers"]) == {"map", "mrr", "ndcg@10"}
    assert made["protocol"]["metrics"] == {"topics": "v_measure", "answers": "map", "library": "ndcg@10"}
    monkeypatch.setattr("layerwise.evaluate.load.LayerModel.load", lambda *_, **__: pytest.fail("the model was loaded"))
    assert call_json("evaluate", tiny_bert, "--tasks", mine / "tasks.toml", "-o", mine / "b.json") == made
    told = call("evaluate", tiny_bert, "--tasks", mine / "tasks.toml")
    assert "all 3 results were stored before" in told
    assert "time by task: each under 1 s; reading rows" in told
    compared = call_json("compare", mine / "a.json", mine / "b.json", "--resamples", "20")
    assert all(line["gain"]["mean"] == 0 for line in compared["tasks"].values())


def test_a_plain_file_needs_no_task_file(tiny_bert, mine, monkeypatch, capfd):
    made = call_json("evaluate", tiny_bert, mine / "answers.csv")
    assert set(made["tasks"]["answers"]) == {"map", "mrr", "ndcg@10"}
    ended = run_main(monkeypatch, capfd, "evaluate", tiny_bert, mine / "answers.csv", "--tasks", mine / "tasks.toml")
    assert_one_line(*ended, "two tasks are called 'answers'; rename one of them")
    rows = [{"a": WORDS[n], "b": WORDS[-n], "grade": n} for n in range(12)]
    write(mine / "graded.csv", rows)
    named = ("--left", "a", "--right", "b", "--score", "grade")
    assert set(call_json("evaluate", tiny_bert, mine / "graded.csv", *named)["tasks"]["graded"]) >= {"spearman"}
    ended = run_main(monkeypatch, capfd, "evaluate", tiny_bert, mine / "graded.csv")
    assert_one_line(*ended, "graded.csv: no column 'sentence1'; it has 'a', 'b', 'grade'; name the columns by --left")
    ended = run_main(monkeypatch, capfd, "evaluate", tiny_bert, *named)
    assert_one_line(*ended, "--left, --right and --score name the columns of a file; give the file, or leave them out")


def test_the_matrix_of_tasks_by_layers(tiny_bert, mine):
    options = ("--tasks", mine / "tasks.toml", "--every-layer", "--pooling", "mean")
    made = call_json("evaluate", tiny_bert, *options, "-o", mine / "map.svg", "-o", mine / "map.md")
    matrix = made["matrix"]
    assert matrix["tasks"] == ["topics", "answers", "library"]
    assert matrix["mixes"] == [f"{layer} @ mean" for layer in range(DEPTH + 1)]
    assert matrix["scores"][1] == [run["tasks"]["answers"]["map"] for run in made["runs"]]
    assert (mine / "map.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "0 @ mean" in (mine / "map.md").read_text(encoding="utf-8")


def test_a_heat_map_needs_layers(tiny_bert, mine, monkeypatch, capfd):
    options = ("--tasks", mine / "tasks.toml", "-o", mine / "map.png")
    ended = run_main(monkeypatch, capfd, "evaluate", tiny_bert, *options)
    assert_one_line(*ended, "map.png: a heat map shows layers: add --layers each, or write .json, .md or .csv")


def test_suites_name_the_tasks_of_the_catalogue():
    assert {task.suite for task in find_tasks(suites=["mteb-like"])} == set(GROUPS["mteb-like"])
    assert {task.name for task in find_tasks(suites=["pairs", "reranking"])} == {"twitter-url", "wikiqa"}
    assert set(GROUPS["mteb-like"]) < {task.suite for task in find_tasks(suites=["all"])}


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("answers.csv", [{"query": "a", "text": "b", "label": "good"}], "answers.csv:2: label 'good' is not a number"),
        ("judged.csv", [{"query": "a", "passage": "99"}], "judged.csv:2: passage '99' is no id of"),
        (
            "topics.csv",
            [{"text": "a", "label": "x"}],
            "task 'topics': all rows have one class; clusters need 2 or more",
        ),
    ],
)
def test_a_bad_row_is_one_line(tiny_bert, mine, monkeypatch, capfd, file, rows, message):
    write(mine / file, rows)
    ended = run_main(monkeypatch, capfd, "evaluate", tiny_bert, "--tasks", mine / "tasks.toml")
    assert_one_line(*ended, message)
