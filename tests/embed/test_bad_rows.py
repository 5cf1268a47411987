"""`embed --bad-rows`: rows that cannot be embedded are set aside, and all others are as if those had not been there."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerwise.data import RowSource
from layerwise.embed import EmbedJob, ModelChoice, run_embed, verify_vectors
from layerwise.errors import InputError
from layerwise.model import LayerModel
from support.commands import call, call_json, refused
from support.tiny import SENTENCES

pytestmark = pytest.mark.usefixtures("tiny_models_loaded_once")

GOOD = SENTENCES * 2


def write_text(path: Path) -> Path:
    lines = [text.encode() for text in GOOD]
    lines[3:3] = [b"caf\xe9 au lait", b"  "]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def write_csv(path: Path) -> Path:
    rows = [f'{number},"{text}"'.encode() for number, text in enumerate(GOOD)]
    rows[2:2] = [b"x,one,too many", b'x,"quoted" badly', b"x,caf\xe9"]
    path.write_bytes(b"id,text\n" + b"\n".join(rows) + b"\n")
    return path


def write_jsonl(path: Path) -> Path:
    rows = [json.dumps({"text": text, "id": number}).encode() for number, text in enumerate(GOOD)]
    bad = [b'{"text": ', b"[1]", b'{"id": 2}', b'{"text": null, "id": 1}', b'{"text": "\\ud800", "id": 1}']
    path.write_bytes(b"\n".join(rows[:4] + bad + rows[4:]) + b"\n")
    return path


def write_parquet(path: Path) -> Path:
    texts = [text.encode() for text in GOOD]
    texts[1:1] = [b"\xff\xfe", None, b""]
    column = pa.array(texts, pa.binary())
    column = pa.Array.from_buffers(pa.string(), len(column), column.buffers(), column.null_count)
    pq.write_table(pa.table({"text": column}), path)
    return path


FILES = {
    "rows.txt": (write_text, 3, ["column 'text' is not utf-8", "the text must not be empty"]),
    "rows.csv": (write_csv, 2, ["3 columns, but the header has 2", "not valid CSV", "column 'text' is not utf-8"]),
    "rows.jsonl": (
        write_jsonl,
        4,
        ["not valid JSON", "expected a JSON object, not list", "no column 'text'", "column 'text' is null",
         "half a surrogate pair"],
    ),
    "rows.parquet": (write_parquet, 1, ["column 'text' is not utf-8", "column 'text' is null", "must not be empty"]),
}  # fmt: skip


def embed(model: Path, path: Path, out: Path, *columns: str, **options):
    job = {"shard_rows": options.pop("shard_rows", 4), "number_type": options.pop("number_type", "float32")}
    source = RowSource.of(str(path), columns or ("text",))
    return run_embed(EmbedJob(source, **job), ModelChoice(str(model), options={"device": "cpu"}), out, **options)


def vectors(out: Path) -> tuple[list[int], np.ndarray]:
    table = pq.read_table(out)
    return table["row"].to_pylist(), np.stack(table["embedding"].to_numpy(zero_copy_only=False))


def told(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("name", "processes"), [*((name, 1) for name in FILES), pytest.param("rows.jsonl", 2, marks=pytest.mark.slow)]
)
def test_bad_rows_of_every_format_are_set_aside_and_the_others_stay(tmp_path, tiny_bert, name, processes):
    write, first, reasons = FILES[name]
    path, bad = write(tmp_path / name), tmp_path / "bad.jsonl"
    result = embed(tiny_bert, path, tmp_path / "out", bad_rows=bad, processes=processes)
    assert (result.rows, result.set_aside, result.shards) == (len(GOOD), len(reasons), -(-len(GOOD) // 4))
    rows, found = vectors(tmp_path / "out")
    left_out = list(range(first, first + len(reasons)))
    assert rows == [row for row in range(len(GOOD) + len(reasons)) if row not in left_out]
    assert np.abs(found - LayerModel.load(tiny_bert, device="cpu").encode(GOOD)).max() < 1e-6
    assert [one["row"] for one in told(bad)] == left_out
    for one, reason in zip(told(bad), reasons, strict=True):
        assert reason in one["reason"]
        assert one["file"] == str(path)
        assert not one["reason"].startswith(str(path))
    assert json.loads((tmp_path / "out" / "_embed.json").read_text())["set_aside"] == len(reasons)
    assert verify_vectors(tmp_path / "out").faults == ()
    with pytest.raises(InputError, match=name):
        embed(tiny_bert, path, tmp_path / "strict")


def test_lines_are_those_of_the_file(tmp_path, tiny_bert):
    embed(tiny_bert, write_csv(tmp_path / "rows.csv"), tmp_path / "out", bad_rows=tmp_path / "bad.csv")
    with (tmp_path / "bad.csv").open() as file:
        assert [(row["row"], row["line"]) for row in csv.DictReader(file)] == [("2", "4"), ("3", "5"), ("4", "6")]


def test_a_quote_that_swallows_the_rest_of_a_file_is_no_bad_row(tmp_path, tiny_bert):
    (tmp_path / "rows.csv").write_text('text\na river\n"a door\na boat\n')
    with pytest.raises(InputError, match=r"rows\.csv:4: not valid CSV: unexpected end of data"):
        embed(tiny_bert, tmp_path / "rows.csv", tmp_path / "out", bad_rows=tmp_path / "bad.jsonl")


def test_a_run_that_a_bad_row_stopped_is_resumed_with_bad_rows(tmp_path, tiny_bert):
    path = tmp_path / "rows.txt"
    path.write_bytes("\n".join(GOOD).encode() + b"\ncaf\xe9\n")
    with pytest.raises(InputError, match=r"rows\.txt:15: not UTF-8"):
        embed(tiny_bert, path, tmp_path / "out", shard_rows=1)
    before = len(list((tmp_path / "out").glob("part-*")))
    result = embed(tiny_bert, path, tmp_path / "out", shard_rows=1, bad_rows=tmp_path / "bad.jsonl")
    assert before >= 1
    assert (result.resumed, result.rows) == (before, len(GOOD) - before)
    again = embed(tiny_bert, path, tmp_path / "out", shard_rows=1, bad_rows=tmp_path / "bad.jsonl")
    assert (again.resumed, again.rows, again.set_aside) == (len(GOOD), 0, 1)
    assert [one["row"] for one in told(tmp_path / "bad.jsonl")] == [14]


def overflowing(monkeypatch, *texts: str) -> None:
    """The embeddings of these texts become too large for float16, as some models' do."""
    real = LayerModel.stream

    def stream(self, windows, **options):
        kept = []

        def seen():
            for window in windows:
                kept.append(list(window))
                yield window

        for embeddings in real(self, seen(), **options):
            window = kept.pop(0)
            embeddings[[place for place, text in enumerate(window) if text in texts]] *= 1e6
            yield embeddings

    monkeypatch.setattr(LayerModel, "stream", stream)


