"""Embedding jobs give what `encode` gives, row for row; stopped in any way, they go on with nothing lost or doubled."""

import errno
import itertools
import json
import multiprocessing
import os
import queue
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from layerwise.data import RowSource
from layerwise.embed import EmbedJob, EmbedResult, ModelChoice, run_embed, split_out
from layerwise.embed.engine import Work, WorkerJob
from layerwise.embed.job import chunks
from layerwise.embed.processes import Processes, _handle_reports
from layerwise.embed.shard_files import fingerprint_of
from layerwise.embed.shards import ShardFolder
from layerwise.errors import InputError, LayerwiseError, MixError
from layerwise.model import LayerModel
from support.commands import assert_one_line, call, run_main
from support.disks import small_disk
from support.forks import Forked
from support.slow_cases import covering
from support.tiny import WIDTH, WORDS

pytestmark = pytest.mark.usefixtures("tiny_models_loaded_once")

TEXTS = [" ".join(random.Random(i).choices(WORDS, k=1 + i % 13)) for i in range(23)]
WHOLE = {"float32": 1e-6, "float16": 2e-3}
SMALL_BATCHES = {"tokens_per_batch": 60}


def lines(path: Path, texts=TEXTS) -> Path:
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def job_of(path: Path, *columns: str, **options) -> EmbedJob:
    return EmbedJob(RowSource.of(str(path), columns or ("text",)), **{"shard_rows": 5} | options)


def embed(model: Path, path: Path, out: Path, *columns: str, mix=None, run=None, **options) -> EmbedResult:
    """Embed a file in shards of five rows; `run` holds the options of `run_embed`, `options` those of the job."""
    return run_embed(job_of(path, *columns, **options), ModelChoice(str(model), mix), out, **run or {})


def embeddings(table: pa.Table) -> np.ndarray:
    column = table["embedding"].combine_chunks()
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(table), -1)


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


def states(folder: Path) -> dict[str, tuple[int, int]]:
    """What changes when a shard is written again."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in shards(folder)}


def contents(folder: Path) -> dict[str, bytes]:
    """All that is in a folder, but for its lock."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != ".lock"}


@pytest.fixture
def text_file(tmp_path) -> Path:
    return lines(tmp_path / "rows.txt")


@pytest.fixture(scope="session")
def expected(tiny_bert) -> np.ndarray:
    return LayerModel.load(tiny_bert).encode(TEXTS)


# What comes out


def test_parquet_shards_hold_what_encode_gives(tmp_path, tiny_bert, text_file, expected):
    told = []
    result = embed(tiny_bert, text_file, tmp_path / "out", run={"progress": told.append})
    assert (result.rows, result.resumed, result.shards, result.width) == (23, 0, 5, WIDTH)
    assert sum(told) == 23
    assert [path.name for path in shards(tmp_path / "out")] == [f"part-00000{number}.parquet" for number in range(5)]
    assert [len(pq.read_table(path)) for path in shards(tmp_path / "out")] == [5, 5, 5, 5, 3]
    table = pq.read_table(tmp_path / "out")  # the folder as a whole, whatever else lies in it
    assert table.column_names == ["row", "embedding"]
    assert table["row"].to_pylist() == list(range(23))
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), WIDTH)
    assert np.abs(embeddings(table) - expected).max() < 1e-6
    assert np.abs(expected[1:] - expected[:-1]).max(axis=1).min() > 1e-2, "rows must differ, or nothing is shown"


def test_npy_shards_hold_what_encode_gives(tmp_path, tiny_bert, text_file, expected):
    result = embed(tiny_bert, text_file, tmp_path / "out", format="npy")
    parts = [np.load(path, allow_pickle=False) for path in shards(tmp_path / "out")]
    assert result.shards == len(parts) == 5
    assert {part.dtype for part in parts} == {np.dtype("float32")}
    assert np.abs(np.concatenate(parts) - expected).max() < 1e-6


@pytest.mark.parametrize("name", ["one.parquet", "one.npy"])
def test_joined_into_one_file(tmp_path, tiny_bert, text_file, expected, name):
    folder, joined, format = split_out(tmp_path / "made" / name, None)
    result = embed(tiny_bert, text_file, folder, format=format, run={"joined": joined})
    assert result.out == str(tmp_path / "made" / name)
    assert [path.name for path in joined.parent.iterdir()] == [name], "shards and unfinished files are gone"
    if format == "npy":
        found = np.load(joined, allow_pickle=False)
    else:
        assert pq.read_table(joined)["row"].to_pylist() == list(range(23))
        found = embeddings(pq.read_table(joined))
    assert np.abs(found - expected).max() < 1e-6


def test_a_joined_file_is_not_overwritten_unless_asked(tmp_path, tiny_bert, text_file, expected):
    joined = tmp_path / "one.parquet"
    joined.write_bytes(b"precious")
    with pytest.raises(InputError, match=r"one\.parquet: exists already; give another name, or --overwrite"):
        embed(tiny_bert, text_file, tmp_path / "shards", run={"joined": joined})
    assert joined.read_bytes() == b"precious"
    embed(tiny_bert, text_file, tmp_path / "shards", run={"joined": joined, "overwrite": True})
    assert np.abs(embeddings(pq.read_table(joined)) - expected).max() < 1e-6


def test_out_names_a_folder_or_one_file(tmp_path):
    assert split_out(tmp_path / "out", None) == (tmp_path / "out", None, "parquet")
    assert split_out(tmp_path / "out", "npy") == (tmp_path / "out", None, "npy")
    assert split_out(tmp_path / "a.NPY", None) == (tmp_path / "a.NPY.shards", tmp_path / "a.NPY", "npy")
    with pytest.raises(InputError, match=r"a\.npy: the ending says npy but --format says parquet"):
        split_out(tmp_path / "a.npy", "parquet")


