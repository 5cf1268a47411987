"""What measures are taken on: a model, some pairs of texts, and the views of every layer, read once."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.evaluate.subjects import check_finite
from layerwise.measures.pairs import TextPairs
from layerwise.mixes import LayerWk
from layerwise.model.layer_model import LayerModel

POOLINGS = ("cls", "mean", "max")


@dataclass(frozen=True, eq=False)
class Material:
    """A model on some pairs.

    Nothing is encoded until a measure asks; then every different text is, once, for all token poolings, with the
    prompt that the model puts before it, and the views are kept on disk (`cache`) as search and evaluation keep them.

    >>> material = Material(LayerModel("default"), TextPairs.demo())
    >>> material.layers, material.pooling
    (7, 'mean')
    """

    model: LayerModel
    pairs: TextPairs
    cache: bool = True
    show_progress_bar: bool = False

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.encoder.name

    @property
    def layers(self) -> int:
        """How many layers the encoder has, that of the embeddings included."""
        return self.model.encoder.depth + 1

    @property
    def pooling(self) -> str:
        """The model's own token pooling; the first of several."""
        return self.model.mix.poolings[0]

    @property
    def grades(self) -> NDArray[np.float64]:
        """The pairs' scores: (pairs,); refused where there are none, or all are the same."""
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
        """Every different text once, in order, as the model sees it."""
        before = self.model.prompt()
        return [before + text for text in dict.fromkeys([*self.pairs.left, *self.pairs.right])]

    @cached_property
    def places(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Where each pair's left and right text stands among `texts`: (pairs,) twice"""
        numbers = {text: row for row, text in enumerate(dict.fromkeys([*self.pairs.left, *self.pairs.right]))}
        left, right = (np.array([numbers[text] for text in side]) for side in (self.pairs.left, self.pairs.right))
        return left, right

    @cached_property
    def views(self) -> dict[str, Array]:
        """The layers' views by token pooling: (texts, layers, width) each, from one pass or from the cache."""
        views = self.model.encoder.encode_layers(
            self.texts, POOLINGS, cache=self.cache, show_progress_bar=self.show_progress_bar
        )
        for pooling, array in views.items():
            check_finite(array.reshape(len(array), -1), self.texts, f"{self.name} by {pooling}")
        return views

    def pooled(self, pooling: str | None = None) -> Array:
        """The views by one token pooling, the model's own without a name: (texts, layers, width)"""
        name = self.pooling if pooling is None else pooling
        if name not in POOLINGS:
            raise InputError(f"Unknown token pooling {name!r}. Known: {', '.join(POOLINGS)}")
        return self.views[name]

    @cached_property
    def embeddings(self) -> Array:
        """The model's own embeddings, heads and normalising included: (texts, width)"""
        model = self.model
        if isinstance(model.mix, LayerWk):  # made of tokens, not of views
            found: Array = model.encode(self.texts, prompt="", show_progress_bar=self.show_progress_bar)
        else:
            found = model.embed_views(self.views)
        check_finite(found, self.texts, f"{self.name} by {model.mix}")
        return found

    def sides(self, vectors: Array) -> tuple[Array, Array]:
        """Rows of the texts as rows of the pairs, left and right: (texts, …) -> (pairs, …) twice"""
        left, right = self.places
        return vectors[left], vectors[right]
