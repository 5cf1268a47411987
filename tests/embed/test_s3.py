"""Embedding from and to a real S3 server gives what local files give; a fault is one line, and the command goes on."""

import hashlib
import json
import os
from contextlib import contextmanager
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerwise.data import demo_corpus
from layerwise.embed import VectorFiles, verify_vectors
from layerwise.embed.shards import ShardFolder
from layerwise.errors import InputError
from layerwise.model import LayerModel
from layerwise.stores import lock, paths, place_of
from support.commands import assert_one_line, call, call_json, run_main
from support.pages import DOCS, assert_shown, run_page
from support.s3 import EVERYTHING, NO_WRITING, s3_server
from support.stored import ROWS, TEXTS, embed, objects, shards


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def bucket(server, request):
    """A URL of its own for each test, with rows.csv below it."""
    url = f"s3://vectors/{request.node.originalname}-{request.node.name[-4:-1]}"
    place_of(f"{url}/rows.csv").write_bytes(ROWS.encode())
    return url


@pytest.fixture
def rows(tmp_path) -> Path:
    (tmp_path / "rows.csv").write_text(ROWS)
    return tmp_path / "rows.csv"


@pytest.fixture
def written(server, bucket):
    """The shards below `out` and their versions, of which there are several where one was written again."""

    def versions() -> dict[str, list[str]]:
        answer = server.client("s3").list_object_versions(
            Bucket="vectors", Prefix=f"{bucket.removeprefix('s3://vectors/')}/out/part-"
        )
        names: dict[str, list[str]] = {}
        for version in answer.get("Versions", ()):
            names.setdefault(version["Key"], []).append(version["VersionId"])
        return names

    return versions


# Equal to local files


@pytest.mark.parametrize("format", ["parquet", pytest.param("npy", marks=pytest.mark.slow)])
def test_shards_equal_those_of_local_files_byte_for_byte(tmp_path, tiny_bert, rows, bucket, format):
    columns = 2 if format == "parquet" else 1
    local = embed(tiny_bert, rows, tmp_path / "out", format=format, columns=columns)
    stored = embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/out", format=format, columns=columns)
    assert (stored.rows, stored.shards, stored.out) == (local.rows, local.shards, f"{bucket}/out")
    names, data = objects(f"{bucket}/out"), shards(tmp_path / "out")
    assert len(data) == 5
    assert shards(f"{bucket}/out") == data
    manifest, expected = json.loads(names["_embed.json"]), json.loads((tmp_path / "out" / "_embed.json").read_text())
    assert manifest["checksums"] == {name: hashlib.sha256(content).hexdigest() for name, content in data.items()}
    same = ("checksums", "shards", "rows", "model", "columns", "finished", "width")
    assert [manifest[key] for key in same] == [expected[key] for key in same]
    assert manifest["source"]["path"] == f"{bucket}/rows.csv"
    assert manifest["loading"]["name"] == f"./{tiny_bert.name}", "no path of this machine"
    assert not [name for name in names if name.startswith(".")], "neither lock nor unfinished objects"
    result = verify_vectors(f"{bucket}/out", model=str(tiny_bert))
    assert (result.faults, result.notes, result.sampled, result.rows) == ((), (), 23, 23)
    again = embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/out", format=format, columns=columns)
    assert (again.rows, again.resumed) == (0, 23)


@pytest.mark.slow
def test_parquet_and_jsonl_are_read_as_streams(tmp_path, tiny_bert, bucket, monkeypatch):
    """The same rows in every format give the same vectors, with a hundredth of the object in memory."""
    monkeypatch.setattr(paths, "_BLOCK_BYTES", 200)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    (tmp_path / "rows.txt").write_text("".join(t + "\n" for t in TEXTS))
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "rows.parquet", row_group_size=4)
    checksums = []
    for name in ("rows.jsonl", "rows.txt", "rows.parquet"):
        place_of(f"{bucket}/{name}").send(tmp_path / name)
        embed(tiny_bert, f"{bucket}/{name}", f"{bucket}/{name[5:]}", columns=1, run={"overwrite": True})
        checksums.append(json.loads(objects(f"{bucket}/{name[5:]}")["_embed.json"])["checksums"])
    assert checksums[0] == checksums[1] == checksums[2]