def test_columns_are_carried_along_in_csv(tmp_path, tiny_bert, expected):
    path = tmp_path / "rows.csv"
    path.write_text("id,text,note\n" + "".join(f'n{i},{text},"a, {i}"\n' for i, text in enumerate(TEXTS)))
    embed(tiny_bert, path, tmp_path / "out", "text", "note", "id", "text")
    table = pq.read_table(tmp_path / "out")
    assert table.column_names == ["row", "note", "id", "text", "embedding"]
    assert table["id"].to_pylist() == [f"n{i}" for i in range(23)]
    assert table["note"].to_pylist() == [f"a, {i}" for i in range(23)]
    assert table["text"].to_pylist() == TEXTS
    assert np.abs(embeddings(table) - expected).max() < 1e-6


def test_columns_of_json_become_text(tmp_path, tiny_bert):
    values = ["seven", 7, None, {"a": [1]}, True, 1.5]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": "a river", "id": value}) + "\n" for value in values))
    embed(tiny_bert, path, tmp_path / "out", "text", "id", shard_rows=2)
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == ["seven", "7", None, '{"a": [1]}', "true", "1.5"]


@pytest.mark.parametrize("joined", [False, True])
def test_columns_of_parquet_keep_their_types_even_if_a_shard_holds_nulls_alone(tmp_path, tiny_bert, joined):
    ids = pa.array([None, None, 3, 4, None, 6], pa.int32())
    days = pa.array([None, None, 0, None, 1, 2], pa.date32())
    pq.write_table(pa.table({"text": TEXTS[:6], "id": ids, "day": days}), tmp_path / "rows.parquet")
    one = tmp_path / "one.parquet" if joined else None
    embed(
        tiny_bert, tmp_path / "rows.parquet", tmp_path / "out", "text", "id", "day", shard_rows=2, run={"joined": one}
    )
    table = pq.read_table(one or tmp_path / "out")
    assert table["id"].combine_chunks() == ids
    assert table["day"].combine_chunks() == days


@pytest.mark.parametrize("name", ["row", "embedding"])
def test_a_carried_column_may_not_take_an_output_columns_name(tmp_path, tiny_bert, name):
    path = tmp_path / "rows.csv"
    path.write_text(f"text,{name}\na river,mine\n")
    with pytest.raises(InputError, match=name):
        embed(tiny_bert, path, tmp_path / "out", "text", name)


def test_empty_rows_are_an_error_unless_told(tmp_path, tiny_bert):
    path = lines(tmp_path / "rows.txt", ["a river", "  ", "a door"])
    with pytest.raises(InputError, match=r"rows\.txt:2: the text must not be empty; fill it in, or pass --empty"):
        embed(tiny_bert, path, tmp_path / "out")


def test_empty_rows_are_skipped_and_row_numbers_tell(tmp_path, tiny_bert):
    texts = ["", *TEXTS[:4], " \t", TEXTS[4], "", TEXTS[5], ""]
    result = embed(tiny_bert, lines(tmp_path / "rows.txt", texts), tmp_path / "out", empty="skip", shard_rows=3)
    table = pq.read_table(tmp_path / "out")
    assert (result.rows, result.shards) == (6, 2)
    assert table["row"].to_pylist() == [1, 2, 3, 4, 6, 8]
    assert np.abs(embeddings(table) - LayerModel.load(tiny_bert).encode(TEXTS[:6])).max() < 1e-6


def test_empty_rows_are_kept_as_special_tokens(tmp_path, tiny_bert):
    texts = ["a river", "", "a door"]
    embed(tiny_bert, lines(tmp_path / "rows.txt", texts), tmp_path / "out", empty="keep")
    table = pq.read_table(tmp_path / "out")
    assert table["row"].to_pylist() == [0, 1, 2]
    assert np.abs(embeddings(table) - LayerModel.load(tiny_bert).encode(texts)).max() < 1e-6


@pytest.mark.parametrize("texts", [[], ["", " "]])
def test_nothing_to_embed_is_an_error(tmp_path, tiny_bert, texts):
    with pytest.raises(InputError, match=r"rows\.txt: no rows to embed"):
        embed(tiny_bert, lines(tmp_path / "rows.txt", texts), tmp_path / "out", empty="skip")


@pytest.mark.parametrize(
    ("options", "encode"),
    [
        ({"prompt": "an old "}, {"prompt": "an old "}),
        ({"normalize": True}, {"normalize_embeddings": True}),
        ({"truncate_dim": 7}, {"truncate_dim": 7}),
        ({"truncate_dim": 7, "normalize": True}, {"truncate_dim": 7, "normalize_embeddings": True}),
        ({"number_type": "float16"}, {}),
        ({"number_type": "float16", "format": "npy"}, {}),
    ],
)
def test_options_do_what_they_do_in_encode(tmp_path, tiny_bert, text_file, expected, options, encode):
    embed(tiny_bert, text_file, tmp_path / "out", **options)
    if options.get("format") == "npy":
        found = np.concatenate([np.load(path) for path in shards(tmp_path / "out")])
    else:
        found = embeddings(pq.read_table(tmp_path / "out"))
    wanted = LayerModel.load(tiny_bert).encode(TEXTS, **encode)
    number_type = options.get("number_type", "float32")
    assert found.dtype == np.dtype(number_type)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < WHOLE[number_type]
    if encode:
        assert wanted.shape != expected.shape or np.abs(wanted - expected).max() > 1e-2, "the option must matter"


def test_a_mix_and_a_models_own_prompt_are_taken(tmp_path, tiny_bert, text_file, expected):
    model = LayerModel(tiny_bert, "0,2 @ cls", prompts={"old": "an old "}, default_prompt_name="old")
    model.save(tmp_path / "saved")
    embed(tmp_path / "saved", text_file, tmp_path / "own")
    own = LayerModel.load(tmp_path / "saved").encode(TEXTS)
    assert np.abs(embeddings(pq.read_table(tmp_path / "own")) - own).max() < 1e-6
    embed(tiny_bert, text_file, tmp_path / "mixed", mix="concat(1,-1) @ max")
    mixed = LayerModel(tiny_bert, "concat(1,-1) @ max").encode(TEXTS)
    assert mixed.shape == (23, 2 * WIDTH)
    assert np.abs(embeddings(pq.read_table(tmp_path / "mixed")) - mixed).max() < 1e-6


