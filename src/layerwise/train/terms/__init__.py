"""The terms of a training loss, by name: settings that a recipe can write, and the modules that they build."""

from layerwise.train.terms.base import TERMS, FrozenSettings, OwnRows, Place, Step, Term, TermSettings, View
from layerwise.train.terms.contrast import InfoNceSettings, NtXentSettings
from layerwise.train.terms.guided import SelfGuidedSettings
from layerwise.train.terms.layers import SelfContrastiveSettings
from layerwise.train.terms.tokens import DiffCseSettings, MaskedLanguageSettings

__all__ = [
    "TERMS",
    "DiffCseSettings",
    "FrozenSettings",
    "InfoNceSettings",
    "MaskedLanguageSettings",
    "NtXentSettings",
    "OwnRows",
    "Place",
    "SelfContrastiveSettings",
    "SelfGuidedSettings",
    "Step",
    "Term",
    "TermSettings",
    "View",
]
