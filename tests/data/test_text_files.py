"""Queries and a corpus in files of their own: rows get their texts by id; what does not fit is one line."""

import pytest

from layerwise.data import Task, load_task, read_task, read_task_file
from layerwise.data.locate import find_file
from layerwise.errors import InputError
from support.row_files import write

CORPUS = [
    {"id": "d1", "title": "Cats", "text": "purr"},
    {"id": "d2", "title": "", "text": " bark "},
    {"id": "d3", "title": "Only a title", "text": ""},
    {"id": "d4", "title": "", "text": ""},
]
QUERIES = [{"id": 7, "text": "who purrs?"}, {"id": 8, "text": "who barks?"}]
JUDGED = [{"q": 7, "d": "d1", "score": 2}, {"q": 8, "d": "d2", "score": 1}, {"q": 8, "d": "d3", "score": 0}]
TOML = """
[[task]]
name = "pets"
kind = "retrieval"
file = "rows/judged.jsonl"
metric = "ndcg@10"
queries = { file = "queries.jsonl" }
corpus = { file = "corpus.jsonl", title = "title" }
columns = { left = "q", right = "d", label = "score" }
"""


@pytest.fixture
def pets(tmp_path):
    (tmp_path / "rows").mkdir()
    write(tmp_path / "rows" / "judged.jsonl", JUDGED)
    write(tmp_path / "queries.jsonl", QUERIES)
    write(tmp_path / "corpus.jsonl", CORPUS)
    (tmp_path / "pets.toml").write_text(TOML)
    return tmp_path


def test_rows_have_their_texts_and_the_corpus_is_whole(pets):
    (task,) = read_task_file(pets / "pets.toml")
    rows = load_task(task)
    assert rows.left == ["who purrs?", "who barks?", "who barks?"]
    assert rows.right == ["Cats purr", "bark", "Only a title"]
    assert (rows.left_ids, rows.right_ids) == (["7", "8", "8"], ["d1", "d2", "d3"])
    assert rows.corpus == {"d1": "Cats purr", "d2": "bark", "d3": "Only a title", "d4": "."}
    assert rows.labels == [2.0, 1.0, 0.0]
    picked = rows.pick(rows.splits["test"][1:])
    assert (picked.left_ids, picked.right_ids, picked.corpus) == (["8", "8"], ["d2", "d3"], rows.corpus)


def test_files_of_a_data_folder_lie_under_it(pets, monkeypatch):
    (task,) = read_task_file(pets / "pets.toml")
    names = {"file": "rows/judged.jsonl", "queries": {"file": "queries.jsonl"}}
    declared = task.replaced(**names, corpus=task.corpus.replaced(file="corpus.jsonl"), suite="pets")
    assert find_file(declared, pets) == pets / "rows" / "judged.jsonl"
    assert load_task(declared, pets).corpus == load_task(task).corpus
    (pets / "corpus.jsonl").unlink()
    assert find_file(declared, pets) is None
    with pytest.raises(InputError, match=r"^rows/judged.jsonl: no such file of task 'pets' \(it needs rows/judged"):
        load_task(declared, pets)


@pytest.mark.parametrize("change", ["text", "id", "title", "order", "more"])
def test_the_digest_is_of_the_corpus_too(pets, change):
    (task,) = read_task_file(pets / "pets.toml")
    before, rows = load_task(task).digest, [dict(row) for row in CORPUS]
    if change == "order":
        rows.reverse()
    elif change == "more":
        rows.append({"id": "d5", "title": "", "text": "meow"})
    else:
        rows[3][change] = "new"
    write(pets / "corpus.jsonl", rows)
    assert load_task(task).digest != before


BAD = {
    "twice": ("corpus.jsonl", [*CORPUS, CORPUS[0]], r"corpus.jsonl:5: the id 'd1' comes twice"),
    "no id": ("corpus.jsonl", [{"id": None, "title": "", "text": "a"}], r"corpus.jsonl:1: id is null, expected an id"),
    "no text": ("queries.jsonl", [{"id": 7, "text": None}], r"queries.jsonl:1: column 'text' is null, expected a text"),
    "no column": ("corpus.jsonl", [{"id": "d1", "text": "a"}], r"corpus.jsonl:1: no column 'title'"),
    "unknown": (
        "rows/judged.jsonl",
        [{"q": 7, "d": "d9", "score": 1}],
        r"judged.jsonl:1: d 'd9' is no id of .*corpus",
    ),
    "no query": (
        "rows/judged.jsonl",
        [{"q": 9, "d": "d1", "score": 1}],
        r"judged.jsonl:1: q '9' is no id of .*queries",
    ),
    "empty": ("corpus.jsonl", [], r"corpus.jsonl: no rows; needed: id, text, title"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_names_its_file_and_row(pets, case):
    file, rows, message = BAD[case]
    write(pets / file, rows)
    (task,) = read_task_file(pets / "pets.toml")
    with pytest.raises(InputError, match=message):
        load_task(task)


def test_empty_texts_are_refused_where_they_cannot_stay(pets):
    (task,) = read_task_file(pets / "pets.toml")
    with pytest.raises(InputError, match=r"corpus.jsonl:4: the text of 'd4' is empty; give a text, or drop the row"):
        load_task(task, empty=None)


def test_files_of_texts_are_for_retrieval():
    for more in ({"kind": "sts"}, {"kind": "retrieval", "duplicates": True, "columns": {"label": "label"}}):
        with pytest.raises(InputError, match="queries and corpus are files of a retrieval task without duplicates"):
            Task(name="a", file="a.csv", corpus={"file": "c.csv"}, **more)


def test_labels_of_pairs_are_0_or_1(tmp_path):
    task = Task(name="twins", kind="pair-classification", file="rows")
    path = write(tmp_path / "rows.csv", [{"sentence1": "a", "sentence2": "b", "label": 2}])
    with pytest.raises(InputError, match=r"rows.csv:2: label 2 is neither 0 nor 1; mark a pair as 1, others as 0"):
        read_task(task, path)


def test_candidates_have_ids_of_their_columns(tmp_path):
    task = Task(name="a", kind="reranking", file="rows", columns={"left_id": "q", "right_id": "d"})
    path = write(tmp_path / "rows.csv", [{"query": "who?", "text": "me", "label": 1, "q": "q1", "d": 3}])
    rows = read_task(task, path)
    assert (rows.left_ids, rows.right_ids) == (["q1"], ["3"])
    missing = write(tmp_path / "rows.jsonl", [{"query": "who?", "text": "me", "label": 1, "q": None, "d": 3}])
    with pytest.raises(InputError, match=r"rows.jsonl:1: q is null, expected an id, a text or a whole number"):
        read_task(task, missing)