# Bad settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "Unknown output format 'csv'. Known: parquet, npy"),
        ({"empty": "drop"}, "Unknown choice for empty rows 'drop'. Known: error, skip, keep"),
        ({"number_type": "int8"}, "Unknown number type 'int8'. Known: float32, float16"),
        ({"shard_rows": 0}, "shard_rows must be 1 or more, not 0"),
        ({"truncate_dim": 0}, "truncate_dim 0 is not possible: embeddings have 32 dimensions"),
        ({"truncate_dim": 33}, "truncate_dim 33 is not possible: embeddings have 32 dimensions"),
        ({"run": {"processes": 0}}, "processes must be 1 or more, not 0"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(tmp_path, tiny_bert, text_file, options, message):
    with pytest.raises(InputError, match=message):
        embed(tiny_bert, text_file, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_npy_keeps_no_columns(tmp_path, tiny_bert, text_file):
    with pytest.raises(InputError, match="NPY files hold numbers only, so no columns can be carried along"):
        embed(tiny_bert, text_file, tmp_path / "out", "text", "text", format="npy")


def test_a_layer_that_is_not_there_is_refused(tmp_path, tiny_bert, text_file):
    with pytest.raises(MixError, match="There is no layer 9: this encoder has layers 0 to 4"):
        embed(tiny_bert, text_file, tmp_path / "out", mix="9")
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_folders_place_is_refused(tmp_path, tiny_bert, text_file):
    with pytest.raises(InputError, match=r"rows\.txt: is a file; give a folder, or a name ending in \.parquet"):
        embed(tiny_bert, text_file, text_file)
    with pytest.raises(InputError, match="is a file; give a folder"):
        embed(tiny_bert, text_file, text_file / "below")
    assert text_file.read_text().splitlines() == TEXTS


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path, tiny_bert, text_file):
    with pytest.raises(InputError, match="/proc/layerwise-out"):
        embed(tiny_bert, text_file, Path("/proc/layerwise-out"))


# Going on after a stop


def test_run_again_does_nothing_twice(tmp_path, tiny_bert, text_file):
    embed(tiny_bert, text_file, tmp_path / "out")
    before, written = states(tmp_path / "out"), contents(tmp_path / "out")
    told = []
    result = embed(tiny_bert, text_file, tmp_path / "out", run={"progress": told.append})
    assert (result.rows, result.resumed, result.shards) == (0, 23, 5)
    assert sum(told) == 23
    assert states(tmp_path / "out") == before
    assert contents(tmp_path / "out") == written


@pytest.mark.parametrize(("missing", "format"), covering([[0], [1, 3], [4], [0, 1, 2, 3, 4]], ["parquet", "npy"]))
def test_missing_shards_alone_are_made_again(tmp_path, tiny_bert, text_file, format, missing):
    embed(tiny_bert, text_file, tmp_path / "out", format=format)
    before, written = states(tmp_path / "out"), contents(tmp_path / "out")
    gone = [shards(tmp_path / "out")[number] for number in missing]
    for path in gone:
        path.unlink()
    result = embed(tiny_bert, text_file, tmp_path / "out", format=format)
    rows = sum(3 if number == 4 else 5 for number in missing)
    assert (result.rows, result.resumed) == (rows, 23 - rows)
    after = states(tmp_path / "out")
    assert {name for name in before if after[name] == before[name]} == set(before) - {path.name for path in gone}
    assert contents(tmp_path / "out") == written, "the same bytes as if nothing had happened"


def test_a_clock_that_goes_back_changes_nothing(tmp_path, tiny_bert, text_file, monkeypatch):
    embed(tiny_bert, text_file, tmp_path / "out")
    written, now = contents(tmp_path / "out"), time.time()
    for path in shards(tmp_path / "out")[:2]:
        path.unlink()
    for path in (tmp_path / "out").iterdir():
        os.utime(path, (now + 86_400, now + 86_400))
    moments = itertools.count(now, -3600)
    monkeypatch.setattr("time.time", lambda: next(moments))
    assert embed(tiny_bert, text_file, tmp_path / "out").rows == 10
    assert contents(tmp_path / "out") == written


def test_interrupted_by_the_user_it_goes_on(tmp_path, tiny_bert, text_file):
    embed(tiny_bert, text_file, tmp_path / "whole")

    def stop_at_the_fourth_batch(_rows, told=[]):  # noqa: B006 - it counts its calls
        told.append(1)
        if len(told) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(tiny_bert, text_file, tmp_path / "out", run={"progress": stop_at_the_fourth_batch})
    kept = states(tmp_path / "out")
    assert 2 <= len(kept) < 5
    result = embed(tiny_bert, text_file, tmp_path / "out")
    assert result.resumed == 5 * len(kept)
    assert result.rows == 23 - result.resumed
    assert kept.items() <= states(tmp_path / "out").items()
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_stopped_by_a_bad_row_it_goes_on_once_that_is_mended(tmp_path, tiny_bert, text_file):
    embed(tiny_bert, text_file, tmp_path / "whole", shard_rows=2)
    lines(text_file, [*TEXTS[:22], ""])
    with pytest.raises(InputError, match=r"rows\.txt:23: the text must not be empty"):
        embed(tiny_bert, text_file, tmp_path / "out", shard_rows=2)
    kept = states(tmp_path / "out")
    assert 1 <= len(kept) <= 11
    result = embed(tiny_bert, lines(text_file), tmp_path / "out", shard_rows=2)
    assert (result.rows, result.resumed) == (23 - 2 * len(kept), 2 * len(kept))
    assert kept.items() <= states(tmp_path / "out").items()
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_more_rows_at_the_end_go_on_behind_full_shards(tmp_path, tiny_bert, text_file, expected):
    lines(text_file, TEXTS[:10])
    embed(tiny_bert, text_file, tmp_path / "out")
    kept = states(tmp_path / "out")
    result = embed(tiny_bert, lines(text_file), tmp_path / "out")
    assert (result.rows, result.resumed) == (13, 10)
    assert kept.items() <= states(tmp_path / "out").items()
    assert np.abs(embeddings(pq.read_table(tmp_path / "out")) - expected).max() < 1e-6


def test_an_input_that_ends_before_the_shards_do_is_refused(tmp_path, tiny_bert, text_file):
    """It may be a pipe that broke: nothing is removed."""
    embed(tiny_bert, text_file, tmp_path / "out")
    message = r"part-000002\.parquet: was made of rows beyond the end of the input; give the same input"
    refused(tiny_bert, lines(text_file, TEXTS[:10]), tmp_path / "out", message)


def test_a_joined_run_that_was_stopped_goes_on(tmp_path, tiny_bert, text_file, expected):
    joined = tmp_path / "one.npy"
    (tmp_path / ".one.1.npy").write_bytes(b"half a file")
    embed(tiny_bert, text_file, tmp_path / "one.npy.shards", format="npy")
    shards(tmp_path / "one.npy.shards")[2].unlink()
    result = embed(tiny_bert, text_file, tmp_path / "one.npy.shards", format="npy", run={"joined": joined})
    assert (result.rows, result.resumed) == (5, 18)
    assert np.abs(np.load(joined) - expected).max() < 1e-6
    assert sorted(path.name for path in tmp_path.glob("*one*")) == ["one.npy"]


@pytest.mark.parametrize("format", ["parquet", "npy"])
def test_half_written_files_are_no_shards_and_are_cleaned_up(tmp_path, tiny_bert, text_file, format):
    embed(tiny_bert, text_file, tmp_path / "whole", format=format)
    embed(tiny_bert, text_file, tmp_path / "out", format=format)
    whole = shards(tmp_path / "out")[1]
    whole.rename(whole.with_name(f".{whole.stem}.4711{whole.suffix}"))
    (tmp_path / "out" / f".part-000004.4712.{format}").write_bytes(b"half")
    (tmp_path / "out" / "._part-000002.4713.rows").write_bytes(b"half")
    (tmp_path / "out" / "._embed.4714.json").write_bytes(b"{")
    if format == "parquet":
        assert len(pq.read_table(tmp_path / "out")) == 18, "readers pass over them"
    result = embed(tiny_bert, text_file, tmp_path / "out", format=format)
    assert (result.rows, result.resumed) == (5, 18)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_shard_gets_its_name_once_it_is_on_the_disk(tmp_path, monkeypatch, tiny_bert, text_file):
    """So that a kill or a power cut leaves a whole shard or none."""
    seen, real = [], os.fsync

    def fsync(number):
        seen.append(len(shards(tmp_path / "out")))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    embed(tiny_bert, text_file, tmp_path / "out")
    assert seen == [0, 0, 1, 2, 3, 4, 5], "the manifest, each shard while only those before it are there, the manifest"


def test_killed_before_its_manifest_was_there_it_starts(tmp_path, tiny_bert, text_file):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "._embed.4711.json").write_bytes(b'{"format"')
    assert embed(tiny_bert, text_file, tmp_path / "out").rows == 23


