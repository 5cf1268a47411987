"""What a full search of views may take: candidates with their vectors, and limits of cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder import Prompt, parse_pooling
from layerwise.mixes import Centres, LayerSet, LayerViews, Less, Scale
from layerwise.search.metrics import BatchMetric, Gold
from layerwise.search.pair_views import PairViews
from layerwise.search.view_beam import Fits

_INFINITY = float("inf")
_ALONE = 8  # prompts that are also searched each on its own, where cost is limited but several prompts are allowed


class View(NamedTuple):
    """A layer by a token pooling, as it is or without what sentences share."""

    pooling: str
    layer: int
    less: Less


@dataclass(frozen=True)
class Candidates:
    """Views that a full search may take, those that are less the same thing together, and what they say of the pairs.

    `centres` are what may be taken away of each, in the order of the views. A view whose negative may be taken too is
    among the names twice, and the second one counts against the others.
    """

    names: Sequence[View]
    views: PairViews
    gold: Gold
    metric: BatchMetric
    centres: Centres | None
    scale: Scale

    @classmethod
    def of(
        cls,
        layers: Sequence[tuple[str, int]],
        vectors: Tensor,
        pairs: tuple[NDArray[np.intp], NDArray[np.intp]],
        *,
        less: Sequence[Less],
        centres: Centres | None,
        scale: Scale,
        gold: Gold,
        metric: BatchMetric,
        against: bool = False,
    ) -> "Candidates":
        """Every layer (of a pooling) less each of some things, by the vectors (texts, layers, width) of the pairs.

        With `against`, layers of which nothing is taken away may count against others.
        """
        forms, names, columns = list[Tensor](), list[View](), list[NDArray[np.intp]]()
        for number, one in enumerate(less):
            form = vectors if one is None or centres is None else centres.first(one).taken_from(vectors)
            forms.append(torch.nn.functional.normalize(form, dim=-1) if scale == "unit" else form)
            own = np.arange(len(layers)) + number * len(layers)
            both = [own, ~own] if against and one is None else [own]
            columns += both
            names += [View(*name, one) for _ in both for name in layers]
        every, (left, right) = torch.cat(forms, dim=1) if len(forms) > 1 else forms[0], pairs
        has_negatives = len(columns) > len(forms)
        views = PairViews(every[left], every[right], np.concatenate(columns) if has_negatives else None)
        return cls(names, views, gold, metric, centres, scale)

    def alone_and_together(self) -> Iterator["Candidates"]:
        """Views that are less the same thing by themselves, for each thing, and all of them."""
        less = [view.less for view in self.names]
        for one in dict.fromkeys(less) if len(set(less)) > 1 else ():
            form = slice(less.index(one), less.index(one) + less.count(one))
            yield replace(self, names=self.names[form], views=self.views.pick(form))
        yield self

    def net(self, counts: Mapping[int, int]) -> dict[int, int]:
        """How often each view counts, less how often its negative does; by the place of the view itself, sorted."""
        places: dict[View, int] = {}
        for place, view in enumerate(self.names):
            places.setdefault(view, place)
        net: dict[int, int] = {}
        for place, count in counts.items():
            own = places[self.names[place]]
            net[own] = net.get(own, 0) + (count if own == place else -count)
        return {place: count for place, count in sorted(net.items()) if count}

    def mix(self, counts: Mapping[int, int]) -> LayerViews:
        """The mean of some of them, each counted so often. Sorted, so that those of a pooling are together."""
        chosen = sorted(counts)
        views = [self.names[place] for place in chosen]
        sets = [(of, [view.layer for view in group]) for of, group in groupby(views, key=lambda v: (v.pooling, v.less))]
        parts = tuple(LayerSet.of(*layers, pooling=pooling) for (pooling, _), layers in sets)
        weights = tuple(float(counts[view]) for view in chosen) if len(set(counts.values())) > 1 else ()
        mix = LayerViews(parts, self.scale, tuple(less for (_, less), _ in sets), weights)
        if self.centres is None or mix.components is None:
            return mix
        own = self.centres.pick([place % len(self.centres.means) for place in chosen])
        taken = own.partly([view.less for view in views])
        return mix.with_centres(Centres(taken.means.cpu(), taken.directions.cpu()))

    @cached_property
    def prompts(self) -> NDArray[np.intp]:
        """The number of every view's prompt."""
        numbers: dict[Prompt, int] = {}
        return np.array([numbers.setdefault(parse_pooling(view.pooling).prompt, len(numbers)) for view in self.names])


class Limits:
    """Which views may come to a set without its costing too much."""

    def __init__(self, candidates: Candidates, budget: float | None, passes: int | None, depth: int) -> None:
        self._prompts = candidates.prompts
        self._layers = np.array([view.layer for view in candidates.names])
        self._blocks = most_blocks(budget, depth)
        self._passes = _INFINITY if passes is None else passes

    def searches(self) -> Iterator[tuple[NDArray[np.intp], Fits | None]]:
        """What to search: some views, and which of them may come to a set.

        One search of all; within limits also one of each of the best prompts, whose best set may begin with a poor
        view. Where a set may have one prompt only, one of each prompt.
        """
        every = np.arange(len(self._prompts))
        if self._blocks == self._passes == _INFINITY:
            yield every, None
            return
        if self._passes > 1:
            yield every, self.fits
        prompts = self._prompts.max() + 1
        for prompt in range(prompts if self._passes == 1 else min(_ALONE, prompts)):  # the best come first
            places = np.flatnonzero(self._prompts == prompt)
            yield places, partial(self._fits_among, places)

    def within(self, views: tuple[int, ...]) -> NDArray[np.bool_]:
        """Which views need no more passes and blocks than a set does."""
        highest = np.full(self._prompts.max() + 1, -1)
        np.maximum.at(highest, self._prompts[list(views)], self._layers[list(views)])
        free: NDArray[np.bool_] = self._layers <= highest[self._prompts]
        return free

    def _fits_among(self, places: NDArray[np.intp], views: tuple[int, ...]) -> NDArray[np.bool_]:
        allowed: NDArray[np.bool_] = self.fits(tuple(places[list(views)]))[places]
        return allowed

    def fits(self, views: tuple[int, ...]) -> NDArray[np.bool_]:
        """For each view, whether the set may have it too."""
        highest, used = np.zeros((2, self._prompts.max() + 1), dtype=int)
        np.maximum.at(highest, self._prompts[list(views)], self._layers[list(views)])
        used[self._prompts[list(views)]] = 1
        of_view = highest[self._prompts]
        blocks = highest.sum() - of_view + np.maximum(of_view, self._layers)
        passes = used.sum() + 1 - used[self._prompts]
        allowed: NDArray[np.bool_] = (blocks <= self._blocks) & (passes <= self._passes)
        return allowed


def most_blocks(budget: float | None, depth: int) -> float:
    """How many blocks a set may have that costs no more passes than these."""
    return _INFINITY if budget is None else budget * depth + 1e-9
