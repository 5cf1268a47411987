"""Texts from strangers on the terminal, in JSON, in cards and in tables: shown, never obeyed."""

import csv
import io
import json

import pytest

from layerwise.errors import InputError, LayerwiseError, printable
from layerwise.model import LayerModel
from layerwise.model.card import cell
from support.commands import call, refused
from support.pair_files import made_up_sentences, write

HOSTILE = "\x1b[2J\x1b]0;x\x07 red\r\x9b31m \u202etxt \x7f"
CONTROLS = "\x1b\r\x07\x08\x7f\x9b\u202e\u2066\u2028\ud800\0"


def raw(text):
    return [char for char in text if char != "\n" and printable(char) != char]


def test_control_characters_are_written_out():
    assert printable(CONTROLS) == r"\x1b\r\x07\x08\x7f\x9b\u202e\u2066\u2028\ud800\x00"
    assert printable("naïve 漢字 😀 – …") == "naïve 漢字 😀 – …"


def test_an_error_is_one_line_of_bounded_length():
    assert str(InputError(f"a\nb {HOSTILE}")) == printable(" ".join(f"a\nb {HOSTILE}".split()))
    assert len(str(LayerwiseError("x" * 10**6))) < 1100


@pytest.fixture
def pairs(tmp_path):
    left, right = made_up_sentences()
    rows = [
        {"sentence1": f"{HOSTILE} {a}", "sentence2": b, "score": number % 6}
        for number, (a, b) in enumerate(zip(left, right, strict=True))
    ]
    return write(tmp_path / "pairs\x1b[2J.jsonl", rows)


def test_no_control_character_reaches_the_terminal(pairs, tiny_bert, capsys, monkeypatch):
    assert not raw(call("analyze", tiny_bert, "--pairs", pairs, "--measure", "tokens", "--device", "cpu"))
    assert not raw(refused(capsys, monkeypatch, "search", tiny_bert, pairs, "--left", "a\x1b[2J"))
    assert not raw(refused(capsys, monkeypatch, "embed", tiny_bert, f"{pairs}\x1b.txt", "-o", "x"))


def test_json_has_no_raw_control_character_and_reads_back(pairs, tiny_bert):
    text = call("analyze", tiny_bert, "--pairs", pairs, "--measure", "tokens", "--device", "cpu", "--json")
    assert not raw(text)
    assert "\x1b[2J" in json.loads(text)["pairs"]


def test_a_card_holds_no_markup_of_texts(tiny_layers, tmp_path):
    hostile = f"<script>alert(1)</script> {HOSTILE} | b"
    tiny_layers.replaced(chosen=hostile, training={hostile: hostile}).save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "<" not in card
    assert not raw(card)
    assert LayerModel.load(tmp_path / "model", device="cpu").chosen == hostile
    assert cell("a < b & c") == "a &lt; b &amp; c"


def test_csv_holds_texts_unchanged(pairs, tiny_bert, tmp_path):
    out = tmp_path / "tokens.csv"
    sentence = "=HYPERLINK(rain) +1 @x"
    call(
        "analyze",
        tiny_bert,
        "--pairs",
        pairs,
        "--measure",
        "tokens",
        "--sentence",
        sentence,
        "--device",
        "cpu",
        "-o",
        out,
    )
    rows = list(csv.reader(io.StringIO(out.read_text(encoding="utf-8"), newline="")))
    assert len({len(row) for row in rows}) == 1


def test_commands_take_encoding_and_delimiter(tiny_bert, tmp_path):
    left, right = made_up_sentences()
    lines = [f"{a} é;{b};{number % 6}" for number, (a, b) in enumerate(zip(left, right, strict=True))]
    path = tmp_path / "pairs.csv"
    path.write_bytes("\n".join(["sentence1;sentence2;score", *lines]).encode("latin-1"))
    options = ("--encoding", "latin-1", "--delimiter", ";")
    assert "unseen" in call("search", tiny_bert, path, *options, "--device", "cpu")
    assert "60 rows" in call("embed", tiny_bert, path, "-o", tmp_path / "out", "--column", "sentence1", *options)
    assert "whitening" in call("fit", tiny_bert, path, "-o", tmp_path / "fit", "--column", "sentence1", *options)
    measured = call("analyze", tiny_bert, "--pairs", path, "--measure", "scores", *options, "--device", "cpu")
    assert "60 pairs" in measured
