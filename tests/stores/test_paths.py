"""Places: paths stay paths, URLs behave as the paths they stand for, and no error shows a secret."""

import pickle
from pathlib import Path

import fsspec
import numpy as np
import pytest

from layerwise.errors import InputError, MissingExtraError
from layerwise.files import atomic_file, check_writable, read_json, write_json
from layerwise.stores import StorePath, is_url, open_array, place_of, readable, refuse_url, remove, without_secrets


@pytest.fixture
def bucket():
    files = fsspec.filesystem("memory")
    yield StorePath("memory://bucket")
    files.store.clear()
    files.pseudo_dirs[:] = [""]


@pytest.mark.parametrize("name", ["rows.csv", "./rows.csv", "a:b/c", "~/rows.csv", "s3:/mangled", "-"])
def test_paths_stay_paths(name):
    assert not is_url(name)
    assert place_of(name) == Path(name)
    assert place_of(Path(name)) == Path(name)


def test_a_file_url_is_a_path():
    assert place_of("file:///data/rows.csv") == Path("/data/rows.csv")
    assert not is_url("FILE:///data/rows.csv")


def test_names_are_those_of_pathlib(bucket):
    path, local = place_of("memory://bucket/a/rows.tar.gz"), Path("bucket/a/rows.tar.gz")
    assert (path.name, path.suffix, path.stem) == (local.name, local.suffix, local.stem)
    assert str(path.parent) == "memory://bucket/a"
    assert str(path.with_name("b.csv")) == "memory://bucket/a/b.csv"
    assert bucket.parent == bucket
    assert place_of("memory://bucket/") == bucket
    assert pickle.loads(pickle.dumps(path)) == path


def test_objects_are_listed_read_and_removed(bucket):
    for name in ("part-1", "part-2", "_record", "below/part-3"):
        (bucket / "out" / name).write_bytes(name.encode())
    out = bucket / "out"
    assert sorted(path.name for path in out.iterdir()) == ["_record", "below", "part-1", "part-2"]
    assert sorted((path.name, path.size) for path in out.glob("part-*")) == [("part-1", 6), ("part-2", 6)]
    assert (out.is_dir(), out.is_file(), out.exists()) == (True, False, True)
    assert ((out / "part-1").is_dir(), (out / "part-1").is_file()) == (False, True)
    assert not (bucket / "none").exists()
    assert list((bucket / "none").iterdir()) == []
    assert out.read_below(["part-1", "gone", "part-2"]) == {"part-1": b"part-1", "part-2": b"part-2"}
    remove(out / name for name in ("part-1", "part-2"))
    assert sorted(path.name for path in out.iterdir()) == ["_record", "below"]
    (out / "gone").unlink(missing_ok=True)
    with pytest.raises(InputError, match=r"^memory://bucket/out/gone: cannot be removed: no such bucket or object"):
        (out / "gone").unlink()


def test_a_stream_reads_and_seeks_as_a_file(bucket, tmp_path):
    data = bytes(range(256)) * 3000
    (bucket / "bytes").write_bytes(data)
    with (bucket / "bytes").open() as file:
        assert file.read(10) == data[:10]
        assert file.seek(-5, 2) == len(data) - 5
        assert file.read() == data[-5:]
        file.seek(300)
        assert file.readline() == data[300 : data.index(b"\n", 300) + 1]
    with pytest.raises(InputError, match=r"^memory://bucket/none: cannot be read: .*; check the name of the bucket"):
        (bucket / "none").open()


def test_created_once(bucket):
    assert (bucket / "lock").create(b"1") is True
    assert (bucket / "lock").create(b"2") is False
    assert (bucket / "lock").read_text() == "1"


