"""Many classifiers on fixed embeddings at once: SentEval's protocol, logistic regressions that stop as SAGA does."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.classify.logistic import fit_like_saga, fit_optimum, sets_at_once
    from layerwise.classify.senteval import GRIDS, ClassResult, SentEvalProtocol, evaluate_classes, pair_features

__getattr__, __dir__, __all__ = door(__name__, __file__)
