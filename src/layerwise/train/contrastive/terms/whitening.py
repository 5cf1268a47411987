"""WhitenedCSE: the vectors of a batch, whitened in shuffled groups of dimensions, are additional positives."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives import gather_rows, whitened_contrast
from layerwise.train.contrastive.terms.base import TERMS, Step, Term, TermContext, TermSettings
from layerwise.train.loop.settings import Positive


@TERMS.register("whitening")
class WhiteningSettings(TermSettings):
    """WhitenedCSE's shuffled group whitening of the embeddings, beside another objective.

    The authors' code whitens before its training head and has no other loss; here the embeddings are whitened, after
    the head where there is one.

    Attributes:
        temperature: Cosines are divided by it.
        size: Dimensions of a group: 6 in the authors' code, 128 groups of BERT-base.
        positives: How many shuffles of the second pass are positives, as in the authors' code 2.
        ridge: This share of a group's mean variance is added to its variances, so that few rows can be whitened.
    """

    name: Literal["whitening"] = "whitening"
    temperature: Positive = 0.05
    size: Annotated[int, Field(ge=1)] = 6
    positives: Annotated[int, Field(ge=1)] = 2
    ridge: Positive = 1e-3

    @property
    def columns(self) -> int:
        """Two passes, or a pair."""
        return 2

    def build(self, context: TermContext) -> "Whitening":
        """Build the term; raise for groups wider than the embeddings."""
        if self.size > context.width:
            raise InputError(
                f"objective 'whitening': groups of {self.size} dimensions, but embeddings have {context.width}"
            )
        return Whitening(self)


class Whitening(Term):
    """InfoNCE between whitened vectors of the first two columns, with new shuffles at every step."""

    def __init__(self, settings: WhiteningSettings) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, step: Step) -> Tensor:
        """Compute the mean over shuffles and sentences."""
        settings, (anchors, positives) = self.settings, step.embeddings[:2]
        draws = torch.rand(1, settings.positives + 1, anchors.shape[1], device=anchors.device)
        orders = gather_rows(draws)[0].argsort(dim=-1)  # those of the first process, as all have the same rows
        return whitened_contrast(
            anchors,
            positives,
            list(orders),
            size=settings.size,
            temperature=settings.temperature,
            ridge=settings.ridge,
        )
