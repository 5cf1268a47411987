"""What views are less: means and components, and the text that they are fitted on."""

from collections.abc import Sequence
from itertools import groupby
from typing import Literal, get_args

import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.mixes import Centres, fit_centres
from layerwise.registry import check_known
from layerwise.search.view_encode import Encode, views_by_pooling
from layerwise.texts import unique_texts

FitOn = Literal["corpus", "pairs", "either"]
FIT_ON: tuple[FitOn, ...] = get_args(FitOn)


class Corpus:
    """The text that means and components are fitted on, once for each pooling."""

    def __init__(self, texts: Sequence[str], encode: Encode, device: str | torch.device) -> None:
        self.texts, _ = unique_texts(texts)
        self._encode, self._device = encode, device
        self._fitted: dict[tuple[str, int], Centres] = {}

    def fit(self, poolings: Sequence[str], count: int) -> dict[str, Centres]:
        """Every layer's mean and so many components, by pooling; one pass of the text for each prompt."""
        missing = [pooling for pooling in poolings if (pooling, count) not in self._fitted]
        for name, views in views_by_pooling(self._encode, self.texts, missing, self._device):
            self._fitted[name, count] = fit_centres(views, count)
        return {pooling: self._fitted[pooling, count] for pooling in poolings}


def texts_to_fit(corpus: Corpus | None, fit_on: str) -> tuple[Corpus | None, ...]:
    """What to fit on, one after the other; None stands for the choosing sentences."""
    check_known(fit_on, FIT_ON, "fit_on")
    if corpus is None:
        if fit_on == "either":
            raise InputError("fit_on either: there is no corpus to choose; give one, or fit on the pairs alone")
        return (None,)
    tried: dict[str, tuple[Corpus | None, ...]] = {"corpus": (corpus,), "pairs": (None,), "either": (corpus, None)}
    return tried[fit_on]


def centres_of(
    names: Sequence[tuple[str, int]], vectors: Tensor, corpus: Corpus | None, most: int | None
) -> Centres | None:
    """The mean and so many components of every layer (of a pooling), of a corpus or of its own vectors.

    None where nothing is taken away.
    """
    if most is None:
        return None
    if corpus is None:
        return fit_centres(vectors, most)
    layers = {name: [layer for _, layer in group] for name, group in groupby(names, key=lambda name: name[0])}
    fitted = [one.pick(layers[name]) for name, one in corpus.fit(list(layers), most).items()]
    return Centres(torch.cat([one.means for one in fitted]), torch.cat([one.directions for one in fitted]))


def check_components(most: int | None, texts: int, name: str) -> None:
    """Refuse more components than texts have, less their mean; `name` says which texts."""
    if most and most >= texts - 1:
        raise InputError(
            f"{name}: {texts} different texts have too few components to take {most} away; give more text, or take "
            f"away at most {max(0, texts - 2)}"
        )
