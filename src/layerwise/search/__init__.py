"""Which layers: exact search over sets of layers, honest selection, intervals, ablations.

`LayerSearch` is for pairs and retrieval, `TransferSearch` for classification; `search_pairs` makes a report of a file.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.search.ablations import Ablation as Ablation
    from layerwise.search.ablations import by_size as by_size
    from layerwise.search.ablations import by_size_and_without as by_size_and_without
    from layerwise.search.ablations import by_training_size as by_training_size
    from layerwise.search.ablations import fixed_mixes as fixed_mixes
    from layerwise.search.ablations import random_sets as random_sets
    from layerwise.search.ablations import without_each as without_each
    from layerwise.search.choose import Choice as Choice
    from layerwise.search.layer_search import LayerSearch as LayerSearch
    from layerwise.search.layer_search import make_problems as make_problems
    from layerwise.search.metrics import as_metric as as_metric
    from layerwise.search.metrics import check_gold as check_gold
    from layerwise.search.metrics import check_seed as check_seed
    from layerwise.search.metrics import redraw_pearson as redraw_pearson
    from layerwise.search.metrics import redraw_spearman as redraw_spearman
    from layerwise.search.request import as_retrieval as as_retrieval
    from layerwise.search.request import check_request as check_request
    from layerwise.search.request import only_head as only_head
    from layerwise.search.retrieval import RetrievalMetric as RetrievalMetric
    from layerwise.search.run import SearchResult as SearchResult
    from layerwise.search.run import TextResult as TextResult
    from layerwise.search.run import ViewsOf as ViewsOf
    from layerwise.search.run import chosen_model as chosen_model
    from layerwise.search.run import encode_sides as encode_sides
    from layerwise.search.run import front_with_tests as front_with_tests
    from layerwise.search.run import model_notes as model_notes
    from layerwise.search.run import search_pairs as search_pairs
    from layerwise.search.run import search_text as search_text
    from layerwise.search.select import Gain as Gain
    from layerwise.search.select import Part as Part
    from layerwise.search.select import bootstrap_gain as bootstrap_gain
    from layerwise.search.select import random_splits as random_splits
    from layerwise.search.select import summarise as summarise
    from layerwise.search.spaces import Space as Space
    from layerwise.search.spaces import layers_of as layers_of
    from layerwise.search.table import ScoredSet as ScoredSet
    from layerwise.search.table import ScoreTable as ScoreTable
    from layerwise.search.table import check_table_path as check_table_path
    from layerwise.search.task_search import LARGE as LARGE
    from layerwise.search.task_search import ClassSearchResult as ClassSearchResult
    from layerwise.search.task_search import rows_to_search as rows_to_search
    from layerwise.search.task_search import search_classes as search_classes
    from layerwise.search.transfer import TransferSearch as TransferSearch
    from layerwise.search.transfer import fixed_accuracies as fixed_accuracies
    from layerwise.search.transfer import training_size_ablation as training_size_ablation
    from layerwise.search.transfer_protocol import TransferProtocol as TransferProtocol
    from layerwise.search.transfer_protocol import TransferReport as TransferReport
    from layerwise.search.transfer_protocol import draw_splits as draw_splits
    from layerwise.search.unlabelled import dropout_passes as dropout_passes

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "Ablation": ".ablations",
        "Choice": ".choose",
        "ClassSearchResult": ".task_search",
        "Gain": ".select",
        "LARGE": ".task_search",
        "LayerSearch": ".layer_search",
        "Part": ".select",
        "RetrievalMetric": ".retrieval",
        "ScoreTable": ".table",
        "ScoredSet": ".table",
        "SearchResult": ".run",
        "Space": ".spaces",
        "TextResult": ".run",
        "TransferProtocol": ".transfer_protocol",
        "TransferReport": ".transfer_protocol",
        "TransferSearch": ".transfer",
        "ViewsOf": ".run",
        "as_metric": ".metrics",
        "as_retrieval": ".request",
        "bootstrap_gain": ".select",
        "by_size": ".ablations",
        "by_size_and_without": ".ablations",
        "by_training_size": ".ablations",
        "check_gold": ".metrics",
        "check_request": ".request",
        "check_seed": ".metrics",
        "check_table_path": ".table",
        "chosen_model": ".run",
        "draw_splits": ".transfer_protocol",
        "dropout_passes": ".unlabelled",
        "encode_sides": ".run",
        "fixed_accuracies": ".transfer",
        "fixed_mixes": ".ablations",
        "front_with_tests": ".run",
        "layers_of": ".spaces",
        "make_problems": ".layer_search",
        "model_notes": ".run",
        "only_head": ".request",
        "random_sets": ".ablations",
        "random_splits": ".select",
        "redraw_pearson": ".metrics",
        "redraw_spearman": ".metrics",
        "rows_to_search": ".task_search",
        "search_classes": ".task_search",
        "search_pairs": ".run",
        "search_text": ".run",
        "summarise": ".select",
        "training_size_ablation": ".transfer",
        "without_each": ".ablations",
    },
)
