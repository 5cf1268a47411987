"""SSCL: a sentence's lower layers as negatives, against over-smoothing (Chen et al. 2023, section 3.2)."""

from math import log

import torch
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.contrast import cosines, diagonal_cross_entropy, own_cosines
from layerwise.objectives.shapes import check_above_zero, check_positives, check_rows, check_shape, check_widths


def self_contrastive(
    anchors: Tensor,
    positives: Tensor,
    layer_negatives: Tensor,
    *,
    temperature: float = 0.05,
    own_only: bool = False,
    negative_weight: float = 1.0,
    with_plain: bool = True,
) -> Tensor:
    """SSCL's loss, eq. 4. (n, d), (m >= n, d), (n, k, d) -> scalar

    The defaults follow the authors' code. The paper's text (N negatives become 2N) is `with_plain=False`; eq. 4 as
    printed has an anchor's layer negative inside the sum over the batch of N:
    `own_only=True, negative_weight=N, with_plain=False`.

    Args:
        anchors: (n, d), the last layer.
        positives: (m, d); row i belongs to anchor i, the others are in its denominator.
        layer_negatives: (n, k, d), each sentence's lower layers, of one or both dropout views.
        temperature: The divisor of the cosines.
        own_only: Use only the anchor's k layer negatives in its denominator, instead of all n * k.
        negative_weight: The factor of the exponentials of the layer negatives.
        with_plain: Average this loss with the plain one (`info_nce`).
    """
    check_above_zero("temperature", temperature)
    check_above_zero("negative_weight", negative_weight)
    check_rows(anchors=anchors, positives=positives)
    check_positives(anchors, positives)
    _check_layer_negatives(anchors, layer_negatives)
    if own_only:
        similarities = torch.cat([cosines(anchors, positives), own_cosines(anchors, layer_negatives)], dim=1)
    else:
        similarities = cosines(anchors, torch.cat([positives, layer_negatives.flatten(0, 1)]))
    logits = similarities / temperature
    plain = logits[:, : len(positives)]
    loss = diagonal_cross_entropy(torch.cat([plain, logits[:, len(positives) :] + log(negative_weight)], dim=1))
    return (loss + diagonal_cross_entropy(plain)) / 2 if with_plain else loss


def _check_layer_negatives(anchors: Tensor, layer_negatives: Tensor) -> None:
    check_shape("layer_negatives", layer_negatives, ("sentences", "layers", "width"))
    check_widths(anchors=anchors, layer_negatives=layer_negatives)
    if len(layer_negatives) != len(anchors):
        raise InputError(
            f"layer_negatives are of {len(layer_negatives)} sentences, and there are {len(anchors)} anchors; give the "
            "lower layers of every anchor"
        )
