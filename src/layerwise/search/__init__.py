"""The search for the best layers: exact over sets of layers, with honest selection, intervals and ablations.

`LayerSearch` is for pairs and retrieval, `ViewSearch` for pairs and all views that prompts and token poolings give,
`TransferSearch` for classification; `search_pairs` and `search_views` take the rows of a task or file, `search_task` a
task of any other kind by its own metric, and `search_tasks` several tasks at once.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.search.ablations import (
        Ablation,
        by_size,
        by_size_and_without,
        by_training_size,
        fixed_mixes,
        random_sets,
        without_each,
    )
    from layerwise.search.alike import ALIKE, alike_and_unlike, alike_texts
    from layerwise.search.choose import Choice
    from layerwise.search.front import Cheaper
    from layerwise.search.joint_problem import JointProblem
    from layerwise.search.kind_problem import KindProblem
    from layerwise.search.layer_search import LayerSearch, make_problems
    from layerwise.search.metrics import as_metric, check_gold, check_seed
    from layerwise.search.prepared_task import SearchTask, is_searched_by_grams
    from layerwise.search.request import as_retrieval, check_request, only_head
    from layerwise.search.retrieval import RetrievalMetric
    from layerwise.search.run import (
        SearchResult,
        TextResult,
        ViewsOf,
        chosen_model,
        encode_sides,
        kept_model,
        model_notes,
        search_layers,
        search_pairs,
        search_text,
    )
    from layerwise.search.select import Gain, Part, bootstrap_gain, halves, random_splits, summarise
    from layerwise.search.spaces import Space, layers_of
    from layerwise.search.table import ScoredSet, ScoreTable, check_table_path
    from layerwise.search.task_search import LARGE, ClassSearchResult, rows_to_search, search_classes
    from layerwise.search.tasks import JointResult, check_weights, search_task, search_tasks
    from layerwise.search.transfer import TransferSearch, fixed_accuracies, training_size_ablation
    from layerwise.search.transfer_protocol import TransferProtocol, TransferReport, draw_splits
    from layerwise.search.unlabelled import dropout_passes
    from layerwise.search.verdict import Verdict
    from layerwise.search.view_cost import Cost, Prices, prices_of
    from layerwise.search.view_fit import FIT_ON
    from layerwise.search.view_run import ViewResult, search_views, view_poolings
    from layerwise.search.view_search import ViewSearch
    from layerwise.search.view_text import CRITERIA, Proposal, ViewTextResult, search_view_text

__getattr__, __dir__, __all__ = door(__name__, __file__)
