"""The paths in the record of how vectors were made: no private path of a machine is shipped with them.

A record names the folder of the model and the file of the input relative to where the record lies, or by their name
alone where that path would lead through the root or the homes of users, or the record lies in an object store; then the
cache of this machine remembers by digests where they are. URLs stay as they are. Records in memory hold absolute paths.
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
    """Whether a recorded name is a path: a model's may be that of the hub, an input's standard input."""
    return path.startswith(("./", "../")) or Path(path).is_absolute()


def portable(record: Mapping[str, Any], beside: Place | None) -> dict[str, Any]:
    """A record as it is written into the folder `beside`, into a store, or into no folder."""
    written = dict(record)
    for part, key in _PATHS:
        path = _path_of(record, part, key)
        if path is not None and Path(path).is_absolute():
            relative = _relative(Path(path), beside.expanduser().absolute()) if isinstance(beside, Path) else None
            written[part] = {**record[part], key: relative or f"./{Path(path).name}"}
            if relative is None:
                _remember(_memory_key(written, part, path), path)
    return written


def resolved(record: Mapping[str, Any], beside: Place | None) -> dict[str, Any]:
    """A record that was read from the folder `beside`, with absolute paths of what is there; others stay."""
    read = dict(record)
    for part, key in _PATHS:
        path = _path_of(record, part, key)
        if path is not None and not Path(path).is_absolute():
            here = Path(os.path.normpath(beside.expanduser().absolute() / path)) if isinstance(beside, Path) else None
            place = str(here) if here is not None and here.exists() else _remembered(_memory_key(record, part, path))
            read[part] = {**record[part], key: place or path}
    return read


def _path_of(record: Mapping[str, Any], part: str, key: str) -> str | None:
    value = record.get(part)
    path = value.get(key) if isinstance(value, Mapping) else None
    return path if isinstance(path, str) and path != STDIN and is_local(path) else None


def _relative(path: Path, beside: Path) -> str | None:
    """From one place to another; None where the way leads through the root or the homes of users."""
    try:
        shared = Path(os.path.commonpath((path, beside)))
    except ValueError:  # another drive
        return None
    if shared in (Path(shared.anchor), Path.home().parent):
        return None
    relative = Path(os.path.relpath(path, beside)).as_posix()
    return relative if relative.startswith("../") else f"./{relative}"


def _memory_key(record: Mapping[str, Any], part: str, path: str) -> str:
    """What a path is remembered by: the model's digest, or that of the run for its input."""
    of_run = {"source": {**record["source"], "path": ""}, "columns": record.get("columns")} if part == "source" else {}
    return json_digest([part, Path(path).name, record.get("model"), of_run])


def _remember(key: str, path: str) -> None:
    place = default_cache_folder() / _REMEMBERED
    try:
        known = read_json(place) if place.is_file() else {}
        if known.get(key) != path:
            write_json(place, known | {key: path})
    except LayerwiseError:  # a cache that cannot be written: the path must be given again, no more
        return


def _remembered(key: str) -> str | None:
    place = default_cache_folder() / _REMEMBERED
    try:
        path = read_json(place).get(key) if place.is_file() else None
    except LayerwiseError:
        return None
    return path if isinstance(path, str) and Path(path).exists() else None
