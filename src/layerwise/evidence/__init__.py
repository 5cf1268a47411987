"""Evidence: what a choice may be judged by, for pairs, queries, classes, clusters and several tasks alike.

The only room that draws splits and keeps their sentences apart, resamples units, makes intervals and gives verdicts.
`draw_splits` → a score on each split's reporting units → `paired_gain` → `Verdict`.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.evidence.apart import connected_groups, near_copies
    from layerwise.evidence.gain import Gain, item_scores, paired_gain, summarise
    from layerwise.evidence.resamples import Redraws, check_resamples, check_seed, row_counts
    from layerwise.evidence.simultaneous import Difference, differences_from_best, mean_of_groups, task_deviations
    from layerwise.evidence.splits import (
        FEWEST,
        Fold,
        Rows,
        Split,
        Splits,
        draw_folds,
        draw_nested_splits,
        draw_splits,
        fixed_splits,
        join_splits,
    )
    from layerwise.evidence.stability import Agreement, draw_halves, halves_agreement
    from layerwise.evidence.verdict import (
        FEW_UNITS,
        Verdict,
        few_units_warning,
        gain_in_words,
        name_mix,
        points,
    )

__getattr__, __dir__, __all__ = door(__name__, __file__)
