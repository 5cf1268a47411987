"""SG-BERT: the layers of a frozen copy of the encoder are the positives."""

from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from layerwise.errors import InputError
from layerwise.mixes import parse_mix
from layerwise.objectives import self_guided
from layerwise.train.contrastive.terms.base import (
    TERMS,
    FrozenSettings,
    Step,
    Term,
    TermContext,
    TermSettings,
    draw_layer,
)
from layerwise.train.loop.settings import NotNegative, Positive

Count = Annotated[int, Field(ge=0)]


@TERMS.register("sg")
class SelfGuidedSettings(TermSettings):
    """SG (form "base") and SG-OPT (form "opt3").

    Attributes:
        form: base (NT-Xent over 2b views), opt1, opt2 or opt3 of the paper.
        temperature: Cosines are divided by it.
        pooling: Of the frozen copy's tokens: "mean" as in the authors' code, "max" as in the paper.
        layers: Of the frozen copy, as in a mix: "all", "4-12", "last-4".
        sampler: Which layer is a sentence's positive (not for opt3, which takes all): "uniform" draws one at every
            step; "mean" takes their mean, "last" the last of `layers`.
        hidden: The width inside the projection head, two linear layers each followed by GELU; 0: no head.
        pull: λ of λ‖θ − θ₀‖², the sum of squared differences.
        column: Which column of the data the frozen copy reads: 1 gives BT + SG-OPT on pairs of back-translations.
        dropout: Dropout on in the frozen copy, as in the authors' code by accident; its views cannot be cached then.
    """

    name: Literal["sg"] = "sg"
    form: Literal["base", "opt1", "opt2", "opt3"] = "opt3"
    temperature: Positive = 0.01
    pooling: str = "mean"
    layers: str = "all"
    sampler: Literal["uniform", "mean", "last"] = "uniform"
    hidden: Count = 4096
    pull: NotNegative = 0.1
    column: Count = 0
    dropout: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        parse_mix(self.layers, pooling=self.pooling)
        return self

    @property
    def frozen(self) -> FrozenSettings:
        """The layers of the frozen copy."""
        return FrozenSettings(self.pooling, self.layers, self.column, self.dropout)

    @property
    def pull_strength(self) -> float:
        """The λ of the penalty."""
        return self.pull

    def build(self, context: TermContext) -> "SelfGuided":
        """Build the term with a new projection head."""
        return SelfGuided(self, context)


class SelfGuided(Term):
    """Contrasts the embedding with the frozen copy's layers, through the projection head."""

    def __init__(self, settings: SelfGuidedSettings, context: TermContext) -> None:
        super().__init__()
        if context.width != context.encoder.width:
            raise InputError(
                f"objective 'sg' compares embeddings with layers of {context.encoder.width} numbers, but embeddings "
                f"have {context.width}; choose a pooler and head that keep the width"
            )
        self.settings = settings
        self.projection = _projection(context.width, settings.hidden, context.seed)

    def forward(self, step: Step) -> Tensor:
        """Compute the loss with one layer per sentence, or all of them (opt3)."""
        return self_guided(
            self.projection(step.embeddings[0]).float(),
            self.projection(self._positives(step)).float(),
            temperature=self.settings.temperature,
            form=self.settings.form,
        )

    def _positives(self, step: Step) -> Tensor:
        """Return the positives (n, width), or all layers, (n, layers, width)."""
        if step.frozen is None or (self.settings.sampler == "uniform" and self.settings.form != "opt3"):
            return draw_layer(step)
        if self.settings.form == "opt3":
            return step.frozen
        return step.frozen.mean(dim=1) if self.settings.sampler == "mean" else step.frozen[:, -1]


def _projection(width: int, hidden: int, seed: int) -> nn.Module:
    """Build two linear layers, N(0, 0.02) with zero biases as in the authors' code, each followed by GELU."""
    if not hidden:
        return nn.Identity()
    network = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width), nn.GELU())
    generator = torch.Generator().manual_seed(seed)
    for layer in (network[0], network[2]):
        nn.init.normal_(layer.weight, std=0.02, generator=generator)  # type: ignore[arg-type]
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return network
