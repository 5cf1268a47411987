"""Facts of rows are those of the rows, are kept by the files' contents, and never stand for other rows."""

import os

import pytest

from layerwise.data import KnownRows, RowFacts, Task, TextFile, read_task
from layerwise.digests import text_digest
from layerwise.errors import InputError
from support.row_files import write

TASK = Task(
    name="pairs",
    kind="sts",
    file="pairs.csv",
    columns={"subset": "source"},
    splits={"train": "train", "test": ("dev", "test")},
)
SPLITS = ("train", "dev", "test", "other")
ROWS = [
    {"sentence1": f"a{n}", "sentence2": "" if n == 1 else f"b{n}", "score": n, "source": "xy"[n % 2], "split": split}
    for n, split in enumerate(SPLITS * 2)
]


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "pairs.csv", ROWS)


@pytest.fixture
def memory(tmp_path):
    return tmp_path / "memory"


@pytest.fixture
def unread(monkeypatch):
    """From here on, no rows can be read."""
    return lambda: monkeypatch.setattr(
        "layerwise.data.known_rows.read_declared", lambda *_, **__: pytest.fail("rows were read")
    )


def test_facts_are_those_of_the_rows(file):
    rows = read_task(TASK, file)
    expected = RowFacts(rows.digest, text_digest(rows.subsets), 6, {"train": 2, "test": 4}, 1)
    assert KnownRows(TASK, file).facts == expected


def test_rows_are_read_once_for_their_facts(file, memory, unread):
    first = KnownRows(TASK, file, memory).facts
    unread()
    assert KnownRows(TASK, file, memory).facts == first


def test_a_changed_file_of_the_same_size_and_times_is_noticed(file, memory):
    first, before = KnownRows(TASK, file, memory).facts, file.stat()
    file.write_bytes(file.read_bytes().replace(b"a4", b"a9"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    second = KnownRows(TASK, file, memory).facts
    assert second.digest == read_task(TASK, file).digest != first.digest


def test_every_file_of_a_task_counts(tmp_path, memory):
    task = Task(name="found", kind="retrieval", file="judged.csv", corpus=TextFile(file="texts.csv"))
    file = write(tmp_path / "judged.csv", [{"query": "why", "passage": 1}])
    digests = set()
    for text in ("because", "no"):
        write(tmp_path / "texts.csv", [{"id": 1, "text": text}])
        digests.add(KnownRows(task, file, memory).facts.digest)
    assert len(digests) == 2


def test_another_declaration_has_other_facts(file, memory):
    KnownRows(TASK, file, memory).facts  # noqa: B018 - keeps them
    other = TASK.replaced(splits={"test": ("test",)})
    assert KnownRows(other, file, memory).facts.splits == {"test": 2}


@pytest.mark.parametrize("damage", [lambda text: text.replace('"rows": 6', '"rows": 7'), lambda text: text[:20]])
def test_damaged_facts_are_made_again(file, memory, damage, caplog):
    first = KnownRows(TASK, file, memory).facts
    (kept,) = memory.iterdir()
    kept.write_text(damage(kept.read_text()))
    assert KnownRows(TASK, file, memory).facts == first
    assert "is damaged; the rows are read again" in caplog.text
    caplog.clear()
    assert KnownRows(TASK, file, memory).facts == first
    assert not caplog.text


def test_a_file_that_changes_while_it_is_read_is_not_remembered(file, memory, monkeypatch):
    def read_and_change(task, path):
        rows = read_task(task, path)
        write(path, ROWS[:4])
        return rows

    monkeypatch.setattr("layerwise.data.known_rows.read_declared", read_and_change)
    assert KnownRows(TASK, file, memory).facts.rows == 6
    assert not memory.exists()


def test_bad_rows_are_refused_each_time(tmp_path, memory):
    task = TASK.replaced(file=str(write(tmp_path / "bad.csv", [ROWS[0] | {"score": "high"}])))
    for _ in range(2):
        with pytest.raises(InputError, match=r"bad.csv:2: score 'high' is not a number"):
            KnownRows.find(task, memory=memory)


def test_rows_found_are_those_of_the_task(file, memory):
    known = KnownRows.find(TASK.replaced(file=str(file)), memory=memory)
    assert known.rows.left == ["a0", "a1", "a2", "a4", "a5", "a6"]
    assert known.facts.rows == len(known.rows)
