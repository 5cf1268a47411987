"""Search in a corpus by FAISS: what is found, how fast, in how much memory; exact, and by inverted lists (IVF)."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.data import TaskRows, relevant_passages
from layerwise.errors import InputError
from layerwise.evaluate.outcomes import Figures, Outcome
from layerwise.evaluate.pairs import Vectors

Found = NDArray[np.int64]
_TIMED = 500  # queries that are asked one by one, for the time of one
_FEWEST_PER_LIST = 39  # vectors, for a list's centre to mean something: FAISS's own limit


@dataclass(frozen=True)
class SearchSetting:
    """How the corpus is searched.

    Args:
        depth: How many passages are looked at, the 10 of MRR@10.
        lists: FAISS's nlist; fewer where the corpus is too small for them.
        probes: FAISS's nprobe: how many lists a query looks into.
        seed: Of the clustering.
    """

    depth: int = 10
    lists: int = 1024
    probes: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("depth", "lists", "probes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be 1 or more")

    def lists_of(self, corpus: int) -> int:
        """How many lists a corpus of so many vectors is cut into."""
        return min(self.lists, max(1, corpus // _FEWEST_PER_LIST))


@dataclass(frozen=True)
class SearchTask:
    """Queries and corpus as rows of the task's texts. `own` is where a query itself stands in the corpus, -1 if not."""

    texts: list[str]
    queries: NDArray[np.intp]
    corpus: NDArray[np.intp]
    relevant: list[Mapping[int, float]]
    own: NDArray[np.intp]


def search_task(rows: TaskRows) -> SearchTask:
    """Duplicates: every text that has one is a query among all texts. Else: left texts ask, right texts are found.

    Where a task has splits, only texts of its test rows ask; what is searched and what is relevant is of all rows.
    """
    texts = {text: number for number, text in enumerate(rows.texts)}
    corpus_texts = list(texts) if rows.task.duplicates else list(dict.fromkeys(rows.right))
    places = {text: place for place, text in enumerate(corpus_texts)}
    asking = _asking(rows)
    relevant = {query: own for query, own in relevant_passages(_graded(rows), places).items() if query in asking}
    if not relevant:
        raise InputError(f"task {rows.task.name!r} has no row with a label above 0; a query needs a relevant passage")
    own = [places[query] if rows.task.duplicates else -1 for query in relevant]
    return SearchTask(
        list(texts),
        np.array([texts[query] for query in relevant]),
        np.array([texts[text] for text in corpus_texts]),
        list(relevant.values()),
        np.array(own),
    )


def _graded(rows: TaskRows) -> Iterator[tuple[str, str, float]]:
    """Query, passage and grade of every row; of duplicates either one asks for the other, and none for itself."""
    grades = rows.labels or [1.0] * len(rows)
    for left, right, grade in zip(rows.left, rows.right, grades, strict=True):
        if not rows.task.duplicates:
            yield left, right, grade
        elif left != right:
            yield left, right, grade
            yield right, left, grade


def _asking(rows: TaskRows) -> set[str]:
    tested = rows.pick(rows.splits["test"])
    return {*tested.left, *(tested.right if rows.task.duplicates else ())}


