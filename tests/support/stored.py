"""A small job of embedding, from and to paths or URLs, and what it has written."""

import random
from pathlib import Path

from layerwise.data import RowSource
from layerwise.embed import EmbedJob, EmbedResult, ModelChoice, run_embed
from layerwise.stores import place_of
from support.tiny import WORDS

TEXTS = [" ".join(random.Random(i).choices(WORDS, k=1 + i % 13)) for i in range(23)]
ROWS = "id,text\n" + "".join(f"r{number},{text}\n" for number, text in enumerate(TEXTS))


def embed(model: Path, source: str | Path, out: str | Path, *, run=None, columns: int = 2, **options) -> EmbedResult:
    """Embed rows in shards of five; `run` holds the options of `run_embed`, `options` those of the job."""
    job = EmbedJob(RowSource.of(str(source), ("text", "id")[:columns]), shard_rows=5, **options)
    return run_embed(job, ModelChoice(str(model), options={"device": "cpu"}), out, **run or {})


def objects(url: str) -> dict[str, bytes]:
    """The objects directly below a URL."""
    return {path.name: path.open().read() for path in place_of(url).iterdir() if path.size is not None}


def shards(url: str | Path) -> dict[str, bytes]:
    """The shards of a folder or below a URL."""
    return {path.name: path.open("rb").read() for path in place_of(url).glob("part-*")}
