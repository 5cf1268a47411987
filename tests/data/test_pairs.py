"""Files of pairs: every format gives the same rows, and what can't be used is one line with its row."""

import io
import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.data import read_pairs
from layerwise.errors import InputError, LayerwiseError
from support.row_files import write

COLUMNS = ("sentence1", "sentence2")


def columns(pairs):
    return pairs.left, pairs.right, pairs.labels


ROWS = [
    {"split": "dev", "score": 4.5, "sentence2": "Rain, and more of it.", "sentence1": 'A "river"', "n": 1},
    {"split": "test", "score": 0.0, "sentence2": "ein Fluss für alle", "sentence1": "two\nlines", "n": 2},
    {"split": "test", "score": -1.25, "sentence2": " a door ", "sentence1": "tab\there", "n": 10},
]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_gives_the_same_pairs(tmp_path, ending):
    pairs = read_pairs(str(write(tmp_path / f"rows.{ending}", ROWS)), COLUMNS, "score")
    assert pairs.left == [row["sentence1"] for row in ROWS]
    assert pairs.right == [row["sentence2"] for row in ROWS]
    assert pairs.labels == [4.5, 0.0, -1.25]
    assert len(pairs) == 3


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_only_rows_with_a_value(tmp_path, ending):
    path = str(write(tmp_path / f"rows.{ending}", ROWS))
    texts = read_pairs(path, COLUMNS, "score", where=("split", "test"))
    assert columns(texts) == (["two\nlines", "tab\there"], ["ein Fluss für alle", " a door "], [0.0, -1.25])
    numbers = read_pairs(path, COLUMNS, "score", where=("n", "10"))
    assert columns(numbers) == (["tab\there"], [" a door "], [-1.25])
    assert read_pairs(path, COLUMNS, None, where=("score", "4.5")).left == ['A "river"']


def test_columns_by_name_in_any_order_and_twice(tmp_path):
    path = str(write(tmp_path / "rows.csv", ROWS))
    assert read_pairs(path, ("sentence2", "sentence1"), "n").right[0] == 'A "river"'
    assert read_pairs(path, ("sentence2", "sentence1"), "n").labels == [1, 2, 10]
    twice = read_pairs(path, ("sentence1", "sentence1"), None)
    assert twice.left == twice.right == [row["sentence1"] for row in ROWS]
    assert twice.labels == []


def test_rows_that_are_left_out_may_hold_anything(tmp_path):
    rows = [*ROWS, {"split": "old", "score": "?", "sentence2": "", "sentence1": " ", "n": 3}]
    assert read_pairs(str(write(tmp_path / "rows.csv", rows)), COLUMNS, "score", where=("split", "dev")).labels == [4.5]


def test_the_format_may_be_said(tmp_path):
    path = tmp_path / "rows.data"
    path.write_text("sentence1\tsentence2\tscore\na\tb\t 3e-1 \n")
    assert columns(read_pairs(str(path), COLUMNS, "score", format="tsv")) == (["a"], ["b"], [0.3])


def test_standard_input(monkeypatch):
    data = b'{"sentence1": "a", "sentence2": "b", "score": 2}\n\n{"sentence1": "c", "sentence2": "d", "score": "3"}\n'
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert columns(read_pairs("-", COLUMNS, "score", format="jsonl")) == (["a", "c"], ["b", "d"], [2.0, 3.0])


def test_a_text_file_has_one_column(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("one\ntwo\n")
    assert read_pairs(str(path), ("sentence1", "sentence1"), None).left == ["one", "two"]
    with pytest.raises(InputError, match=r"lines.txt: a text file has no column 'sentence2'"):
        read_pairs(str(path), COLUMNS, None)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1).filter(str.strip)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS, st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=5),
    ending=st.sampled_from(["csv", "tsv", "jsonl", "parquet"]),
)
def test_what_is_written_is_read(tmp_path_factory, rows, ending):
    path = tmp_path_factory.mktemp("pairs") / f"rows.{ending}"
    write(path, [dict(zip((*COLUMNS, "score"), row, strict=True)) for row in rows])
    pairs = read_pairs(str(path), COLUMNS, "score")
    assert list(zip(pairs.left, pairs.right, pairs.labels, strict=True)) == rows


