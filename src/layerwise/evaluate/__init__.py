"""Evaluation: scores models on tasks, records how each score was made, and compares evaluations.

`evaluate(model, tasks)` scores any model that embeds; a `Protocol` says how; `compare_runs` compares two row by row;
`rank_runs` tells which of many are tied with the best.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.evaluate.bridges import MtebEncoder, TaskEvaluator
    from layerwise.evaluate.compare import NO_ROWS, Comparison, compare_runs, gain_on_pairs
    from layerwise.evaluate.demo import DEMO_POOLINGS, DemoFacts, DemoScores, score_demo_pairs, search_demo_views
    from layerwise.evaluate.load import SearchedSubject, as_subject, check_layers, load_subject
    from layerwise.evaluate.matrix import Matrix, tables, to_markdown
    from layerwise.evaluate.mteb_results import load_evaluation, read_mteb_folder
    from layerwise.evaluate.ranking import Ranked, Ranking, rank_runs
    from layerwise.evaluate.remembered import Memory
    from layerwise.evaluate.results import (
        Evaluation,
        Run,
        TaskResult,
        describe,
        describe_heads,
        leakage,
        shown,
        table,
        to_csv,
    )
    from layerwise.evaluate.store import ResultStore
    from layerwise.evaluate.subject import Subject, Variant
    from layerwise.evaluate.subjects import HostSubject, LayerSubject, layer_mixes
    from layerwise.evaluate.suite import evaluate, versions
    from layerwise.kinds.problem import Outcome, over_seeds
    from layerwise.kinds.protocol import PROTOCOLS, Protocol

__getattr__, __dir__, __all__ = door(__name__, __file__)
