"""An embedding job, and the chunks of its input, one per output shard."""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from layerwise.data import STDIN, Row, RowSource, text_of
from layerwise.digests import json_digest, text_digest
from layerwise.embed.bad_rows import BadRow
from layerwise.errors import InputError
from layerwise.model import LayerModel
from layerwise.registry import check_known
from layerwise.stores import Place, place_of, without_secrets

EMPTY_CHOICES = ("error", "skip", "keep")
FORMAT_CHOICES = ("parquet", "npy")
RECORDED_OPTIONS = ("dtype", "max_length", "backend", "precision", "revision")  # of `LayerModel.load`
_FILE_ENDING = re.compile(r"\.(?!v\d)[a-z][a-z0-9]{1,10}", re.IGNORECASE)  # not run.v2, nor run.2


@dataclass(frozen=True)
class ModelChoice:
    """The arguments of `LayerModel.load`, in this process or in others."""

    name: str
    mix: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def load(self, device: str | None = None) -> LayerModel:
        """Load the model, on `device` if given."""
        options = self.options if device is None else self.options | {"device": device}
        return LayerModel.load(self.name, mix=self.mix, **options)

    def record(self) -> dict[str, Any]:
        """Return the entries for the manifest, so that queries use the same model; remote code is never recorded."""
        name = str(Path(self.name).expanduser().absolute()) if Path(self.name).expanduser().is_dir() else self.name
        options = {key: self.options.get(key) for key in RECORDED_OPTIONS}
        return {"name": name, "mix": self.mix} | {key: value for key, value in options.items() if value is not None}


@dataclass(frozen=True)
class EmbedJob:
    """What to embed and how. The source's first column is the text, the others are carried along.

    `empty` determines the handling of rows without text: "error", "skip" (left out; the column `row` keeps the
    numbers of the others), or "keep" (embedded as the model's special tokens alone). Without `prompt` and
    `prompt_name`, the model's default prompt is used, as in `encode`. With `set_aside`, rows that
    cannot be embedded are left out and reported instead of stopping the run.
    """

    source: RowSource
    format: str = "parquet"
    shard_rows: int = 8192
    empty: str = "error"
    normalize: bool = False
    truncate_dim: int | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    number_type: str = "float32"
    set_aside: bool = False

    def __post_init__(self) -> None:
        check_known(self.format, FORMAT_CHOICES, "output format")
        check_known(self.empty, EMPTY_CHOICES, "choice for empty rows")
        check_known(self.number_type, ("float32", "float16"), "number type")
        if self.shard_rows < 1:
            raise InputError(f"shard_rows must be 1 or more, not {self.shard_rows}")
        for name in self.source.columns[1:]:
            if name in ("row", "embedding"):
                raise InputError(
                    f"column {name!r} cannot be carried along: the output has a column of that name; rename it"
                )
        if self.format == "npy" and len(self.source.columns) > 1:
            raise InputError("NPY files hold numbers only, so no columns can be carried along; write Parquet")
        if self.format == "npy" and self.set_aside:
            raise InputError("NPY files have no row numbers, so no bad row may be set aside; write Parquet")
        if self.format == "npy" and self.empty == "skip":
            raise InputError("NPY files have no row numbers, so no row may be skipped; write Parquet, or keep the rows")

    def settings(self, model: LayerModel) -> dict[str, Any]:
        """Return everything that determines the output besides the input; a run is resumed only with equal settings.

        A run that a bad row stopped may be resumed with `set_aside`.
        """
        settings = {key: value for key, value in asdict(self).items() if key not in ("source", "set_aside")}
        return settings | {
            "columns": list(self.source.columns),
            "mix": str(model.mix),
            "backend": model.encoder.arithmetic,
            "model": model.digest(),
        }

    def source_record(self) -> dict[str, Any]:
        """Return the entries about the input for the manifest, so that a sample of rows can be embedded again."""
        source = self.source
        place = place_of(source.path)
        is_path = isinstance(place, Path) and source.path != STDIN
        path = str(Path(str(place)).expanduser().absolute()) if is_path else without_secrets(source.path)
        digest = json_digest(path)[:16]  # distinguishes inputs of the same name, see record_paths.py
        return {"path": path, "digest": digest} | {
            key: getattr(source, key) for key in ("format", "encoding", "delimiter")
        }


@dataclass(frozen=True)
class Chunk:
    """The rows of one shard: their numbers in the input (from 0), texts, and the columns carried along.

    `lines` are the rows' line numbers in the file, for errors.
    """

    number: int
    rows: list[int]
    texts: list[str]
    carried: list[tuple[Any, ...]]
    lines: list[int]

    @property
    def fingerprint(self) -> str:
        """A digest of the rows, by which a resumed run identifies its shards."""
        return json_digest([self.rows, text_digest(self.texts), text_digest(map(repr, self.carried))])


def chunks(job: EmbedJob, on_bad: Callable[[BadRow], object] = lambda _bad: None) -> Iterator[Chunk]:
    """Read the source in chunks of `shard_rows` rows. `on_bad` is called with rows that are set aside."""
    source = replace(job.source, lenient=job.set_aside)
    chunk, first_bad = Chunk(0, [], [], [], []), None
    for index, row in enumerate(source):
        try:
            result = _read(job, row)
        except InputError as error:
            if not job.set_aside:
                raise
            first_bad = first_bad or str(error)
            on_bad(BadRow.of(source.name, index, row.place, error))
            continue
        if result is None:
            continue
        chunk.rows.append(index)
        chunk.texts.append((job.prompt or "") + result[0])
        chunk.carried.append(result[1])
        chunk.lines.append(row.place)
        if len(chunk.rows) == job.shard_rows:
            yield chunk
            chunk = Chunk(chunk.number + 1, [], [], [], [])
    if chunk.rows:
        yield chunk
    elif not chunk.number:
        why = f": every row was set aside, the first because of {first_bad}" if first_bad else ""
        raise InputError(f"{source.name}: no rows to embed{why}")


def _read(job: EmbedJob, row: Row) -> tuple[str, tuple[Any, ...]] | None:
    """Return a row's text and carried columns; None for a skipped empty row."""
    if row.error is not None:
        raise row.error
    text = _text(job, row)
    return None if text is None else (text, _carried(job, row))


def _carried(job: EmbedJob, row: Row) -> tuple[Any, ...]:
    for column, value in enumerate(row.values[1:], start=1):
        if isinstance(value, str):
            text_of(job.source, row, column)  # raises for text that cannot be written
    return row.values[1:]


def _text(job: EmbedJob, row: Row) -> str | None:
    text = text_of(job.source, row, 0)
    if text.strip() or job.empty == "keep":
        return text
    if job.empty == "skip":
        return None
    raise job.source.fail(row.place, "the text must not be empty; fill it in, or pass --empty skip or --empty keep")


def split_out(out: Place, format: str | None) -> tuple[Place, Place | None, str]:
    """Return the folder of the shards, the file to join them into (or None), and their format.

    `out` is a folder for shards, unless its ending asks for one file.
    """
    by_ending = {".parquet": "parquet", ".npy": "npy"}.get(out.suffix.lower())
    if by_ending is None and _FILE_ENDING.fullmatch(out.suffix) and not out.is_dir():
        raise InputError(
            f"{out}: only .parquet and .npy files are written; give one of these, or a folder for shards, whose name "
            f"has no ending"
        )
    if by_ending is None:
        return out, None, format or "parquet"
    if format not in (None, by_ending):
        raise InputError(f"{out}: the ending says {by_ending} but --format says {format}")
    return out.with_name(out.name + ".shards"), out, by_ending
