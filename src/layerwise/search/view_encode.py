"""Views as tensors: read by prompt, and those that tell texts apart."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from layerwise.encoder import Array, by_prompt

Encode = Callable[[list[str], list[str]], Mapping[str, Array | Tensor]]
_SAME = 1e-9  # of a view's mean squared length: less variance than this is rounding


def views_by_pooling(
    encode: Encode, texts: list[str], poolings: Sequence[str], device: str | torch.device
) -> Iterator[tuple[str, Tensor]]:
    """The views of each pooling, those of one prompt together, from one pass for each prompt."""
    for names in by_prompt(poolings).values():
        for name, views in encode(texts, names).items():
            yield name, as_tensor(views, device)


def as_tensor(views: Array | Tensor, device: str | torch.device) -> Tensor:
    """Views in float32 on a device."""
    tensor = views if isinstance(views, Tensor) else torch.from_numpy(np.array(views))  # cached views are read-only
    return tensor.to(device, torch.float32)


def differing_views(vectors: Tensor) -> Tensor:
    """The views (texts, views, width) that are not the same for all texts, but for rounding."""
    around = (vectors - vectors.mean(0)).square().sum(-1).mean(0)
    return torch.nonzero(around > _SAME * vectors.square().sum(-1).mean(0)).flatten()
