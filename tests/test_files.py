"""Files are whole or not there; JSON has neither NaN nor NumPy's numbers."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.checksums import changed_files, write_checksums
from layerwise.errors import InputError, ModelError
from layerwise.files import (
    atomic_file,
    atomic_folder,
    check_writable,
    new_mapped_array,
    plain_json,
    read_json,
    write_json,
    write_text,
)

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": NAN, 1: (INFINITE, -INFINITE, 2.5)}, {"a": None, "1": [None, None, 2.5]}),
        (np.array([[1.0, NAN], [2.0, 3.0]]), [[1.0, None], [2.0, 3.0]]),
        ([np.float32(0.5), np.int64(3), np.bool_(True), np.float64(NAN)], [0.5, 3, True, None]),
        (np.array(NAN), None),
        (range(3), [0, 1, 2]),
        ("texts stay whole", "texts stay whole"),
        (None, None),
    ],
)
def test_numbers_of_numpy_and_what_is_no_number(value, expected):
    assert plain_json(value) == expected
    assert json.loads(json.dumps(plain_json(value), allow_nan=False)) == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_json_knows_stays_as_it_is(value):
    assert plain_json(value) == value


def test_the_screen_needs_no_numpy_for_it():
    code = "import sys, layerwise.cli.screen; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def names_in(folder):
    return sorted(path.name for path in folder.rglob("*"))


def test_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "new" / "out.txt"
    with atomic_file(path) as building:
        assert building.suffix == ".txt"
        building.write_text("first")
    assert path.read_text() == "first"
    with pytest.raises(RuntimeError, match="in the middle"), atomic_file(path) as building:
        building.write_text("half")
        raise RuntimeError("in the middle")
    assert path.read_text() == "first"
    assert names_in(tmp_path) == ["new", "out.txt"]


def test_a_folder_that_vanishes_meanwhile_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("layerwise.files.os.path.lexists", lambda _: True)  # the file goes just after this was asked
    with pytest.raises(InputError, match=r"out\.txt: cannot be written: No such file or directory"):
        with atomic_file(tmp_path / "folder" / "out.txt") as building:
            building.write_text("lost")
            shutil.rmtree(tmp_path / "folder")


def test_a_full_disk_is_one_line_with_the_remedy(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(InputError, match=r"out\.txt: cannot be written: No space left on device; free some"):
        with atomic_file(tmp_path / "out.txt"):
            raise full
    with pytest.raises(ModelError, match="cannot be written: No space left on device; nothing was changed"):
        with atomic_folder(tmp_path / "model", remedy="nothing was changed there", error=ModelError):
            raise full
    assert names_in(tmp_path) == []


def test_errors_about_files_of_an_unfinished_folder_name_their_final_place(tmp_path, monkeypatch):
    def fail(_file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", fail)
    message = rf"^{re.escape(str(tmp_path / 'index' / 'facts.json'))}: cannot be written: No space left on device; free"
    with pytest.raises(InputError, match=message), atomic_folder(tmp_path / "index") as building:
        building.mkdir()
        write_json(building / "facts.json", {"rows": 3})
    assert names_in(tmp_path) == []


def test_the_space_of_a_mapped_array_is_reserved_when_it_is_made(tmp_path, monkeypatch):
    reserved = []
    monkeypatch.setattr("os.posix_fallocate", lambda _file, start, size: reserved.append((start, size)))
    array = new_mapped_array(tmp_path / "views.npy", dtype=np.float32, shape=(3, 2))
    array[:] = 1
    assert reserved == [(0, (tmp_path / "views.npy").stat().st_size)]
    assert np.array_equal(np.load(tmp_path / "views.npy"), np.ones((3, 2), dtype=np.float32))


@pytest.mark.parametrize(("number", "refused"), [(errno.ENOSPC, True), (errno.EOPNOTSUPP, False)])
def test_a_full_disk_is_met_before_a_mapped_array_is_written(tmp_path, monkeypatch, number, refused):
    def fail(*_arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.posix_fallocate", fail)
    with pytest.raises(OSError, match="No space left") if refused else nullcontext():
        new_mapped_array(tmp_path / "views.npy", dtype=np.float32, shape=(3, 2))


def test_a_file_in_the_place_of_a_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "out.txt", tmp_path / "file" / "deep" / "out.txt"):
        with pytest.raises(InputError, match=r"cannot be written: (Not a directory|File exists)"):
            write_text(path, "text")
        with pytest.raises(InputError, match=r"is a file, not a folder; give another path"):
            check_writable(path)
    with pytest.raises(InputError, match="is a folder; give the name of a file"):
        check_writable(tmp_path)
    check_writable(tmp_path / "there" / "can" / "be.one")
    assert names_in(tmp_path) == ["file"]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "model"
    for text in ("first", "second"):
        with atomic_folder(path) as building:
            building.mkdir()
            (building / text).write_text(text)
        assert names_in(path) == [text]
    with pytest.raises(RuntimeError, match="in the middle"), atomic_folder(path) as building:
        building.mkdir()
        raise RuntimeError("in the middle")
    assert names_in(tmp_path) == ["model", "second"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_a_folder_s_files_are_for_those_who_may_read_the_folder(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        with atomic_folder(tmp_path / "model") as building:
            (building / "inner").mkdir(parents=True)
            for name in ("model.safetensors", "inner/config.json"):
                (building / name).write_bytes(b"0")
                (building / name).chmod(0o600)
    finally:
        os.umask(before)
    files = [file for file in (tmp_path / "model").rglob("*") if file.is_file()]
    assert [file.stat().st_mode & 0o777 for file in files] == [mode, mode]


def test_json_files_say_what_is_wrong_and_what_to_do(tmp_path):
    path = tmp_path / "facts.json"
    write_json(path, {"score": NAN, "texts": ["ä", "\ud800"]})
    assert read_json(path) == {"score": None, "texts": ["ä", "?"]}
    for text, said in (("{", "is not JSON"), ("[1]", "is not a JSON object"), ("[" * 100_000, "is not JSON")):
        path.write_text(text)
        with pytest.raises(InputError, match=rf"facts\.json: {said}.*; train again"):
            read_json(path, remedy="train again")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_json(tmp_path / "none.json")


def test_checksums_name_the_files_that_were_changed_or_lost(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("a.bin", "sub/b.bin", "README.md"):
        (tmp_path / name).write_text(name)
    assert changed_files(tmp_path) == [], "nothing was written, so nothing is known"
    write_checksums(tmp_path, without=["README.md"])
    (tmp_path / "README.md").write_text("edited")
    assert changed_files(tmp_path) == []
    (tmp_path / "sub" / "b.bin").write_text("sub/c.bin")
    (tmp_path / "a.bin").unlink()
    assert changed_files(tmp_path) == ["a.bin", "sub/b.bin"]
    (tmp_path / "checksums.json").write_text("{")
    assert changed_files(tmp_path) == ["checksums.json"]