def score_retrieval(
    queries: Vectors,
    corpus: Vectors,
    relevant: Sequence[Mapping[int, float]],
    *,
    own: NDArray[np.intp] | None = None,
    setting: SearchSetting | None = None,
) -> Outcome:
    """Exact and IVF search by cosine: (q, d), (c, d) and, for each query, corpus row -> grade of what is relevant.

    Figures (× 100): `mrr@10`, `recall@10`, `ndcg@10` of exact search, `ivf_…` of IVF; `…_ms` is one query's time, asked
    alone on one thread; `…_mb` is the index in memory. The row `own` of a query is left out of what it finds.
    """
    setting = setting or SearchSetting()
    if not len(queries) == len(relevant) or not len(corpus):
        raise InputError(f"{len(queries)} queries with {len(relevant)} lists of passages, {len(corpus)} in the corpus")
    places = np.full(len(queries), -1) if own is None else own
    vectors, asked = _unit(corpus), _unit(queries)
    figures: Figures = {}
    items: Vectors = np.empty(0)
    for prefix, index in (("", _exact(vectors)), ("ivf_", _inverted(vectors, setting))):
        found = _ask(index, asked, places, setting.depth)
        by_query = ranked_scores(found, relevant, setting.depth)
        figures |= {f"{prefix}{name}": 100 * float(values.mean()) for name, values in by_query.items()}
        figures[f"{prefix}ms"] = _time(index, asked, setting.depth)
        figures[f"{prefix}mb"] = _bytes(index) / 1e6
        items = items if len(items) else by_query[f"mrr@{setting.depth}"]
    lists = setting.lists_of(len(corpus))
    details = {"queries": len(queries), "corpus": len(corpus), "lists": lists, "probes": min(setting.probes, lists)}
    return Outcome(figures, items=items, details=details)


def ranked_scores(found: Found, relevant: Sequence[Mapping[int, float]], depth: int) -> dict[str, Vectors]:
    """Each query's reciprocal rank, recall and NDCG by what it found, best first; -1 is nothing. (q, depth) -> (q,)"""
    grades = np.array([[own.get(int(hit), 0.0) for hit in row] for row, own in zip(found, relevant, strict=True)])
    hits = grades > 0
    ranks = np.arange(1, found.shape[1] + 1)
    first = np.where(hits.any(1), 1 / (1 + hits.argmax(1)), 0.0)
    recall = hits.sum(1) / np.array([len(own) for own in relevant])
    discounts = 1 / np.log2(ranks + 1)
    ideal = np.array([_ideal_gain(list(own.values()), depth) for own in relevant])
    return {f"mrr@{depth}": first, f"recall@{depth}": recall, f"ndcg@{depth}": grades @ discounts / ideal}


def _ideal_gain(grades: list[float], depth: int) -> float:
    """The discounted gain of the best possible order."""
    return sum(grade / math.log2(place + 2) for place, grade in enumerate(sorted(grades, reverse=True)[:depth]))


def faiss_module() -> Any:
    """FAISS, or how to get it."""
    try:
        import faiss
    except ImportError as error:
        raise InputError("searching a corpus needs FAISS: pip install faiss-cpu") from error
    return faiss


def _unit(vectors: Vectors) -> NDArray[np.float32]:
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: NDArray[np.float32] = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return found


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
    index.cp.min_points_per_centroid = 1  # a small corpus is one list, and that is no reason for a warning
    index.train(vectors)
    index.add(vectors)
    index.nprobe = min(setting.probes, lists)
    return index


def _ask(index: Any, queries: NDArray[np.float32], own: NDArray[np.intp], depth: int) -> Found:
    """The best passages of each query without the query itself: (q, depth), -1 where there are fewer."""
    _, found = index.search(queries, depth + 1)
    itself = (found == own[:, None]) & (own[:, None] >= 0)  # -1 is nothing on both sides
    itself |= ~itself.any(1, keepdims=True) & (np.arange(depth + 1) == depth)  # else the last place is dropped
    kept: Found = found[~itself].reshape(len(found), depth)
    return kept


def _time(index: Any, queries: NDArray[np.float32], depth: int) -> float:
    """Milliseconds of one query, by one thread: the median of many."""
    faiss = faiss_module()
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        seconds = []
        for row in range(min(_TIMED, len(queries))):
            began = time.perf_counter()
            index.search(queries[row : row + 1], depth)
            seconds.append(time.perf_counter() - began)
    finally:
        faiss.omp_set_num_threads(threads)
    return 1000 * float(np.median(seconds))


def _bytes(index: Any) -> int:
    """What an index holds in memory, by what it would take on disk."""
    return int(faiss_module().serialize_index(index).nbytes)
