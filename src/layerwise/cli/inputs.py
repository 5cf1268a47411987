"""Inputs that are not there, refused before anything heavy is imported: a mistyped path is told at once."""

from pathlib import Path

from layerwise.errors import InputError
from layerwise.registry import check_known


def check_pairs(name: str, format: str | None = None) -> None:
    """Refuse a file of pairs, or a task, that is not there."""
    from layerwise.data import STDIN, RowSource, find_tasks, is_pair_file

    if name == STDIN or Path(name).exists():
        return
    if format or is_pair_file(name):
        RowSource.of(name, (), format=format)
    else:
        find_tasks([name])


def check_split(split: str | None, data: str | None, pairs: str | None = None) -> None:
    """Refuse a split or a data folder that is none, though a plain file needs neither, and a split of a plain file."""
    from layerwise.data import data_folder, is_pair_file

    if split is not None:
        check_known(split, ("test", "dev", "train"), "split")
        if pairs is not None and is_pair_file(pairs):
            raise InputError(f"{pairs}: --split is for tasks, and this is a plain file; leave it out")
    data_folder(data)


def check_file(path: str | Path, remedy: str = "check the path") -> None:
    """Refuse a path that leads to no file."""
    if not Path(path).expanduser().is_file():
        what = "is a folder" if Path(path).expanduser().is_dir() else "no such file"
        raise InputError(f"{path}: {what}; {remedy}")
