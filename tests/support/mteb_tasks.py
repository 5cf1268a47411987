"""Our rows as tasks of mteb's, in memory, so that nothing is downloaded; our figures by mteb's names.

mteb is imported here, with a stand-in where pytrec-eval is missing.
"""

import math
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from layerwise.data import TaskRows

_FORMS = {  # kind -> mteb's class, its type of task and main score
    "sts": ("AbsTaskSTS", "STS", "cosine_spearman"),
    "pair-classification": ("AbsTaskPairClassification", "PairClassification", "max_ap"),
    "bitext": ("AbsTaskBitextMining", "BitextMining", "f1"),
    "clustering": ("AbsTaskClusteringLegacy", "Clustering", "v_measure"),
    "fewshot": ("AbsTaskClassification", "Classification", "accuracy"),
    "reranking": ("AbsTaskRetrieval", "Reranking", "map_at_1000"),
    "retrieval": ("AbsTaskRetrieval", "Retrieval", "ndcg_at_10"),
}
_SAMPLED = ("AbsTaskClustering", "Clustering", "v_measure")
_ROUNDED = 5  # digits that mteb leaves of NDCG, MAP, recall and precision of rankings
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan", "max")
_FIGURES = {  # kind -> our figures -> mteb's
    "sts": {"spearman": "cosine_spearman", "pearson": "cosine_pearson"},
    "pair-classification": {name: name for by in _SIMILARITIES for name in (f"{by}_ap", f"{by}_accuracy", f"{by}_f1")},
    "bitext": {"f1": "f1", "accuracy": "accuracy", "precision": "precision"},
    "clustering": {"v_measure": "v_measure"},
    "fewshot": {"accuracy": "accuracy", "f1_macro": "f1", "f1_weighted": "f1_weighted", "ap": "ap"},
    "reranking": {"map": "map_at_1000", "mrr": "mrr_at_1000", "ndcg@10": "ndcg_at_10"},
    "retrieval": {
        "ndcg@10": "ndcg_at_10",
        "map@1000": "map_at_1000",
        "mrr@10": "mrr_at_10",
        "recall@10": "recall_at_10",
        "recall@100": "recall_at_100",
        "precision@10": "precision_at_10",
    },
}
_UNKNOWN = ("date", "domains", "task_subtypes", "license", "annotations_creators", "dialect", "sample_creation")


def import_mteb() -> ModuleType:
    """mteb; a test that needs it is skipped where it is not installed.

    It imports pytrec-eval, which has no wheel for every machine and computes NDCG, MAP, recall and precision of
    rankings only. Where it is missing, trec_eval's formulas, written out below, take its place.
    """
    with pytest.MonkeyPatch.context() as patch:
        if "mteb" not in sys.modules and find_spec("pytrec_eval") is None:
            plain = ModuleType("pytrec_eval")
            plain.RelevanceEvaluator = PlainEvaluator
            patch.setitem(sys.modules, "pytrec_eval", plain)
        return pytest.importorskip("mteb")


def mteb_scores(model: Any, *tasks: Any) -> dict[str, dict[str, Any]]:
    """Each task's scores by `mteb.evaluate`, whose cache is not used."""
    results = import_mteb().evaluate(model, list(tasks), cache=None, show_progress_bar=False).task_results
    return {result.task_name: result.scores["test"][0] for result in results}


def as_mteb(kind: str, figures: Mapping[str, float]) -> dict[str, float]:
    """All our figures that mteb has, too, by mteb's names: shares instead of per cent, rounded where mteb rounds."""
    names = _FIGURES[kind] if "v_measure_sampled" not in figures else {"v_measure_sampled": "v_measure"}
    assert names.keys() - {"ap"} <= figures.keys()  # which few-shot classification has of two classes
    shares = {names[ours]: value / 100 for ours, value in figures.items() if ours in names}
    rounded = {name for name in shares if "_at_" in name and not name.startswith("mrr")}
    return {name: round(value, _ROUNDED) if name in rounded else value for name, value in shares.items()}


def mteb_task(rows: TaskRows, name: str = "") -> Any:
    """The rows as a task of mteb's; only its own test rows, and of few-shot classification the rows to learn from."""
    import_mteb()
    from mteb import abstasks
    from mteb.abstasks.task_metadata import TaskMetadata

    base, kind, score = _SAMPLED if rows.task.metric == "v_measure_sampled" else _FORMS[rows.task.kind]

    class InMemory(getattr(abstasks, base)):
        metadata = TaskMetadata(
            name=name or rows.task.name,
            description="Rows of a test",
            reference=None,
            dataset={"path": "none/none", "revision": "1"},
            type=kind,
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score=score,
            bibtex_citation=None,
            **dict.fromkeys(_UNKNOWN),
        )

        def load_data(self, **_: Any) -> None:
            self.dataset = _dataset(rows)
            self.data_loaded = True

    return InMemory()


