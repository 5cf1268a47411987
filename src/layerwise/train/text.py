"""From a recipe's [data] to the corpus, wherever its files are."""

import os
from pathlib import Path

from layerwise.data.locate import data_folder
from layerwise.data.rows import guess_format
from layerwise.errors import InputError, MissingColumnError
from layerwise.train.corpus import Corpus, read_corpus, stacked_corpus
from layerwise.train.corpus_stream import StreamedCorpus
from layerwise.train.settings import DataSettings


def load_corpus(settings: DataSettings, data: str | None = None) -> Corpus | StreamedCorpus:
    """Read the text of a recipe; `data` is the data folder."""
    if not settings.files:
        raise InputError("no text to train on: name a file, --data FILE, or files = [...] under [data]")
    files = [_found(name, data) for name in settings.files]
    try:
        return _read(files, settings)
    except MissingColumnError as error:
        raise MissingColumnError(f"{error}; say which with --columns, or columns = [...] under [data]") from error


def _read(files: list[str], settings: DataSettings) -> Corpus | StreamedCorpus:
    if settings.stack:
        return stacked_corpus(files, settings.columns, limit=settings.limit, keep_duplicates=settings.keep_duplicates)
    return read_corpus(
        files,
        settings.columns,
        limit=settings.limit,
        keep_duplicates=settings.keep_duplicates,
        stream=settings.stream,
    )


def _found(name: str, data: str | None) -> str:
    if name == "-" or name.startswith("hub:"):
        return name
    return found_file(name, data, remedy="give the text to train on with --data FILE")


def found_file(name: str, data: str | os.PathLike[str] | None, *, remedy: str) -> str:
    """The file itself, or the one of this name in the data folder (`data`, else `$LAYERWISE_DATA`).

    Args:
        name: A path; ~ is the home folder.
        data: The data folder.
        remedy: What the error says where there is neither.
    """
    path, folder = Path(name).expanduser(), None
    if not path.is_file():
        folder = data_folder(data)
        path = folder / path if folder else path
    if not path.is_file():
        where = f"nor in the data folder {folder}" if folder else "and no data folder is set (LAYERWISE_DATA)"
        raise InputError(f"{name}: no such file, {where}; {remedy}")
    if not guess_format(str(path)):
        raise InputError(
            f"{name}: its ending {path.suffix!r} tells no format; name it .txt, .csv, .tsv, .jsonl or .parquet"
        )
    return str(path)
