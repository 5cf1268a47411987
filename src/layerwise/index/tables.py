"""Writes a result table with the carried columns: Parquet, CSV, TSV or JSONL by the file's suffix."""

import csv
import json
from pathlib import Path
from typing import Any

from layerwise.embed import VectorFiles
from layerwise.errors import InputError
from layerwise.files import atomic_file, check_writable, plain_json
from layerwise.stores import Place

_ENDINGS = (".parquet", ".csv", ".tsv", ".jsonl")


def check_table(out: Place, *, overwrite: bool) -> None:
    """Raise early for a file that cannot be written or would be replaced."""
    if out.suffix.lower() not in _ENDINGS:
        raise InputError(f"{out}: its ending names no format; give a name ending in {', '.join(_ENDINGS)}")
    check_writable(out)
    if out.expanduser().exists() and not overwrite:
        raise InputError(f"{out}: exists already; give another name, or --overwrite")


def write_table(files: VectorFiles, columns: dict[str, Any], out: Place) -> None:
    """Write a row per vector: its number, these columns (arrays in the order of the vectors), carried columns."""
    with atomic_file(out) as building:
        if out.suffix.lower() == ".parquet":
            _write_parquet(files, columns, building)
        else:
            _write_text(files, columns, building, out.suffix.lower())


def _tables(files: VectorFiles, columns: dict[str, Any]) -> Any:
    import pyarrow as pa

    for batch in files.batches():
        end = batch.start + len(batch.vectors)
        carried = {} if batch.table is None else {name: batch.table.column(name) for name in batch.table.column_names}
        added = {name: pa.array(values[batch.start : end]) for name, values in columns.items()}
        yield pa.table({"row": carried.pop("row", pa.array(range(batch.start, end)))} | added | carried)


def _write_parquet(files: VectorFiles, columns: dict[str, Any], building: Path) -> None:
    import pyarrow.parquet as pq

    writer = None
    for table in _tables(files, columns):
        writer = writer or pq.ParquetWriter(building, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _write_text(files: VectorFiles, columns: dict[str, Any], building: Path, ending: str) -> None:
    with building.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter="\t" if ending == ".tsv" else ",", lineterminator="\n")
        for number, table in enumerate(_tables(files, columns)):
            if ending != ".jsonl" and not number:
                rows.writerow(table.column_names)
            for record in table.to_pylist():
                if ending == ".jsonl":
                    file.write(json.dumps(plain_json(record), ensure_ascii=False, default=str) + "\n")
                else:
                    rows.writerow(record.values())
