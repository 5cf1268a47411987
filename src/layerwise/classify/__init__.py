"""Classifiers on fixed embeddings, many at once: SentEval's protocol, and logistic regressions as SAGA stops."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.classify.logistic import fit_like_saga as fit_like_saga
    from layerwise.classify.logistic import fit_optimum as fit_optimum
    from layerwise.classify.logistic import sets_at_once as sets_at_once
    from layerwise.classify.senteval import GRIDS as GRIDS
    from layerwise.classify.senteval import ClassResult as ClassResult
    from layerwise.classify.senteval import SentEvalProtocol as SentEvalProtocol
    from layerwise.classify.senteval import evaluate_classes as evaluate_classes
    from layerwise.classify.senteval import pair_features as pair_features

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "ClassResult": ".senteval",
        "GRIDS": ".senteval",
        "SentEvalProtocol": ".senteval",
        "evaluate_classes": ".senteval",
        "fit_like_saga": ".logistic",
        "fit_optimum": ".logistic",
        "pair_features": ".senteval",
        "sets_at_once": ".logistic",
    },
)
