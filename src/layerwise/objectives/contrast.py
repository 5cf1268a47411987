"""Contrast within a batch: an anchor's positive against everything else.

Cosines are in float32 at least, whatever the encoder computed in: at a temperature of 0.01 half precision is noise.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.shapes import check_above_zero, check_mask, check_positives, check_rows, check_same_shape


def info_nce(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float = 0.05,
    hard_negative_weight: float = 0.0,
    symmetric: bool = False,
    ignored: Tensor | None = None,
) -> Tensor:
    """InfoNCE: LayerAttPooler eq. 6 and 7, with negatives eq. 8. (n, d), (m >= n, d), (k, d) -> scalar

    Row i of `positives` is anchor i's; all positives and all negatives are in everybody's denominator.

    Args:
        anchors: (n, d).
        positives: (m, d); rows from n on are further negatives.
        negatives: (k, d); with `hard_negative_weight` the first n are the anchors' own.
        temperature: What cosines are divided by.
        hard_negative_weight: Added to the logit of anchor i with negative i, so k must be n or more. The code of SimCSE
            and LayerAttPooler does so; eq. 8 as printed is 0.
        symmetric: The mean with the loss from positives to anchors, so m must be n; negatives stay with the first.
        ignored: (n, m + k) bool, true where a candidate is no negative of an anchor: it is left out of the denominator.
            An anchor's positive must stay.
    """
    check_above_zero("temperature", temperature)
    check_rows(anchors=anchors, positives=positives, **({} if negatives is None else {"negatives": negatives}))
    check_positives(anchors, positives)
    if symmetric and len(positives) != len(anchors):
        raise InputError(f"symmetric needs one positive an anchor; {len(positives)} came for {len(anchors)} anchors")
    candidates = positives if negatives is None else torch.cat([positives, negatives])
    logits = cosines(anchors, candidates) / temperature
    if hard_negative_weight:
        _check_own_negatives(anchors, negatives)
        logits.diagonal(len(positives)).add_(hard_negative_weight)
    if ignored is not None:
        check_mask(ignored, logits)
        logits = logits.masked_fill(ignored, -torch.inf)
    loss = diagonal_cross_entropy(logits)
    if symmetric:
        loss = (loss + diagonal_cross_entropy(logits[:, : len(positives)].T)) / 2
    return loss


def nt_xent(left: Tensor, right: Tensor, *, temperature: float) -> Tensor:
    """NT-Xent: SG-BERT's L_base without its regulariser. (b, d), (b, d) -> scalar

    Each of the 2b vectors is an anchor, its partner in the other tensor the positive; only itself is left out of Z.
    """
    check_above_zero("temperature", temperature)
    check_rows(left=left, right=right)
    check_same_shape(left=left, right=right)
    both = torch.cat([left, right])
    logits = (cosines(both, both) / temperature).fill_diagonal_(-torch.inf)
    partners = torch.arange(len(both), device=logits.device).roll(len(left))
    return F.cross_entropy(logits, partners)


def diagonal_cross_entropy(logits: Tensor) -> Tensor:
    """Mean cross-entropy where row i's answer is column i. (..., n, m >= n) -> scalar"""
    answers = torch.arange(logits.shape[-2], device=logits.device).expand(logits.shape[:-1])
    return F.cross_entropy(logits.flatten(0, -2), answers.flatten())


def without_diagonal(matrices: Tensor) -> Tensor:
    """Every row without its diagonal entry. (..., n, n) -> (..., n, n - 1)"""
    rows = matrices.shape[-1]
    others = matrices.flatten(-2)[..., 1:].reshape(*matrices.shape[:-2], rows - 1, rows + 1)
    return others[..., :-1].reshape(*matrices.shape[:-1], rows - 1)


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """Every left vector with every right one. (n, d), (m, d) -> (n, m)

    In float32 also under autocast and of half-precision vectors; float64 stays. A zero vector's cosines are 0.
    """
    check_rows(left=left, right=right)
    dtype = full_dtype(left, right)
    with torch.autocast(left.device.type, enabled=False):
        return unit(left.to(dtype)) @ unit(right.to(dtype)).T


def own_cosines(anchors: Tensor, others: Tensor) -> Tensor:
    """Every anchor with its k vectors only, precise as `cosines`. (n, d), (n, k, d) -> (n, k)"""
    dtype = full_dtype(anchors, others)
    with torch.autocast(anchors.device.type, enabled=False):
        return torch.bmm(unit(others.to(dtype)), unit(anchors.to(dtype)).unsqueeze(-1)).squeeze(-1)


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1; zero stays zero. (..., d) -> (..., d)"""
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / norms.masked_fill(norms == 0, 1)  # a tiny norm instead would blow up a zero vector's gradient


def full_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype that a loss of these is computed in: float32, or float64 where one of them is."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def _check_own_negatives(anchors: Tensor, negatives: Tensor | None) -> None:
    came = 0 if negatives is None else len(negatives)
    if came < len(anchors):
        raise InputError(
            f"hard_negative_weight needs one negative an anchor; {came} came for {len(anchors)} anchors; give "
            f"{len(anchors)}, or the weight 0"
        )
