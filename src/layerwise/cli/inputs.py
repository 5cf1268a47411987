"""Checks that inputs exist before heavy imports, so that a mistyped path fails immediately."""

from pathlib import Path

from layerwise.errors import InputError
from layerwise.registry import check_known


def check_pairs(name: str, format: str | None = None) -> None:
    """Raise for a missing file of pairs or task."""
    from layerwise.data import STDIN, RowSource, find_tasks, is_pair_file

    if name == STDIN or Path(name).exists():
        return
    if format or is_pair_file(name):
        RowSource.of(name, (), format=format)
    else:
        find_tasks([name])


def check_split(split: str | None, data: str | None, pairs: str | None = None) -> None:
    """Raise for an invalid split or data folder, even if unused, and for a split of a plain file."""
    from layerwise.data import data_folder, is_pair_file

    if split is not None:
        check_known(split, ("test", "dev", "train"), "split")
        if pairs is not None and is_pair_file(pairs):
            raise InputError(f"{pairs}: --split is for tasks, and this is a plain file; leave it out")
    data_folder(data)


def check_file(path: str | Path, remedy: str = "check the path") -> None:
    """Raise for a path that is not a file."""
    if not Path(path).expanduser().is_file():
        what = "is a folder" if Path(path).expanduser().is_dir() else "no such file"
        raise InputError(f"{path}: {what}; {remedy}")
