"""Trains every exit as an embedding (2D Matryoshka): chosen layers and widths, all from one pass."""

from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives import exit_contrast, exit_distillation
from layerwise.train.contrastive.terms.base import TERMS, Step, Term, TermContext, TermSettings
from layerwise.train.loop.settings import NotNegative, Positive


@TERMS.register("exits")
class ExitsSettings(TermSettings):
    """Each of the layers, cut to each of the widths, is trained as an embedding.

    Attributes:
        layers: Whose vectors, by the pooler's token pooling and without the head; negative numbers count from the last.
        widths: How many of the first dimensions; 0: all.
        temperature: Cosines are divided by it.
        contrast: Weight of InfoNCE between two passes, or the first two columns; 0 leaves it out.
        teacher: Weight of the KL divergence from a teacher's similarities in the batch, which get no gradient from it;
            0 leaves it out.
        follow: Which teacher: "model", the whole model as it is at this step, or "teacher", that of the objective
            `distil`, which does not change.
    """

    name: Literal["exits"] = "exits"
    layers: Annotated[tuple[int, ...], Field(min_length=1)]
    widths: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    temperature: Positive = 0.05
    contrast: NotNegative = 1.0
    teacher: NotNegative = 1.0
    follow: Literal["model", "teacher"] = "model"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.contrast and not self.teacher:
            raise InputError("the exits learn nothing; give contrast = 1.0, or teacher = 1.0")
        if len(set(self.layers)) < len(self.layers) or len(set(self.widths)) < len(self.widths):
            raise InputError("a layer or width is given twice; give each once")
        return self

    @property
    def columns(self) -> int:
        """Two if there is contrast."""
        return 2 if self.contrast else 1

    def build(self, context: TermContext) -> "Exits":
        """Build the term; raise for layers and widths that the encoder does not have."""
        return Exits(self, context)


class Exits(Term):
    """The contrast of all exits, and their divergence from a teacher."""

    def __init__(self, settings: ExitsSettings, context: TermContext) -> None:
        super().__init__()
        self.settings = settings
        width = context.encoder.width
        if max(settings.widths) > width:
            raise InputError(
                f"objective 'exits': widths are {list(settings.widths)}, but a layer has {width} numbers; give 1 to "
                f"{width}, or 0 for all"
            )
        if settings.teacher and settings.follow == "teacher" and not context.teacher_width:
            raise InputError("objective 'exits': follow = \"teacher\", but there is none; add the objective distil")
        self.layers = tuple(context.layer(number) for number in settings.layers)
        self.widths = tuple(number or width for number in settings.widths)
        self.views = tuple((context.pooling, layer) for layer in self.layers)

    def forward(self, step: Step) -> Tensor:
        """Compute the weighted sum of both parts."""
        settings, views = self.settings, [step.views[view] for view in self.views]
        total = step.embeddings.new_zeros((), dtype=torch.float32)
        if settings.contrast:
            pairs = [(view[0], view[1]) for view in views]
            total = total + settings.contrast * exit_contrast(pairs, self.widths, temperature=settings.temperature)
        if settings.teacher:
            anchors = [view[0] for view in views]
            teacher = step.embeddings[0] if settings.follow == "model" or step.frozen is None else step.frozen[:, 0]
            total = total + settings.teacher * exit_distillation(
                anchors, self.widths, teacher, temperature=settings.temperature
            )
        return total
