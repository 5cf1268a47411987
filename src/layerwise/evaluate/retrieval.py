"""Search in a corpus by FAISS, exact and by inverted lists (IVF): quality, time and memory."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.data import TaskRows, relevant_passages
from layerwise.errors import InputError
from layerwise.evaluate.protocol import SearchSetting
from layerwise.evaluate.sts import Vectors
from layerwise.extras import require
from layerwise.kinds import Figures, Outcome, ranked_scores

Hits = NDArray[np.int64]
_TIMED = 500  # queries that are searched one by one, for the time of one


@dataclass(frozen=True)
class SearchTask:
    """Queries and corpus as positions among `texts`; `own` is a query's position in the corpus, -1 if it has none."""

    texts: list[str]
    queries: NDArray[np.intp]
    corpus: NDArray[np.intp]
    relevant: list[Mapping[int, float]]
    own: NDArray[np.intp]


def search_task(rows: TaskRows) -> SearchTask:
    """Return the queries, the corpus and the relevant passages of a retrieval task.

    Of duplicates, every text that has one is a query among all texts; otherwise left texts are queries and right texts
    the corpus. Where a task has splits, queries are texts of its test rows; the corpus and the relevance are of all.
    """
    texts = {text: number for number, text in enumerate(rows.texts)}
    corpus_texts = list(texts) if rows.task.duplicates else list(dict.fromkeys(rows.right))
    positions = {text: position for position, text in enumerate(corpus_texts)}
    queries = _queries(rows)
    graded = relevant_passages(_graded(rows), positions)
    relevant = {query: passages for query, passages in graded.items() if query in queries}
    if not relevant:
        raise InputError(f"task {rows.task.name!r} has no row with a label above 0; a query needs a relevant passage")
    own_positions = [positions[query] if rows.task.duplicates else -1 for query in relevant]
    return SearchTask(
        list(texts),
        np.array([texts[query] for query in relevant]),
        np.array([texts[text] for text in corpus_texts]),
        list(relevant.values()),
        np.array(own_positions),
    )


def _graded(rows: TaskRows) -> Iterator[tuple[str, str, float]]:
    """Query, passage and grade of every row; of duplicates each is a query for the other, and none for itself."""
    grades = rows.labels or [1.0] * len(rows)
    for left, right, grade in zip(rows.left, rows.right, grades, strict=True):
        if not rows.task.duplicates:
            yield left, right, grade
        elif left != right:
            yield left, right, grade
            yield right, left, grade


def _queries(rows: TaskRows) -> set[str]:
    tested = rows.of_role("test")
    return {*tested.left, *(tested.right if rows.task.duplicates else ())}


def score_retrieval(
    queries: Vectors,
    corpus: Vectors,
    relevant: Sequence[Mapping[int, float]],
    *,
    own: NDArray[np.intp] | None = None,
    setting: SearchSetting | None = None,
    metric: str = "mrr",
) -> Outcome:
    """Exact and IVF search by cosine: (q, d), (c, d) and, for each query, corpus row -> grade of what is relevant.

    Figures (× 100): `mrr@10`, `recall@10`, `ndcg@10` of exact search, `ivf_…` of IVF; `…_ms` is the time of one query
    alone on one thread; `…_mb` is the size of the index. A query's `own` position is left out of its hits. Items are
    the queries' values of `metric`: "mrr", "recall" or "ndcg".
    """
    setting = setting or SearchSetting()
    if not len(queries) == len(relevant) or not len(corpus):
        raise InputError(f"{len(queries)} queries with {len(relevant)} lists of passages, {len(corpus)} in the corpus")
    places = np.full(len(queries), -1) if own is None else own
    vectors, units = _unit(corpus), _unit(queries)
    figures: Figures = {}
    items: Vectors = np.empty(0)
    for prefix, index in (("", _exact(vectors)), ("ivf_", _inverted(vectors, setting))):
        hits = _search(index, units, places, setting.depth)
        by_query = ranked_scores(hits, relevant, setting.depth)
        figures |= {f"{prefix}{name}": 100 * float(values.mean()) for name, values in by_query.items()}
        figures[f"{prefix}ms"] = _time(index, units, setting.depth)
        figures[f"{prefix}mb"] = _bytes(index) / 1e6
        items = items if len(items) else by_query[f"{metric}@{setting.depth}"]
    lists = setting.lists_of(len(corpus))
    details = {"queries": len(queries), "corpus": len(corpus), "lists": lists, "probes": min(setting.probes, lists)}
    return Outcome(figures, items=items, details=details)


def faiss_module() -> Any:
    """Import FAISS, an optional dependency."""
    require("evaluate", "searching a corpus", "faiss")
    import faiss

    return faiss


def _unit(vectors: Vectors) -> NDArray[np.float32]:
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: NDArray[np.float32] = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return units


def _exact(vectors: NDArray[np.float32]) -> Any:
    index = faiss_module().IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


def _inverted(vectors: NDArray[np.float32], setting: SearchSetting) -> Any:
    faiss = faiss_module()
    lists = setting.lists_of(len(vectors))
    coarse = faiss.IndexFlatIP(vectors.shape[1])
    index = faiss.IndexIVFFlat(coarse, vectors.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = setting.seed
    index.cp.min_points_per_centroid = 1  # no warning for a small corpus with one list
    index.train(vectors)
    index.add(vectors)
    index.nprobe = min(setting.probes, lists)
    return index


def _search(index: Any, queries: NDArray[np.float32], own: NDArray[np.intp], depth: int) -> Hits:
    """Search the best passages of each query except the query itself: (q, depth), padded with -1."""
    _, hits = index.search(queries, depth + 1)
    is_query = (hits == own[:, None]) & (own[:, None] >= 0)  # -1 means none on both sides
    is_query |= ~is_query.any(1, keepdims=True) & (np.arange(depth + 1) == depth)  # otherwise drop the last hit
    passages: Hits = hits[~is_query].reshape(len(hits), depth)
    return passages


def _time(index: Any, queries: NDArray[np.float32], depth: int) -> float:
    """Measure the median time of a query on one thread, in milliseconds."""
    faiss = faiss_module()
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        seconds = []
        for row in range(min(_TIMED, len(queries))):
            start = time.perf_counter()
            index.search(queries[row : row + 1], depth)
            seconds.append(time.perf_counter() - start)
    finally:
        faiss.omp_set_num_threads(threads)
    return 1000 * float(np.median(seconds))


def _bytes(index: Any) -> int:
    """Return the size of an index in bytes, as serialised."""
    return int(faiss_module().serialize_index(index).nbytes)
