"""SSCL: the encoder's own lower layers are negatives."""

from dataclasses import dataclass

import torch
from torch import Tensor

from layerwise.encoder.pooling import POOLINGS
from layerwise.errors import InputError
from layerwise.objectives import self_contrastive
from layerwise.registry import check_known
from layerwise.train.terms.base import TERMS, FrozenSettings, Place, Step, Term, TermSettings, draw_layer

POSITIVES = ("views", "self", "frozen")
NEGATIVES = ("batch", "own")
ANCHORS = ("embedding", "last")


@TERMS.register("sscl")
@dataclass(frozen=True, kw_only=True)
class SelfContrastiveSettings(TermSettings):
    """SSCL on top of dropout (SSCL-SimCSE), of nothing (SSCL-BERT), of pairs, or of a frozen copy's layer.

    Attributes:
        temperature: Cosines are divided by it.
        layers: Whose views are negatives: [-2] is the penultimate, [-2, -3] the paper's best progressive form.
        anchors: "embedding": what pooler and head give; "last": the last layer's own view, which lets attention over
            layers and this objective go together.
        positives: "views": the second dropout pass, or the second column of pairs; "self": the embedding itself
            (SSCL-BERT); "frozen": a frozen copy's layer, drawn anew at every step, as in SG-BERT.
        passes: Dropout passes where positives are not "views": the negatives of each count.
        negatives: "batch": those of all sentences, as in the authors' code; "own": the sentence's own only.
        negative_weight: A factor on the layer negatives' exponentials.
        with_plain: The mean with the plain loss, as in the code; false: this loss alone, as in the paper.
        pooling: Of the negatives' tokens; the pooler's own without it.
        detach: No gradient into the lower layers' views.
    """

    name = "sscl"
    temperature: float = 0.05
    layers: tuple[int, ...] = (-2,)
    anchors: str = "embedding"
    positives: str = "views"
    passes: int = 1
    negatives: str = "batch"
    negative_weight: float = 1.0
    with_plain: bool = True
    pooling: str = ""
    detach: bool = False

    def check(self) -> None:
        """Refuse settings that can't be."""
        super().check()
        check_known(self.positives, POSITIVES, "objective 'sscl': positives")
        check_known(self.anchors, ANCHORS, "objective 'sscl': anchors")
        check_known(self.negatives, NEGATIVES, "objective 'sscl': negatives")
        if self.pooling:
            POOLINGS[self.pooling]
        if not self.layers or len(set(self.layers)) < len(self.layers):
            raise InputError("objective 'sscl': layers must name one or more different layers, such as [-2]")
        if self.passes < 1:
            raise InputError("objective 'sscl': passes must be 1 or more")

    def check_columns(self, given: int) -> None:
        """Passes are dropout passes of one column."""
        if given > 1 and self.positives != "views" and self.passes > 1:
            raise InputError("objective 'sscl': passes are dropout passes of one column; with pairs leave passes = 1")

    @property
    def columns(self) -> int:
        """Two where the positive is a pass or a column of its own."""
        return 2 if self.positives == "views" else self.passes

    @property
    def frozen(self) -> FrozenSettings | None:
        """All layers, where they are the positives."""
        return FrozenSettings(self.pooling or "mean") if self.positives == "frozen" else None

    def build(self, place: Place) -> "SelfContrastive":
        """The term; a layer that is not below the last is refused."""
        return SelfContrastive(self, place)


class SelfContrastive(Term):
    """InfoNCE with views of lower layers added to the denominator."""

    def __init__(self, settings: SelfContrastiveSettings, place: Place) -> None:
        super().__init__()
        self.settings = settings
        pooling = settings.pooling or place.pooling
        layers = [place.layer(number) for number in settings.layers]
        if place.encoder.depth in layers:
            raise InputError(f"objective 'sscl': layer {place.encoder.depth} is the last one; negatives lie below it")
        self.last = (pooling, place.encoder.depth)
        self.negatives = tuple((pooling, layer) for layer in layers)
        plain = settings.anchors == "last"
        self.views = (*self.negatives, *([self.last] if plain else []))
        self.through_head = not plain and place.head_takes == place.encoder.width
        if not plain and not self.through_head and (place.head_takes or place.width != place.encoder.width):
            raise InputError(
                "objective 'sscl': what pooler and head give can't be compared with a layer's own view; "
                'take anchors = "last", or a pooler of one layer whose head takes that layer'
            )

    def forward(self, step: Step) -> Tensor:
        """The layers' views of both passes (of all columns but hard negatives) are the negatives."""
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
        """Layers' views (…, width) where the embeddings are: behind the training head, as in the authors' code."""
        if not self.through_head:
            return views
        headed = step.head(views.reshape(-1, views.shape[-1]))  # in one row of vectors, for batch norm takes no other
        return headed.reshape(*views.shape[:-1], headed.shape[-1])

    def _positives(self, step: Step, embeddings: Tensor) -> Tensor:
        if self.settings.positives == "frozen":
            return self._headed(step, draw_layer(step))
        return embeddings[1] if self.settings.positives == "views" else embeddings[0]
