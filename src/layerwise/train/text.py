"""From a recipe's [data] to the corpus, wherever its files are."""

from pathlib import Path

from layerwise.data.locate import data_folder
from layerwise.data.rows import guess_format
from layerwise.errors import InputError, MissingColumnError
from layerwise.train.corpus import Corpus, read_corpus
from layerwise.train.corpus_stream import StreamedCorpus
from layerwise.train.settings import DataSettings


def load_corpus(settings: DataSettings, data: str | None = None) -> Corpus | StreamedCorpus:
    """Read the text of a recipe; `data` is the data folder."""
    if not settings.files:
        raise InputError("no text to train on: name a file, --data FILE, or files = [...] under [data]")
    files = [_found(name, data) for name in settings.files]
    try:
        return _stacked(files, settings) if settings.stack else _read(files, settings)
    except MissingColumnError as error:
        raise MissingColumnError(f"{error}; say which with --columns, or columns = [...] under [data]") from error


def _read(files: list[str], settings: DataSettings) -> Corpus | StreamedCorpus:
    return read_corpus(
        files,
        settings.columns,
        limit=settings.limit,
        keep_duplicates=settings.keep_duplicates,
        stream=settings.stream,
    )


def _stacked(files: list[str], settings: DataSettings) -> Corpus:
    """All columns' sentences as one column."""
    texts: list[str] = []
    sources: list[str] = []
    for file in files:
        for column in settings.columns:
            part = read_corpus([file], (column,), keep_duplicates=True)
            texts.extend(part.columns[0])
            sources.append(part.source)
    whole = Corpus.of(texts, source=" + ".join(dict.fromkeys(sources)), keep_duplicates=settings.keep_duplicates)
    if settings.limit is None or settings.limit >= len(whole):
        return whole
    return Corpus.of(whole.columns[0][: settings.limit], source=whole.source, keep_duplicates=settings.keep_duplicates)


def _found(name: str, data: str | None) -> str:
    """The file itself, or the one of this name in the data folder."""
    if name == "-" or name.startswith("hub:"):
        return name
    path = Path(name).expanduser()
    if path.is_file():
        if not guess_format(name):
            raise InputError(
                f"{name}: its ending {path.suffix!r} tells no format; name it .txt, .csv, .tsv, .jsonl or .parquet"
            )
        return str(path)
    folder = data_folder(data)
    if folder is not None and (folder / name).is_file():
        return str(folder / name)
    where = f"nor in the data folder {folder}" if folder else "and no data folder is set (LAYERWISE_DATA)"
    raise InputError(f"{name}: no such file, {where}; give the text to train on with --data FILE")
