"""A task's rows: the same from every format, and what can't be used is one line with its file, row and remedy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.data import NoSubsetError, Task, read_task
from layerwise.data.task_rows import EMPTY
from layerwise.errors import InputError
from support.row_files import write

STS = Task(
    name="pairs",
    kind="sts",
    file="rows",
    columns={"subset": "subset"},
    splits={"dev": ["dev"], "test": ["test", "late"]},
)
CLASSES = Task(name="classes", kind="classification", file="rows")
SEARCH = Task(name="search", kind="retrieval", file="rows")
TWINS = Task(name="twins", kind="retrieval", file="rows", columns={"label": "label"}, duplicates=True)
ROWS = [
    {"sentence1": 'a "cat"', "sentence2": "two\nlines", "score": 2.5, "subset": "x", "split": "test"},
    {"sentence1": "", "sentence2": "a, b", "score": 0, "subset": "y", "split": "dev"},
    {"sentence1": "Grüße 漢字", "sentence2": " ", "score": 5.0, "subset": "x", "split": "late"},
    {"sentence1": "not", "sentence2": "used", "score": 1.0, "subset": "z", "split": "old"},
]
ENDINGS = ("csv", "tsv", "jsonl", "parquet")


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_rows(tmp_path, ending):
    rows = read_task(STS, write(tmp_path / f"rows.{ending}", ROWS))
    assert rows.left == ['a "cat"', EMPTY, "Grüße 漢字"]  # "old" is no split of the task
    assert rows.right == ["two\nlines", "a, b", EMPTY]
    assert rows.labels == [2.5, 0.0, 5.0]
    assert rows.subsets == ["x", "y", "x"]
    assert {role: found.tolist() for role, found in rows.splits.items()} == {"dev": [1], "test": [0, 2]}
    assert (rows.counts, rows.empty, len(rows)) == ({"dev": 1, "test": 2}, 2, 3)
    assert rows.texts == ['a "cat"', EMPTY, "Grüße 漢字", "two\nlines", "a, b"]
    assert rows.digest == read_task(STS, write(tmp_path / "rows.jsonl", ROWS)).digest


CLASSED = [{"text": "a", "label": 1}, {"text": "b", "label": 0}, {"text": "a", "label": 12}]


@pytest.mark.parametrize("ending", ENDINGS)
def test_classes_are_names_in_every_format(tmp_path, ending):
    rows = read_task(CLASSES, write(tmp_path / f"rows.{ending}", CLASSED))
    assert (rows.labels, rows.right, rows.counts) == (["1", "0", "12"], [], {"all": 3})
    assert np.array_equal(rows.splits["test"], [0, 1, 2])
    assert rows.digest == read_task(CLASSES, write(tmp_path / "rows.csv", CLASSED)).digest


@pytest.mark.parametrize("ending", ENDINGS)
def test_queries_and_passages_need_no_label(tmp_path, ending):
    path = write(tmp_path / f"rows.{ending}", [{"query": "q", "passage": "p"}])
    rows = read_task(SEARCH, path)
    assert (rows.left, rows.right, rows.labels) == (["q"], ["p"], [])
    assert rows.digest == read_task(SEARCH, write(tmp_path / "rows.csv", [{"query": "q", "passage": "p"}])).digest


def test_duplicates_have_labels(tmp_path):
    path = write(tmp_path / "rows.csv", [{"query": "q", "passage": "p", "label": 1}])
    assert read_task(TWINS, path).labels == [1.0]


def test_the_digest_is_of_what_is_scored(tmp_path):
    """Texts, labels, their order and who tests; not of columns that nobody reads, nor of rows of no declared split."""
    path = tmp_path / "rows.jsonl"
    digest = read_task(STS, write(path, ROWS)).digest
    assert read_task(STS, write(path, [row | {"id": 7} for row in ROWS])).digest == digest
    assert read_task(STS, write(path, ROWS[:3])).digest == digest
    assert read_task(STS, write(path, [ROWS[3], *ROWS[:3]])).digest == digest
    changed = [
        [*ROWS[:2], ROWS[2] | {"score": 1.5}],
        [*ROWS[:2], ROWS[2] | {"sentence2": "used."}],
        [*ROWS[:2], ROWS[2] | {"split": "dev"}],
        [*ROWS[:3], ROWS[3] | {"split": "late"}],
        [ROWS[1], ROWS[0], *ROWS[2:]],
        ROWS[:2],
    ]
    digests = {read_task(STS, write(path, rows)).digest for rows in changed}
    assert len(digests | {digest}) == len(changed) + 1


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1).filter(str.strip)


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(st.tuples(TEXT, TEXT, st.floats(-5, 5)), min_size=1, max_size=5))
def test_any_rows_have_one_digest_in_every_format(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    named = [dict(zip(("sentence1", "sentence2", "score"), row, strict=True)) for row in rows]
    task = Task(name="any", kind="sts", file="rows")
    assert len({read_task(task, write(folder / f"rows.{ending}", named)).digest for ending in ENDINGS}) == 1


def test_only_a_subset(tmp_path):
    path = write(tmp_path / "rows.csv", [*ROWS, ROWS[0] | {"subset": "w", "score": "none"}])
    task = Task(name="x", kind="sts", file="rows", columns={"subset": "subset"}, only="x")
    assert read_task(task, path).labels == [2.5, 5.0]
    with pytest.raises(NoSubsetError, match=r"rows\.csv: no rows with subset = q; needed: sentence1"):
        read_task(Task(name="x", kind="sts", file="rows", columns={"subset": "subset"}, only="q"), path)


def test_rows_of_no_declared_split_need_no_label(tmp_path):
    path = write(tmp_path / "rows.csv", [*ROWS[:3], ROWS[3] | {"score": "none"}])
    assert read_task(STS, path).labels == [2.5, 0.0, 5.0]
    everything = Task(name="all", kind="sts", file="rows", columns={"split": "split"})  # but no splits
    assert len(read_task(everything, write(path, ROWS))) == 4


def test_places_are_where_each_rows_texts_stand(tmp_path):
    rows = read_task(STS, write(tmp_path / "rows.csv", [*ROWS, ROWS[0] | {"sentence2": 'a "cat"'}]))
    left, right = rows.positions()
    assert [rows.texts[place] for place in left] == rows.left
    assert [rows.texts[place] for place in right] == rows.right
    assert left[3] == right[3] == 0
    single = read_task(CLASSES, write(tmp_path / "rows.jsonl", CLASSED))
    assert [column if column is None else column.tolist() for column in single.positions()] == [[0, 1, 0], None]


# What can't be used

HEAD = "sentence1,sentence2,score,subset,split\n"
BAD = {
    "no number": (
        HEAD + "a,b,1,x,test\nc,d,high,x,dev\n",
        r"rows\.csv:3: score 'high' is not a number; every row needs one",
    ),
    "NaN": (HEAD + "a,b,nan,x,test\n", r"rows\.csv:2: score 'nan' is not a number"),
    "no grade": (HEAD + "a,b,,x,test\n", r"rows\.csv:2: score '' is not a number"),
    "no rows": (HEAD, r"rows\.csv: no rows; needed: sentence1 \(left\), .*, split \(split\)"),
    "column": ("sentence1,score,subset,split\n", "no column 'sentence2'; it has .*; needed: sentence1"),
    "split": (
        HEAD + "a,b,1,x,train\n",
        r"no rows of the split dev \(dev\) of task 'pairs'; its column 'split' has 'train'",
    ),
    "other splits": (
        HEAD + "a,b,1,x,dev\nc,d,1,x,old\ne,f,1,x,older\n",
        r"no rows of the split test/late \(test\) of task 'pairs'; its column 'split' has 'dev', 'old', 'older'",
    ),
    "no test": (HEAD + "a,b,1,x,dev\n", r"no rows of the split test/late \(test\) of task 'pairs'"),
    "cells": (HEAD + "a,b,1,x\n", r"rows\.csv:2: 4 columns, but the header has 5"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_bad_rows_are_named(tmp_path, content, message):
    path = tmp_path / "rows.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as error:
        read_task(STS, path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("label", [None, "", float("nan"), float("inf")])
def test_a_class_must_be_something(tmp_path, label):
    path = write(tmp_path / "rows.jsonl", [*CLASSED, {"text": "c", "label": label}])
    with pytest.raises(InputError, match=r"rows\.jsonl:4: no label in 'label'; every row needs a class"):
        read_task(CLASSES, path)


def test_texts_must_be_texts(tmp_path):
    path = write(tmp_path / "rows.jsonl", [{"text": None, "label": 1}])
    with pytest.raises(InputError, match=r"rows\.jsonl:1: column 'text' is null, expected a text"):
        read_task(CLASSES, path)


def test_files_that_are_none(tmp_path):
    with pytest.raises(InputError, match=r"rows\.csv: no such file"):
        read_task(CLASSES, tmp_path / "rows.csv")
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match=r"rows\.parquet: not a readable Parquet file"):
        read_task(CLASSES, tmp_path / "rows.parquet")
    (tmp_path / "rows.txt").write_text("a\n")
    with pytest.raises(InputError, match=r"rows\.txt: a text file has no column"):
        read_task(CLASSES, tmp_path / "rows.txt")


def test_empty_texts_are_told(tmp_path, caplog):
    caplog.set_level("INFO", "layerwise")
    read_task(STS, write(tmp_path / "rows.csv", ROWS))
    assert caplog.messages == ["pairs: 2 empty texts are encoded as '.', as SentEval does"]
