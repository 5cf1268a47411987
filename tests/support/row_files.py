"""Rows as files of every format."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write(path: Path, rows: list[dict]) -> Path:
    """The same rows in the format of the path's ending."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path
