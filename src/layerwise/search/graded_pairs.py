"""Graded sentence pairs that encode their views, scored by the cosines of any mix of views."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder import Array, by_prompt
from layerwise.errors import InputError
from layerwise.evidence import Rows
from layerwise.mixes import Mix
from layerwise.search.metrics import Gold, Metric, check_gold
from layerwise.texts import unique_texts

Encode = Callable[[list[str], list[str]], Mapping[str, Array | Tensor]]
Sides = tuple[NDArray[np.intp], NDArray[np.intp]]
_BATCH_SIZE = 2048  # texts whose views are mixed at once
_MIN_VARIANCE = 1e-9  # as a share of a view's mean squared length; less is rounding error


@dataclass(frozen=True, eq=False)
class GradedPairs:
    """Pairs with their grades, a metric, and the function that encodes their views on a device.

    `encode` maps texts and poolings to the views (texts, layers, width) of each pooling, as
    `LayerEncoder.encode_layers` does.
    """

    left: Sequence[str]
    right: Sequence[str]
    gold: Gold
    metric: Metric
    encode: Encode
    device: str | torch.device = "cpu"

    @classmethod
    def of(
        cls,
        left: Sequence[str],
        right: Sequence[str],
        gold: object,
        *,
        metric: Metric,
        encode: Encode,
        device: str | torch.device = "cpu",
    ) -> "GradedPairs":
        """Check the grades and the lengths."""
        grades = check_gold(gold, metric)
        if not len(left) == len(right) == len(grades):
            raise InputError(f"{len(left)} and {len(right)} sentences for {len(grades)} scores: the lengths differ")
        return cls(list(left), list(right), grades, metric, encode, device)

    def __len__(self) -> int:
        return len(self.gold)

    @property
    def unit_texts(self) -> list[tuple[str, str]]:
        """The two sentences of every pair."""
        return list(zip(self.left, self.right, strict=True))

    def texts(self, rows: Rows) -> tuple[list[str], Sides]:
        """The unique sentences of the pairs at `rows`, and the indices of each side in them."""
        texts, (left, right) = unique_texts([self.left[n] for n in rows], [self.right[n] for n in rows])
        return texts, (left, right)

    def similarities(self, mix: Mix, rows: Rows) -> NDArray[np.float64]:
        """The cosines of the pairs at `rows` by a mix: (rows,)"""
        texts, (left, right) = self.texts(rows)
        unit = torch.nn.functional.normalize(self._embed(mix, texts).double(), dim=1)
        cosines: NDArray[np.float64] = (unit[left] * unit[right]).sum(1).cpu().numpy()
        return cosines

    def score(self, mix: Mix, rows: Rows) -> float:
        """The score of a mix on the pairs at `rows`."""
        return float(self.metric(self.gold[rows])(torch.from_numpy(self.similarities(mix, rows)[None]))[0])

    def _embed(self, mix: Mix, texts: list[str]) -> Tensor:
        batches = []
        for start in range(0, len(texts), _BATCH_SIZE):
            views = self.encode(texts[start : start + _BATCH_SIZE], list(mix.poolings))
            picked = [as_tensor(views[name], self.device)[:, list(mix.layers)] for name in mix.poolings]
            batches.append(mix.combine(torch.stack(picked, dim=1)))
        return torch.cat(batches)


def views_by_pooling(
    encode: Encode, texts: list[str], poolings: Sequence[str], device: str | torch.device
) -> Iterator[tuple[str, Tensor]]:
    """The views of each pooling, grouped by prompt, with one forward pass per prompt."""
    for names in by_prompt(poolings).values():
        for name, views in encode(texts, names).items():
            yield name, as_tensor(views, device)


def as_tensor(views: Array | Tensor, device: str | torch.device) -> Tensor:
    """Views in float32 on a device."""
    tensor = views if isinstance(views, Tensor) else torch.from_numpy(np.array(views))  # cached views are read-only
    return tensor.to(device, torch.float32)


def differing_views(vectors: Tensor) -> Tensor:
    """The indices of views (texts, views, width) that differ between texts by more than rounding errors."""
    variances = (vectors - vectors.mean(0)).square().sum(-1).mean(0)
    return torch.nonzero(variances > _MIN_VARIANCE * vectors.square().sum(-1).mean(0)).flatten()
