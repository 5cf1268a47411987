"""Results on disk, keyed by everything that determines them, so that an interrupted evaluation resumes."""

import json
import logging
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from layerwise.checksums import read_checked_json, write_checked_json
from layerwise.errors import InputError
from layerwise.evaluate.results import TaskResult
from layerwise.places import default_cache_folder

log = logging.getLogger(__name__)

_FORMAT = 4  # raised whenever the same inputs would be scored otherwise


class ResultStore:
    """A folder of results, one file each.

    Args:
        folder: By default in `$LAYERWISE_CACHE` or the user's cache folder.
        fresh: Only write results, and read none.
    """

    def __init__(self, folder: Path | None = None, *, fresh: bool = False) -> None:
        self.folder = folder or default_cache_folder() / "results"
        self.fresh = fresh
        self.hits = 0  # results read from the store

    def get(self, key: Mapping[str, Any]) -> TaskResult | None:
        """Return the result of a key; None if it is missing or damaged and must be computed."""
        path = self._path(key)
        if self.fresh or not path.is_file():
            return None
        try:
            facts = read_checked_json(path)
            if facts.get("key") == _text(key):
                result = TaskResult.of(facts)
                self.hits += 1
                return result
            log.warning("%s: a stored result of another evaluation is not used", path)
        except (InputError, KeyError, TypeError, ValueError, AttributeError):
            log.warning("%s: a stored result is damaged; the task is scored again", path)
        return None

    def put(self, key: Mapping[str, Any], result: TaskResult) -> None:
        """Store a result."""
        write_checked_json(self._path(key), {"key": _text(key), **result.as_dict()})

    @property
    def memory(self) -> Path | None:
        """The memory of models by their files, see `load_subject`; None if results are not read."""
        return None if self.fresh else self.folder / "models"

    @property
    def rows(self) -> Path | None:
        """The cached facts of rows by the content of their files; None if results are not read."""
        return None if self.fresh else self.folder / "rows"

    def _path(self, key: Mapping[str, Any]) -> Path:
        return self.folder / f"{sha256(_text(key).encode()).hexdigest()[:32]}.json"


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps({"format": _FORMAT, **key}, sort_keys=True, default=str)
