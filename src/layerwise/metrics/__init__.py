"""Metrics, one file a family: each is a function, and where rows can be resampled also a function of their counts.

Names are mteb's where mteb has the metric (`cosine_ap`, `v_measure`, `f1_macro`), but for two: correlations of the
cosine are `spearman` and `pearson` (mteb: `cosine_spearman`), and a cut-off follows `@` (`ndcg@10`; mteb:
`ndcg_at_10`). Names without a counterpart in mteb: `max_ap`, `separation` and `align-uniform` (of a search).
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.metrics.classes import accuracy, f1_by_class, f1_of, redraw_mean
    from layerwise.metrics.clustering import redraw_v_measure
    from layerwise.metrics.correlation import (
        EQUAL,
        average_ranks,
        correlations,
        cosine,
        is_constant,
        pearson,
        redraw_pearson,
        redraw_spearman,
        spearman,
    )
    from layerwise.metrics.numbers import Figures, Numbers, Redraw
    from layerwise.metrics.rankings import (
        average_precision,
        grades_of,
        id_places,
        ndcg,
        order_by,
        precision,
        ranked_scores,
        recall,
        reciprocal_rank,
        without_depth,
    )
    from layerwise.metrics.thresholds import redraw_average_precision, threshold_scores

__getattr__, __dir__, __all__ = door(__name__, __file__)
