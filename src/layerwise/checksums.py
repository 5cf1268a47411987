"""Checksums of a folder's files, in a file next to them, and of a JSON file, inside it, to detect corruption."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from layerwise.digests import file_sha256, json_digest
from layerwise.errors import InputError
from layerwise.files import plain_json, read_json, write_json

CHECKSUMS = "checksums.json"


def write_checksums(folder: Path, *, without: Iterable[str] = ()) -> None:
    """Write the SHA-256 of every file in a folder, but for some names."""
    left_out = {CHECKSUMS, *without}
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in left_out)
    write_json(folder / CHECKSUMS, {path.relative_to(folder).as_posix(): file_sha256(path) for path in files}, indent=1)


def changed_files(folder: Path) -> list[str]:
    """Return the names of files that are missing or differ from their checksums; none without checksums."""
    if not (folder / CHECKSUMS).is_file():
        return []
    try:
        checksums = read_json(folder / CHECKSUMS)
    except InputError:
        return [CHECKSUMS]
    return [name for name, expected in checksums.items() if _sha256(folder, name) != expected]


def write_checked_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object with its digest."""
    plain = plain_json(value)
    write_json(path, plain | {"digest": json_digest(plain)})


def read_checked_json(path: Path) -> dict[str, Any]:
    """Read the output of `write_checked_json`; raise if it is damaged."""
    value = read_json(path)
    if value.pop("digest", None) != json_digest(value):
        raise InputError(f"{path}: is damaged: its digest differs; remove it")
    return value


def _sha256(folder: Path, name: str) -> str:
    path = folder / name
    inside = path.resolve().is_relative_to(folder.resolve())  # never a file outside the folder
    return file_sha256(path) if inside and path.is_file() else ""
