"""Checking what `layerwise embed` wrote: counts, checksums, every vector, and a sample of rows embedded again.

Nothing stops at the first fault: all of them are listed, each with the shard and what is wrong.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from layerwise.data import STDIN, RowSource, text_of
from layerwise.digests import file_sha256
from layerwise.embed.job import RECORDED_OPTIONS
from layerwise.embed.shards import MANIFEST
from layerwise.embed.vectors import VectorFiles
from layerwise.encoder import Array, Progress, no_progress
from layerwise.errors import InputError, LayerwiseError
from layerwise.files import read_json
from layerwise.model import LayerModel

_LEAST_COSINE = {"float32": 0.9999, "float16": 0.999}  # of a vector and the same row embedded again
_LEAST_COSINE_INT8 = 0.99  # its numbers depend on the batch
_NAMED = 5  # rows of a fault


@dataclass(frozen=True)
class Verification:
    """What was checked, and every fault. `lowest_cosine` is that of the rows embedded again, None without any."""

    folder: str
    rows: int
    shards: int
    sampled: int
    lowest_cosine: float | None
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def verify_folder(
    folder: str | Path,
    *,
    source: RowSource | None = None,
    model: str | None = None,
    sample: int = 64,
    seed: int = 0,
    device: str | None = None,
    progress: Progress = no_progress,
) -> Verification:
    """Check a folder of shards.

    Args:
        folder: What `layerwise embed` wrote.
        source: Where its input is now; without, where it was.
        model: Where its model is now; without, where it was. Another model is a fault.
        sample: How many rows are embedded again.
        seed: Of the rows that are drawn.
        device: That they are embedded on.
        progress: Called with numbers of rows as they are read.
    """
    place = Path(folder).expanduser()
    if not (place / MANIFEST).is_file():
        raise InputError(f"{place}: has no {MANIFEST}; give a folder that `layerwise embed` wrote")
    manifest = read_json(place / MANIFEST, remedy="embed again")
    faults = list(_file_faults(place, manifest))
    parts = sorted(path for path in place.glob("part-*") if path.suffix in (".parquet", ".npy"))
    random, rows, last = np.random.default_rng(seed), 0, -1
    drawn: dict[int, Array] = {}
    for part in parts:
        try:
            found, last = _part_faults(part, last, manifest, drawn, random, -(-sample // len(parts)))
            rows += len(found.vectors)
            faults += found.faults
            progress(len(found.vectors))
        except LayerwiseError as error:
            faults.append(str(error))
    if "rows" in manifest and manifest["rows"] != rows:
        faults.append(f"{place}: has {rows:,} readable rows, its manifest says {manifest['rows']}")
    lowest, notes = None, []
    try:
        lowest = _lowest_cosine(manifest, drawn, source, model, device) if drawn else None
        least = _LEAST_COSINE_INT8 if "int8" in str(manifest.get("backend")) else _least(manifest)
        if lowest is not None and not lowest >= least:
            faults.append(f"{place}: rows embedded again differ: the lowest cosine is {lowest:.4f}, expected {least}")
    except _OtherModelError as error:
        faults.append(str(error))
    except LayerwiseError as error:
        notes.append(f"no row was embedded again: {error}")
    sampled = len(drawn) if lowest is not None else 0
    return Verification(str(folder), rows, len(parts), sampled, lowest, tuple(faults), tuple(notes))


class _OtherModelError(LayerwiseError):
    """The model is another one than that of the vectors."""


@dataclass(frozen=True)
class _Part:
    vectors: Array
    faults: list[str]


def _least(manifest: Mapping[str, Any]) -> float:
    return _LEAST_COSINE.get(str(manifest.get("number_type")), _LEAST_COSINE["float16"])


def _file_faults(place: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Shards that are missing, too many or changed, and runs that have not ended."""
    if manifest.get("finished") is not True:
        yield f"{place}: its run has not ended, or was of an earlier version; run the same `layerwise embed` again"
        return
    checksums = manifest.get("checksums")
    checksums = checksums if isinstance(checksums, dict) else {}
    here = {path.name for path in place.glob("part-*")}
    for name, expected in checksums.items():
        if name not in here:
            yield f"{place / name}: is missing; run the same `layerwise embed` again"
        elif file_sha256(place / Path(name).name) != expected:
            yield f"{place / name}: its checksum differs; delete it and run the same `layerwise embed` again"
    for name in sorted(here - set(checksums)):
        yield f"{place / name}: is not of this run"