# What must not be mixed


def refused(model: Path, path: Path, out: Path, message: str, **options) -> None:
    """A run is refused with a message, and nothing in its folder has changed."""
    before, written = states(out), contents(out)
    with pytest.raises(InputError, match=message):
        embed(model, path, out, **options)
    assert states(out) == before
    assert contents(out) == written


REMEDY = "give the same settings, another output, or --overwrite"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"shard_rows": 6}, "was started with shard_rows = 5, now it is 6"),
        ({"empty": "keep"}, "was started with empty = 'error', now it is 'keep'"),
        ({"normalize": True}, "was started with normalize = False, now it is True"),
        ({"truncate_dim": 4}, "was started with truncate_dim = None, now it is 4"),
        ({"prompt": "so: "}, "was started with prompt = .*, now it is 'so: '"),
        ({"number_type": "float16"}, "was started with number_type = 'float32', now it is 'float16'"),
        ({"format": "npy"}, "was started with format = 'parquet', now it is 'npy'"),
        ({"mix": "1,2"}, "was started with mix = '4 @ mean', now it is '1,2 @ mean'"),
    ],
)
def test_other_settings_are_refused(tmp_path, tiny_bert, text_file, changed, message):
    embed(tiny_bert, text_file, tmp_path / "out")
    refused(tiny_bert, text_file, tmp_path / "out", f"{tmp_path / 'out'}: {message}; {REMEDY}", **changed)


def test_another_model_is_refused(tmp_path, tiny_folders, text_file):
    embed(tiny_folders["bert"], text_file, tmp_path / "out")
    refused(tiny_folders["electra"], text_file, tmp_path / "out", "out: was started with another model; give that one")


@pytest.mark.parametrize("row", [0, 7, 22])
def test_other_rows_are_refused(tmp_path, tiny_bert, text_file, row):
    embed(tiny_bert, text_file, tmp_path / "out")
    lines(text_file, [*TEXTS[:row], "another text", *TEXTS[row + 1 :]])
    message = rf"part-00000{row // 5}\.parquet: was made of other rows .*; give the same input, another output, or"
    refused(tiny_bert, text_file, tmp_path / "out", message)


def test_a_changed_carried_column_is_refused(tmp_path, tiny_bert):
    path = tmp_path / "rows.csv"
    path.write_text("text,id\na river,1\na door,2\n")
    embed(tiny_bert, path, tmp_path / "out", "text", "id")
    path.write_text("text,id\na river,1\na door,3\n")
    with pytest.raises(InputError, match=r"part-000000\.parquet: was made of other rows"):
        embed(tiny_bert, path, tmp_path / "out", "text", "id")
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == ["1", "2"]


