"""The MLP head after a mix (BERT-LC, section 3): exact scores of average, head and cosine for every set of layers.

A head is not linear, so Gram matrices do not apply; but its linear part distributes over the layers. Every layer is
multiplied by the head's matrix once; a set then costs an average, the activation and the cosine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from layerwise.errors import InputError
from layerwise.model import ACTIVATIONS, Head
from layerwise.search.sources import Views, Walk, as_float64, check_views, plain_sweep
from layerwise.search.spaces import Space

_BLOCK = {"cpu": 2**20, "cuda": 2**27}  # outputs of the head that are computed at once


@dataclass(frozen=True)
class HeadPairs:
    """Pairs of sentences after the head's linear part without its bias: (pairs, layers, out)"""

    left: Tensor
    right: Tensor
    bias: Tensor
    activation: str

    @property
    def layers(self) -> int:
        """The number of layers."""
        return int(self.left.shape[1])

    @property
    def device(self) -> torch.device:
        """The device of the vectors."""
        return self.left.device

    @classmethod
    def of(cls, left: Views, right: Views, head: Head, *, device: torch.device | str = "cpu") -> "HeadPairs":
        """From the views (pairs, layers, width) of both sides."""
        check_views(left, right)
        weight = head.linear.weight.detach().to(device, torch.float64)
        if weight.shape[1] != left.shape[2]:
            raise InputError(f"The head takes {weight.shape[1]} numbers, but the views have {left.shape[2]}")
        bias = weight.new_zeros(len(weight)) if head.linear.bias is None else head.linear.bias.detach().to(weight)
        a, b = (as_float64(views, device) @ weight.T for views in (left, right))
        for side in (a, b):
            if not bool(torch.isfinite(side).all()):
                raise InputError("The views hold NaN or infinite numbers")
        return cls(a, b, bias, head.activation)

    def __len__(self) -> int:
        return len(self.left)

    def pick(self, pairs: NDArray[np.integer[Any]]) -> "HeadPairs":
        """Select pairs."""
        picked = torch.from_numpy(np.asarray(pairs)).to(self.device)
        return HeadPairs(self.left[picked], self.right[picked], self.bias, self.activation)

    def similarities(self, weights: Tensor) -> Tensor:
        """Cosines after the head for any weights, which are normalised to sum to 1: (rows, layers) -> (rows, pairs)"""
        shares = (weights / weights.sum(1, keepdim=True)).to(self.left)
        rows = max(1, self._block // self.left[:, 0].numel())
        parts = [self._cosines(part) for part in torch.split(shares, rows)]
        return torch.cat(parts) if parts else shares.new_zeros(0, len(self))

    def sweep(self, space: Space) -> Iterator[Walk]:
        """All sets of a space."""
        return plain_sweep(self, space, rows=max(1, self._block // self.left[:, 0].numel()))

    @property
    def _block(self) -> int:
        return _BLOCK.get(self.device.type, _BLOCK["cuda"])

    def _cosines(self, shares: Tensor) -> Tensor:
        activate = ACTIVATIONS[self.activation]()
        a, b = (activate(torch.einsum("rl,plo->rpo", shares, side) + self.bias) for side in (self.left, self.right))
        return F.cosine_similarity(a, b, dim=-1, eps=1e-300)
