"""Downloads a task's published rows into one Parquet file.

Sources are pinned to a commit. Rows that differ from those of the published figures are written, with a warning.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from layerwise.data.published import READERS
from layerwise.data.task_rows import TaskRows, read_task
from layerwise.data.tasks import Source, Task
from layerwise.errors import InputError
from layerwise.files import atomic_file

log = logging.getLogger(__name__)

GITHUB = "https://raw.githubusercontent.com"
_TIMEOUT_S = 60

Rows = Iterator[dict[str, Any]]


def fetch_task(task: Task, folder: str | os.PathLike[str], *, base: str = GITHUB) -> Path:
    """Write a task's rows to `folder / task.file`, with all subsets of its source, and check them.

    Args:
        task: Any task with a source.
        folder: The folder of fetched tasks; created if needed.
        base: Where repositories are: {base}/{owner/name}/{commit}/{path}, by https, or by file for a mirror.
    """
    source = task.source
    if source is None:
        raise InputError(f"task {task.name!r} has no source to be fetched from; put {task.file} into a data folder")
    path = Path(folder).expanduser() / task.file
    if path.suffix != ".parquet":
        raise InputError(f"task {task.name!r} is fetched, so its file is Parquet; name it {path.stem}.parquet")
    try:
        rows = list(_hub_rows(task, source) if source.kind == "hub" else _github_rows(task, source, base))
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    for difference in differences(_write(rows, path, task)):
        log.warning("%s: %s; published figures need not agree", task.name, difference)
    return path


def differences(rows: TaskRows) -> list[str]:
    """Describe how rows differ from the task's declaration, by their counts or digest."""
    task = rows.task
    counts = [
        f"{rows.counts.get(role, 0):,} rows ({role}), not {count:,}"
        for role, count in task.rows.items()
        if rows.counts.get(role, 0) != count
    ]
    if not counts and task.digest and rows.digest != task.digest:
        return ["as many rows, but other texts, labels or another order (digest)"]
    return counts


def _call(reader: Callable[..., Rows], options: Mapping[str, Any], /, **arguments: Any) -> Rows:
    """Call a reader with its source's options; an error lists the options it has."""
    try:
        signature(reader).bind(**arguments, **options)
    except TypeError as error:
        known = [name for name in signature(reader).parameters if name not in arguments]
        raise InputError(f"options of its source: {error}; known: {', '.join(known)}") from error
    return reader(**arguments, **options)


def _github_rows(task: Task, source: Source, base: str) -> Rows:
    if not base.startswith(("https://", "file://")):
        raise InputError(f"{base}: repositories are read by https:// (or file:// for a mirror)")
    options = dict(source.options)
    root = "/".join(filter(None, (source.repo, source.revision, options.pop("folder", ""))))

    def read(path: str) -> bytes:
        url = f"{base}/{quote(f'{root}/{path}')}"
        try:
            with urlopen(url, timeout=_TIMEOUT_S) as response:  # noqa: S310 - the scheme is checked above
                if not response.url.startswith(base.partition("//")[0]):
                    raise InputError(f"{path}: was redirected to {response.url}; expected an address of {base}")
                content: bytes = response.read()
        except (OSError, HTTPException) as error:
            raise InputError(f"{path}: cannot be fetched: {_reason(error)}; {_remedy(task)}") from error
        return content

    return _call(READERS[source.reader], options, read=read)


def _hub_rows(task: Task, source: Source) -> Rows:
    return _call(_datasets_rows, source.options, task=task, source=source)


def _datasets_rows(
    task: Task,
    source: Source,
    *,
    splits: Mapping[str, str],
    configs: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
) -> Rows:
    """Yield rows of a hub dataset; `configs` maps each of its configurations to our subset ("" for none), `splits` and
    `columns` map our names to theirs.
    """
    try:
        datasets = import_module("datasets")
    except ModuleNotFoundError as error:
        raise InputError("reading it needs the package datasets: pip install datasets") from error
    names = [task.columns[place] for place in ("left", "right", "label") if task.columns[place]]
    hub_columns = {name: (columns or {}).get(name, name) for name in names}
    for config, subset in (configs or {"default": ""}).items():
        for split, hub in splits.items():
            try:
                data = datasets.load_dataset(source.repo, config, split=hub, revision=source.revision)
            except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
                raise InputError(f"{config}, {hub}: cannot be fetched: {_reason(error)}; {_remedy(task)}") from error
            if missing := set(hub_columns.values()) - set(data.column_names):
                raise InputError(f"no column {min(missing)!r}; it has {', '.join(data.column_names)}")
            for row in data:
                values = {name: _stripped(row[column]) for name, column in hub_columns.items()}
                yield values | ({"subset": subset} if subset else {}) | {"split": split}


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _remedy(task: Task) -> str:
    return f"with a network run `layerwise data fetch`, or put {task.file} into a data folder (--data, LAYERWISE_DATA)"


def _reason(error: Exception) -> str:
    """Return the reason in one line."""
    return " ".join(str(getattr(error, "reason", None) or error or type(error).__name__).split())


def _write(rows: list[dict[str, Any]], path: Path, task: Task) -> TaskRows:
    """Write rows and read them back as the task's; only then does the file get its name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not rows:
        raise InputError(f"{task.source}: no rows; the published files may have changed")
    with atomic_file(path) as building:
        try:
            pq.write_table(pa.Table.from_pylist(rows), building)
            return read_task(task, building)
        except pa.ArrowException as error:
            raise InputError(f"{path}: cannot be written: {_reason(error)}") from error
        except InputError as error:
            raise InputError(f"{task.source}{str(error).removeprefix(str(building))}") from error
