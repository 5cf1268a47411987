"""One run at a time below a URL: a lease, as a store has no locks.

The holder writes an object that the store creates only where there is none (S3, Google Cloud Storage and memory:// do
so atomically), and replaces it every few seconds. Whoever finds one watches it: one that changes is held, one that does
not change for the length of the lease is of a run that was killed, and is taken over. No clocks are compared.

What is not guaranteed: a run that is cut off from the store, or suspended, for longer than the lease can be taken for
dead; it notices at its next shard and stops. On hf://, where every write is a commit, there is no lock at all.
"""

import json
import logging
import threading
import time
from uuid import uuid4

from layerwise.errors import InputError
from layerwise.stores.paths import StorePath

BEAT_SECONDS = 10.0
LEASE_SECONDS = 40.0
_WITHOUT = ("hf",)

_log = logging.getLogger(__name__)


class StoreLock:
    """A lock on the contents of a folder, implemented as the object `place` in it."""

    def __init__(self, place: StorePath) -> None:
        self._place, self._run = place, uuid4().hex
        self._is_kept = place.scheme not in _WITHOUT
        self._beats, self._renewed, self._is_lost = 0, 0.0, False
        self.is_locked = False  # by this run
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Acquire the lock, waiting for the end of the lease if its holder may have been killed."""
        if self._is_kept:
            self._take()
        self.is_locked = True

    def _take(self) -> None:
        if not self._place.create(self._record()):
            self._wait()
            self._place.unlink(missing_ok=True)
            if not self._place.create(self._record()):
                raise self._held()
        self._renewed = time.monotonic()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise if another run has taken over the lock."""
        if self._thread is None:
            return
        if not self._is_lost and time.monotonic() - self._renewed > LEASE_SECONDS:
            self._is_lost = self._holder() != self._run
        if self._is_lost:
            raise InputError(
                f"{self._place.parent}: another run took over while this one could not be seen; what was written is "
                f"kept: run the same command again once the other has ended"
            )

    def release(self) -> None:
        """Release the lock; if that fails, its lease expires."""
        thread, self._thread, self.is_locked = self._thread, None, False
        if thread is None:
            return
        self._ended.set()
        thread.join()
        if self._is_lost:
            return
        try:
            if self._holder() == self._run:
                self._place.unlink(missing_ok=True)
        except InputError as error:
            _log.info("the lock is left behind and ends by itself: %s", error)

    def _wait(self) -> None:
        """Watch a lock until its lease ends."""
        previous = self._read()
        _log.info(
            "%s: another run is writing there, or was killed; waiting up to %.0f s to see",
            self._place.parent,
            LEASE_SECONDS,
        )
        end = time.monotonic() + LEASE_SECONDS
        while previous is not None and time.monotonic() < end:
            time.sleep(min(BEAT_SECONDS / 2, LEASE_SECONDS))
            current = self._read()
            if current not in (None, previous):
                raise self._held()
            previous = current

    def _keep(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            try:
                if self._holder() != self._run:
                    self._is_lost = True
                    return
                self._place.write_bytes(self._record())
                self._renewed = time.monotonic()
            except InputError as error:  # a later beat may succeed; otherwise `check` raises
                _log.debug("the lock was not renewed: %s", error)

    def _record(self) -> bytes:
        self._beats += 1
        return json.dumps({"run": self._run, "beat": self._beats}).encode()

    def _read(self) -> bytes | None:
        return self._place.parent.read_below([self._place.name]).get(self._place.name)

    def _holder(self) -> str:
        """Return the run that holds the lock, or an empty string."""
        try:
            return str(json.loads(self._read() or b"{}").get("run", ""))
        except (ValueError, AttributeError):
            return ""

    def _held(self) -> InputError:
        return InputError(f"{self._place.parent}: another run is writing there; wait for it or stop it")
