"""What a term of the loss is: its settings, what it is built for, and what it sees of one step."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from layerwise.encoder import resolve_layer
from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.errors import InputError
from layerwise.objectives import gather_rows
from layerwise.registry import Registry

View = tuple[str, int]  # token pooling, layer


@dataclass(frozen=True)
class OwnRows:
    """This process's own rows, for terms that look at tokens: nothing gathered."""

    embeddings: Tensor  # (columns, b, width)
    tokens: Tensor  # (columns, b, t)
    mask: Tensor  # (columns, b, t)


@dataclass(frozen=True)
class Step:
    """What terms see of one step: the rows of all processes, column by column (anchor, positive, hard negative).

    `embeddings` (columns, n, width) stand behind pooler and head. `views` are the layers that terms asked for, token
    pooled, (columns, n, layer width) each. `frozen` (n, layers, layer width) are the frozen copy's.
    """

    embeddings: Tensor
    views: Mapping[View, Tensor]
    own: OwnRows
    head: Callable[[Tensor], Tensor]
    frozen: Tensor | None = None


@dataclass(frozen=True)
class Place:
    """Where a term will work: the encoder, the width of embeddings, the pooler's token pooling, whether a head follows.

    `head_takes` is the width of what the training head takes, 0 where there is none.
    """

    encoder: LayerEncoder
    width: int
    pooling: str
    head_takes: int
    seed: int

    def layer(self, number: int) -> int:
        """A layer's number from 0; a layer that the encoder has not is refused."""
        return resolve_layer(number, self.encoder.depth)


class Term(nn.Module, ABC):
    """One weighted part of the loss. It may own modules of its own, which are trained and then dropped."""

    views: tuple[View, ...] = ()

    @abstractmethod
    def forward(self, step: Step) -> Tensor:
        """The term's value, a scalar, without its weight."""


@dataclass(frozen=True, kw_only=True)
class TermSettings(ABC):
    """The settings of a term: what a recipe's [[objective]] table says."""

    name: ClassVar[str]
    tokens: ClassVar[bool] = False  # whether it runs models over tokens itself, which gradient caching can't split
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise InputError(f"objective {self.name!r}: weight {self.weight} is not positive; leave the objective out")
        self.check()

    def check(self) -> None:
        """Refuse settings that can't be."""
        if not 0 < getattr(self, "temperature", 1.0) < math.inf:
            raise InputError(f"objective {self.name!r}: temperature must be above 0")

    def check_columns(self, given: int) -> None:  # noqa: B027 - most have nothing to refuse
        """Refuse settings that make no sense with so many columns of data."""

    @property
    def columns(self) -> int:
        """How many columns (or dropout passes) of a sentence it needs."""
        return 1

    @property
    def frozen(self) -> "FrozenSettings | None":
        """What it wants of the frozen copy of the encoder, if anything."""
        return None

    @property
    def pull_strength(self) -> float:
        """The strength with which weights are pulled to where they started."""
        return 0.0

    @abstractmethod
    def build(self, place: Place) -> Term:
        """The term itself."""


@dataclass(frozen=True)
class FrozenSettings:
    """Views of the frozen copy: token pooling, layers as a mix's text, which column it reads, its dropout."""

    pooling: str = "mean"
    layers: str = "all"
    column: int = 0
    dropout: bool = False


def draw_layer(step: Step) -> Tensor:
    """A layer of the frozen copy for each sentence, drawn by each process for its own rows: (n, width)."""
    if step.frozen is None:
        raise InputError("the frozen copy's views are needed, but no objective asked for them")
    rows, layers = step.own.embeddings.shape[1], step.frozen.shape[1]
    drawn = gather_rows(torch.randint(layers, (rows,), device=step.frozen.device))
    return step.frozen[torch.arange(len(drawn), device=drawn.device), drawn]


TERMS: Registry[type[TermSettings]] = Registry("objective")
