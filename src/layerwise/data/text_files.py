"""Texts by id: the queries and the corpus of a retrieval task, in files separate from the judgements."""

from pathlib import Path
from typing import Any

from layerwise.data.rows import Row, RowSource, text_of
from layerwise.data.tasks import Task, TextFile
from layerwise.errors import InputError


def read_texts(texts: TextFile, path: str | Path, *, empty: str | None) -> dict[str, str]:
    """Read the texts of a file by id, in order; a title is prepended with a space.

    Args:
        texts: The declaration.
        path: The file.
        empty: What an empty text becomes; None refuses empty texts.
    """
    source = RowSource.of(str(path), texts.columns)
    by_id: dict[str, str] = {}
    for row in source:
        name = id_of(source, row, 0)
        if name in by_id:
            raise source.fail(row.place, f"the id {name!r} comes twice; every text needs an id of its own")
        text = " ".join(text_of(source, row, column) for column in reversed(range(1, len(texts.columns)))).strip()
        if not text and empty is None:
            raise source.fail(row.place, f"the text of {name!r} is empty; give a text, or drop the row")
        by_id[name] = text or str(empty)
    if not by_id:
        raise InputError(f"{source.name}: no rows; needed: {', '.join(texts.columns)}")
    return by_id


def id_of(source: RowSource, row: Row, column: int) -> str:
    """Convert a column's value to an id: a non-empty str or an integer."""
    value: Any = row.values[column]
    name = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not name.strip():
        shown = "null" if value is None else repr(value)
        raise source.fail(row.place, f"{source.columns[column]} is {shown}, expected an id, a text or a whole number")
    return name


def path_beside(task: Task, path: str | Path, file: str) -> Path:
    """Return the path of another file of a task, relative to the folder of its rows at `path`."""
    path, other, declared = Path(path), Path(file).expanduser(), Path(task.file)
    if other.is_absolute():
        return other
    depth = len(declared.parts)
    under = path.parents[depth - 1] if path.parts[-depth:] == declared.parts else path.parent
    return under / other
