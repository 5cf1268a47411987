"""Embedding from and to an object store (memory://): as with local files, and nothing is mixed, lost or doubled."""

import json
from pathlib import Path

import fsspec
import pyarrow.parquet as pq
import pytest

from layerwise.embed import VectorFiles, verify_vectors
from layerwise.errors import InputError
from layerwise.stores import place_of
from support.commands import call_json
from support.stored import ROWS, embed, objects

pytestmark = pytest.mark.usefixtures("tiny_models_loaded_once")


@pytest.fixture
def bucket():
    files = fsspec.filesystem("memory")
    place_of("memory://bucket/rows.csv").write_bytes(ROWS.encode())
    yield "memory://bucket"
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def created(url: str) -> dict[str, float]:
    """What changes when an object is written again."""
    return {entry["name"]: entry["created"] for entry in fsspec.filesystem("memory").ls(url, detail=True)}


@pytest.fixture
def rows(tmp_path) -> Path:
    (tmp_path / "rows.csv").write_text(ROWS)
    return tmp_path / "rows.csv"


@pytest.mark.parametrize("format", ["parquet", "npy"])
def test_one_file_equals_a_local_one(tmp_path, tiny_bert, rows, bucket, format):
    columns = 2 if format == "parquet" else 1
    for source, out in ((rows, tmp_path / f"one.{format}"), (f"{bucket}/rows.csv", f"{bucket}/one.{format}")):
        embed(tiny_bert, source, f"{out}.shards", format=format, columns=columns, run={"joined": out})
    assert [name for name in objects(bucket) if "one" in name] == [f"one.{format}"]
    if format == "npy":
        assert objects(bucket)["one.npy"] == (tmp_path / "one.npy").read_bytes()
    else:
        with place_of(f"{bucket}/one.parquet").open() as file:
            assert pq.read_table(file).equals(pq.read_table(tmp_path / "one.parquet"))
    vectors, _ = VectorFiles.of(f"{bucket}/one.{format}").read()
    assert (vectors == VectorFiles.of(tmp_path / f"one.{format}").read()[0]).all()
    with pytest.raises(InputError, match=r"one\.\w+: exists already; give another name, or --overwrite"):
        embed(tiny_bert, rows, f"{bucket}/x", format=format, columns=columns, run={"joined": f"{bucket}/one.{format}"})


def test_bad_rows_are_set_aside_there_too(tiny_bert, bucket):
    place_of(f"{bucket}/holes.csv").write_bytes(ROWS.replace("r7,", "r7,,").encode())
    result = call_json(
        "embed",
        tiny_bert,
        f"{bucket}/holes.csv",
        "-o",
        f"{bucket}/out",
        "--bad-rows",
        f"{bucket}/bad.jsonl",
        "--shard-rows",
        5,
    )
    assert (result["rows"], result["set_aside"]) == (22, 1)
    (bad,) = map(json.loads, objects(bucket)["bad.jsonl"].splitlines())
    assert (bad["file"], bad["row"]) == (f"{bucket}/holes.csv", 7)
    assert 7 not in VectorFiles.of(f"{bucket}/out").row_numbers()


def test_what_would_mix_things_is_refused_as_locally(tiny_bert, bucket):
    embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/out")
    before = created(f"{bucket}/out")
    with pytest.raises(InputError, match=r"/out: was started with normalize = False, now it is True"):
        embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/out", normalize=True)
    place_of(f"{bucket}/other.csv").write_bytes(ROWS.replace("r9", "r99").encode())
    with pytest.raises(InputError, match=r"part-000001\.parquet: was made of other rows"):
        embed(tiny_bert, f"{bucket}/other.csv", f"{bucket}/out")
    with pytest.raises(InputError, match=r"holds other files, e\.g\. "):
        embed(tiny_bert, f"{bucket}/rows.csv", bucket)
    with pytest.raises(InputError, match=r"rows\.csv: is a file; give a folder"):
        embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/rows.csv")
    assert created(f"{bucket}/out") == before
    result = embed(tiny_bert, f"{bucket}/other.csv", f"{bucket}/out", run={"overwrite": True})
    assert (result.rows, result.resumed) == (23, 0)
    assert verify_vectors(f"{bucket}/out", model=str(tiny_bert)).faults == ()


def test_a_damaged_object_is_found_and_made_again(tiny_bert, bucket):
    embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/out")
    shard = place_of(f"{bucket}/out/part-000002.parquet")
    data = bytearray(shard.open().read())
    data[100] ^= 1
    shard.write_bytes(bytes(data))
    faults = verify_vectors(f"{bucket}/out", model=str(tiny_bert)).faults
    assert f"{shard}: its checksum differs" in faults[0]
    shard.unlink()
    assert f"{shard}: is missing" in verify_vectors(f"{bucket}/out", model=str(tiny_bert)).faults[0]
    result = embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/out")
    assert (result.rows, result.resumed) == (5, 18)
    assert verify_vectors(f"{bucket}/out", model=str(tiny_bert)).faults == ()
