"""The candidates of the full view search with their vectors, and limits on the cost of a set."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder import Prompt, parse_pooling
from layerwise.mixes import Centres, Mean, Remove, Scale, View
from layerwise.search.metrics import BatchMetric, Gold
from layerwise.search.pair_views import PairViews
from layerwise.search.scored import ChosenView
from layerwise.search.view_beam import Allowed

_INFINITY = float("inf")
_N_PROMPTS = 8  # that are also searched one by one if cost is limited but several prompts are allowed


@dataclass(frozen=True)
class Candidates:
    """The views that the full search may select, grouped by form, with their vectors for the choosing pairs.

    A form is what is removed from a layer; `centres` are the means and components of each layer, in the order of the
    views of one form. A view whose negative is a candidate too is named twice; the second one is the negative.
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
        layers: Sequence[View],
        vectors: Tensor,
        pairs: tuple[NDArray[np.intp], NDArray[np.intp]],
        *,
        remove: Sequence[Remove],
        centres: Centres | None,
        scale: Scale,
        gold: Gold,
        metric: BatchMetric,
        signed: bool = False,
    ) -> "Candidates":
        """Every layer in each form of `remove`, from the vectors (texts, layers, width) of the pairs.

        If `signed`, the negatives of unchanged layers are candidates too.
        """
        forms, names, columns = list[Tensor](), list[View](), list[NDArray[np.intp]]()
        for number, count in enumerate(remove):
            form = vectors if count is None or centres is None else centres.first(count).taken_from(vectors)
            forms.append(torch.nn.functional.normalize(form, dim=-1) if scale == "unit" else form)
            positive = np.arange(len(layers)) + number * len(layers)
            with_negative = [positive, ~positive] if signed and count is None else [positive]
            columns += with_negative
            names += [replace(view, remove=count) for view in layers] * len(with_negative)
        all_vectors, (left, right) = torch.cat(forms, dim=1) if len(forms) > 1 else forms[0], pairs
        has_negatives = len(columns) > len(forms)
        views = PairViews(all_vectors[left], all_vectors[right], np.concatenate(columns) if has_negatives else None)
        return cls(names, views, gold, metric, centres, scale)

    def by_form_and_all(self) -> Iterator["Candidates"]:
        """The candidates of each form, if there are several forms, then all candidates."""
        forms = [view.remove for view in self.names]
        for form in dict.fromkeys(forms) if len(set(forms)) > 1 else ():
            places = slice(forms.index(form), forms.index(form) + forms.count(form))
            yield replace(self, names=self.names[places], views=self.views.pick(places))
        yield self

    def net_counts(self, counts: Mapping[int, int]) -> dict[int, int]:
        """Each view's count minus its negative's, keyed by the index of the positive, sorted, without zeros."""
        first_places: dict[View, int] = {}
        for place, view in enumerate(self.names):
            first_places.setdefault(view, place)
        net: dict[int, int] = {}
        for place, count in counts.items():
            positive = first_places[self.names[place]]
            net[positive] = net.get(positive, 0) + (count if positive == place else -count)
        return {place: count for place, count in sorted(net.items()) if count}

    def mix(self, counts: Mapping[int, int]) -> Mean:
        """The mean of views weighted by their counts; sorted, so that the views of a pooling are adjacent."""
        chosen = sorted(counts)
        views = [self.names[place] for place in chosen]
        weights = tuple(float(counts[place]) for place in chosen) if len(set(counts.values())) > 1 else ()
        mix = Mean.of(*views, scale=self.scale, weights=weights)
        if self.centres is None or mix.components is None:
            return mix
        of_views = self.centres.pick([place % len(self.centres.means) for place in chosen])
        centres = of_views.partly([view.remove for view in views])
        return mix.with_fitted(Centres(centres.means.cpu(), centres.directions.cpu()))

    def chosen_view(self, place: int) -> ChosenView:
        """A view with its name, a minus sign for a negative weight, and "less 8" for a form."""
        view, columns = self.names[place], self.views.columns
        sign = "-" if columns is not None and columns[place] < 0 else ""
        form = "" if view.remove is None else f" less {view.remove or 'mean'}"
        return ChosenView(f"{sign}{view.layer} @ {view.pooling}{form}", view.pooling, view.layer)

    @cached_property
    def prompts(self) -> NDArray[np.intp]:
        """The number of every view's prompt: (views,)"""
        numbers: dict[Prompt, int] = {}
        return np.array([numbers.setdefault(parse_pooling(view.pooling).prompt, len(numbers)) for view in self.names])


class CostLimits:
    """Masks of the views that may join a set within limits on its blocks and passes."""

    def __init__(self, candidates: Candidates, max_cost: float | None, max_passes: int | None, depth: int) -> None:
        self._prompts = candidates.prompts
        self._layers = np.array([view.layer for view in candidates.names])
        self._max_blocks = max_blocks(max_cost, depth)
        self._max_passes = _INFINITY if max_passes is None else max_passes

    def subsets(self) -> Iterator[tuple[NDArray[np.intp], Allowed | None]]:
        """The subsets of views to search, each with the mask function of its search.

        Without limits, all views. With limits also each of the best prompts by itself, as a prompt's best set may start
        with a view that a search of all would not keep. If only one prompt is allowed, each prompt by itself.
        """
        all_views = np.arange(len(self._prompts))
        if self._max_blocks == self._max_passes == _INFINITY:
            yield all_views, None
            return
        if self._max_passes > 1:
            yield all_views, self.allowed
        n_prompts = self._prompts.max() + 1
        for prompt in range(n_prompts if self._max_passes == 1 else min(_N_PROMPTS, n_prompts)):  # the best come first
            places = np.flatnonzero(self._prompts == prompt)
            yield places, partial(self._allowed_among, places)

    def without_extra_cost(self, views: tuple[int, ...]) -> NDArray[np.bool_]:
        """A mask of the views that need no more passes and blocks than the set already does: (views,)"""
        highest = np.full(self._prompts.max() + 1, -1)
        np.maximum.at(highest, self._prompts[list(views)], self._layers[list(views)])
        mask: NDArray[np.bool_] = self._layers <= highest[self._prompts]
        return mask

    def _allowed_among(self, places: NDArray[np.intp], views: tuple[int, ...]) -> NDArray[np.bool_]:
        """`allowed` for a subset of the views, indexed within that subset."""
        mask: NDArray[np.bool_] = self.allowed(tuple(places[list(views)]))[places]
        return mask

    def allowed(self, views: tuple[int, ...]) -> NDArray[np.bool_]:
        """A mask of the views that may join the set: (views,)"""
        highest, used = np.zeros((2, self._prompts.max() + 1), dtype=int)
        np.maximum.at(highest, self._prompts[list(views)], self._layers[list(views)])
        used[self._prompts[list(views)]] = 1
        current = highest[self._prompts]
        blocks = highest.sum() - current + np.maximum(current, self._layers)
        passes = used.sum() + 1 - used[self._prompts]
        mask: NDArray[np.bool_] = (blocks <= self._max_blocks) & (passes <= self._max_passes)
        return mask


def max_blocks(max_cost: float | None, depth: int) -> float:
    """The number of blocks that `max_cost` whole passes have."""
    return _INFINITY if max_cost is None else max_cost * depth + 1e-9
