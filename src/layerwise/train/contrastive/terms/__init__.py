"""The terms of a contrastive loss, by name: their settings in a recipe, and the modules that these build.

Importing this package registers them all: a new file needs its import here.
"""

from layerwise.train.contrastive.terms.base import (
    TERMS,
    FrozenSettings,
    LocalRows,
    Step,
    Term,
    TermContext,
    TermSettings,
    View,
)
from layerwise.train.contrastive.terms.contrast import InfoNceSettings, NtXentSettings
from layerwise.train.contrastive.terms.exits import ExitsSettings
from layerwise.train.contrastive.terms.guided import SelfGuidedSettings
from layerwise.train.contrastive.terms.layers import SelfContrastiveSettings
from layerwise.train.contrastive.terms.teacher import DistilSettings, RankingSettings
from layerwise.train.contrastive.terms.tokens import DiffCseSettings, MaskedLanguageSettings
from layerwise.train.contrastive.terms.whitening import WhiteningSettings

__all__ = [
    "TERMS",
    "DiffCseSettings",
    "DistilSettings",
    "ExitsSettings",
    "FrozenSettings",
    "InfoNceSettings",
    "LocalRows",
    "MaskedLanguageSettings",
    "NtXentSettings",
    "RankingSettings",
    "SelfContrastiveSettings",
    "SelfGuidedSettings",
    "Step",
    "Term",
    "TermContext",
    "TermSettings",
    "View",
    "WhiteningSettings",
]
