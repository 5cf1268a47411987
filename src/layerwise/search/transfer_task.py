"""The rows of a classification task, checked, where they are solved."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder.load import pick_device
from layerwise.errors import InputError
from layerwise.search.sources import Views
from layerwise.search.transfer_protocol import Layers, Rows


@dataclass(frozen=True)
class TransferTask:
    """The rows of a classification task, checked, where they are solved."""

    views: Tensor
    pair_views: Tensor | None
    labels: Tensor
    classes: NDArray[Any]

    @classmethod
    def of(cls, views: Views, pairs: Views | None, labels: Any, device: str | torch.device | None) -> Self:
        """From views (n, layers, width) and labels (n,), after a look at each."""
        views, labels = np.asarray(views), np.asarray(labels)
        if views.ndim != 3:
            raise InputError(f"views have the shape {views.shape}; expected (rows, layers, width)")
        if labels.shape != views.shape[:1]:
            raise InputError(f"{len(views)} rows of views but labels of shape {labels.shape}: the lengths differ")
        if pairs is not None and np.shape(pairs) != views.shape:
            raise InputError(f"pair_views have the shape {np.shape(pairs)} but views {views.shape}: they must agree")
        classes, codes = np.unique(labels, return_inverse=True)
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise InputError(f"label {int(np.flatnonzero(~np.isfinite(labels))[0])} is not a finite number")
        if len(classes) < 2:
            raise InputError(f"{len(labels)} rows of {len(classes)} class: a classification needs 2 classes or more")
        place = pick_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        second = None if pairs is None else _moved(np.asarray(pairs), "pair_views", place)
        return cls(_moved(views, "views", place), second, torch.as_tensor(codes, device=place), classes)

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return self.views.shape[1]

    def features(self, sets: Sequence[Layers]) -> Tensor:
        """(sets, n, width), and twice the width for pairs"""
        u = torch.stack([self.views[:, list(layers)].mean(1) for layers in sets])
        if self.pair_views is None:
            return u
        v = torch.stack([self.pair_views[:, list(layers)].mean(1) for layers in sets])
        return torch.cat([(u - v).abs(), u * v], -1)


def _moved(views: NDArray[Any], name: str, device: torch.device) -> Tensor:
    """The views as float32 on the device, after a look at each row."""
    finite = np.isfinite(views).all((1, 2))
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise InputError(f"row {row} of {name} has NaN or infinite numbers; leave it out or encode it again")
    return torch.as_tensor(np.array(views, dtype=np.float32), device=device)


def fold_masks(parts: Sequence[Rows], labels: Tensor) -> Tensor:
    """Rows of each fold -> (folds, n) bool"""
    mask = np.zeros((len(parts), len(labels)), dtype=np.bool_)
    for own, rows in zip(mask, parts, strict=True):
        own[rows] = True
    return torch.as_tensor(mask, device=labels.device)
