"""Every exit a good embedding: each pair of a layer and a width learns by contrast and from the whole model.

2D Matryoshka (Li et al., 2024) and its successors. An exit is a layer's vector cut to its first dimensions.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.contrast import cosines, info_nce
from layerwise.objectives.shapes import check_above_zero, check_rows, check_same_shape


def exit_contrast(
    layers: Sequence[tuple[Tensor, Tensor]], widths: Sequence[int], *, temperature: float = 0.05
) -> Tensor:
    """The mean over exits of InfoNCE. `layers`: anchors and positives of each layer, (n, d) both -> scalar"""
    _check_exits([anchors for anchors, _ in layers], widths)
    losses = [
        info_nce(anchors[:, :width], positives[:, :width], temperature=temperature)
        for anchors, positives in layers
        for width in widths
    ]
    return torch.stack(losses).mean()


def exit_distillation(
    layers: Sequence[Tensor], widths: Sequence[int], teacher: Tensor, *, temperature: float = 0.05
) -> Tensor:
    """The mean over exits of KL(P || Q), Q of the exit, P of the detached `teacher`. (n, d) each, (n, e) -> scalar

    P_i is the softmax over all j != i of cos(teacher_i, teacher_j) / temperature, Q_i the same of the exit's vectors.
    """
    check_above_zero("temperature", temperature)
    _check_exits(layers, widths)
    check_rows(teacher=teacher)
    if len(teacher) != len(layers[0]) or len(teacher) < 2:
        raise InputError(f"{len(teacher)} rows of the teacher, {len(layers[0])} of the exits; give as many, 2 or more")
    expected = _log_lists(teacher.detach(), temperature)
    losses = [
        F.kl_div(_log_lists(layer[:, :width], temperature), expected, log_target=True, reduction="batchmean")
        for layer in layers
        for width in widths
    ]
    return torch.stack(losses).mean()


def _log_lists(vectors: Tensor, temperature: float) -> Tensor:
    """Each row's logarithmic shares over the other rows: (n, d) -> (n, n - 1)"""
    rows = len(vectors)
    matrix = cosines(vectors, vectors) / temperature
    others = matrix.flatten()[1:].view(rows - 1, rows + 1)[:, :-1].reshape(rows, rows - 1)
    return others.log_softmax(1)


def _check_exits(layers: Sequence[Tensor], widths: Sequence[int]) -> None:
    if not layers or not widths:
        raise InputError("there are no exits; give one layer and one width or more")
    check_rows(**{f"layer_{place}": layer for place, layer in enumerate(layers)})
    check_same_shape(**{f"layer_{place}": layer for place, layer in enumerate(layers)})
    width = layers[0].shape[1]
    if min(widths) < 1 or max(widths) > width:
        raise InputError(f"widths are {list(widths)}, but a layer has {width} numbers; give 1 to {width}")
