"""Checks the output folders of models before the work starts."""

from pathlib import Path

from layerwise.errors import InputError
from layerwise.files import check_writable


def check_free(folder: Path, overwrite: bool) -> None:
    """Raise for a folder that a model cannot be saved in, as saving would."""
    folder = folder.expanduser()
    if not folder.exists():
        check_writable(folder)
        return
    if not folder.is_dir():
        raise InputError(f"{folder}: is a file; give a folder")
    if not any(folder.iterdir()):
        return
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder}: is not empty and holds no model, so it is not overwritten; give another folder")
    if not overwrite:
        raise InputError(f"{folder}: is not empty; give another folder, or --overwrite")
