"""The interface of loss terms: their settings, the context they are built in, and the data of a step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from layerwise.encoder import LayerEncoder, resolve_layer
from layerwise.errors import InputError
from layerwise.mixes import Mix
from layerwise.objectives import gather_rows
from layerwise.registry import Registry
from layerwise.settings import Settings
from layerwise.train.contrastive.denoising import Denoiser
from layerwise.train.loop.settings import Positive

View = tuple[str, int]  # token pooling, layer
Share = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True)
class LocalRows:
    """The rows of this process, not gathered, for terms that read tokens."""

    embeddings: Tensor  # (columns, b, width)
    tokens: Tensor  # (columns, b, t)
    mask: Tensor  # (columns, b, t)
    places: Tensor | None = None  # (columns, b, 3) for texts in a prompt; with two prompts (columns, b, 4)


@dataclass(frozen=True)
class Step:
    """The data of one step: the rows of all processes, column by column (anchor, positive, hard negative).

    Attributes:
        embeddings: After pooler and head, (columns, n, width).
        views: The pooled layers that terms need, (columns, n, layer width) each.
        local: The rows of this process.
        head: The training head, for terms that apply it to views.
        frozen: The frozen copy's views, (n, layers, layer width).
    """

    embeddings: Tensor
    views: Mapping[View, Tensor]
    local: LocalRows
    head: Callable[[Tensor], Tensor]
    frozen: Tensor | None = None


@dataclass(frozen=True)
class TermContext:
    """The context in which a term is built.

    Attributes:
        encoder: The encoder that is trained.
        width: The width of the embeddings.
        pooling: The pooler's token pooling.
        in_features: The input width of the training head; 0 if there is none.
        seed: The seed of the term's new weights.
        teacher_width: The width of a teacher's embeddings; 0 if there is none.
        pooler: Combines views to embeddings, for terms that encode texts themselves.
        head: The head after the pooler.
        denoiser: Subtracts the views of the prompt alone, for such terms.
    """

    encoder: LayerEncoder
    width: int
    pooling: str
    in_features: int
    seed: int
    teacher_width: int = 0
    pooler: Mix | None = None
    head: nn.Module | None = None
    denoiser: Denoiser | None = None

    def layer(self, number: int) -> int:
        """Resolve a layer number; raise if the encoder does not have it."""
        return resolve_layer(number, self.encoder.depth)


class Term(nn.Module, ABC):
    """One weighted part of the loss. Its modules are trained with the student and dropped afterwards."""

    views: tuple[View, ...] = ()

    @abstractmethod
    def forward(self, step: Step) -> Tensor:
        """Compute the term's unweighted value, a scalar."""

    def use_graphs(self) -> None:
        """Use CUDA graphs for the term's own passes, if it has any."""


class TermSettings(Settings, ABC):
    """The settings of a term: a recipe's [[objective]] table.

    Attributes:
        name: Which objective it is.
        weight: Of this objective in the sum; 0 removes one that an extended recipe has.
    """

    reads_all_columns: ClassVar[bool] = False  # whether it reads every column of the data, even more than it needs
    reads_tokens: ClassVar[bool] = False  # whether it runs a model over tokens, which gradient caching cannot split
    name: str
    weight: Positive = 1.0

    @classmethod
    def labelled(cls, values: Mapping[str, Any]) -> str:  # noqa: ARG003
        """Return the prefix of errors: the objective's name."""
        return f"objective {cls.model_fields['name'].default!r}:"

    def with_absolute_paths(self) -> Self:
        """Return the settings with absolute paths of models."""
        return self

    def check_columns(self, columns: int) -> None:
        """Raise for settings that do not fit this number of columns."""

    @property
    def columns(self) -> int:
        """The number of columns (or dropout passes) that the term needs."""
        return 1

    @property
    def frozen(self) -> "FrozenSettings | None":
        """The views of the frozen copy of the encoder that the term needs, if any."""
        return None

    @property
    def pull_strength(self) -> float:
        """The strength of the penalty on the distance to the initial weights."""
        return 0.0

    @abstractmethod
    def build(self, context: TermContext) -> Term:
        """Build the term."""


@dataclass(frozen=True)
class FrozenSettings:
    """Views of the frozen copy: token pooling, layers as in a mix, which column it reads, whether dropout is on.

    With `teachers`, the embeddings of these models instead, side by side as if they were one layer, each model by its
    weight; `rotated` to the student's width and axes.
    """

    pooling: str = "mean"
    layers: str = "all"
    column: int = 0
    dropout: bool = False
    teachers: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    rotated: bool = False


def draw_layer(step: Step) -> Tensor:
    """Draw a layer of the frozen copy for each sentence, each process for its rows: (n, width)."""
    if step.frozen is None:
        raise InputError("the frozen copy's views are needed, but no objective asked for them")
    rows, layers = step.local.embeddings.shape[1], step.frozen.shape[1]
    drawn = gather_rows(torch.randint(layers, (rows,), device=step.frozen.device))
    return step.frozen[torch.arange(len(drawn), device=drawn.device), drawn]


TERMS: Registry[type[TermSettings]] = Registry("objective")
