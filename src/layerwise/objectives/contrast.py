"""In-batch contrastive losses: an anchor's positive against all other candidates.

Cosines are computed at least in float32, whatever the encoder's dtype: at a temperature of 0.01, half precision is too
noisy.
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

    Row i of `positives` belongs to anchor i; all positives and negatives are in the denominator of every anchor.

    Args:
        anchors: (n, d).
        positives: (m, d); rows from n on are further negatives.
        negatives: (k, d); with `hard_negative_weight`, row i < n is the hard negative of anchor i.
        temperature: The divisor of the cosines.
        hard_negative_weight: Added to the logit of anchor i with negative i, so k must be n or more. The code of SimCSE
            and LayerAttPooler does so; eq. 8 as printed is 0.
        symmetric: Average with the loss from positives to anchors, which has no negatives; m must be n.
        ignored: (n, m + k) bool, true for candidates to exclude from an anchor's denominator. An anchor's positive must
            not be excluded.
    """
    check_above_zero("temperature", temperature)
    check_rows(anchors=anchors, positives=positives, **({} if negatives is None else {"negatives": negatives}))
    check_positives(anchors, positives)
    if symmetric and len(positives) != len(anchors):
        raise InputError(f"symmetric needs one positive an anchor; {len(positives)} came for {len(anchors)} anchors")
    candidates = positives if negatives is None else torch.cat([positives, negatives])
    logits = cosines(anchors, candidates) / temperature
    if hard_negative_weight:
        _check_hard_negatives(anchors, negatives)
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

    Each of the 2b vectors is an anchor, its partner in the other tensor the positive; Z excludes only itself.
    """
    check_above_zero("temperature", temperature)
    check_rows(left=left, right=right)
    check_same_shape(left=left, right=right)
    vectors = torch.cat([left, right])
    logits = (cosines(vectors, vectors) / temperature).fill_diagonal_(-torch.inf)
    partners = torch.arange(len(vectors), device=logits.device).roll(len(left))
    return F.cross_entropy(logits, partners)


def diagonal_cross_entropy(logits: Tensor) -> Tensor:
    """The mean cross-entropy with target i for row i. (..., n, m >= n) -> scalar"""
    targets = torch.arange(logits.shape[-2], device=logits.device).expand(logits.shape[:-1])
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def without_diagonal(matrices: Tensor) -> Tensor:
    """Remove the diagonal entry of every row. (..., n, n) -> (..., n, n - 1)"""
    rows = matrices.shape[-1]
    others = matrices.flatten(-2)[..., 1:].reshape(*matrices.shape[:-2], rows - 1, rows + 1)
    return others[..., :-1].reshape(*matrices.shape[:-1], rows - 1)


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """The cosines of all left with all right vectors. (n, d), (m, d) -> (n, m)

    Computed in float32 also under autocast and for half-precision vectors, in float64 for float64. A zero vector's
    cosines are 0.
    """
    check_rows(left=left, right=right)
    dtype = full_dtype(left, right)
    with torch.autocast(left.device.type, enabled=False):
        return unit(left.to(dtype)) @ unit(right.to(dtype)).T


def own_cosines(anchors: Tensor, others: Tensor) -> Tensor:
    """The cosines of every anchor with its own k vectors, in the dtype of `cosines`. (n, d), (n, k, d) -> (n, k)"""
    dtype = full_dtype(anchors, others)
    with torch.autocast(anchors.device.type, enabled=False):
        return torch.bmm(unit(others.to(dtype)), unit(anchors.to(dtype)).unsqueeze(-1)).squeeze(-1)


def unit(vectors: Tensor) -> Tensor:
    """Normalise vectors to length 1, except for zero vectors. (..., d) -> (..., d)"""
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / norms.masked_fill(
        norms == 0, 1
    )  # with a tiny norm instead, a zero vector's gradient would explode


def full_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype in which a loss of these tensors is computed: float32, or float64 if one of them is float64."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def _check_hard_negatives(anchors: Tensor, negatives: Tensor | None) -> None:
    count = 0 if negatives is None else len(negatives)
    if count < len(anchors):
        raise InputError(
            f"hard_negative_weight needs one negative an anchor; {count} came for {len(anchors)} anchors; give "
            f"{len(anchors)}, or the weight 0"
        )