def test_files_are_sent_whole_or_not_at_all(bucket, tmp_path):
    target = bucket / "facts.json"
    write_json(target, {"rows": 3})
    assert read_json(target) == read_json("memory://bucket/facts.json") == {"rows": 3}
    with pytest.raises(RuntimeError, match="stopped"), atomic_file(target) as building:
        building.write_text("half")
        raise RuntimeError("stopped")
    assert read_json(target) == {"rows": 3}
    assert [path.name for path in bucket.iterdir()] == ["facts.json"]
    check_writable(target)
    assert [path.name for path in bucket.iterdir()] == ["facts.json"]
    with pytest.raises(InputError, match=r"^memory://bucket: is a folder; give the name of a file"):
        check_writable(bucket)


def test_arrays_are_read_in_slices_of_rows(bucket, tmp_path):
    array = np.random.default_rng(0).normal(size=(1000, 7)).astype(np.float16)
    np.save(tmp_path / "array.npy", array)
    (bucket / "array.npy").send(tmp_path / "array.npy")
    for place in (tmp_path / "array.npy", bucket / "array.npy"):
        opened = open_array(place)
        assert (opened.shape, opened.dtype, len(opened)) == ((1000, 7), np.float16, 1000)
        for part in (slice(0, 10), slice(990, 2000), slice(5, 5)):
            assert np.array_equal(opened[part], array[part])
        assert np.array_equal(np.asarray(opened, dtype=np.float32), array.astype(np.float32))


@pytest.mark.parametrize("data", [b"", b"no array", b"\x93NUMPY\x09\x00v\x00"])
def test_what_is_no_array_is_a_value_error(bucket, data):
    (bucket / "array.npy").write_bytes(data)
    with pytest.raises(ValueError, match=r"magic|version|EOF|format"):
        open_array(bucket / "array.npy")


def test_an_array_that_was_cut_is_told(bucket, tmp_path):
    np.save(tmp_path / "array.npy", np.ones((10, 4)))
    (bucket / "array.npy").write_bytes((tmp_path / "array.npy").read_bytes()[:-8])
    with pytest.raises(ValueError, match="ends before its last row"):
        open_array(bucket / "array.npy")[5:]


def test_pyarrow_reads_both(bucket, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"row": list(range(5000))})
    pq.write_table(table, tmp_path / "t.parquet")
    (bucket / "t.parquet").send(tmp_path / "t.parquet")
    assert readable(tmp_path / "t.parquet") == tmp_path / "t.parquet"
    assert pq.read_table(readable(bucket / "t.parquet")).equals(table)


# What is refused


@pytest.mark.parametrize(("url", "extra", "package"), [("s3://b/x", "s3", "s3fs"), ("gs://b/x", "gcs", "gcsfs")])
def test_a_store_whose_package_is_missing_names_its_extra(monkeypatch, url, extra, package):
    monkeypatch.setattr("layerwise.extras.find_spec", lambda name: None)
    message = rf"^{url}: a URL of \w+:// needs {package}: pip install 'layerwise\[{extra}\]'$"
    with pytest.raises(MissingExtraError, match=message):
        place_of(url)


def test_a_url_without_a_bucket_and_of_no_store():
    with pytest.raises(InputError, match=r"^memory://: names no bucket; give one such as memory://bucket/name"):
        place_of("memory://")
    with pytest.raises(InputError, match=r"^nostore://b/x: cannot be opened: .*; give a path, or a URL of s3://"):
        place_of("nostore://b/x").exists()
    with pytest.raises(InputError, match=r"^memory://b/x: an index is written to this machine's disk; give a path"):
        refuse_url("memory://b/x", "an index")
    refuse_url("some/folder", "an index")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/a b/rows.csv", "s3://bucket/a b/rows.csv"),
        ("https://key:secret@host/rows.csv?sig=abc&x=1", "https://host/rows.csv"),
        (
            'could not reach "http://127.0.0.1:5000/b?list-type=2" (is it up?)',
            'could not reach "http://127.0.0.1:5000/b" (is it up?)',
        ),
        ("what? a plain text", "what? a plain text"),
        ("me@home/rows.csv", "me@home/rows.csv"),
    ],
)
def test_no_secret_is_shown(text, expected):
    assert without_secrets(text) == expected
