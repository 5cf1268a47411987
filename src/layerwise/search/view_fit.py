"""Fit the means and principal components that are removed from views, on a corpus or on the choosing sentences."""

from collections.abc import Sequence
from itertools import groupby
from typing import Literal, get_args

import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.mixes import Centres, View, fit_centres
from layerwise.registry import check_known
from layerwise.search.graded_pairs import Encode, views_by_pooling
from layerwise.texts import unique_texts

FitOn = Literal["corpus", "pairs", "either"]
FIT_ON: tuple[FitOn, ...] = get_args(FitOn)


class Corpus:
    """A text on which the means and components of each pooling are fitted once."""

    def __init__(self, texts: Sequence[str], encode: Encode, device: str | torch.device) -> None:
        self.texts, _ = unique_texts(texts)
        self._encode, self._device = encode, device
        self._fitted: dict[tuple[str, int], Centres] = {}

    def fit(self, poolings: Sequence[str], n_components: int) -> dict[str, Centres]:
        """The mean and components of every layer, by pooling; one pass over the text per prompt."""
        missing = [pooling for pooling in poolings if (pooling, n_components) not in self._fitted]
        for name, views in views_by_pooling(self._encode, self.texts, missing, self._device):
            self._fitted[name, n_components] = fit_centres(views, n_components)
        return {pooling: self._fitted[pooling, n_components] for pooling in poolings}


def texts_to_fit(corpus: Corpus | None, fit_on: str) -> tuple[Corpus | None, ...]:
    """The texts to fit on, each in turn; None stands for the choosing sentences."""
    check_known(fit_on, FIT_ON, "fit_on")
    if corpus is None:
        if fit_on == "either":
            raise InputError("fit_on either: there is no corpus to choose; give one, or fit on the pairs alone")
        return (None,)
    options: dict[str, tuple[Corpus | None, ...]] = {"corpus": (corpus,), "pairs": (None,), "either": (corpus, None)}
    return options[fit_on]


def centres_of(
    views: Sequence[View], vectors: Tensor, corpus: Corpus | None, n_components: int | None
) -> Centres | None:
    """The mean and components of every view, fitted on the corpus or else on the vectors.

    None if nothing is removed.
    """
    if n_components is None:
        return None
    if corpus is None:
        return fit_centres(vectors, n_components)
    layers = {name: [view.layer for view in group] for name, group in groupby(views, key=lambda view: view.pooling)}
    fitted = [centres.pick(layers[name]) for name, centres in corpus.fit(list(layers), n_components).items()]
    return Centres(torch.cat([c.means for c in fitted]), torch.cat([c.directions for c in fitted]))


def check_components(n_components: int | None, texts: int, name: str) -> None:
    """Refuse more components than centred texts have; `name` says which texts in the error."""
    if n_components and n_components >= texts - 1:
        raise InputError(
            f"{name}: {texts} different texts have too few components to take {n_components} away; give more text, or "
            f"take away at most {max(0, texts - 2)}"
        )
