"""One run at a time below a URL: a lock that is renewed is held, one that is not is taken over."""

import json
import threading

import fsspec
import pytest

from layerwise.errors import InputError
from layerwise.stores import StoreLock, StorePath, lock

LONG = 1000.0


@pytest.fixture
def place():
    files = fsspec.filesystem("memory")
    yield StorePath("memory://bucket/out/.lock")
    files.store.clear()


def seconds(monkeypatch, *, beat: float, lease: float) -> None:
    monkeypatch.setattr(lock, "BEAT_SECONDS", beat)
    monkeypatch.setattr(lock, "LEASE_SECONDS", lease)


def test_taken_and_given_back(place):
    held = StoreLock(place)
    held.acquire()
    assert held.is_locked
    assert place.exists()
    held.check()
    held.release()
    assert not held.is_locked
    assert not place.exists()
    held.release()


def test_one_that_is_renewed_is_held(place, monkeypatch):
    seconds(monkeypatch, beat=0.02, lease=LONG)
    first, second = StoreLock(place), StoreLock(place)
    first.acquire()
    with pytest.raises(
        InputError, match=r"^memory://bucket/out: another run is writing there; wait for it or stop it$"
    ):
        second.acquire()
    assert not second.is_locked
    second.release()
    assert place.exists(), "the other's is left alone"
    first.check()
    first.release()


def test_one_that_is_given_back_meanwhile_is_taken(place, monkeypatch):
    seconds(monkeypatch, beat=0.02, lease=LONG)
    place.write_bytes(b'{"run": "other", "beat": 1}')
    threading.Timer(0.1, place.unlink).start()
    held = StoreLock(place)
    held.acquire()
    held.check()
    held.release()


@pytest.mark.parametrize("left", [b'{"run": "killed", "beat": 7}', b"", b"[1]", b"no JSON"])
def test_one_of_a_killed_run_is_taken_over(place, monkeypatch, left):
    seconds(monkeypatch, beat=0.02, lease=0.1)
    place.write_bytes(left)
    held = StoreLock(place)
    held.acquire()
    assert json.loads(place.read_text())["run"] not in ("killed", "")
    held.release()
    assert not place.exists()


@pytest.mark.parametrize("renews", [True, False])
def test_a_run_that_was_taken_for_dead_notices(place, monkeypatch, renews):
    """By its next beat; without one, once its own lease has passed."""
    seconds(monkeypatch, beat=0.02 if renews else LONG, lease=LONG)
    held = StoreLock(place)
    held.acquire()
    held.check()
    place.write_bytes(b'{"run": "other", "beat": 1}')
    if renews:
        while held._thread.is_alive():  # it may have looked just before
            place.write_bytes(b'{"run": "other", "beat": 1}')
    else:
        held._renewed -= LONG + 1
    with pytest.raises(InputError, match=r"^memory://bucket/out: another run took over .*: run the same command again"):
        held.check()
    held.release()
    assert json.loads(place.read_text())["run"] == "other", "the other's is left alone"


def test_where_every_write_is_a_commit_there_is_none(monkeypatch):
    held = StoreLock(StorePath("hf://datasets/someone/vectors/.lock"))
    held.acquire()
    assert held.is_locked
    held.check()
    held.release()
