"""Makes the paths in a manifest portable, so that vectors do not ship private paths of a machine.

A manifest stores the paths of the model and the input relative to its folder. If that path would lead through the root
or the home folders, or the manifest is in an object store, it stores only the name, and the local cache maps digests to
paths. URLs are unchanged. Manifests in memory hold absolute paths.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerwise.data import STDIN
from layerwise.digests import json_digest
from layerwise.errors import LayerwiseError
from layerwise.files import read_json, write_json
from layerwise.places import default_cache_folder
from layerwise.stores import Place

_REMEMBERED = "places.json"
_PATHS = (("loading", "name"), ("source", "path"))


def is_local(path: str) -> bool:
    """Whether a recorded name is a path; a model may be a hub name, an input standard input."""
    return path.startswith(("./", "../")) or Path(path).is_absolute()


def portable(record: Mapping[str, Any], beside: Place | None) -> dict[str, Any]:
    """Return a record for writing into the folder `beside`, into a store, or into no folder."""
    result = dict(record)
    for part, key in _PATHS:
        path = _path_of(record, part, key)
        if path is not None and Path(path).is_absolute():
            relative = _relative(Path(path), beside.expanduser().absolute()) if isinstance(beside, Path) else None
            result[part] = {**record[part], key: relative or f"./{Path(path).name}"}
            if relative is None:
                _remember(_memory_key(result, part, path), path)
    return result


def resolved(record: Mapping[str, Any], beside: Place | None) -> dict[str, Any]:
    """Return a record read from the folder `beside` with absolute paths where they exist; others are unchanged."""
    result = dict(record)
    for part, key in _PATHS:
        path = _path_of(record, part, key)
        if path is not None and not Path(path).is_absolute():
            local = Path(os.path.normpath(beside.expanduser().absolute() / path)) if isinstance(beside, Path) else None
            place = str(local) if local is not None and local.exists() else _remembered(_memory_key(record, part, path))
            result[part] = {**record[part], key: place or path}
    return result


def _path_of(record: Mapping[str, Any], part: str, key: str) -> str | None:
    value = record.get(part)
    path = value.get(key) if isinstance(value, Mapping) else None
    return path if isinstance(path, str) and path != STDIN and is_local(path) else None


def _relative(path: Path, folder: Path) -> str | None:
    """Return the relative path to `path`; None if it would lead through the root or the home folders."""
    try:
        common = Path(os.path.commonpath((path, folder)))
    except ValueError:  # another drive
        return None
    if common in (Path(common.anchor), Path.home().parent):
        return None
    relative = Path(os.path.relpath(path, folder)).as_posix()
    return relative if relative.startswith("../") else f"./{relative}"


def _memory_key(record: Mapping[str, Any], part: str, path: str) -> str:
    """Return the cache key of a path: the model's digest, or that of the run for its input."""
    of_run = {"source": {**record["source"], "path": ""}, "columns": record.get("columns")} if part == "source" else {}
    return json_digest([part, Path(path).name, record.get("model"), of_run])


def _remember(key: str, path: str) -> None:
    place = default_cache_folder() / _REMEMBERED
    try:
        known = read_json(place) if place.is_file() else {}
        if known.get(key) != path:
            write_json(place, known | {key: path})
    except LayerwiseError:  # without a writable cache, the path must only be given again
        return


def _remembered(key: str) -> str | None:
    place = default_cache_folder() / _REMEMBERED
    try:
        path = read_json(place).get(key) if place.is_file() else None
    except LayerwiseError:
        return None
    return path if isinstance(path, str) and Path(path).exists() else None
