"""Rows from strangers: encodings, delimiters, odd values, classes that look alike."""

import io
import json
import logging
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerwise.data import RowSource, Task, load_pairs, read_task, text_of
from layerwise.data.labels import look_alikes
from layerwise.encoder.tokens import _LONG, _LONGEST, _beginning, _direct
from layerwise.errors import InputError
from support.tiny import tiny_tokenizer

CLASSES = Task(name="x", kind="classification", file="x.csv", columns={"left": "text", "label": "label"})


def texts(path, **options):
    source = RowSource.of(str(path), ("text",), **options)
    return [text_of(source, row, 0) for row in source]


@pytest.mark.parametrize("ending", ["txt", "csv", "jsonl"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-8-sig", "UTF8"])
def test_a_file_of_any_encoding_is_read_by_its_name(ending, encoding, tmp_path):
    lines = {"txt": "naïve\nthé\n", "csv": 'text\r\n"naïve"\r\nthé\r\n'}
    content = lines.get(ending) or "".join(
        json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in ("naïve", "thé")
    )
    path = tmp_path / f"rows.{ending}"
    path.write_bytes(content.encode(encoding))
    assert texts(path, encoding=encoding) == ["naïve", "thé"]


def test_standard_input_stays_open_after_another_encoding(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO("é\n".encode("utf-16")))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert texts("-", encoding="utf-16") == ["é"]
    assert not stdin.buffer.closed


def test_bytes_that_cannot_be_decoded_name_the_option(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_bytes(b"a\nna\xefve\n")
    with pytest.raises(InputError, match=r"rows\.txt:2: not UTF-8 .* --encoding latin-1$"):
        texts(path)
    path.write_bytes("a\n".encode("utf-16"))
    with pytest.raises(InputError, match=r"rows\.txt:1: not UTF-8 .* --encoding utf-16$"):
        texts(path)
    with pytest.raises(InputError, match=r"rows\.txt:1: not ascii here or below .*--encoding"):
        texts(path, encoding="ascii")


@pytest.mark.parametrize("name", ["nothing", "rot13", "hex", "a\0b", ""])
def test_an_encoding_that_is_none_is_refused(name, tmp_path):
    (tmp_path / "rows.txt").write_text("a\n")
    with pytest.raises(InputError, match=r"--encoding .* is unknown; give one such as"):
        texts(tmp_path / "rows.txt", encoding=name)


def test_parquet_takes_no_encoding(tmp_path):
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="Parquet knows its own"):
        texts(tmp_path / "rows.parquet", encoding="utf-8")


@pytest.mark.parametrize(("mark", "name"), [(";", ";"), ("|", "pipe"), ("\t", "tab"), ("\t", "\\t"), (" ", "space")])
def test_a_delimiter_is_a_character_or_its_name(mark, name, tmp_path):
    (tmp_path / "rows.csv").write_text(f'text{mark}x\n"a{mark}b"{mark}1\n')
    assert texts(tmp_path / "rows.csv", delimiter=name) == [f"a{mark}b"]


@pytest.mark.parametrize("name", ["", ";;", '"', "\n"])
def test_a_delimiter_that_is_none_is_refused(name, tmp_path):
    (tmp_path / "rows.csv").write_text("text\n")
    with pytest.raises(InputError, match="is not one character"):
        texts(tmp_path / "rows.csv", delimiter=name)
    (tmp_path / "rows.txt").write_text("text\n")
    with pytest.raises(InputError, match="is for CSV and TSV"):
        texts(tmp_path / "rows.txt", delimiter=";")


def test_another_separator_is_answered_with_the_option(tmp_path):
    (tmp_path / "rows.csv").write_text("text;x\na;b\n")
    with pytest.raises(InputError, match="--delimiter ';'"):
        texts(tmp_path / "rows.csv")


def test_pairs_take_encoding_and_delimiter_and_tasks_do_not(tmp_path):
    (tmp_path / "p.csv").write_bytes("sentence1;sentence2;score\nné;b;1\nc;d;2\n".encode("latin-1"))
    rows = load_pairs(str(tmp_path / "p.csv"), encoding="latin-1", delimiter=";")
    assert (rows.left, rows.labels) == (["né", "c"], [1.0, 2.0])
    with pytest.raises(InputError, match="is a task, which declares its file; --encoding is for files"):
        load_pairs("stsb", encoding="latin-1")


def test_a_duration_beyond_python_is_one_line(tmp_path):
    pq.write_table(pa.table({"text": pa.array([2**62], pa.duration("s"))}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"rows\.parquet: not a readable Parquet file"):
        texts(tmp_path / "rows.parquet")


def test_classes_that_look_alike_are_told(tmp_path, caplog):
    path = tmp_path / "rows.csv"
    path.write_text("text,label\na,café\nb,cafe\u0301\nc,yes\nd,yes \ne,no\n", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert len(set(read_task(CLASSES, path).labels)) == 5
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert r"'caf\xe9' and 'cafe\u0301' are two classes" in told[0]
    assert "'yes' and 'yes ' are two classes" in told[1]
    assert look_alikes(["a", "b", "A"]) == []


def test_half_a_surrogate_pair_is_no_class(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "label": "\\ud800"}\n')
    with pytest.raises(InputError, match=r"rows\.jsonl:1: label holds half a surrogate pair"):
        read_task(CLASSES, tmp_path / "rows.jsonl")


def test_the_beginning_of_a_very_long_text_gives_its_tokens():
    direct = _direct(tiny_tokenizer(), 16)
    text = "rain river, door? " * (_LONG // 9)
    beginning = _beginning(direct, text)
    assert len(beginning) == _LONG < len(text)
    assert direct.encode(beginning).ids == direct.encode(text).ids
    sparse = " " * (2 * _LONG) + "rain"
    assert _beginning(direct, sparse) == sparse
    assert _beginning(direct, "rain") == "rain"


@pytest.mark.slow
def test_a_text_without_words_in_its_first_millions_of_characters_is_refused():
    with pytest.raises(InputError, match="it is no sentence"):
        _beginning(_direct(tiny_tokenizer(), 16), " " * (_LONGEST + 1))
