"""Contrast between sentences: InfoNCE as in SimCSE and LayerAttPooler, NT-Xent as in SG-BERT's baselines."""

from typing import ClassVar, Literal

from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives import info_nce, nt_xent
from layerwise.train.contrastive.terms.base import TERMS, Step, Term, TermContext, TermSettings
from layerwise.train.loop.settings import Positive


@TERMS.register("info-nce")
class InfoNceSettings(TermSettings):
    """SimCSE: two dropout passes of a sentence, or pairs, or triples with a hard negative (eq. 6, 7, 8).

    Attributes:
        temperature: Cosines are divided by it.
        hard_negative_weight: Added to the logit of each anchor's hard negative; the authors' code of LayerAttPooler has
            1.0, its paper and SimCSE's have none.
        symmetric: The mean with the loss in the other direction.
    """

    reads_all_columns: ClassVar[bool] = True
    name: Literal["info-nce"] = "info-nce"
    temperature: Positive = 0.05
    hard_negative_weight: float = 0.0
    symmetric: bool = False

    def check_columns(self, columns: int) -> None:
        """A weight of hard negatives needs hard negatives."""
        if self.hard_negative_weight and columns < 3:
            raise InputError("objective 'info-nce': hard_negative_weight needs a third column of hard negatives")

    @property
    def columns(self) -> int:
        """A sentence and its positive."""
        return 2

    def build(self, context: TermContext) -> "InfoNce":  # noqa: ARG002
        """Build the term."""
        return InfoNce(self)


class InfoNce(Term):
    """InfoNCE over the first two columns, with the third as hard negatives where there is one."""

    def __init__(self, settings: InfoNceSettings) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, step: Step) -> Tensor:
        """The loss of anchors against all positives and hard negatives."""
        columns = step.embeddings
        return info_nce(
            columns[0],
            columns[1],
            columns[2] if len(columns) > 2 else None,
            temperature=self.settings.temperature,
            hard_negative_weight=self.settings.hard_negative_weight if len(columns) > 2 else 0.0,
            symmetric=self.settings.symmetric,
        )


@TERMS.register("nt-xent")
class NtXentSettings(TermSettings):
    """Each of the 2n views is an anchor (SG-BERT's "Contrastive (BT)" on pairs of back-translations)."""

    name: Literal["nt-xent"] = "nt-xent"
    temperature: Positive = 0.05

    @property
    def columns(self) -> int:
        """A sentence and its positive."""
        return 2

    def build(self, context: TermContext) -> "NtXent":  # noqa: ARG002
        """Build the term."""
        return NtXent(self.temperature)


class NtXent(Term):
    """NT-Xent over the first two columns."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, step: Step) -> Tensor:
        """The mean over all views."""
        return nt_xent(step.embeddings[0], step.embeddings[1], temperature=self.temperature)