def test_the_commands_that_read_vectors(tmp_path, tiny_bert, rows, bucket):
    """embed, verify, dedup, cluster, index and query: as with local files."""
    embedded = call_json("embed", tiny_bert, f"{bucket}/rows.csv", "-o", f"{bucket}/out", "--keep", "id")
    assert (embedded["rows"], embedded["out"]) == (23, f"{bucket}/out")
    call("embed", tiny_bert, rows, "-o", tmp_path / "out", "--keep", "id")
    verified = call("embed", tiny_bert, f"{bucket}/rows.csv", "--verify", f"{bucket}/out")
    assert "23 rows in 1 shards" in verified
    assert f"0 faults in {bucket}/out" in verified
    for command in ("dedup", "cluster"):
        call(command, tmp_path / "out", "-o", tmp_path / f"{command}.csv")
        call(command, f"{bucket}/out", "-o", f"{bucket}/{command}.csv")
        assert objects(bucket)[f"{command}.csv"] == (tmp_path / f"{command}.csv").read_bytes()
    built = [
        call_json("index", "build", vectors, "-o", tmp_path / name)
        for name, vectors in (("here", tmp_path / "out"), ("there", f"{bucket}/out"))
    ]
    assert built[0]["rows"] == built[1]["rows"] == 23
    assert (tmp_path / "here" / "index.faiss").read_bytes() == (tmp_path / "there" / "index.faiss").read_bytes()
    hits = [
        call_json("query", vectors, TEXTS[3], "-k", 3, "--model", tiny_bert)
        for vectors in (tmp_path / "out", f"{bucket}/out")
    ]
    assert hits[0] == hits[1]
    assert hits[0][0]["hits"][0]["columns"]["id"] == "r3"


@pytest.mark.slow
def test_the_commands_of_the_page_run_and_print_what_it_shows(tmp_path, server, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place_of("s3://vectors/corpus.txt").write_bytes("".join(f"{text}\n" for text in demo_corpus()).encode())
    ((shown, printed),) = run_page(DOCS / "stores.md")
    assert_shown(shown, printed)


# Stopped, and resumed


@pytest.mark.slow
def test_killed_it_goes_on_where_it_was(tiny_bert, bucket, written, forks, monkeypatch):
    """SIGKILL in the middle leaves the lock, which is taken over when it is not renewed; no shard is written twice."""
    code = f"""
import os, sys
from layerwise.embed.shards import ShardFolder
write, count = ShardFolder.write, [0]
def killed(self, *arguments):
    write(self, *arguments)
    count[0] += 1
    if count[0] == 2:
        os.kill(os.getpid(), 9)
ShardFolder.write = killed
sys.argv = ["layerwise", "embed", {str(tiny_bert)!r}, "{bucket}/rows.csv", "-o", "{bucket}/out",
            "--keep", "id", "--shard-rows", "5", "--device", "cpu"]
from layerwise.cli.app import main
main()
"""
    process = forks.start(code)
    assert process.wait() == -9, process.stderr
    kept = written()
    assert len(kept) == 2
    assert ".lock" in objects(f"{bucket}/out")
    assert json.loads(objects(f"{bucket}/out")["_embed.json"])["finished"] is False
    with pytest.raises(InputError, match="its run has not ended"):
        VectorFiles.of(f"{bucket}/out")
    monkeypatch.setattr(lock, "LEASE_SECONDS", 0.2)
    result = embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/out")
    assert (result.rows, result.resumed) == (13, 10)
    assert kept.items() <= written().items(), "what was there is left alone"
    files = VectorFiles.of(f"{bucket}/out")
    assert files.row_numbers().tolist() == list(range(23))
    again = LayerModel.load(tiny_bert, device="cpu").encode(TEXTS)
    assert np.abs(files.read()[0] - again).max() < 1e-5  # the killed process had other threads
    assert verify_vectors(f"{bucket}/out", model=str(tiny_bert)).faults == ()


def test_a_second_run_is_refused_while_the_first_is_at_work(tiny_bert, bucket, monkeypatch):
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.05)
    refused = []

    def second(_rows):
        if not refused:
            with pytest.raises(InputError, match="another run is writing there; wait for it or stop it") as error:
                embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/out")
            refused.append(error.value)

    assert embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/out", run={"progress": second}).rows == 23
    assert refused


# Faults: one line, and the same command goes on


@contextmanager
def after_shards(count: int, act):
    """Act once so many shards have been written, before the next."""
    write, written = ShardFolder.write, []

    def counted(self, chunk, embeddings):
        write(self, chunk, embeddings)
        written.append(chunk.number)
        if len(written) == count:
            act()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardFolder, "write", counted)
        yield


