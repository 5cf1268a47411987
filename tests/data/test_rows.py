"""Every input format gives the rows that were written, and whatever can't be used is named: file, row and remedy."""

import csv
import io
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.data import RowSource, text_of
from layerwise.errors import InputError, LayerwiseError

TEXTS = ["The river rose.", 'She said "no", twice', "two\nlines", "Grüße, 漢字 🙂", " spaces kept ", "", "tab\there"]
NO_TEXT = "expected a text"


def read(path, column="text", *, format=None) -> list[str]:
    source = RowSource.of(str(path), (column,), format=format)
    return [text_of(source, row, 0) for row in source]


def write(path: Path, texts: list[str]) -> Path:
    """Write texts beside their numbers, as the path's ending says."""
    records = [{"id": number, "text": text} for number, text in enumerate(texts)]
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": pa.array(texts, pa.string()), "id": range(len(texts))}), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ("id", "text"), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(records)
    return path


def give_stdin(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_reads_what_was_written(tmp_path, ending):
    path = write(tmp_path / f"rows{ending}", TEXTS)
    assert read(path) == TEXTS


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_columns_come_in_the_order_asked_for(tmp_path, ending):
    path = write(tmp_path / f"rows{ending}", ["a", "b"])
    rows = [tuple(map(str, row.values)) for row in RowSource.of(str(path), ("text", "id", "text"))]
    assert rows == [("a", "0", "a"), ("b", "1", "b")]


@pytest.mark.parametrize("ending", [".CSV", ".ndjson", ".pq", ".text"])
def test_other_endings_of_the_same_formats(tmp_path, ending):
    made = {".CSV": ".csv", ".ndjson": ".jsonl", ".pq": ".parquet"}.get(ending)
    path = tmp_path / f"rows{ending}"
    if made:
        write(tmp_path / f"made{made}", ["a", "b"]).rename(path)
    else:
        path.write_text("a\nb\n")
    assert read(path) == ["a", "b"]


def test_text_file_has_a_row_a_line(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("first, one\n\n  third \nfourth\x0bstill\u2028fourth\n", encoding="utf-8", newline="")
    source = RowSource.of(str(path), ("any name",))
    assert [row.values[0] for row in source] == ["first, one", "", "  third ", "fourth\x0bstill\u2028fourth"]
    assert [row.place for row in source] == [1, 2, 3, 4]


@pytest.mark.parametrize("format", ["text", "csv", "tsv", "jsonl"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last_newline", [True, False])
def test_line_ends_byte_order_mark_and_last_newline_make_no_difference(tmp_path, format, end, bom, last_newline):
    lines = {"text": [b"one", b"two \xc3\xa4"], "jsonl": [b'{"text": "one"}', b'{"text": "two \xc3\xa4"}']}
    data = end.join(lines.get(format, [b"text", b"one", b"two \xc3\xa4"])) + (end if last_newline else b"")
    path = tmp_path / "rows"
    path.write_bytes(bom + data)
    assert read(path, format=format) == ["one", "two ä"]


def test_blank_lines_of_csv_and_jsonl_are_no_rows(tmp_path):
    (tmp_path / "rows.csv").write_text("text\n\none\n\n")
    (tmp_path / "rows.jsonl").write_text('\n{"text": "one"}\n  \n')
    assert read(tmp_path / "rows.csv") == ["one"]
    assert read(tmp_path / "rows.jsonl") == ["one"]


@pytest.mark.parametrize("format", ["text", "csv", "tsv", "jsonl"])
def test_standard_input(tmp_path, monkeypatch, format):
    data = b"one\ntwo\n" if format == "text" else write(tmp_path / f"rows.{format}", ["one", "two"]).read_bytes()
    give_stdin(monkeypatch, data)
    assert read("-", format=format) == ["one", "two"]


def test_what_can_not_be_read_is_said_at_once(tmp_path):
    with pytest.raises(InputError, match=r"Parquet cannot be read from standard input, .*; give the file"):
        RowSource.of("-", ("text",), format="parquet")
    (tmp_path / "rows.txt").write_text("one\n")
    with pytest.raises(InputError, match=r"rows\.txt: a text file has no column 'id'; give CSV, JSONL or Parquet"):
        RowSource.of(str(tmp_path / "rows.txt"), ("text", "id"))


def test_standard_input_is_text_unless_said_and_has_its_name_in_errors(monkeypatch):
    give_stdin(monkeypatch, b"one\ntwo\n")
    assert read("-") == ["one", "two"]
    give_stdin(monkeypatch, b"one\n\xff\n")
    with pytest.raises(InputError, match=r"^standard input:2: not UTF-8 .*; save the file as UTF-8"):
        read("-")


ANY_TEXT = st.text(st.characters(codec="utf-8"), max_size=40)


@given(texts=st.lists(ANY_TEXT, max_size=8), ending=st.sampled_from([".csv", ".tsv", ".jsonl", ".parquet"]))
@settings(deadline=None, max_examples=150)
def test_any_texts_read_back(texts, ending):
    with tempfile.TemporaryDirectory() as folder:
        assert read(write(Path(folder, f"rows{ending}"), texts)) == texts


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\ufeff"), max_size=40), max_size=8))
@settings(deadline=None, max_examples=50)
def test_any_lines_read_back(lines):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.txt")
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
        assert read(path) == lines


@pytest.mark.parametrize("ending", [".txt", ".csv", ".tsv", ".jsonl", ".parquet"])
def test_a_very_long_text_is_a_row_as_any_other(tmp_path, ending):
    long = "an old clock " * 20_000
    path = tmp_path / f"rows{ending}"
    if ending == ".txt":
        path.write_text(f"{long}\nshort\n")
    else:
        write(path, [long, "short"])
    assert [len(text) for text in read(path)] == [len(long), len("short")]


@pytest.mark.parametrize("rows", [4095, 4096, 4097])
def test_parquet_rows_are_numbered_through_batches(tmp_path, rows):
    path = write(tmp_path / "rows.parquet", [str(i) for i in range(rows)])
    found = list(RowSource.of(str(path), ("text",)))
    assert [row.place for row in found] == list(range(1, rows + 1))
    assert [row.values[0] for row in found] == [str(i) for i in range(rows)]


def test_parquet_types_are_kept(tmp_path):
    path = write(tmp_path / "rows.parquet", ["a", "b"])
    assert [row.values for row in RowSource.of(str(path), ("text", "id"))] == [("a", 0), ("b", 1)]


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.csv: no such file"):
        RowSource.of(str(tmp_path / "nowhere.csv"), ("text",))
    with pytest.raises(InputError, match="is a folder; give a file in it"):
        RowSource.of(str(tmp_path), ("text",))


def test_unknown_ending_and_unknown_format(tmp_path):
    path = tmp_path / "rows.xlsx"
    path.write_text("text\na\n")
    choices = r"--input-format csv\|jsonl\|parquet\|text\|tsv"
    with pytest.raises(InputError, match=rf"rows\.xlsx: .*'\.xlsx'.*{choices}"):
        RowSource.of(str(path), ("text",))
    with pytest.raises(LayerwiseError, match=r"Unknown input format 'cvs'\. Did you mean 'csv'"):
        RowSource.of(str(path), ("text",), format="cvs")
    assert read(path, format="csv") == ["a"]


# What is in the file, and the whole of the message behind the folder's name.
BAD = {
    "empty.csv": (b"", r"empty\.csv: the file is empty; expected a header row"),
    "empty.tsv": (b"", r"empty\.tsv: the file is empty; expected a header row"),
    "column.csv": (b"id,sentence\n1,a\n", r"column\.csv: no column 'text'; it has 'id', 'sentence'"),
    "column.tsv": (b"id\tsentence\n1\ta\n", r"column\.tsv: no column 'text'; it has 'id', 'sentence'"),
    "semicolons.csv": (b"id;text\n1;a\n", r"it has 'id;text', separated by ';': \*\.csv needs commas and \*\.tsv tabs"),
    "twice.csv": (b"text,text\na,b\n", r"twice\.csv: the column 'text' comes twice; rename one of them"),
    "column.jsonl": (b'{"text": "a"}\n{"txt": "b"}\n', r"column\.jsonl:2: no column 'text'; it has 'txt'"),
    "few.csv": (b'id,text\n1,"a\nb"\n2\n', r"few\.csv:4: 1 columns, but the header has 2"),
    "many.csv": (b"id,text\n1,a\n2,b, c\n", r"many\.csv:3: 3 columns, but the header has 2"),
    "few.tsv": (b"id\ttext\n1\n", r"few\.tsv:2: 1 columns, but the header has 2"),
    "quote.csv": (b'text\na\n"b" c\n', r"quote\.csv:3: not valid CSV: "),
    "open.csv": (b'text\na\n"b\nc\n', r"open\.csv:4: not valid CSV: "),
    "broken.jsonl": (b'{"text": "a"}\n{"text": "b"\n', r"broken\.jsonl:2: not valid JSON: "),
    "digits.jsonl": (b'{"text": ' + b"1" * 5000 + b"}\n", r"digits\.jsonl:1: "),
    "nested.jsonl": (b'{"text": ' + b"[" * 100_000 + b"\n", r"nested\.jsonl:1: "),
    "list.jsonl": (b'{"text": "a"}\n\n["b"]\n', r"list\.jsonl:3: expected a JSON object, not list"),
    "null.jsonl": (b'{"text": "a"}\n{"text": null}\n', rf"null\.jsonl:2: column 'text' is null, {NO_TEXT}"),
    "number.jsonl": (b'{"text": 7}\n', rf"number\.jsonl:1: column 'text' is 7, {NO_TEXT}"),
    "nan.jsonl": (b'{"text": "a"}\n{"text": NaN}\n', rf"nan\.jsonl:2: column 'text' is nan, {NO_TEXT}"),
    "half.jsonl": (b'{"text": "a"}\n{"text": "\\ud800"}\n', r"half\.jsonl:2: "),
    "latin.txt": (b"a\nb\nna\xefve\n", r"latin\.txt:3: not UTF-8 \(.*\); save the file as UTF-8"),
    "latin.csv": (b'text\n"a\nb"\nna\xefve\n', r"latin\.csv:4: not UTF-8 \(.*\); save the file as UTF-8"),
    "latin.jsonl": (b'{"text": "na\xefve"}\n', r"latin\.jsonl:1: not UTF-8 \(.*\); save the file as UTF-8"),
    "wide.txt": ("a\nb\n".encode("utf-16"), r"wide\.txt:1: not UTF-8 \(.*\); save the file as UTF-8"),
    "empty.parquet": (b"", r"empty\.parquet: not a readable Parquet file: "),
    "text.parquet": (b"text\na\nb\n" * 9, r"text\.parquet: not a readable Parquet file: "),
    "footer.parquet": (b"PAR1" + b"x" * 99 + b"\x10\0\0\0PAR1", r"footer\.parquet: not a readable Parquet file: "),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_content_is_named(tmp_path, name):
    data, message = BAD[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path)), "the file's whole path"


def test_rows_before_a_bad_one_are_given(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b"}\noops\n')
    rows = iter(RowSource.of(str(path), ("text",)))
    assert [next(rows).values, next(rows).values] == [("a",), ("b",)]
    with pytest.raises(InputError, match=r"rows\.jsonl:3: not valid JSON"):
        next(rows)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["a", None]), rf"rows\.parquet:2: column 'text' is null, {NO_TEXT}"),
        (pa.array([1, 2]), rf"rows\.parquet:1: column 'text' is 1, {NO_TEXT}"),
        (pa.array([float("nan"), 1.0]), rf"rows\.parquet:1: column 'text' is nan, {NO_TEXT}"),
        (pa.array([b"a", b"b"]), rf"rows\.parquet:1: column 'text' is b'a', {NO_TEXT}"),
    ],
)
def test_parquet_values_that_are_no_text(tmp_path, column, message):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": column}), path)
    with pytest.raises(InputError, match=message):
        read(path)


def test_parquet_without_the_column(tmp_path):
    with pytest.raises(InputError, match=r"rows\.parquet: no column 'txt'; it has 'text', 'id'"):
        read(write(tmp_path / "rows.parquet", ["a"]), "txt")


@pytest.mark.parametrize("cut", [0.5, 0.99])
def test_truncated_parquet(tmp_path, cut):
    path = write(tmp_path / "rows.parquet", ["a river"] * 100)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * cut)])
    with pytest.raises(InputError, match=r"rows\.parquet: not a readable Parquet file: "):
        read(path)


def test_parquet_damaged_inside(tmp_path):
    """Its footer is whole, so that only reading the rows can tell."""
    path = write(tmp_path / "rows.parquet", [f"river {number}" for number in range(5000)])
    data = bytearray(path.read_bytes())
    data[10 : len(data) // 2] = bytes(byte ^ 0x5A for byte in data[10 : len(data) // 2])
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"rows\.parquet: not a readable Parquet file: "):
        read(path)
