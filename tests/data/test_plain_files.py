"""Plain files: the kind of a task by the names of its columns."""

import pytest

from layerwise.data import file_task, find_tasks, load_task
from layerwise.errors import InputError
from support.row_files import write


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        (("sentence1", "sentence2", "score", "label"), "sts"),
        (("label", "sentence1", "sentence2"), "pair-classification"),
        (("query", "text", "label"), "reranking"),
        (("query", "passage"), "retrieval"),
        (("text", "label"), "classification"),
    ],
)
def test_columns_say_the_kind(tmp_path, columns, kind):
    write(tmp_path / "my rows.csv", [dict.fromkeys(columns, "1")])
    task = file_task(str(tmp_path / "my rows.csv"))
    assert (task.name, task.kind) == ("my-rows", kind)
    assert find_tasks([str(tmp_path / "my rows.csv")]) == [task]
    assert len(load_task(task)) == 1


def test_named_columns_are_of_graded_pairs_and_a_ranking_has_passages(tmp_path):
    write(tmp_path / "rows.csv", [{"a": "one", "sentence1": "x", "sentence2": "two", "grade": "3"}])
    task = file_task(str(tmp_path / "rows.csv"), left="a", score="grade", where=("a", "one"))
    assert (task.kind, task.only, task.columns["subset"]) == ("sts", "one", "a")
    assert (task.columns["left"], task.columns["right"], task.columns["label"]) == ("a", "sentence2", "grade")
    ranked = file_task(str(tmp_path / "rows.csv"), metric="ndcg@3")
    assert (ranked.kind, ranked.columns["left"], ranked.columns["right"]) == ("retrieval", "sentence1", "sentence2")


def test_a_file_whose_columns_say_nothing_is_refused_with_the_kinds(tmp_path):
    write(tmp_path / "rows.csv", [{"a": "one", "b": "two"}])
    with pytest.raises(InputError, match=r"no column 'sentence1'; it has 'a', 'b'; name .* text, label \(classif"):
        file_task(str(tmp_path / "rows.csv"))
    (tmp_path / "rows.txt").write_text("one\ntwo\n")
    with pytest.raises(InputError, match=r"rows.txt: a text file has no columns; give CSV"):
        file_task(str(tmp_path / "rows.txt"))
