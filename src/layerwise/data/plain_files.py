"""The task of a plain file: its kind and its columns, as the names of the columns say."""

from collections.abc import Collection
from pathlib import Path

from layerwise.data.kinds import KINDS
from layerwise.data.rows import STDIN, RowSource, column_names, guess_format, shown_header
from layerwise.data.tasks import Task
from layerwise.errors import InputError, MissingColumnError

_GUESSED = ("sts", "pair-classification", "reranking", "retrieval", "classification")  # others look like one of these
_FORMS = "; ".join(f"{', '.join(KINDS[kind].columns.values())} ({kind})" for kind in _GUESSED)


def is_pair_file(name: str) -> bool:
    """Whether a name is of a plain file rather than of a task or a task file."""
    return Path(name).suffix != ".toml" and (Path(name).is_file() or bool(guess_format(name)))


def file_task(
    path: str,
    *,
    name: str = "",
    left: str | None = None,
    right: str | None = None,
    score: str | None = None,
    where: tuple[str, str] | None = None,
    metric: str | None = None,
    **reading: str | None,
) -> Task:
    """Declare the rows of a plain file as a task.

    Named columns are those of graded pairs; otherwise the kind is that whose columns the file has, such as text and
    label. With a metric of rankings, rows are queries and their passages.

    Args:
        path: CSV, TSV, JSONL or Parquet; "-" is standard input, which is read once and so has graded pairs.
        name: By default that of the file.
        left: The column of the first text.
        right: The column of the second text.
        score: The column of the score.
        where: (column, value): only rows with this value.
        metric: Such as "ndcg@10", which says that rows are queries and passages.
        reading: format, encoding and delimiter of the file, as for `read_task`.
    """
    if path != STDIN and (reading.get("format") or guess_format(path)) == "text":
        raise InputError(f"{path}: a text file has no columns; give CSV, TSV, JSONL or Parquet")
    known = column_names(path, **reading) if path != STDIN else ()
    kind = _kind(known, named=any((left, right, score)), ranked="@" in (metric or ""))
    columns = dict(KINDS[kind].columns)
    if not set(columns.values()) <= set(known):
        columns |= KINDS["sts"].columns if kind != "retrieval" else {"left": "sentence1", "right": "sentence2"}
    given = {"left": left, "right": right, "label": score}
    columns |= {place: column for place, column in given.items() if column}
    subset, only = where or ("", None)
    missing = [column for column in columns.values() if known and column not in known]
    if missing:
        source = RowSource.of(path, (), **reading)
        raise MissingColumnError(
            f"{source.name}: no column {missing[0]!r}; it has {shown_header(source, known)}; name the columns by "
            f"--left, --right and --score, or as in {_FORMS}"
        )
    stem = "".join("-" if mark in "/\\ ," else mark for mark in Path(path).stem)
    return Task(name=name or stem, kind=kind, file=path, columns=columns | {"subset": subset}, only=only)


def _kind(known: Collection[str], *, named: bool, ranked: bool) -> str:
    if ranked:
        return "retrieval"
    if named:
        return "sts"
    return next((kind for kind in _GUESSED if set(KINDS[kind].columns.values()) <= set(known)), "sts")
