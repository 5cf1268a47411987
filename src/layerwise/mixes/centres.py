"""The common part of views, which is removed from them ("all-but-the-top", Mu & Viswanath 2018)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerwise.errors import MixError
from layerwise.mixes.mix import Array, Fitted, Remove

_OVERSAMPLES, _ITERATIONS = 16, 16  # of the subspace iteration, enough for it to converge
_FEW = 4  # views for which the full decomposition is fast enough


class Centres(Fitted):
    """The common part of each view: means (views, width), directions (views, count, width)."""

    label = "centres"
    means: Tensor
    directions: Tensor

    def __init__(self, means: Tensor, directions: Tensor) -> None:
        super().__init__()
        self.width = means.shape[-1]
        self.register_buffer("means", means)
        self.register_buffer("directions", directions)

    def taken_from(self, vectors: Array) -> Array:
        """Remove means and directions from views (..., views, width)."""
        if isinstance(vectors, Tensor):
            centred, directions = vectors - self.means.to(vectors), self.directions.to(vectors)
            lengths = torch.einsum("...vw,vcw->...vc", centred, directions)
            return centred - torch.einsum("...vc,vcw->...vw", lengths, directions)
        result: np.ndarray[Any, Any] = self.taken_from(torch.from_numpy(np.ascontiguousarray(vectors))).numpy()
        return result

    def first(self, count: int) -> "Centres":
        """The same means with the first `count` directions."""
        return Centres(self.means, self.directions[:, :count])

    def pick(self, views: Sequence[int]) -> "Centres":
        """Select views."""
        return Centres(self.means[views], self.directions[views])

    def partly(self, remove: Sequence[Remove]) -> "Centres":
        """Keep the first directions of each view, as many as `remove` says; None keeps its mean too."""
        counts = torch.tensor([-1 if count is None else count for count in remove], device=self.means.device)
        mask = torch.arange(int(counts.max().clamp_min(0)), device=counts.device) < counts[:, None]
        directions = self.directions[:, : mask.shape[1]] * mask[..., None]
        return Centres(self.means * (counts >= 0)[:, None], directions)


def fit_centres(views: Tensor, count: int, *, centre: bool = True) -> Centres:
    """Fit every view's mean and first principal components on the views of texts: (texts, views, width)

    Without `centre`, the means are 0 and the components those of the views themselves.
    """
    texts, _, width = views.shape
    if count and not 0 < count < min(texts - centre, width):
        raise MixError(
            f"{count} components of {texts} texts in {width} numbers leave nothing; give more, or take fewer"
        )
    means = views.mean(0) if centre else torch.zeros_like(views[0])
    if not count:
        return Centres(means, means.new_zeros(len(means), 0, means.shape[1]))
    centred = (views - means).transpose(0, 1)
    return Centres(means, _top_eigenvectors((centred.mT @ centred).double(), count).to(means))


def _top_eigenvectors(matrices: Tensor, count: int) -> Tensor:
    """The eigenvectors of the largest eigenvalues: (n, width, width) -> (n, count, width)

    For a few directions of hundreds, subspace iteration takes a tenth of the time of a full decomposition.
    """
    if len(matrices) <= _FEW:
        vectors: Tensor = torch.linalg.eigh(matrices)[1].flip(-1)
        return vectors[..., :count].mT.contiguous()
    width = matrices.shape[-1]
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(width, min(width, count + _OVERSAMPLES), generator=generator, dtype=matrices.dtype)
    basis = torch.linalg.qr(start.to(matrices.device)).Q.expand(len(matrices), -1, -1)
    for _ in range(_ITERATIONS):
        basis = torch.linalg.qr(matrices @ basis).Q
    rotation = torch.linalg.eigh(basis.mT @ matrices @ basis)[1].flip(-1)
    directions: Tensor = (basis @ rotation)[..., :count].mT.contiguous()
    return directions