def test_the_same_texts_in_other_rows_are_refused(tmp_path, tiny_bert):
    """An empty row has moved: the texts are the same, their row numbers are not."""
    path = lines(tmp_path / "rows.txt", ["a river", "", "a door", "a clock"])
    embed(tiny_bert, path, tmp_path / "out", empty="skip")
    lines(path, ["a river", "a door", "", "a clock"])
    refused(tiny_bert, path, tmp_path / "out", r"part-000000\.parquet: was made of other rows", empty="skip")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_other_files_is_refused(tmp_path, tiny_bert, text_file, overwrite):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("precious")
    message = r"out: holds other files, e\.g\. thesis\.tex; give an empty or new folder"
    refused(tiny_bert, text_file, tmp_path / "out", message, run={"overwrite": overwrite})


@pytest.mark.parametrize("format", ["parquet", "npy"])
@pytest.mark.parametrize("left", [0, 60, -9])
def test_a_damaged_shard_is_refused(tmp_path, tiny_bert, text_file, format, left):
    embed(tiny_bert, text_file, tmp_path / "out", format=format)
    shard = shards(tmp_path / "out")[1]
    shard.write_bytes(shard.read_bytes()[:left])
    message = rf"part-000001\.{format}: .*(damaged|cannot be read).*(remove|delete|--overwrite)"
    refused(tiny_bert, text_file, tmp_path / "out", message, format=format)


def test_a_shard_with_a_damaged_footer_is_refused(tmp_path, tiny_bert, text_file):
    embed(tiny_bert, text_file, tmp_path / "out")
    shard = shards(tmp_path / "out")[1]
    data = bytearray(shard.read_bytes())
    data[-60:-8] = bytes(52)
    shard.write_bytes(data)
    refused(tiny_bert, text_file, tmp_path / "out", r"part-000001\.parquet: .*(damaged|cannot be read)")


@pytest.mark.slow  # hundreds of damaged files; the attack bit-flips does it too
def test_a_flipped_bit_of_a_footer_is_noticed_or_harmless(tmp_path, tiny_bert, text_file):
    """Pages have checksums of their own, names and types of columns have not."""
    embed(tiny_bert, text_file, tmp_path / "out")
    shard, job = shards(tmp_path / "out")[1], job_of(text_file)
    whole, data = pq.read_table(shard), shard.read_bytes()
    recorded = fingerprint_of(shard, job)
    assert recorded
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    kept = 0
    for bit in range(8 * begin, 8 * len(data), 5):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        shard.write_bytes(flipped)
        if fingerprint_of(shard, job) == recorded:
            kept += 1
            assert pq.read_table(shard).to_pydict() == whole.to_pydict(), bit
    assert kept


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_folder_that_is_taken_away_meanwhile_is_one_line(tmp_path, tiny_bert, text_file, calls):
    out, seen = tmp_path / "out", []

    def take_away(_rows):
        seen.append(1)
        if len(seen) == calls:
            out.rename(tmp_path / "gone")

    with pytest.raises(LayerwiseError, match=r"\A.*out.*(cannot be|is gone|lock).*\Z"):
        embed(tiny_bert, text_file, out, run={"progress": take_away})


def test_a_folder_that_is_gone_once_it_is_looked_through_is_one_line(tmp_path, tiny_bert, text_file, monkeypatch):
    out, glob = tmp_path / "out", Path.glob

    def glob_too_late(folder, pattern, **options):
        if folder == out and pattern == "part-*" and out.exists():
            out.rename(tmp_path / "gone")
            raise FileNotFoundError(out)
        return glob(folder, pattern, **options)

    with monkeypatch.context() as patch, pytest.raises(LayerwiseError, match=r"\A.*out.*(cannot be|is gone|lock).*\Z"):
        patch.setattr(Path, "glob", glob_too_late)
        embed(tiny_bert, text_file, out)


@pytest.mark.parametrize("text", ["", "{", "[]", '"text"'])
def test_a_damaged_manifest_is_refused(tmp_path, tiny_bert, text_file, text):
    embed(tiny_bert, text_file, tmp_path / "out")
    (tmp_path / "out" / "_embed.json").write_text(text)
    refused(tiny_bert, text_file, tmp_path / "out", r"_embed\.json")


def test_overwrite_begins_anew(tmp_path, tiny_bert, text_file):
    embed(tiny_bert, text_file, tmp_path / "out", shard_rows=2)
    lines(text_file, TEXTS[3:9])
    result = embed(tiny_bert, text_file, tmp_path / "out", mix="1", format="npy", run={"overwrite": True})
    assert (result.rows, result.resumed, result.shards) == (6, 0, 2)
    assert [path.name for path in shards(tmp_path / "out")] == ["part-000000.npy", "part-000001.npy"]
    found = np.concatenate([np.load(path) for path in shards(tmp_path / "out")])
    assert np.abs(found - LayerModel(tiny_bert, "1").encode(TEXTS[3:9])).max() < 1e-6


def test_overwrite_with_a_folder_inside_is_no_crash(tmp_path, tiny_bert, text_file):
    embed(tiny_bert, text_file, tmp_path / "out")
    (tmp_path / "out" / "notes").mkdir()
    (tmp_path / "out" / "notes" / "a.txt").write_text("precious")
    try:
        assert embed(tiny_bert, text_file, tmp_path / "out", run={"overwrite": True}).rows == 23
    except InputError as error:
        assert "notes" in str(error)  # noqa: PT017 - refusing is as good, if it says why
    assert (tmp_path / "out" / "notes" / "a.txt").read_text() == "precious"