def _part_faults(
    part: Path, last: int, manifest: Mapping[str, Any], drawn: dict[int, Array], random: Any, sample: int
) -> tuple[_Part, int]:
    """The faults of a shard's vectors and row numbers; some rows are put into `drawn`, by their number in the input."""
    files = VectorFiles.of(part)
    vectors, table = files.read(check=False)
    start = last + 1
    rows = np.asarray(table.column("row")) if table is not None else np.arange(start, start + len(vectors))
    faults = []
    if len(rows) and (rows[0] <= last or (np.diff(rows) <= 0).any()):
        faults.append(f"{part}: its row numbers do not rise, or were there before")
    width = manifest.get("width")
    if width is not None and files.width != width:
        faults.append(f"{part}: has vectors of {files.width} numbers, the manifest says {width}")
    finite = np.isfinite(vectors).all(axis=1)
    zero = (vectors == 0).all(axis=1)
    constant = ~zero & finite & (vectors == vectors[:, :1]).all(axis=1) & (files.width > 1)
    for bad, what in ((~finite, "NaN or infinity"), (zero, "zeros alone"), (constant, "one number over and over")):
        if bad.any():
            named = ", ".join(map(str, rows[bad][:_NAMED]))
            more = " and more" if bad.sum() > _NAMED else ""
            faults.append(f"{part}: {bad.sum()} vectors hold {what}: input rows {named}{more}")
    good = np.flatnonzero(finite & ~zero)
    for place in random.choice(good, min(sample, len(good)), replace=False):
        drawn[int(rows[place])] = vectors[place]
    return _Part(vectors, faults), int(rows[-1]) if len(rows) else last


def _lowest_cosine(
    manifest: Mapping[str, Any], drawn: Mapping[int, Array], source: RowSource | None, name: str | None, device: Any
) -> float:
    """Embed the drawn rows again, and compare."""
    source = source or _recorded_source(manifest)
    texts = {}
    for number, row in enumerate(source):
        if number in drawn:
            texts[number] = str(manifest.get("prompt") or "") + text_of(source, row, 0)
    gone = sorted(set(drawn) - set(texts))
    if gone:
        raise InputError(f"{source.name}: has no row {gone[0]}; give the input that was embedded")
    model = _recorded_model(manifest, name, device)
    windows = [[texts[number] for number in sorted(drawn)]]
    again = next(
        iter(
            model.stream(windows, normalize=bool(manifest.get("normalize")), truncate_dim=manifest.get("truncate_dim"))
        )
    )
    before = np.stack([drawn[number] for number in sorted(drawn)])
    if again.shape != before.shape:
        raise _OtherModelError(f"rows embedded again have {again.shape[1]} numbers, not {before.shape[1]}")
    lengths = np.linalg.norm(again, axis=1) * np.linalg.norm(before, axis=1)
    ratio = np.linalg.norm(before, axis=1) / np.maximum(np.linalg.norm(again, axis=1), 1e-12)
    cosines = (again * before).sum(axis=1) / np.maximum(lengths, 1e-12)
    return float((cosines * np.minimum(ratio, 1 / np.maximum(ratio, 1e-12))).min())  # another length counts too


def _recorded_source(manifest: Mapping[str, Any]) -> RowSource:
    record, columns = manifest.get("source"), manifest.get("columns")
    if not isinstance(record, Mapping) or not isinstance(columns, list) or not columns:
        raise InputError("the manifest does not say what was embedded; give INPUT")
    if record.get("path") == STDIN:
        raise InputError("the input was standard input; give it as INPUT")
    options = {key: str(record[key]) for key in ("format", "encoding") if key in record}
    if options.get("format") == "parquet":
        options.pop("encoding", None)
    if options.get("format") in ("csv", "tsv"):
        options["delimiter"] = str(record.get("delimiter", ","))
    return RowSource.of(str(record.get("path")), (str(columns[0]),), **options)


def _recorded_model(manifest: Mapping[str, Any], name: str | None, device: Any) -> LayerModel:
    record = manifest.get("loading")
    record = record if isinstance(record, Mapping) else {}
    name = name or record.get("name")
    if not isinstance(name, str):
        raise InputError("the manifest does not say which model made the vectors; give MODEL")
    options = {key: record[key] for key in RECORDED_OPTIONS if record.get(key) is not None}
    model = LayerModel.load(name, mix=record.get("mix"), device=device, **options)
    if model.digest(manifest.get("backend")) != manifest.get("model"):
        raise _OtherModelError(f"the vectors were made by another model than {name}")
    return model
