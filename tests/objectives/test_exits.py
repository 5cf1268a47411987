"""The losses of exits against their formulas, written out."""

import math

import pytest
import torch

from layerwise.errors import InputError
from layerwise.objectives import exit_contrast, exit_distillation

N, D, WIDTHS, TEMPERATURE = 5, 8, (8, 3), 0.2


def vectors(seed, width=D):
    return torch.randn(N, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cosine(one, other):
    return float(one @ other / (one.norm() * other.norm()))


def test_contrast_is_the_mean_of_info_nce_of_all_exits():
    layers = [(vectors(0), vectors(1)), (vectors(2), vectors(3))]
    total = 0.0
    for anchors, positives in layers:
        for width in WIDTHS:
            a, p = anchors[:, :width], positives[:, :width]
            for i in range(N):
                logits = [cosine(a[i], p[j]) / TEMPERATURE for j in range(N)]
                total -= math.log(math.exp(logits[i]) / sum(map(math.exp, logits))) / N
    value = exit_contrast(layers, WIDTHS, temperature=TEMPERATURE)
    assert float(value) == pytest.approx(total / 4, rel=1e-5)


def shares(rows, i):
    weights = {j: math.exp(cosine(rows[i], rows[j]) / TEMPERATURE) for j in range(N) if j != i}
    return {j: weight / sum(weights.values()) for j, weight in weights.items()}


def test_distillation_is_the_mean_divergence_of_all_exits():
    layers, teacher, total = [vectors(0), vectors(1)], vectors(2, 6), 0.0
    for layer in layers:
        for width in WIDTHS:
            for i in range(N):
                p, q = shares(teacher, i), shares(layer[:, :width], i)
                total += sum(p[j] * math.log(p[j] / q[j]) for j in p) / N
    value = exit_distillation(layers, WIDTHS, teacher, temperature=TEMPERATURE)
    assert float(value) == pytest.approx(total / 4, rel=1e-5)


def test_the_teacher_gets_no_gradient():
    layer, teacher = vectors(0).requires_grad_(), vectors(1).requires_grad_()
    exit_distillation([layer], (4,), teacher).backward()
    assert teacher.grad is None
    assert layer.grad[:, :4].abs().sum() > 0
    assert layer.grad[:, 4:].abs().sum() == 0  # dimensions beyond the width


def test_an_exit_equal_to_its_teacher_has_no_divergence():
    assert float(exit_distillation([vectors(0)], (D,), vectors(0))) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("widths", [(0,), (9,), (-1, 4)])
def test_widths_that_a_layer_does_not_have(widths):
    with pytest.raises(InputError, match="give 1 to 8"):
        exit_contrast([(vectors(0), vectors(1))], widths)


def test_bad_exits():
    with pytest.raises(InputError, match="no exits"):
        exit_contrast([], (4,))
    with pytest.raises(InputError, match="no exits"):
        exit_distillation([vectors(0)], (), vectors(1))
    with pytest.raises(InputError, match="4 rows of the teacher, 5 of the exits"):
        exit_distillation([vectors(0)], (4,), vectors(1)[:4])
    with pytest.raises(InputError, match="shapes differ"):
        exit_distillation([vectors(0), vectors(1)[:4]], (4,), vectors(1))
    with pytest.raises(InputError, match="temperature"):
        exit_distillation([vectors(0)], (4,), vectors(1), temperature=0)