def test_embeddings_that_are_not_finite_are_set_aside_and_a_resumed_run_knows_them(tmp_path, tiny_bert, monkeypatch):
    overflowing(monkeypatch, SENTENCES[1])
    path, bad, out = tmp_path / "rows.txt", tmp_path / "bad.jsonl", tmp_path / "out"
    path.write_text("\n".join(GOOD) + "\n")
    n = len(SENTENCES)
    with pytest.raises(InputError, match=r"rows\.txt:2: its embedding has NaN, infinite or too large numbers for floa"):
        embed(tiny_bert, path, tmp_path / "strict", number_type="float16")
    result = embed(tiny_bert, path, out, number_type="float16", bad_rows=bad)
    assert (result.rows, result.set_aside) == (2 * n - 2, 2)
    rows, found = vectors(out)
    assert rows == [row for row in range(2 * n) if row not in (1, n + 1)]
    assert np.isfinite(found).all()
    first = bad.read_text()
    assert [(one["row"], one["line"]) for one in told(bad)] == [(1, 2), (n + 1, n + 2)]
    (out / "part-000002.parquet").unlink()
    bad.unlink()
    result = embed(tiny_bert, path, out, number_type="float16", bad_rows=bad)
    assert result.set_aside == 2
    assert result.rows + result.resumed == 2 * n - 2
    assert bad.read_text() == first
    with pytest.raises(InputError, match="was written without rows that were set aside; give --bad-rows again"):
        embed(tiny_bert, path, out, number_type="float16")


def test_a_run_without_any_good_row_is_an_error_that_shows_one(tmp_path, tiny_bert, monkeypatch):
    (tmp_path / "rows.jsonl").write_text('{"txt": "a river"}\n{"txt": "a door"}\n')
    with pytest.raises(InputError, match=r"no rows to embed: every row was set aside, the first because of .*'text'"):
        embed(tiny_bert, tmp_path / "rows.jsonl", tmp_path / "out", bad_rows=tmp_path / "bad.jsonl")
    overflowing(monkeypatch, *SENTENCES)
    (tmp_path / "rows.txt").write_text("\n".join(SENTENCES))
    with pytest.raises(InputError, match=r"every row was set aside, see .*bad\.jsonl; check the model and its dtype"):
        embed(tiny_bert, tmp_path / "rows.txt", tmp_path / "o", number_type="float16", bad_rows=tmp_path / "bad.jsonl")


def test_files_that_are_something_else_are_not_replaced(tmp_path, tiny_bert):
    path = write_text(tmp_path / "rows.txt")
    (tmp_path / "mine.csv").write_text("name,row\nme,1\n")
    for name, message in (("mine.csv", "exists and holds no rows that were set aside"), ("bad.xml", "names no format")):
        with pytest.raises(InputError, match=message):
            embed(tiny_bert, path, tmp_path / "out", bad_rows=tmp_path / name)
    assert (tmp_path / "mine.csv").read_text() == "name,row\nme,1\n"
    with pytest.raises(InputError, match="NPY files have no row numbers, so no bad row may be set aside"):
        EmbedJob(RowSource.of(str(path), ("text",)), format="npy", set_aside=True)


def test_the_command_reports_rows_tokens_and_cost(tmp_path, tiny_bert, capsys, monkeypatch):
    path, bad = write_text(tmp_path / "rows.txt"), tmp_path / "bad.tsv"
    printed = call("embed", tiny_bert, path, "-o", tmp_path / "out", "--bad-rows", bad, "--price-per-hour", "3.6")
    tokens = sum(LayerModel.load(tiny_bert, device="cpu").encoder.token_counts(GOOD))
    assert f"{tokens:,} tokens, " in printed
    assert " a million tokens at 3.6 an hour" in printed
    assert f"2 rows were set aside: {bad}" in printed
    facts = call_json("embed", tiny_bert, path, "-o", tmp_path / "two", "--bad-rows", bad, "--price-per-hour", "3.6")
    assert (facts["tokens"], facts["set_aside"]) == (tokens, 2)
    assert facts["tokens_per_second"] == pytest.approx(tokens / facts["seconds"])
    assert facts["cost_per_million_tokens"] == pytest.approx(0.001 * facts["seconds"] / tokens * 1e6)
    error = refused(capsys, monkeypatch, "embed", tiny_bert, path, "-o", tmp_path / "three")
    assert "rows.txt:4: not UTF-8" in error
