"""Files of pairs for the search."""

import csv
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq

from support.tiny import WORDS

PAIRS = 60


def made_up_sentences():
    """Pairs of sentences that share some of their words; all sentences differ."""
    draw = random.Random(0)
    found = {}
    while len(found) < PAIRS:
        words = draw.choices(WORDS, k=draw.randint(4, 9))
        kept = draw.randint(0, len(words) - 1)
        found[" ".join(words)] = " ".join(words[:kept] + draw.choices(WORDS, k=len(words) - kept))
    assert len({*found, *found.values()}) == 2 * PAIRS
    return list(found), list(found.values())


def write(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path
