"""Ranking and distillation: consistency of two passes, and a teacher's similarities and vectors."""

from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from layerwise.errors import InputError
from layerwise.objectives import cosines, list_mle, list_net, rank_consistency, unit, vector_distance
from layerwise.train.contrastive.terms.base import TERMS, FrozenSettings, Step, Term, TermContext, TermSettings
from layerwise.train.loop.settings import NotNegative, Positive, absolute


@TERMS.register("ranking")
class RankingSettings(TermSettings):
    """RankCSE's consistency: two passes of a sentence order the others of the batch alike.

    Attributes:
        temperature: Cosines are divided by it.
    """

    name: Literal["ranking"] = "ranking"
    temperature: Positive = 0.05

    @property
    def columns(self) -> int:
        """Two passes, or a pair."""
        return 2

    def build(self, context: TermContext) -> "Ranking":  # noqa: ARG002
        """Build the term."""
        return Ranking(self.temperature)


class Ranking(Term):
    """The divergence between the similarity lists of the first two columns."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, step: Step) -> Tensor:
        """The mean over sentences."""
        return rank_consistency(step.embeddings[0], step.embeddings[1], temperature=self.temperature)


@TERMS.register("distil")
class DistilSettings(TermSettings):
    """A teacher's embeddings of the first column, computed once before training: its similarities, and its vectors.

    Attributes:
        teacher: A model folder, a hub name, or "default"; its own pooling, mix and prompt make its embeddings. A list
            of several teaches the weighted mean of their similarities (RankCSE, section 3.3), and their vectors side by
            side.
        teacher_weights: Of several teachers; by default all the same.
        similarities: How the batch's similarities follow the teacher's: "list-net" (a KL divergence but for a
            constant), "list-mle" (its order alone), "none".
        temperature: Our cosines are divided by it.
        teacher_temperature: The teacher's, for "list-net".
        vectors: Weight of 1 - cosine and squared distance to the teacher's vectors of length 1; 0 leaves it out.
        projection: How embeddings become comparable with the teacher's vectors. "learned": by a linear map that begins
            as the identity and is dropped after training. "rotation": the teacher's vectors keep as many principal
            components as the embeddings have numbers, and are turned to lie near them before training; the embeddings
            themselves learn these, whatever their length. "none": the embeddings, of length 1, learn the vectors as
            they are, and must be as wide.
    """

    name: Literal["distil"] = "distil"
    teacher: str | tuple[str, ...]
    teacher_weights: tuple[Positive, ...] = ()
    similarities: Literal["list-net", "list-mle", "none"] = "list-net"
    temperature: Positive = 0.05
    teacher_temperature: Positive = 0.05
    vectors: NotNegative = 1.0
    projection: Literal["learned", "rotation", "none"] = "learned"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.teachers or not all(self.teachers):
            raise InputError('no teacher; name a model folder, a hub name or "default"')
        if self.teacher_weights and len(self.teacher_weights) != len(self.teachers):
            raise InputError(f"{len(self.teacher_weights)} teacher_weights for {len(self.teachers)} teacher(s)")
        if self.similarities == "none" and not self.vectors:
            raise InputError('nothing is learned of the teacher; give similarities = "list-net", or vectors = 1.0')
        return self

    def with_absolute_paths(self) -> Self:
        """Return the settings with absolute paths of teachers."""
        teacher = self.teacher
        return self.replaced(teacher=absolute(teacher) if isinstance(teacher, str) else tuple(map(absolute, teacher)))

    @property
    def teachers(self) -> tuple[str, ...]:
        """The teachers as a tuple."""
        return (self.teacher,) if isinstance(self.teacher, str) else self.teacher

    @property
    def frozen(self) -> FrozenSettings:
        """The teacher's embeddings."""
        weights = self.teacher_weights or (1.0,) * len(self.teachers)
        shares = tuple(weight / sum(weights) for weight in weights)
        return FrozenSettings(teachers=self.teachers, weights=shares, rotated=self.projection == "rotation")

    def build(self, context: TermContext) -> "Distil":
        """Build the term."""
        return Distil(self, context)


class Distil(Term):
    """Learns a teacher's similarities and vectors."""

    def __init__(self, settings: DistilSettings, context: TermContext) -> None:
        super().__init__()
        self.settings = settings
        self.projection: nn.Module = nn.Identity()
        if settings.vectors and settings.projection == "learned":
            self.projection = nn.Linear(context.width, context.teacher_width, bias=False)
            nn.init.eye_(self.projection.weight)
        elif settings.vectors and settings.projection == "none" and context.width != context.teacher_width:
            raise InputError(
                f"objective 'distil': projection = \"none\", but the embeddings have {context.width} numbers and the "
                f'teacher\'s {context.teacher_width}; give projection = "rotation"'
            )

    def forward(self, step: Step) -> Tensor:
        """The mean over sentences."""
        if step.frozen is None:
            raise InputError("the teacher's embeddings are needed, but nothing computed them")
        settings, ours, theirs = self.settings, step.embeddings[0], step.frozen[:, 0]
        total = ours.new_zeros((), dtype=torch.float32)
        if settings.similarities == "list-net":
            temperatures = {"temperature": settings.temperature, "teacher_temperature": settings.teacher_temperature}
            total = total + list_net(cosines(ours, ours), cosines(theirs, theirs), **temperatures)
        elif settings.similarities == "list-mle":
            total = total + list_mle(cosines(ours, ours), cosines(theirs, theirs), temperature=settings.temperature)
        if settings.vectors:
            mapped = self.projection(ours) if settings.projection == "learned" else unit(ours)
            total = total + settings.vectors * vector_distance(mapped, theirs)
        return total
