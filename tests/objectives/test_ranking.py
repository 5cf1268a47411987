"""Ranking objectives against loops over their papers' formulas, and against torch."""

import math

import pytest
import torch
import torch.nn.functional as F

from layerwise.errors import InputError
from layerwise.objectives import cosines, list_mle, list_net, rank_consistency, vector_distance

N, WIDTH = 5, 7


def draw(seed, rows=N):
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def lists(left, right, temperature):
    """For each i the softmax over j != i of cos(left_i, right_j) / temperature, written out."""
    rows = []
    for i in range(len(left)):
        values = [
            math.exp(float(F.cosine_similarity(left[i], right[j], dim=0)) / temperature)
            for j in range(len(right))
            if j != i
        ]
        rows.append([value / sum(values) for value in values])
    return rows


def test_consistency_is_the_divergence_of_the_two_lists():
    first, second = draw(1), draw(2)
    total = 0.0
    for p, q in zip(lists(first, second, 0.1), lists(second, first, 0.1), strict=True):
        middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        total += sum(a * math.log(a / m) for a, m in zip(p, middle, strict=True)) / 2
        total += sum(b * math.log(b / m) for b, m in zip(q, middle, strict=True)) / 2
    assert float(rank_consistency(first, second, temperature=0.1)) == pytest.approx(total / N)
    assert float(rank_consistency(first, first)) == pytest.approx(0, abs=1e-12)


def test_list_net_is_the_cross_entropy_of_the_lists():
    ours, theirs = draw(1), draw(3)
    expected = 0.0
    for p, q in zip(lists(theirs, theirs, 0.2), lists(ours, ours, 0.1), strict=True):
        expected -= sum(a * math.log(b) for a, b in zip(p, q, strict=True)) / N
    found = list_net(cosines(ours, ours), cosines(theirs, theirs), temperature=0.1, teacher_temperature=0.2)
    assert float(found) == pytest.approx(expected)


def test_list_mle_is_the_likelihood_of_the_teachers_order():
    ours, theirs = cosines(draw(1), draw(1)), cosines(draw(3), draw(3))
    expected = 0.0
    for i in range(N):
        order = sorted((j for j in range(N) if j != i), key=lambda j: -float(theirs[i, j]))
        for place, j in enumerate(order):
            rest = sum(math.exp(float(ours[i, k]) / 0.1) for k in order[place:])
            expected -= math.log(math.exp(float(ours[i, j]) / 0.1) / rest)
    assert float(list_mle(ours, theirs, temperature=0.1)) == pytest.approx(expected / N)


def test_the_teachers_own_lists_are_the_best():
    teacher = cosines(draw(1), draw(1))
    for loss in (list_net, list_mle):
        own = float(loss(teacher, teacher))
        assert all(own < float(loss(cosines(draw(seed), draw(seed)), teacher)) for seed in range(5, 9))


def test_vectors_are_compared_by_angle_and_distance():
    one, other = F.normalize(draw(1)), F.normalize(draw(2))
    angles = F.cosine_similarity(one, other)
    assert float(vector_distance(one, other)) == pytest.approx(float((1 - angles + 2 - 2 * angles).mean()), rel=1e-5)
    assert float(vector_distance(one, one)) == pytest.approx(0, abs=1e-6)


def test_gradients_are_those_of_finite_differences():
    first, second = draw(1).requires_grad_(), draw(2).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: rank_consistency(a, b, temperature=0.5), (first, second))
    square = (cosines(draw(1), draw(1)).requires_grad_(), cosines(draw(3), draw(3)))
    assert torch.autograd.gradcheck(lambda a: list_net(a, square[1], temperature=0.5), (square[0],))
    assert torch.autograd.gradcheck(lambda a: list_mle(a, square[1], temperature=0.5), (square[0],))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank_consistency(draw(1), draw(2, rows=4)), "The shapes differ"),
        (lambda: rank_consistency(draw(1, rows=1), draw(2, rows=1)), "needs two sentences or more"),
        (lambda: rank_consistency(draw(1), draw(2), temperature=0), "temperature 0 is not possible"),
        (lambda: list_net(draw(1), draw(1)), r"expected \(rows, rows\)"),
        (lambda: list_mle(torch.eye(3), torch.eye(4)), "The shapes differ"),
        (lambda: vector_distance(draw(1), draw(1, rows=4)), "The shapes differ"),
    ],
)
def test_mistakes_are_told(call, message):
    with pytest.raises(InputError, match=message):
        call()
