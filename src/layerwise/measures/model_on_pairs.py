"""The input of measures: a model, pairs of texts, and the views of every layer, encoded once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from layerwise.data import Rows, TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.evaluate.subject import check_finite
from layerwise.model import LayerModel
from layerwise.registry import check_known

POOLINGS = ("cls", "mean", "max")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class ModelOnPairs:
    """A model on some pairs.

    Nothing is encoded until a measure needs it; then every different text is encoded once for all token poolings, with
    the model's prompt before it, and with `cache` the views are stored on disk as search and evaluation store them.

    >>> subject = ModelOnPairs(LayerModel("default"), demo_rows())
    >>> subject.layers, subject.pooling
    (7, 'mean')
    """

    model: LayerModel
    pairs: TaskRows
    cache: bool = True
    show_progress_bar: bool = False
    values: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)  # of `memoized` measures

    @property
    def name(self) -> str:
        """The encoder's name."""
        return self.model.encoder.name

    @property
    def layers(self) -> int:
        """The number of layers, that of the embeddings included."""
        return self.model.encoder.depth + 1

    @property
    def pooling(self) -> str:
        """The token pooling of the model's mix; the first of several."""
        return self.model.mix.poolings[0]

    @property
    def grades(self) -> NDArray[np.float64]:
        """The scores of the pairs, (pairs,); raises if they are missing or all the same."""
        gold = self.pairs.gold
        if gold is None:
            raise InputError(f"{self.pairs.source}: the pairs have no scores, which this measure needs; name --score")
        if len(gold) < 2 or np.ptp(gold) == 0:
            raise InputError(
                f"{self.pairs.source}: {len(gold)} pair(s), all of the same score; a correlation needs different ones: "
                f"give more pairs"
            )
        return gold

    @cached_property
    def texts(self) -> list[str]:
        """The unique texts, with the model's prompt."""
        prompt = self.model.prompt()
        return [prompt + text for text in self.pairs.texts]

    @property
    def positions(self) -> tuple[Rows, Rows]:
        """The left and the right texts of the pairs as positions among `texts`: (pairs,) each"""
        left, right = self.pairs.positions()
        if right is None:
            raise InputError(f"{self.pairs.source}: single texts; measures are taken on pairs of them")
        return left, right

    @cached_property
    def views(self) -> dict[str, Array]:
        """The views by token pooling: (texts, layers, width) each, from one pass or from the cache"""
        poolings = dict.fromkeys([*POOLINGS, *self.model.mix.poolings])
        views = self.model.encoder.encode_layers(
            self.texts, list(poolings), cache=self.cache, show_progress_bar=self.show_progress_bar
        )
        for pooling, array in views.items():
            check_finite(array.reshape(len(array), -1), self.texts, f"{self.name} by {pooling}")
        return views

    def pooled(self, pooling: str | None = None) -> Array:
        """The views by one token pooling, by default that of the model's mix: (texts, layers, width)"""
        name = self.pooling if pooling is None else pooling
        check_known(name, self.views, "token pooling")
        return self.views[name]

    @cached_property
    def embeddings(self) -> Array:
        """The model's embeddings, heads and normalisation included: (texts, width)"""
        model = self.model
        if model.mix.reads_tokens:  # made of tokens, not of views
            embeddings: Array = model.encode(self.texts, prompt="", show_progress_bar=self.show_progress_bar)
        else:
            embeddings = model.embed_views(self.views)
        check_finite(embeddings, self.texts, f"{self.name} by {model.mix}")
        return embeddings

    def sides(self, vectors: Array) -> tuple[Array, Array]:
        """Vectors of the texts as vectors of the pairs, left and right: (texts, …) -> (pairs, …) twice"""
        left, right = self.positions
        return vectors[left], vectors[right]


def memoized(take: Callable[Concatenate[ModelOnPairs, P], T]) -> Callable[Concatenate[ModelOnPairs, P], T]:
    """Take a measure once for each subject and options: other measures and the report use the same value."""

    @wraps(take)
    def take_once(subject: ModelOnPairs, /, *arguments: P.args, **options: P.kwargs) -> T:
        key = (take, arguments, tuple(sorted(options.items())))
        if key not in subject.values:
            subject.values[key] = take(subject, *arguments, **options)
        value: T = subject.values[key]
        return value

    return take_once
