"""Verifies the output of `layerwise embed`: counts, checksums, every vector, and a sample of rows embedded again.

All faults are listed, each with its shard and a description.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.data import STDIN, RowSource, text_of
from layerwise.digests import file_sha256
from layerwise.embed.job import RECORDED_OPTIONS
from layerwise.embed.record_paths import is_local, resolved
from layerwise.embed.shards import MANIFEST
from layerwise.embed.vectors import VectorFiles
from layerwise.encoder import Array, Progress, no_progress
from layerwise.errors import InputError, LayerwiseError
from layerwise.files import read_json
from layerwise.model import LayerModel
from layerwise.stores import Place, StorePath, place_of

_LEAST_COSINE = {"float32": 0.9999, "float16": 0.999}  # between a vector and the same row embedded again
_LEAST_COSINE_INT8 = 0.99  # its numbers depend on the batch
_SHOWN = 5  # rows listed per fault


@dataclass(frozen=True)
class Verification:
    """The result: counts and all faults. `lowest_cosine` is that of the rows embedded again, None without any."""

    place: str
    rows: int
    shards: int
    sampled: int
    lowest_cosine: float | None
    faults: tuple[str, ...]
    notes: tuple[str, ...]


def verify_vectors(
    place: str | Path | StorePath,
    *,
    source: RowSource | None = None,
    model: str | None = None,
    sample: int = 64,
    seed: int = 0,
    device: str | None = None,
    progress: Progress = no_progress,
) -> Verification:
    """Check a folder of shards, or one file joined from them, by its path or URL.

    Args:
        place: The output of `layerwise embed`.
        source: The input's current location; by default the recorded one.
        model: The model's current location; by default the recorded one. Another model is a fault.
        sample: How many rows are embedded again.
        seed: The seed of the sample.
        device: The device to embed on.
        progress: Called with numbers of rows as they are read.
    """
    place = place_of(place).expanduser()
    manifest, parts = _manifest(place), _parts(place)
    faults = list(_file_faults(place, manifest)) if place.is_dir() else []
    random, rows, last = np.random.default_rng(seed), 0, -1
    drawn: dict[int, Array] = {}
    for part in parts:
        check = _PartCheck(part, last, manifest)
        try:
            rows += check.read(drawn, random, -(-sample // len(parts)), progress)
        except LayerwiseError as error:
            faults.append(str(error))
        faults += check.faults()
        last = check.last
    if "rows" in manifest and manifest["rows"] != rows:
        faults.append(f"{place}: has {rows:,} readable rows, its manifest says {manifest['rows']}")
    lowest, notes = None, []
    try:
        lowest = _lowest_cosine(manifest, drawn, source, model, device) if drawn else None
        minimum = _LEAST_COSINE_INT8 if "int8" in str(manifest.get("backend")) else _least(manifest)
        if lowest is not None and not lowest >= minimum:
            faults.append(f"{place}: rows embedded again differ: the lowest cosine is {lowest:.4f}, expected {minimum}")
    except _OtherModelError as error:
        faults.append(str(error))
    except LayerwiseError as error:
        notes.append(f"no row was embedded again: {error}")
    sampled = len(drawn) if lowest is not None else 0
    return Verification(str(place), rows, len(parts), sampled, lowest, tuple(faults), tuple(notes))


class _OtherModelError(LayerwiseError):
    """The model differs from that of the vectors."""


def _manifest(place: Place) -> dict[str, Any]:
    if place.is_dir():
        if not (place / MANIFEST).is_file():
            raise InputError(f"{place}: has no {MANIFEST}; give a folder that `layerwise embed` wrote")
        return resolved(read_json(place / MANIFEST, remedy="embed again"), place)
    return VectorFiles.of(place).settings


def _parts(place: Place) -> list[Place]:
    if not place.is_dir():
        return [place]
    shards = [path for path in place.glob("part-*") if path.suffix in (".parquet", ".npy")]
    return sorted(shards, key=lambda path: path.name)


def _least(manifest: Mapping[str, Any]) -> float:
    return _LEAST_COSINE.get(str(manifest.get("number_type")), _LEAST_COSINE["float16"])


def _file_faults(place: Place, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over the faults of files: missing, unexpected or changed shards, and unfinished runs."""
    if manifest.get("finished") is not True:
        yield f"{place}: its run has not ended, or was of an earlier version; run the same `layerwise embed` again"
        return
    checksums = manifest.get("checksums")
    checksums = checksums if isinstance(checksums, dict) else {}
    existing = {path.name for path in place.glob("part-*")}
    for name, expected in checksums.items():
        if name not in existing:
            yield f"{place / name}: is missing; run the same `layerwise embed` again"
        elif file_sha256(place / Path(name).name) != expected:
            yield f"{place / name}: its checksum differs; delete it and run the same `layerwise embed` again"
    for name in sorted(existing - set(checksums)):
        yield f"{place / name}: is not of this run"