HEADER = "sentence1,sentence2,score\n"
BAD = {
    "a text": (HEADER + "a,b,1\nc,d,high\n", r"rows.csv:3: score 'high' is not a number; every row needs one"),
    "nothing": (HEADER + "a,b,\n", "rows.csv:2: score '' is not a number"),
    "NaN": (HEADER + "a,b,nan\n", "rows.csv:2: score 'nan' is not a number"),
    "infinite": (HEADER + "a,b,-inf\n", "rows.csv:2: score '-inf' is not a number"),
    "two numbers": (HEADER + 'a,b,"1,5"\n', "rows.csv:2: score '1,5' is not a number"),
    "empty first": (HEADER + "a,b,1\n,d,2\n", "rows.csv:3: column 'sentence1' is empty; give a text, or drop the row"),
    "empty second": (HEADER + "a,  ,1\n", "rows.csv:2: column 'sentence2' is empty"),
    "no such column": ("sentence1,text,score\na,b,1\n", "rows.csv: no column 'sentence2'; it has 'sentence1', 'text'"),
    "no score": ("sentence1,sentence2\na,b\n", "rows.csv: no column 'score'; it has 'sentence1', 'sentence2'"),
    "a cell more": (HEADER + "a,b,1,2\n", "rows.csv:2: 4 columns, but the header has 3"),
    "no rows": (HEADER, r"rows.csv: no rows; needed: sentence1 \(left\), sentence2 \(right\), score \(label\)"),
    "no header": ("", "rows.csv: the file is empty; expected a header row"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_bad_rows_are_named(tmp_path, content, message):
    path = tmp_path / "rows.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as error:
        read_pairs(str(path), COLUMNS, "score")
    assert "\n" not in str(error.value)


BAD_VALUES = {
    "null score": ({"score": None}, "score null is not a number"),
    "a list": ({"score": [1]}, r"score \[1\] is not a number"),
    "NaN": ({"score": float("nan")}, "score nan is not a number"),
    "a large number": ({"score": 10**400}, "score 1000.* is not a number"),
    "null text": ({"sentence2": None}, "column 'sentence2' is null, expected a text"),
    "a number": ({"sentence1": 7}, "column 'sentence1' is 7, expected a text"),
    "half a character": ({"sentence1": "\ud800"}, "column 'sentence1' holds half a surrogate pair"),
}


@pytest.mark.parametrize(("change", "message"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_bad_values_are_named(tmp_path, change, message):
    good = {"sentence1": "a", "sentence2": "b", "score": 1}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(good) + "\n" + json.dumps(good | change) + "\n")
    with pytest.raises(InputError, match=f"rows.jsonl:2: {message}"):
        read_pairs(str(path), COLUMNS, "score")


def test_rows_that_nothing_fits(tmp_path):
    path = str(write(tmp_path / "rows.parquet", ROWS))
    with pytest.raises(InputError, match=r"rows.parquet: no rows with split = train; needed: sentence1"):
        read_pairs(path, COLUMNS, "score", where=("split", "train"))
    with pytest.raises(InputError, match=r"rows.parquet: no column 'part'; it has 'split', 'score'"):
        read_pairs(path, COLUMNS, "score", where=("part", "train"))


def test_files_that_are_none(tmp_path):
    with pytest.raises(InputError, match=r"rows.csv: no such file; check the path"):
        read_pairs(str(tmp_path / "rows.csv"), COLUMNS, "score")
    (tmp_path / "rows.xlsx").touch()
    with pytest.raises(InputError, match=r"rows.xlsx: its ending '.xlsx' names no format"):
        read_pairs(str(tmp_path / "rows.xlsx"), COLUMNS, "score")
    with pytest.raises(LayerwiseError, match=r"Unknown input format 'cvs'. Did you mean 'csv'"):
        read_pairs(str(tmp_path / "rows.xlsx"), COLUMNS, "score", format="cvs")
