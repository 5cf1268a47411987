"""In-batch ranking losses (RankCSE, Liu 2023): two passes should rank the other sentences alike, and like a teacher.

Row i of a matrix of cosines, without its diagonal, is the list of all other sentences for sentence i.
"""

from math import log

import torch
import torch.nn.functional as F
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.contrast import cosines, without_diagonal
from layerwise.objectives.shapes import check_above_zero, check_rows, check_same_shape, check_shape


def rank_consistency(first: Tensor, second: Tensor, *, temperature: float = 0.05) -> Tensor:
    """The Jensen-Shannon divergence of the lists of two passes, RankCSE eq. 4 and 5. (n, d) twice -> scalar

    P_i is the softmax over j != i of cos(first_i, second_j) / temperature, Q_i that of cos(second_i, first_j).
    """
    check_above_zero("temperature", temperature)
    check_rows(first=first, second=second)
    check_same_shape(first=first, second=second)
    _check_others(first)
    p, q = (
        without_diagonal(matrix / temperature).log_softmax(1)
        for matrix in (cosines(first, second), cosines(second, first))
    )
    mixture = torch.logaddexp(p, q) - log(2)
    divergences = (F.kl_div(mixture, lists, log_target=True, reduction="batchmean") for lists in (p, q))
    return sum(divergences, p.new_zeros(())) / 2


def list_net(
    similarities: Tensor, teacher: Tensor, *, temperature: float = 0.05, teacher_temperature: float = 0.05
) -> Tensor:
    """ListNet, RankCSE eq. 7: the cross-entropy with the teacher's lists. (n, n) cosines twice -> scalar"""
    check_above_zero("temperature", temperature)
    check_above_zero("teacher_temperature", teacher_temperature)
    _check_lists(similarities, teacher)
    log_probabilities = without_diagonal(similarities / temperature).log_softmax(1)
    target = without_diagonal(teacher / teacher_temperature).softmax(1)
    return -(target * log_probabilities).sum(1).mean()


def list_mle(similarities: Tensor, teacher: Tensor, *, temperature: float = 0.05) -> Tensor:
    """ListMLE, RankCSE eq. 9: the negative log-likelihood of the teacher's order. (n, n) cosines twice -> scalar"""
    check_above_zero("temperature", temperature)
    _check_lists(similarities, teacher)
    order = without_diagonal(teacher).argsort(dim=1, descending=True, stable=True)
    sorted_by_teacher = without_diagonal(similarities / temperature).gather(1, order)
    remaining = sorted_by_teacher.flip(1).logcumsumexp(1).flip(1)  # over the rest of the list
    return (remaining - sorted_by_teacher).sum(1).mean()


def vector_distance(vectors: Tensor, teacher: Tensor) -> Tensor:
    """1 - cosine plus the squared distance to the teacher's vectors, mean over rows. (n, d) twice -> scalar"""
    check_rows(vectors=vectors, teacher=teacher)
    check_same_shape(vectors=vectors, teacher=teacher)
    cosine_distance = 1 - F.cosine_similarity(vectors.float(), teacher.float(), dim=1)
    return (cosine_distance + (vectors.float() - teacher.float()).square().sum(1)).mean()


def _check_lists(similarities: Tensor, teacher: Tensor) -> None:
    check_shape("similarities", similarities, ("rows", "rows"))
    check_same_shape(similarities=similarities, teacher=teacher)
    if similarities.shape[0] != similarities.shape[1]:
        raise InputError(f"similarities: the shape is {tuple(similarities.shape)}; expected (rows, rows)")
    _check_others(similarities)


def _check_others(rows: Tensor) -> None:
    if len(rows) < 2:
        raise InputError("A ranking needs two sentences or more; give a larger batch")
