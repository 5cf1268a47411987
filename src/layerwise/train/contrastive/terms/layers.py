"""SSCL: the encoder's lower layers are negatives."""

from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from layerwise.encoder import POOLINGS
from layerwise.errors import InputError
from layerwise.objectives import self_contrastive
from layerwise.train.contrastive.terms.base import (
    TERMS,
    FrozenSettings,
    Step,
    Term,
    TermContext,
    TermSettings,
    draw_layer,
)
from layerwise.train.loop.settings import Positive


@TERMS.register("sscl")
class SelfContrastiveSettings(TermSettings):
    """SSCL on top of dropout (SSCL-SimCSE), of nothing (SSCL-BERT), of pairs, or of a frozen copy's layer.

    Attributes:
        temperature: Cosines are divided by it.
        layers: Whose views are negatives: [-2] is the penultimate, [-2, -3] the paper's best progressive form.
        anchors: "embedding": the output of pooler and head; "last": the last layer's view, which allows attention
            over layers beside this objective.
        positives: "views": the second dropout pass, or the second column of pairs; "self": the embedding itself
            (SSCL-BERT); "frozen": a frozen copy's layer, drawn again at every step, as in SG-BERT.
        passes: Dropout passes where positives are not "views": the negatives of each count.
        negatives: "batch": those of all sentences, as in the authors' code; "own": those of the sentence itself.
        negative_weight: A factor on the layer negatives' exponentials.
        with_plain: The mean with the plain loss, as in the code; false: this loss alone, as in the paper.
        pooling: The token pooling of the negatives; by default the pooler's.
        detach: No gradient into the lower layers' views.
    """

    name: Literal["sscl"] = "sscl"
    temperature: Positive = 0.05
    layers: Annotated[tuple[int, ...], Field(min_length=1)] = (-2,)
    anchors: Literal["embedding", "last"] = "embedding"
    positives: Literal["views", "self", "frozen"] = "views"
    passes: Annotated[int, Field(ge=1)] = 1
    negatives: Literal["batch", "own"] = "batch"
    negative_weight: float = 1.0
    with_plain: bool = True
    pooling: str = ""
    detach: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.pooling:
            POOLINGS[self.pooling]
        if len(set(self.layers)) < len(self.layers):
            raise InputError(f"layers {list(self.layers)} must be different ones, such as [-2, -3]")
        return self

    def check_columns(self, columns: int) -> None:
        """Check that several passes have one column."""
        if columns > 1 and self.positives != "views" and self.passes > 1:
            raise InputError("objective 'sscl': passes are dropout passes of one column; with pairs, leave passes = 1")

    @property
    def columns(self) -> int:
        """Two if the positive is another pass or column."""
        return 2 if self.positives == "views" else self.passes

    @property
    def frozen(self) -> FrozenSettings | None:
        """All layers, if they are the positives."""
        return FrozenSettings(self.pooling or "mean") if self.positives == "frozen" else None

    def build(self, context: TermContext) -> "SelfContrastive":
        """Build the term; raise for a layer that is not below the last."""
        return SelfContrastive(self, context)


class SelfContrastive(Term):
    """InfoNCE with views of lower layers added to the denominator."""

    def __init__(self, settings: SelfContrastiveSettings, context: TermContext) -> None:
        super().__init__()
        self.settings = settings
        pooling = settings.pooling or context.pooling
        layers = [context.layer(number) for number in settings.layers]
        if context.encoder.depth in layers:
            raise InputError(
                f"objective 'sscl': layer {context.encoder.depth} is the last one; negatives must lie below it"
            )
        self.last = (pooling, context.encoder.depth)
        self.negatives = tuple((pooling, layer) for layer in layers)
        plain = settings.anchors == "last"
        self.views = (*self.negatives, *([self.last] if plain else []))
        self.through_head = not plain and context.in_features == context.encoder.width
        if not plain and not self.through_head and (context.in_features or context.width != context.encoder.width):
            raise InputError(
                "objective 'sscl': the output of pooler and head cannot be compared with the view of a layer; "
                'set anchors = "last", or choose a pooler of one layer whose head takes that layer'
            )

    def forward(self, step: Step) -> Tensor:
        """Compute the loss; the layers' views of both passes (of all columns but hard negatives) are the negatives."""
        settings = self.settings
        embeddings = step.views[self.last] if settings.anchors == "last" else step.embeddings
        negatives = torch.cat([step.views[view][: settings.columns] for view in self.negatives])  # (k, n, width)
        negatives = negatives.detach() if settings.detach else negatives
        return self_contrastive(
            embeddings[0],
            self._positives(step, embeddings),
            self._headed(step, negatives).transpose(0, 1),
            temperature=settings.temperature,
            own_only=settings.negatives == "own",
            negative_weight=settings.negative_weight,
            with_plain=settings.with_plain,
        )

    def _headed(self, step: Step, views: Tensor) -> Tensor:
        """Apply the training head to layers' views (…, width), as in the authors' code."""
        if not self.through_head:
            return views
        headed = step.head(views.reshape(-1, views.shape[-1]))  # flattened for batch norm
        return headed.reshape(*views.shape[:-1], headed.shape[-1])

    def _positives(self, step: Step, embeddings: Tensor) -> Tensor:
        if self.settings.positives == "frozen":
            return self._headed(step, draw_layer(step))
        return embeddings[1] if self.settings.positives == "views" else embeddings[0]
