"""Losses over early exits, for 2D Matryoshka (Li et al., 2024) and its successors.

An exit is a layer's vector truncated to its first dimensions. Every exit, a pair of a layer and a width, is trained
contrastively and distilled from the whole model.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.contrast import cosines, diagonal_cross_entropy, full_dtype, unit, without_diagonal
from layerwise.objectives.shapes import check_above_zero, check_rows, check_same_shape


def exit_contrast(
    layers: Sequence[tuple[Tensor, Tensor]], widths: Sequence[int], *, temperature: float = 0.05
) -> Tensor:
    """The mean over exits of InfoNCE. `layers`: anchors and positives of each layer, (n, d) both -> scalar"""
    check_above_zero("temperature", temperature)
    anchors, positives = ([pair[side] for pair in layers] for side in (0, 1))
    _check_exits(anchors, widths)
    check_same_shape(anchors=anchors[0], **{f"positives_{layer}": side for layer, side in enumerate(positives)})
    logits = _exit_cosines(anchors, positives, widths) / temperature
    return diagonal_cross_entropy(logits)


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
    teacher_cosines, exit_cosines = cosines(teacher.detach(), teacher.detach()), _exit_cosines(layers, layers, widths)
    target, student = (
        without_diagonal(matrix / temperature).log_softmax(-1) for matrix in (teacher_cosines, exit_cosines)
    )
    target = target.expand_as(student)
    return F.kl_div(student.flatten(0, 1), target.flatten(0, 1), log_target=True, reduction="batchmean")


def _exit_cosines(left: Sequence[Tensor], right: Sequence[Tensor], widths: Sequence[int]) -> Tensor:
    """The cosines of all exits at once: (n, d) and (m, d) of each layer -> (exits, n, m)

    Truncated vectors are computed as vectors whose further dimensions are 0, all exits in one batch: a dozen exits one
    by one are hundreds of small kernels, whose launches take longer than the encoder's pass.
    """
    dtype, width, device = full_dtype(*left, *right), left[0].shape[1], left[0].device
    dimensions = torch.arange(width, device=device)
    masks = torch.stack([dimensions < exit_width for exit_width in widths])  # a tensor of widths would need a sync
    with torch.autocast(device.type, enabled=False):
        a, b = (
            unit(torch.stack(list(side)).to(dtype).unsqueeze(1) * masks[:, None]).flatten(0, 1)
            for side in (left, right)
        )
        return a @ b.mT


def _check_exits(layers: Sequence[Tensor], widths: Sequence[int]) -> None:
    if not layers or not widths:
        raise InputError("there are no exits; give one layer and one width or more")
    check_rows(**{f"layer_{place}": layer for place, layer in enumerate(layers)})
    check_same_shape(**{f"layer_{place}": layer for place, layer in enumerate(layers)})
    width = layers[0].shape[1]
    if min(widths) < 1 or max(widths) > width:
        raise InputError(f"widths are {list(widths)}, but a layer has {width} numbers; give 1 to {width}")