class _PartCheck:
    """Checks one file's vectors and row numbers; `last` is the last row number of the previous file, then its own."""

    def __init__(self, part: Place, last: int, manifest: Mapping[str, Any]) -> None:
        self.part, self.last = part, last
        self._width = manifest.get("width")
        self._bad: dict[str, list[int]] = {}
        self._others: list[str] = []

    def read(self, drawn: dict[int, Array], random: np.random.Generator, sample: int, progress: Progress) -> int:
        """Check all vectors in batches, put a sample into `drawn` by input row, and return the number of vectors."""
        files = VectorFiles.of(self.part)
        if self._width is not None and files.width != self._width:
            self._others.append(f"{self.part}: has vectors of {files.width} numbers, the manifest says {self._width}")
            sample = 0
        chosen = random.choice(files.rows, min(sample, files.rows), replace=False)
        for batch in files.batches(check=False):
            vectors, end = batch.vectors, batch.start + len(batch.vectors)
            first = self.last + 1
            rows = np.arange(first, first + len(vectors)) if batch.table is None else np.asarray(batch.table["row"])
            good = self._check(rows, vectors)
            for place in chosen[(chosen >= batch.start) & (chosen < end)] - batch.start:
                if good[place]:
                    drawn[int(rows[place])] = vectors[place].copy()
            progress(len(vectors))
        return files.rows

    def faults(self) -> list[str]:
        """Return all faults, at most one per kind."""
        messages = []
        for what, rows in self._bad.items():
            more = " and more" if len(rows) > _SHOWN else ""
            examples = ", ".join(map(str, rows[:_SHOWN]))
            messages.append(f"{self.part}: {len(rows)} vectors hold {what}: input rows {examples}{more}")
        return self._others + messages

    def _check(self, rows: NDArray[np.int64], vectors: Array) -> NDArray[np.bool_]:
        if rows[0] <= self.last or (np.diff(rows) <= 0).any():
            fault = f"{self.part}: its row numbers do not rise, or were there before"
            self._others += [] if fault in self._others else [fault]
        self.last = int(rows[-1])
        finite = np.isfinite(vectors).all(axis=1)
        zero = (vectors == 0).all(axis=1)
        constant = ~zero & finite & (vectors == vectors[:, :1]).all(axis=1) & (vectors.shape[1] > 1)
        for bad, what in ((~finite, "NaN or infinity"), (zero, "zeros alone"), (constant, "one number over and over")):
            if bad.any():
                self._bad.setdefault(what, []).extend(rows[bad].tolist())
        good: NDArray[np.bool_] = finite & ~zero
        return good


def _lowest_cosine(
    manifest: Mapping[str, Any], drawn: Mapping[int, Array], source: RowSource | None, name: str | None, device: Any
) -> float:
    """Embed the sampled rows again and compare."""
    source = source or _recorded_source(manifest)
    texts = {}
    for number, row in enumerate(replace(source, lenient=True)):  # rows that were set aside have numbers too
        if number in drawn:
            texts[number] = str(manifest.get("prompt") or "") + text_of(source, row, 0)
    missing = sorted(set(drawn) - set(texts))
    if missing:
        raise InputError(f"{source.name}: has no row {missing[0]}; give the input that was embedded")
    model = _recorded_model(manifest, name, device)
    windows = [[texts[number] for number in sorted(drawn)]]
    current = next(
        iter(
            model.stream(windows, normalize=bool(manifest.get("normalize")), truncate_dim=manifest.get("truncate_dim"))
        )
    )
    stored = np.stack([drawn[number] for number in sorted(drawn)])
    if current.shape != stored.shape:
        raise _OtherModelError(f"rows embedded again have {current.shape[1]} numbers, not {stored.shape[1]}")
    lengths = np.linalg.norm(current, axis=1) * np.linalg.norm(stored, axis=1)
    ratio = np.linalg.norm(stored, axis=1) / np.maximum(np.linalg.norm(current, axis=1), 1e-12)
    cosines = (current * stored).sum(axis=1) / np.maximum(lengths, 1e-12)
    return float((cosines * np.minimum(ratio, 1 / np.maximum(ratio, 1e-12))).min())  # differences in length count too


def _recorded_source(manifest: Mapping[str, Any]) -> RowSource:
    record, columns = manifest.get("source"), manifest.get("columns")
    if not isinstance(record, Mapping) or not isinstance(columns, list) or not columns:
        raise InputError("no manifest says what was embedded; give INPUT")
    if record.get("path") == STDIN:
        raise InputError("the input was standard input; give it as INPUT")
    path = str(record.get("path"))
    if not place_of(path).exists():
        raise InputError(f"the input {place_of(path).name!r} is not where it was; give INPUT")
    options = {key: str(record[key]) for key in ("format", "encoding") if key in record}
    if options.get("format") == "parquet":
        options.pop("encoding", None)
    if options.get("format") in ("csv", "tsv"):
        options["delimiter"] = str(record.get("delimiter", ","))
    return RowSource.of(path, (str(columns[0]),), **options)


def _recorded_model(manifest: Mapping[str, Any], name: str | None, device: Any) -> LayerModel:
    record = manifest.get("loading")
    record = record if isinstance(record, Mapping) else {}
    name = name or record.get("name")
    if not isinstance(name, str):
        raise InputError("no manifest says which model made the vectors; give MODEL")
    if is_local(name) and not Path(name).exists():
        raise InputError(f"the model {Path(name).name!r} is not where it was; give MODEL")
    options = {key: record[key] for key in RECORDED_OPTIONS if record.get(key) is not None}
    model = LayerModel.load(name, mix=record.get("mix"), device=device, **options)
    if "model" in manifest and model.digest(manifest.get("backend")) != manifest["model"]:
        raise _OtherModelError(f"the vectors were made by another model than {name}")
    return model
