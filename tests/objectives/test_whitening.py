"""Shuffled group whitening against the formula written out, its exact gradient, and what small batches do to it."""

import numpy as np
import pytest
import torch

from layerwise.errors import InputError
from layerwise.objectives import group_whitened, info_nce, whitened_contrast


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def order_of(width, seed=0):
    return torch.randperm(width, generator=torch.Generator().manual_seed(seed))


def naive(vectors, order, size, ridge):
    """One group after the other, by NumPy's eigenvectors, each put back into its dimensions."""
    found = np.zeros_like(vectors)
    for start in range(0, len(order), size):
        places = order[start : start + size]
        group = vectors[:, places] - vectors[:, places].mean(0)
        covariance = group.T @ group / len(group)
        covariance += ridge * np.trace(covariance) / len(places) * np.eye(len(places))
        values, directions = np.linalg.eigh(covariance)
        found[:, places] = group @ (directions @ np.diag(values**-0.5) @ directions.T)
    return found


@pytest.mark.parametrize(("rows", "width", "size"), [(40, 12, 3), (40, 12, 12), (40, 11, 4), (3, 12, 6), (40, 12, 1)])
def test_each_group_is_whitened_by_itself(rows, width, size):
    vectors, order = draw(rows, width) @ draw(width, width, seed=1), order_of(width)
    found = group_whitened(vectors, order, size=size, ridge=1e-3)
    np.testing.assert_allclose(found, naive(vectors.numpy(), order.numpy(), size, 1e-3), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 1.0, 1e3])
def test_the_root_is_found_whatever_the_ridge(ridge):
    vectors, order = draw(5, 12) @ draw(12, 12, seed=1), order_of(12)
    found = group_whitened(vectors, order, size=6, ridge=ridge)
    np.testing.assert_allclose(found, naive(vectors.numpy(), order.numpy(), 6, ridge), rtol=1e-5, atol=1e-7)


def test_float32_is_as_exact_as_an_eigendecomposition_in_it():
    vectors, order = draw(64, 12) @ draw(12, 12, seed=1), order_of(12)
    expected = torch.from_numpy(naive(vectors.numpy(), order.numpy(), 6, 1e-3))
    by_eigenvectors = torch.from_numpy(naive(vectors.float().numpy(), order.numpy(), 6, 1e-3))
    found = group_whitened(vectors.float(), order, size=6, ridge=1e-3)
    assert (found - expected).norm() <= (by_eigenvectors - expected).norm() + 1e-6


def test_whitened_groups_have_the_identity_as_covariance():
    vectors, order = draw(500, 12) @ draw(12, 12, seed=1) + 3, order_of(12)
    found = group_whitened(vectors, order, size=4, ridge=1e-9)[:, order]
    for start in (0, 4, 8):
        group = found[:, start : start + 4]
        torch.testing.assert_close(group.T @ group / 500, torch.eye(4, dtype=group.dtype), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.mean(0), torch.zeros(12, dtype=found.dtype), rtol=0, atol=1e-9)


def test_another_shuffle_gives_another_vector_and_each_shuffle_the_same_again():
    vectors = draw(20, 12)
    one, again, other = (group_whitened(vectors, order_of(12, seed), size=3) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.allclose(one, other)


def test_the_gradient_is_exact_also_where_eigenvalues_are_equal():
    vectors, order = draw(9, 6).requires_grad_(), order_of(6)
    assert torch.autograd.gradcheck(lambda rows: group_whitened(rows, order, size=3, ridge=1e-2), (vectors,))
    equal = torch.cat([torch.eye(6), -torch.eye(6)]).double().requires_grad_()  # every variance the same
    assert torch.autograd.gradcheck(lambda rows: group_whitened(rows, order, size=3, ridge=1e-2), (equal,))


@pytest.mark.parametrize(
    "vectors", [torch.ones(4, 12), torch.zeros(2, 12), draw(2, 12).float(), draw(1, 12).float() * 1e4]
)
def test_small_batches_and_equal_vectors_stay_finite(vectors):
    anchors, positives = vectors.clone().requires_grad_(), (vectors * 1.5).requires_grad_()
    loss = whitened_contrast(anchors, positives, [order_of(12, seed) for seed in range(3)], size=6)
    loss.backward()
    assert loss.isfinite()
    assert anchors.grad.isfinite().all()
    assert positives.grad.isfinite().all()


def test_half_precision_is_whitened_in_float32():
    vectors = draw(32, 12, dtype=torch.float32).bfloat16()
    found = group_whitened(vectors, order_of(12), size=6)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, group_whitened(vectors.float(), order_of(12), size=6))


def test_the_contrast_is_the_mean_over_the_positives_shuffles():
    anchors, positives, orders = draw(10, 12), draw(10, 12, seed=1), [order_of(12, seed) for seed in range(3)]
    found = whitened_contrast(anchors, positives, orders, size=4, temperature=0.1, ridge=1e-3)
    first, *others = (
        torch.from_numpy(naive(rows.numpy(), order.numpy(), 4, 1e-3))
        for rows, order in zip((anchors, positives, positives), orders, strict=True)
    )
    expected = sum(info_nce(first, other, temperature=0.1) for other in others) / 2
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size 0 is not possible; give 1 to 12"),
        ({"size": 13}, "size 13 is not possible"),
        ({"ridge": 0.0}, "ridge 0.0 is not possible"),
        ({"order": order_of(11)}, r"order: the shape is \(11,\); expected one place for each of 12"),
    ],
)
def test_what_cannot_be_whitened(options, message):
    with pytest.raises(InputError, match=message):
        group_whitened(draw(4, 12), options.pop("order", order_of(12)), **{"size": 3, **options})


def test_a_contrast_needs_two_shuffles():
    with pytest.raises(InputError, match="1 orders came; give one for the anchors and one or more"):
        whitened_contrast(draw(4, 12), draw(4, 12), [order_of(12)], size=3)