def _dataset(rows: TaskRows) -> Mapping[str, Any]:
    """In the columns and the nesting of mteb's kind."""
    from datasets import Dataset, DatasetDict

    if rows.task.kind == "fewshot":
        _, classes = np.unique(rows.labels, return_inverse=True)
        columns = {role: {"text": np.array(rows.left)[at], "label": classes[at]} for role, at in rows.splits.items()}
        return DatasetDict({role: Dataset.from_dict(column) for role, column in columns.items()})
    tested = rows.of_role("test")
    if rows.task.kind == "clustering":
        return {"test": Dataset.from_dict(_clusters(tested))}
    if rows.task.kind in ("retrieval", "reranking"):
        return {"default": {"test": _searched(tested)}}
    columns = {"sentence1": tested.left, "sentence2": tested.right}
    if rows.task.kind == "sts":
        columns["score"] = tested.labels
    elif rows.task.kind == "pair-classification":
        columns["labels"] = [int(label) for label in tested.labels]
    return {"test": Dataset.from_dict(columns)}


def _clusters(rows: TaskRows) -> dict[str, list[Any]]:
    """A row for each text where mteb draws from them; else a row for each set of texts."""
    if rows.task.metric == "v_measure_sampled":
        return {"sentences": rows.left, "labels": rows.labels}
    sets: dict[str, tuple[list[str], list[str]]] = {}
    for subset, text, label in zip(rows.subsets or [""] * len(rows), rows.left, rows.labels, strict=True):
        texts, labels = sets.setdefault(subset, ([], []))
        texts.append(text)
        labels.append(label)
    texts_of, labels_of = zip(*sets.values(), strict=True)
    return {"sentences": list(texts_of), "labels": list(labels_of)}


def _searched(rows: TaskRows) -> dict[str, Any]:
    """Passages without ids have their texts as ids, which break ties, as ours do."""
    from datasets import Dataset

    asked, found = rows.left_ids or rows.left, rows.right_ids or rows.right
    queries = dict(zip(asked, rows.left, strict=True))
    corpus = rows.corpus or dict(zip(found, rows.right, strict=True))
    grades: dict[str, dict[str, int]] = {}
    for query, passage, grade in zip(asked, found, rows.labels, strict=True):
        grades.setdefault(query, {})[passage] = int(grade)
    by_id = ({"id": list(texts), "text": list(texts.values())} for texts in (corpus, queries))
    passages, questions = (Dataset.from_dict(columns) for columns in by_id)
    ranked = {query: list(of_query) for query, of_query in grades.items()} if rows.task.kind == "reranking" else None
    return {"corpus": passages, "queries": questions, "relevant_docs": grades, "top_ranked": ranked}


class PlainEvaluator:
    """`pytrec_eval.RelevanceEvaluator` for the figures that mteb asks of it."""

    def __init__(self, grades: Mapping[str, Mapping[str, int]], measures: set[str]) -> None:
        self.grades = grades
        self.depths = {int(depth) for measure in measures for depth in measure.split(".")[1].split(",")}

    def evaluate(self, results: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        return {query: self._figures(self.grades[query], scores) for query, scores in results.items()}

    def _figures(self, grades: Mapping[str, int], scores: Mapping[str, float]) -> dict[str, float]:
        """Passages by score, ties by the later id; a gain is a grade, and a grade above 0 is relevant."""
        ranked = sorted(scores, key=lambda passage: (scores[passage], passage), reverse=True)
        gains = [max(grades.get(passage, 0), 0) for passage in ranked]
        ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
        figures = {}
        for depth in self.depths:
            places = [place for place, gain in enumerate(gains[:depth], start=1) if gain]
            figures[f"P_{depth}"] = len(places) / depth
            figures[f"recall_{depth}"] = len(places) / len(ideal)
            figures[f"success_{depth}"] = float(bool(places))
            precisions = [count / place for count, place in enumerate(places, start=1)]
            figures[f"map_cut_{depth}"] = sum(precisions) / len(ideal)
            figures[f"ndcg_cut_{depth}"] = _discounted(gains[:depth]) / _discounted(ideal[:depth])
        return figures


def _discounted(gains: list[int]) -> float:
    return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains, start=1))
