"""The losses of a task's batch as pure functions: supervised by labels, and contrastive between two views."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives import full_dtype, info_nce
from layerwise.registry import check_known


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets.long(), reduction="none")


def _binary(logits: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")


def _squared(logits: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(logits, targets.to(logits.dtype), reduction="none")


_BY_ROW: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": _cross_entropy,
    "binary": _binary,
    "mse": _squared,
}


def task_loss(logits: Tensor, targets: Tensor, kind: str, *, row_mask: Tensor | None = None) -> Tensor:
    """Average the loss over the unmasked rows, in float32 at least. (n, classes) or (n,), (n,) -> scalar

    Args:
        logits: (n, classes) for "cross-entropy"; (n,) for "binary" (of the second class) and "mse" (numbers).
        targets: (n,) class numbers, 0 and 1, or numbers.
        kind: "cross-entropy", "binary" or "mse".
        row_mask: (n,) bool; padding rows are False. They contribute neither loss nor gradient, even if they are NaN;
            with only padding, the loss and all gradients are 0.
    """
    check_known(kind, tuple(_BY_ROW), "loss")
    _check(logits, targets, kind, row_mask)
    with torch.autocast(logits.device.type, enabled=False):
        logits = logits.to(full_dtype(logits))
        if row_mask is None:
            return _BY_ROW[kind](logits, targets).mean()
        # Masked before the loss as well, or the gradient of a NaN would be NaN.
        logits = logits.where(row_mask.unsqueeze(-1) if logits.ndim == 2 else row_mask, 0)
        by_row = _BY_ROW[kind](logits, targets.where(row_mask, 0))
        return by_row.where(row_mask, 0).sum() / row_mask.sum().clamp(min=1)


def contrast_loss(first: Tensor, second: Tensor, row_mask: Tensor, *, columns: int, temperature: float) -> Tensor:
    """InfoNCE of two views of a batch's texts; a text's second view is its positive. (columns·n, d) twice -> scalar

    The other texts of the batch are negatives, except the other text of a pair: the labels say how similar that is.

    Args:
        first: The first column's n texts, then the second column's, if there is one.
        second: The other view, in the same order.
        row_mask: (n,) bool; padding rows are False and not used as negatives.
        columns: 1, or 2 for pairs.
        temperature: The divisor of cosines.
    """
    used = row_mask.repeat(columns)
    row = torch.arange(len(row_mask), device=row_mask.device).repeat(columns)[used]
    partners = (row[:, None] == row).fill_diagonal_(False)
    return info_nce(first[used], second[used], temperature=temperature, ignored=partners)


def _check(logits: Tensor, targets: Tensor, kind: str, row_mask: Tensor | None) -> None:
    axes = 2 if kind == "cross-entropy" else 1
    if logits.ndim != axes or not logits.numel():
        expected = "(rows, classes)" if axes == 2 else "(rows,)"
        raise InputError(f"logits: the shape is {tuple(logits.shape)}; the loss {kind!r} needs {expected}, 1 or more")
    for name, tensor in (("targets", targets), ("row_mask", row_mask)):
        if tensor is not None and tensor.shape != logits.shape[:1]:
            raise InputError(f"{name}: the shape is {tuple(tensor.shape)}; expected one for each of {len(logits)} rows")
    if row_mask is not None and row_mask.dtype != torch.bool:
        raise InputError(f"row_mask: {row_mask.dtype} came; expected bool, False for rows of padding")
