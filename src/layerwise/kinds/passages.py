"""Search in the passages of a task's rows by FAISS, exact and by inverted lists (IVF): quality, time and memory."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.data import TaskRows, relevant_passages
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.kinds.problem import Outcome
from layerwise.kinds.protocol import Protocol, SearchSetting
from layerwise.kinds.retrieval import Retrieval, judged
from layerwise.metrics import Figures, Numbers, ranked_scores, without_depth

Hits = NDArray[np.int64]
_TIMED = 500  # queries that are searched one by one, for the time of one


@dataclass(frozen=True, eq=False)
class PassageSearch(Retrieval):
    """Search among the right texts of all rows; of duplicates, where every text is a passage, among all texts.

    Queries and passages have roles; duplicates, whose queries are passages too, have none.
    """

    setting: SearchSetting

    @classmethod
    def of(cls, rows: TaskRows, protocol: Protocol) -> Self:
        """Build from all rows: queries are texts of test rows; the passages and the relevance are of all rows.

        Of duplicates, every text that has one is a query.
        """
        task, tested = rows.task, rows.of_role("test")
        passages = rows.texts if task.duplicates else list(dict.fromkeys(rows.right))
        places = {text: place for place, text in enumerate(passages)}
        queries = {*tested.left, *(tested.right if task.duplicates else ())}
        graded = relevant_passages(_graded(rows), places)
        relevant = judged(task, {query: of_query for query, of_query in graded.items() if query in queries})
        texts = {"": passages} if task.duplicates else {"query": list(relevant), "document": passages}
        own = np.array([places[query] for query in relevant]) if task.duplicates else np.arange(len(relevant))
        return cls(task, texts, own, list(relevant.values()), protocol.search)

    def unit_texts(self) -> list[str]:
        """The queries and their relevant passages."""
        queries, passages = next(iter(self.texts.values())), self.passages
        of_queries = [queries[place] for place in np.unique(self.queries)]
        relevant = sorted({place for graded in self.relevant for place in graded})
        return list(dict.fromkeys([*of_queries, *(passages[place] for place in relevant)]))

    @property
    def passages(self) -> list[str]:
        """The texts that are searched."""
        return self.texts["" if self.task.duplicates else "document"]

    def score(self, vectors: Mapping[str, Array]) -> Outcome:
        """MRR, recall and NDCG × 100 of exact and IVF search, and what a search takes."""
        passages = vectors["" if self.task.duplicates else "document"]
        return score_retrieval(
            (passages if self.task.duplicates else vectors["query"])[self.queries],
            passages,
            self.relevant,
            own=self.queries if self.task.duplicates else None,
            setting=self.setting,
            metric=without_depth(self.task.metric),
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


def score_retrieval(
    queries: Numbers,
    corpus: Numbers,
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
    items: Numbers = np.empty(0)
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


def _unit(vectors: Numbers) -> NDArray[np.float32]:
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