def test_a_run_that_wrote_nothing_leaves_nothing(tmp_path, tiny_bert):
    (tmp_path / "latin.txt").write_bytes(b"na\xefve\n")
    with pytest.raises(InputError, match="not UTF-8"):
        embed(tiny_bert, tmp_path / "latin.txt", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("precious")
    with pytest.raises(InputError, match="holds other files"):
        embed(tiny_bert, tmp_path / "latin.txt", tmp_path / "other")
    assert contents(tmp_path / "other") == {"precious.txt": b"precious"}
    assert not (tmp_path / "other" / ".lock").exists()


def test_a_run_that_wrote_nothing_is_in_nobodys_way(tmp_path, tiny_bert):
    """A mistyped column, found when the first row was read: the right one must not need --overwrite."""
    path = tmp_path / "rows.csv"
    path.write_text("text\na river\n")
    with pytest.raises(InputError, match=r"rows\.csv: no column 'txt'; it has 'text'"):
        embed(tiny_bert, path, tmp_path / "out", "txt")
    assert embed(tiny_bert, path, tmp_path / "out").rows == 1


def test_a_missing_column_names_the_options_of_columns(tmp_path, tiny_bert, monkeypatch, capfd):
    path = tmp_path / "rows.csv"
    path.write_text("text\na river\n")
    said = run_main(monkeypatch, capfd, "embed", tiny_bert, path, "-o", tmp_path / "out", "--keep", "id")
    assert_one_line(*said, "rows.csv: no column 'id'; it has 'text'", "--column, others by --keep")


def test_a_second_run_on_the_same_folder_is_refused(tmp_path, tiny_bert, text_file):
    caught = []

    def meanwhile():
        try:
            embed(tiny_bert, text_file, tmp_path / "out")
        except InputError as error:
            caught.append(str(error))

    def at_the_first_shard(_rows):
        if not caught:
            second = threading.Thread(target=meanwhile)
            second.start()
            second.join()

    result = embed(tiny_bert, text_file, tmp_path / "out", run={"progress": at_the_first_shard})
    assert caught == [f"{tmp_path / 'out'}: another run is writing there; wait for it or stop it"]
    assert result.rows == 23
    assert embed(tiny_bert, text_file, tmp_path / "out").resumed == 23, "the lock is free again"


# A full disk


def fill_disk_after(monkeypatch, writes: int) -> None:
    """Let so many files reach the disk; from then on there is no space left."""
    left, real = iter(range(writes)), os.fsync

    def fsync(number):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("format", ["parquet", "npy"])
def test_full_disk_is_one_error_and_keeps_earlier_shards(tmp_path, monkeypatch, tiny_bert, text_file, format):
    embed(tiny_bert, text_file, tmp_path / "whole", format=format)
    with monkeypatch.context() as patch:
        fill_disk_after(
            patch, 3 if format == "parquet" else 5
        )  # the manifest, then two shards (and their rows' hashes)
        with pytest.raises(
            InputError, match=r"part-000002\.\w+: cannot be written: No space left on device; .* are kept"
        ):
            embed(tiny_bert, text_file, tmp_path / "out", format=format)
    kept = states(tmp_path / "out")
    assert sorted(kept) == [f"part-000000.{format}", f"part-000001.{format}"]
    assert not list((tmp_path / "out").glob(".part*")), "nothing half written takes up room"
    result = embed(tiny_bert, text_file, tmp_path / "out", format=format)
    assert (result.rows, result.resumed) == (13, 10)
    assert kept.items() <= states(tmp_path / "out").items()
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize("writes", [5, 6])
def test_full_disk_at_either_file_of_an_npy_shard(tmp_path, monkeypatch, tiny_bert, text_file, writes):
    with monkeypatch.context() as patch:
        fill_disk_after(patch, writes)
        with pytest.raises(InputError, match=r"part-000002\.\w+: cannot be written: No space left on device"):
            embed(tiny_bert, text_file, tmp_path / "out", format="npy")
    assert not list((tmp_path / "out").glob(".*part*")), "nothing half written takes up room"
    assert embed(tiny_bert, text_file, tmp_path / "out", format="npy").resumed == 10


@pytest.mark.parametrize("format", ["parquet", "npy"])
def test_a_real_disk_that_is_full_ends_with_2_and_the_same_command_goes_on(
    tmp_path, monkeypatch, capfd, tiny_bert, text_file, format
):
    """The disk has room for two or three shards, each with its record; then it gets more."""
    words = ["embed", tiny_bert, text_file, "--shard-rows", 5, "--format", format, "--device", "cpu", "-o"]
    call(*words, tmp_path / "whole")
    with small_disk(tmp_path / "disk", (4 if format == "parquet" else 8) * 4096) as disk:
        out = disk.folder / "out"
        ended = run_main(monkeypatch, capfd, *words, out)
        kept = states(out)
        assert_one_line(*ended, f"part-00000{len(kept)}.{format}: cannot be written: No space left on device; ")
        assert ended[2].endswith("the shards written before are kept: free some space and run the same command again\n")
        assert 1 <= len(kept) < 5
        assert not list(out.glob(".*part*")), "nothing half written takes up room"
        assert run_main(monkeypatch, capfd, *words, out)[0] == 2, "still full"
        assert states(out) == kept
        disk.grow(2**20)
        result = json.loads(call(*words, out, "--json"))
        assert (result["rows"], result["resumed"]) == (23 - 5 * len(kept), 5 * len(kept))
        assert kept.items() <= states(out).items(), "shards that were there are not written again"
        for name in states(out):
            assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_disk_full_from_the_start(tmp_path, monkeypatch, tiny_bert, text_file):
    with monkeypatch.context() as patch:
        fill_disk_after(patch, 0)
        with pytest.raises(InputError, match=f"{tmp_path / 'out'}.*No space left on device"):
            embed(tiny_bert, text_file, tmp_path / "out")
    assert embed(tiny_bert, text_file, tmp_path / "out").rows == 23


@pytest.mark.parametrize("name", ["one.parquet", "one.npy"])
def test_disk_full_while_joining_keeps_the_shards(tmp_path, monkeypatch, tiny_bert, text_file, expected, name):
    folder, joined, format = split_out(tmp_path / name, None)
    embed(tiny_bert, text_file, folder, format=format)
    before = contents(folder)

    def no_room(*_arguments, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.parquet.ParquetWriter.write_table", no_room)
        patch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(free=100))
        message = rf"{name}: cannot be written: No space left .* are complete: free some space and run the same command"
        with pytest.raises(InputError, match=message):
            embed(tiny_bert, text_file, folder, format=format, run={"joined": joined})
    assert sorted(path.name for path in tmp_path.iterdir() if "one" in path.name) == [folder.name]
    assert contents(folder) == before
    result = embed(tiny_bert, text_file, folder, format=format, run={"joined": joined})
    assert result.resumed == 23
    found = np.load(joined) if format == "npy" else embeddings(pq.read_table(joined))
    assert np.abs(found - expected).max() < 1e-6


# Several processes, and SIGKILL


def test_a_worker_without_memory_reports_one_line(tmp_path, text_file):
    class NoMemory:
        def load(self, _device):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 256 bytes.")

    reports = queue.Queue()
    job = EmbedJob(RowSource.of(str(text_file), ("text",)))
    worker_job = WorkerJob(NoMemory(), job, ShardFolder(tmp_path, job), None, torch.get_num_threads())
    worker_job.run(queue.Queue(), reports.put)
    assert str(reports.get_nowait()).startswith("not enough memory; use smaller batches")


MANY = [" ".join(random.Random(i).choices(WORDS, k=1 + i % 13)) for i in range(1600)]


@pytest.fixture(scope="module")
def many(tmp_path_factory, tiny_bert) -> tuple[Path, np.ndarray]:
    """A file of many rows, and what an uninterrupted run makes of them."""
    folder = tmp_path_factory.mktemp("many")
    lines(folder / "rows.txt", MANY)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in `start`
    embed(tiny_bert, folder / "rows.txt", folder / "whole", "text", "text", shard_rows=10)
    torch.set_num_threads(threads)
    table = pq.read_table(folder / "whole")
    assert table["text"].to_pylist() == MANY
    return folder / "rows.txt", embeddings(table)


def assert_whole(out: Path, expected: np.ndarray) -> None:
    """Every row once, in its place, with its own embedding, in as many files as there must be."""
    table = pq.read_table(out)
    assert table["row"].to_pylist() == list(range(len(MANY)))
    assert table["text"].to_pylist() == MANY
    # Killed runs have one thread, the others two: torch then adds in another order. The promise is 1e-5.
    assert np.abs(embeddings(table) - expected).max() < 1e-5
    assert [path.name for path in shards(out)] == [f"part-{n:06d}.parquet" for n in range(len(MANY) // 10)]
    assert not list(out.glob(".part*"))


WITH_FORKED_WORKERS = """
import multiprocessing
fork = multiprocessing.get_context("fork")  # a spawned worker spends seconds on imports that are done here
multiprocessing.get_context = lambda _: fork
from layerwise.cli.app import main
main()
"""


@pytest.fixture
def start(forks, tiny_bert, tmp_path):
    """The command in a process of its own, with one thread: on a busy machine more would wait for each other."""

    def start(path: Path, *options: str) -> Forked:
        words = ["embed", tiny_bert, path, "-o", tmp_path / "out", "--column", "text", "--keep", "text"]
        return forks.start(WITH_FORKED_WORKERS if options else "layerwise", *words, "--shard-rows", "10", *options)

    return start


def kill_after(process: Forked, out: Path, count: int, pause: float) -> None:
    """SIGKILL once so many shards are there, and a moment more."""
    while len(shards(out)) < count and process.poll() is None:
        time.sleep(0.004)
    time.sleep(pause)
    process.kill()
    assert process.wait() == -9, f"the run must still have been at work: {process.stderr[-2000:]}"


@pytest.mark.slow  # killed once with two workers, below
def test_killed_three_times_nothing_is_lost_or_doubled(tmp_path, tiny_bert, many, start):
    path, expected = many
    chance, kept = random.Random(0), {}
    for _ in range(3):
        count, pause = len(kept) + chance.randint(1, 30), chance.uniform(0, 0.02)
        kill_after(start(path), tmp_path / "out", count, pause)
        found = states(tmp_path / "out")
        assert kept.items() <= found.items(), "what was there is left alone"
        assert len(found) > len(kept)
        kept = found
    assert len(kept) < 160, "something must be left to do"
    result = embed(tiny_bert, path, tmp_path / "out", "text", "text", shard_rows=10)
    assert result.resumed == 10 * len(kept)
    assert kept.items() <= states(tmp_path / "out").items()
    assert_whole(tmp_path / "out", expected)


@pytest.mark.slow
def test_two_processes_killed_leave_no_worker_and_two_more_give_what_one_gives(tmp_path, tiny_bert, many, start):
    path, expected = many
    process = start(path, "--processes", "2")
    while not shards(tmp_path / "out") and process.poll() is None:
        time.sleep(0.004)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 2, "two workers, and perhaps Python's own resource tracker"
    kill_after(process, tmp_path / "out", 30, 0.0)
    _, alive = psutil.wait_procs(children, timeout=5)
    for child in alive:
        child.kill()
    assert alive == [], "workers end with their parent"
    kept = states(tmp_path / "out")
    assert 30 <= len(kept) < 160
    process = start(path, "--processes", "2", "--json")
    assert process.wait() == 0, process.stderr
    result = json.loads(process.stdout)
    assert (result["rows"], result["resumed"]) == (1600 - 10 * len(kept), 10 * len(kept))
    assert kept.items() <= states(tmp_path / "out").items()
    assert_whole(tmp_path / "out", expected)


@pytest.mark.slow
def test_a_spawned_worker_writes_what_this_process_writes_and_counts_its_rows(tmp_path, tiny_bert, text_file, expected):
    job, choice = job_of(text_file, shard_rows=12), ModelChoice(str(tiny_bert), options=SMALL_BATCHES)
    written, counted = [], []
    (tmp_path / "out").mkdir()
    folder, tokens = ShardFolder(tmp_path / "out", job), []
    Processes(1, ["cpu"]).embed(
        Work(chunks(job), choice, job, folder, {}, written.append, counted.append, tokens.append)
    )
    assert [chunk.number for chunk in written] == [0, 1]
    assert np.abs(embeddings(pq.read_table(tmp_path / "out")) - expected).max() < WHOLE["float32"]
    assert sum(counted) == len(TEXTS)
    assert len(counted) > 2, "rows are counted as they are embedded, not only when their shard is written"
    assert [len(tokens), sum(tokens)] == [2, sum(LayerModel.load(tiny_bert).encoder.token_counts(TEXTS))]


A_WORKER_THAT_HOLDS_THE_LOCK_OF_PYTHON = """
import multiprocessing, os, pickle, re, sys, time
from layerwise.embed.worker import run_worker
def busy(tasks, reports):
    reports.put(os.getpid())
    re.match(r"(a+)+$", "a" * 60 + "b")
if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    reports = spawn.SimpleQueue()
    spawn.Process(target=run_worker, args=(pickle.dumps((busy, ())), None, reports), daemon=True).start()
    print(reports.get(), flush=True)
    time.sleep(0.5)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a worker ends as soon as Python lets it")
def test_a_worker_ends_with_its_parent_whatever_it_is_doing(tmp_path):
    (tmp_path / "script.py").write_text(A_WORKER_THAT_HOLDS_THE_LOCK_OF_PYTHON)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -9
    worker = [psutil.Process(int(done.stdout))] if psutil.pid_exists(int(done.stdout)) else []
    _, alive = psutil.wait_procs(worker, timeout=20)
    for process in alive:
        process.kill()
    assert alive == []


def test_a_worker_watches_its_parent_before_it_imports_anything_slow(tmp_path):
    code = "import sys, layerwise.embed.worker; print(*{'torch', 'numpy', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_lock_of_a_killed_run_is_in_nobodys_way(tmp_path, tiny_bert, text_file, expected):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".lock").write_text("")
    embed(tiny_bert, text_file, tmp_path / "out")
    assert np.abs(embeddings(pq.read_table(tmp_path / "out")) - expected).max() < WHOLE["float32"]


def test_rows_are_counted_as_they_are_embedded_not_only_when_their_shard_is_written(tmp_path, tiny_bert, text_file):
    choice, counted = ModelChoice(str(tiny_bert), options=SMALL_BATCHES), []
    run_embed(job_of(text_file, shard_rows=1000), choice, tmp_path / "out", progress=counted.append)
    assert sum(counted) == len(TEXTS)
    assert len(counted) > 1


def test_a_bad_row_ends_all_processes(tmp_path, tiny_bert, text_file):
    lines(text_file, [*TEXTS[:12], "", *TEXTS[13:]])
    with pytest.raises(InputError, match=r"rows\.txt:13: the text must not be empty"):
        embed(tiny_bert, text_file, tmp_path / "out", run={"processes": 2})
    for worker in multiprocessing.active_children():
        worker.join(timeout=5)
    assert multiprocessing.active_children() == [], "no worker outlives its run"


def test_an_error_in_a_worker_is_passed_on(tmp_path, tiny_bert, text_file):
    """A worker's life in this process: a folder stands where its second shard must go."""
    (tmp_path / "out" / "part-000001.parquet").mkdir(parents=True)
    job, tasks, reports = job_of(text_file), queue.SimpleQueue(), queue.SimpleQueue()
    pending = {chunk.number: chunk for chunk in chunks(job)}
    for task in (*pending.values(), None):
        tasks.put(task)
    folder, choice = ShardFolder(tmp_path / "out", job), ModelChoice(str(tiny_bert))
    WorkerJob(choice, job, folder, None, torch.get_num_threads()).run(tasks, reports.put)
    written = []
    with pytest.raises(LayerwiseError, match=r"part-000001\.parquet: cannot be written: .*; the shards written"):
        _handle_reports(reports, pending, Work([], choice, job, folder, {}, written.append), wait=0.0)
    assert [chunk.number for chunk in written] == [0]


def test_npy_has_no_row_numbers_so_nothing_is_skipped(tmp_path, tiny_bert, text_file):
    with pytest.raises(InputError, match="NPY files have no row numbers"):
        embed(tiny_bert, text_file, tmp_path / "out", format="npy", empty="skip")


def test_another_backend_is_another_run(tmp_path, tiny_bert, text_file):
    embed(tiny_bert, text_file, tmp_path / "out")
    job = EmbedJob(RowSource.of(str(text_file), ("text",)), shard_rows=5)
    choice = ModelChoice(str(tiny_bert), options={"device": "cpu", "backend": "onnx"})
    with pytest.raises(InputError, match="was started with backend = 'torch', now it is 'onnx'"):
        run_embed(job, choice, tmp_path / "out")


def test_files_that_only_look_like_shards_are_nobodys_to_remove(tmp_path, tiny_bert, text_file):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-00000-spark.parquet").write_bytes(b"precious")
    with pytest.raises(InputError, match=r"holds other files, e\.g\. part-00000-spark\.parquet"):
        embed(tiny_bert, text_file, tmp_path / "out", run={"overwrite": True})
    assert (tmp_path / "out" / "part-00000-spark.parquet").read_bytes() == b"precious"


BIG_CHUNKS_THEN_A_BAD_ROW = """
import sys
from pathlib import Path
from layerwise.data import RowSource
from layerwise.embed import EmbedJob, ModelChoice
from layerwise.embed import run_embed
from layerwise.errors import InputError
if __name__ == "__main__":
    job = EmbedJob(RowSource.of(sys.argv[2], ("text",)), shard_rows=2000)
    try:
        run_embed(job, ModelChoice(sys.argv[1], options={"device": "cpu"}), Path(sys.argv[3]), processes=2)
    except InputError as error:
        print(error)
"""


def test_several_processes_end_although_large_chunks_were_never_taken(tmp_path, tiny_bert, forks):
    """Chunks beyond a pipe's buffer, then a bad row: the process must not wait for readers that are gone."""
    path = lines(tmp_path / "rows.txt", ["the river rose after three days of rain " * 4] * 7000 + [""])
    (tmp_path / "script.py").write_text(BIG_CHUNKS_THEN_A_BAD_ROW)
    done = forks.run(tmp_path / "script.py", tiny_bert, path, tmp_path / "out")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "rows.txt:7001: the text must not be empty" in done.stdout


@pytest.mark.parametrize("name", ["vectors.csv", "vectors.JSONL", "vectors.npz"])
def test_files_that_are_not_written_are_refused_by_their_ending(tmp_path, name):
    with pytest.raises(InputError, match=rf"{name}: only \.parquet and \.npy files are written; give one of these"):
        split_out(tmp_path / name, None)