@pytest.mark.slow
def test_a_bucket_that_denies_writing(tiny_bert, bucket, written, server, monkeypatch, capfd):
    words = ("embed", tiny_bert, f"{bucket}/rows.csv", "-o", f"{bucket}/out", "--keep", "id", "--shard-rows", 5)
    with server.with_users() as user:
        for name, value in server.variables(user.keys).items():
            monkeypatch.setenv(name, value)
        fsspec.filesystem("s3").clear_instance_cache()
        user.may(EVERYTHING, NO_WRITING)
        ended = run_main(monkeypatch, capfd, *words)
        assert_one_line(*ended, f"{bucket}/out/.lock: cannot be written", "check the credentials and what they permit")
        assert user.keys[1] not in ended[2]
        user.may(EVERYTHING)
        denied = pytest.raises(InputError, match=r"/out/_part-000002\.rows: cannot be written: .*check the credentials")
        with denied, after_shards(2, lambda: user.may(EVERYTHING, NO_WRITING)):
            embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/out")
        kept = written()
        assert len(kept) == 2
        user.may(EVERYTHING)
        result = embed(tiny_bert, f"{bucket}/rows.csv", f"{bucket}/out")
        assert (result.resumed, result.rows) == (10, 13)
        assert kept.items() <= written().items(), "what was there is left alone"
    monkeypatch.undo()
    fsspec.filesystem("s3").clear_instance_cache()


def test_no_bucket_no_credentials_no_server(tiny_bert, rows, server, monkeypatch, capfd, bucket):
    ended = run_main(monkeypatch, capfd, "embed", tiny_bert, rows, "-o", "s3://nowhere/out")
    assert_one_line(*ended, "s3://nowhere/out/.lock: cannot be written", "check the name of the bucket")
    ended = run_main(monkeypatch, capfd, "embed", tiny_bert, "s3://nowhere/rows.csv", "-o", f"{bucket}/out")
    assert_one_line(*ended, "s3://nowhere/rows.csv: no such file; check the path")
    with monkeypatch.context() as patch:
        fsspec.filesystem("s3").clear_instance_cache()
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        ended = run_main(patch, capfd, "embed", tiny_bert, rows, "-o", f"{bucket}/out")
        assert_one_line(
            *ended, f"{bucket}/out: ", "Could not connect to the endpoint", "then run the same command again"
        )
        ended = run_main(patch, capfd, "dedup", f"{bucket}/out", "-o", rows.parent / "dups.csv")
        assert_one_line(*ended, f"{bucket}/out: ", "Could not connect to the endpoint")
    with monkeypatch.context() as patch:
        fsspec.filesystem("s3").clear_instance_cache()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.delenv(name)
        ended = run_main(patch, capfd, "embed", tiny_bert, f"{bucket}/rows.csv", "-o", f"{bucket}/out")
        assert_one_line(*ended, f"{bucket}/rows.csv: ", "Unable to locate credentials", "AWS_ACCESS_KEY_ID")
    fsspec.filesystem("s3").clear_instance_cache()
    assert os.environ["AWS_ACCESS_KEY_ID"]


@pytest.mark.slow
def test_a_connection_that_is_lost_while_shards_are_written(tiny_bert, rows, bucket, written, server, monkeypatch):
    lost = pytest.raises(InputError, match=r"/out/_part-000002\.rows: cannot be written: .*run the same command again$")
    with lost, after_shards(2, server.stop):
        embed(tiny_bert, rows, f"{bucket}/out")
    server.start()
    kept = written()
    assert len(kept) == 2
    assert ".lock" in objects(f"{bucket}/out"), "it could not be given back"
    monkeypatch.setattr(lock, "LEASE_SECONDS", 0.2)
    result = embed(tiny_bert, rows, f"{bucket}/out")
    assert (result.resumed, result.rows) == (10, 13)
    assert kept.items() <= written().items(), "what was there is left alone"
    assert verify_vectors(f"{bucket}/out", model=str(tiny_bert)).faults == ()


@pytest.mark.slow
def test_a_connection_that_is_lost_while_rows_are_read(tmp_path, tiny_bert, bucket, server, monkeypatch):
    monkeypatch.setattr(paths, "_BLOCK_BYTES", 100)
    monkeypatch.setattr(paths, "_BUFFER_BYTES", 100)
    place_of(f"{bucket}/rows.csv").write_bytes(("id,text\n" + ROWS.partition("\n")[2] * 10).encode())
    lost = pytest.raises(InputError, match=r"/rows\.csv: cannot be read on: .*run the same command again$")
    with lost, after_shards(2, server.stop):
        embed(tiny_bert, f"{bucket}/rows.csv", tmp_path / "out")
    server.start()
    kept = len(shards(tmp_path / "out"))
    assert 2 <= kept < 46
    result = embed(tiny_bert, f"{bucket}/rows.csv", tmp_path / "out")
    assert (result.resumed, result.rows) == (5 * kept, 230 - 5 * kept)
