"""Views as tensors: encoded prompt by prompt, and filtered by whether they differ between texts."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from layerwise.encoder import Array, by_prompt

Encode = Callable[[list[str], list[str]], Mapping[str, Array | Tensor]]
_MIN_VARIANCE = 1e-9  # as a share of a view's mean squared length; less is rounding error


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
