"""Scores: tasks of every kind to figures with their stamps, and two evaluations against each other.

`evaluate(model, tasks)` scores any model that embeds; a `Protocol` says how; `compare_runs` compares row by row.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.evaluate.bridges import MtebEncoder as MtebEncoder
    from layerwise.evaluate.bridges import TaskEvaluator as TaskEvaluator
    from layerwise.evaluate.compare import Comparison as Comparison
    from layerwise.evaluate.compare import compare_runs as compare_runs
    from layerwise.evaluate.compare import gain_on_pairs as gain_on_pairs
    from layerwise.evaluate.demo import DemoScores as DemoScores
    from layerwise.evaluate.demo import score_demo_pairs as score_demo_pairs
    from layerwise.evaluate.load import SearchedSubject as SearchedSubject
    from layerwise.evaluate.load import as_subject as as_subject
    from layerwise.evaluate.load import check_layers as check_layers
    from layerwise.evaluate.load import load_subject as load_subject
    from layerwise.evaluate.protocol import PROTOCOLS as PROTOCOLS
    from layerwise.evaluate.protocol import Outcome as Outcome
    from layerwise.evaluate.protocol import Protocol as Protocol
    from layerwise.evaluate.protocol import SearchSetting as SearchSetting
    from layerwise.evaluate.protocol import over_seeds as over_seeds
    from layerwise.evaluate.results import Evaluation as Evaluation
    from layerwise.evaluate.results import Run as Run
    from layerwise.evaluate.results import TaskResult as TaskResult
    from layerwise.evaluate.results import describe as describe
    from layerwise.evaluate.results import describe_heads as describe_heads
    from layerwise.evaluate.results import leakage as leakage
    from layerwise.evaluate.results import shown as shown
    from layerwise.evaluate.results import table as table
    from layerwise.evaluate.results import to_csv as to_csv
    from layerwise.evaluate.results import to_markdown as to_markdown
    from layerwise.evaluate.retrieval import faiss_module as faiss_module
    from layerwise.evaluate.retrieval import score_retrieval as score_retrieval
    from layerwise.evaluate.retrieval import search_task as search_task
    from layerwise.evaluate.store import ResultStore as ResultStore
    from layerwise.evaluate.sts import correlations as correlations
    from layerwise.evaluate.sts import cosine as cosine
    from layerwise.evaluate.sts import flat as flat
    from layerwise.evaluate.sts import score_sts as score_sts
    from layerwise.evaluate.sts import spearman as spearman
    from layerwise.evaluate.subjects import HostSubject as HostSubject
    from layerwise.evaluate.subjects import LayerSubject as LayerSubject
    from layerwise.evaluate.subjects import Subject as Subject
    from layerwise.evaluate.subjects import Variant as Variant
    from layerwise.evaluate.subjects import layer_mixes as layer_mixes
    from layerwise.evaluate.suite import evaluate as evaluate
    from layerwise.evaluate.suite import headline as headline
    from layerwise.evaluate.suite import versions as versions

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "Comparison": ".compare",
        "DemoScores": ".demo",
        "Evaluation": ".results",
        "HostSubject": ".subjects",
        "LayerSubject": ".subjects",
        "MtebEncoder": ".bridges",
        "Outcome": ".protocol",
        "PROTOCOLS": ".protocol",
        "Protocol": ".protocol",
        "ResultStore": ".store",
        "Run": ".results",
        "SearchSetting": ".protocol",
        "SearchedSubject": ".load",
        "Subject": ".subjects",
        "TaskEvaluator": ".bridges",
        "TaskResult": ".results",
        "Variant": ".subjects",
        "as_subject": ".load",
        "check_layers": ".load",
        "compare_runs": ".compare",
        "correlations": ".sts",
        "cosine": ".sts",
        "describe": ".results",
        "describe_heads": ".results",
        "evaluate": ".suite",
        "faiss_module": ".retrieval",
        "flat": ".sts",
        "gain_on_pairs": ".compare",
        "headline": ".suite",
        "layer_mixes": ".subjects",
        "leakage": ".results",
        "load_subject": ".load",
        "over_seeds": ".protocol",
        "score_demo_pairs": ".demo",
        "score_retrieval": ".retrieval",
        "score_sts": ".sts",
        "search_task": ".retrieval",
        "shown": ".results",
        "spearman": ".sts",
        "table": ".results",
        "to_csv": ".results",
        "to_markdown": ".results",
        "versions": ".suite",
    },
)
