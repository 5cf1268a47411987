"""Anisotropy, spectra, CKA and token cosines: by hand, written out naively, and what must not change them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity

from layerwise.errors import InputError
from layerwise.measures import anisotropy, effective_rank, layer_cka, linear_cka, spectrum, token_cosines

AXES = torch.eye(3)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(width, seed=0):
    return torch.linalg.qr(draw(width, width, seed=seed)).Q


def naive_cka(left, right):
    """Kornblith et al., by the centred Gram matrices: HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L))."""
    x, y = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    middle = np.eye(len(x)) - 1 / len(x)
    k, m = middle @ x @ x.T @ middle, middle @ y @ y.T @ middle
    return np.trace(k @ m) / math.sqrt(np.trace(k @ k) * np.trace(m @ m))


# Anisotropy


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 1000))
def test_anisotropy_is_the_mean_cosine_of_different_rows(count, width, seed):
    embeddings = draw(count, width, seed=seed)
    cosines = cosine_similarity(embeddings.numpy())
    expected = cosines[~np.eye(count, dtype=bool)].mean()
    assert anisotropy(embeddings).item() == pytest.approx(expected, abs=1e-12)
    assert anisotropy(embeddings.float()).item() == pytest.approx(expected, abs=1e-5)


def test_anisotropy_of_known_places():
    assert anisotropy(torch.ones(5, 3)).item() == pytest.approx(1)
    assert anisotropy(AXES).item() == pytest.approx(0, abs=1e-7)
    assert anisotropy(torch.stack([AXES[0], -3 * AXES[0]])).item() == pytest.approx(-1)
    assert anisotropy(torch.stack([AXES[0], AXES[0], AXES[1]])).item() == pytest.approx(1 / 3)
    scaled = torch.arange(1, 4).unsqueeze(1) * AXES[[0, 0, 1]]
    assert anisotropy(scaled).item() == pytest.approx(1 / 3)


# Spectrum and effective rank


@pytest.mark.parametrize("shape", [(40, 6), (5, 9), (2, 3), (7, 7)])
def test_the_spectrum_is_that_of_a_pca(shape):
    embeddings = draw(*shape) * torch.arange(1, shape[1] + 1) + 5
    expected = PCA().fit(embeddings.numpy()).explained_variance_ratio_
    found = spectrum(embeddings)
    assert found.shape == (min(shape),)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert found.sum().item() == pytest.approx(1)
    assert (found.diff() <= 0).all()


@pytest.mark.parametrize("shape", [(40, 6), (5, 9), (300, 20)])
def test_the_effective_rank_is_the_formula_of_its_paper(shape):
    embeddings = draw(*shape) * torch.arange(1, shape[1] + 1) + 5
    values = np.linalg.svd((embeddings - embeddings.mean(0)).numpy(), compute_uv=False)
    shares = values[values > 1e-10] / values.sum()
    expected = math.exp(-(shares * np.log(shares)).sum())
    assert effective_rank(embeddings).item() == pytest.approx(expected, rel=1e-9)
    assert effective_rank(embeddings.float()).item() == pytest.approx(expected, rel=1e-4)


def test_spectra_of_known_places():
    line = torch.arange(5.0).unsqueeze(1) * torch.tensor([[1.0, 2.0, 0.0]]) + 7
    np.testing.assert_allclose(spectrum(line), [1, 0, 0], atol=1e-7)
    assert effective_rank(line).item() == pytest.approx(1, abs=1e-5)
    cross = torch.cat([AXES, -AXES])  # all three directions alike
    np.testing.assert_allclose(spectrum(cross), [1 / 3] * 3, atol=1e-7)
    assert effective_rank(cross).item() == pytest.approx(3)
    oblong = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # singular values 3 and 1, times √2
    np.testing.assert_allclose(spectrum(oblong), [0.9, 0.1], atol=1e-7)
    assert effective_rank(oblong).item() == pytest.approx(math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25)))


def test_few_directions_in_many_dimensions_stay_few():
    embeddings = (draw(500, 3) @ draw(3, 256, seed=1)).float()
    assert effective_rank(embeddings).item() < 3.01
    assert spectrum(embeddings)[:3].sum().item() == pytest.approx(1, abs=1e-9)


def test_shift_rotation_and_scale_change_no_spectrum():
    embeddings = draw(30, 6) * torch.arange(1, 7)
    moved = 3 * embeddings @ rotation(6) - 11
    torch.testing.assert_close(spectrum(moved), spectrum(embeddings))
    torch.testing.assert_close(effective_rank(moved), effective_rank(embeddings))


def test_rows_that_differ_by_rounding_alone_have_no_spectrum():
    same = torch.full((6, 4), 0.3) + 1e-8 * draw(6, 4).float()
    assert spectrum(same).isnan().all()
    assert effective_rank(same).isnan()
    assert linear_cka(same, draw(6, 4)).isnan()


# CKA


@pytest.mark.parametrize(("rows", "one", "other"), [(50, 6, 6), (50, 4, 9), (8, 20, 12), (10, 6, 30)])
def test_cka_is_the_formula_by_gram_matrices(rows, one, other):
    left = draw(rows, one) + 2
    right = left[:, :3] @ draw(3, other, seed=2) + draw(rows, other, seed=1)
    expected = naive_cka(left, right)
    assert 0 < expected < 1
    assert linear_cka(left, right).item() == pytest.approx(expected, rel=1e-10)
    assert linear_cka(right, left).item() == pytest.approx(expected, rel=1e-10)
    assert linear_cka(left.float(), right).item() == pytest.approx(expected, rel=1e-5)


def test_cka_of_known_places():
    one = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    other = torch.tensor([[0.0], [0.0], [1.0], [-1.0]])
    assert linear_cka(one, other).item() == pytest.approx(0, abs=1e-12)
    assert linear_cka(one, one[:, :1] * 8).item() == pytest.approx(1)
    both = torch.cat([one[:, :1], other], dim=1)  # holds `other` and as much again: 1 / √2
    assert linear_cka(both, other).item() == pytest.approx(1 / math.sqrt(2))


def test_rotation_shift_and_scale_change_no_cka():
    left, right = draw(40, 5), draw(40, 5, seed=1)
    torch.testing.assert_close(
        linear_cka(7 * left @ rotation(5) + 3, 0.1 * right @ rotation(5, 1)), linear_cka(left, right)
    )
    assert linear_cka(left, left @ rotation(5) - 9).item() == pytest.approx(1)
    stretched = left * torch.arange(1, 6)  # no invariance to any other linear map
    assert linear_cka(left, stretched).item() < 0.99


@pytest.mark.parametrize("rows", [6, 60])
def test_layer_cka_is_cka_of_every_two_layers(rows):
    views = draw(rows, 4, 8).cumsum(dim=1)
    found = layer_cka(views)
    expected = [[linear_cka(views[:, i], views[:, j]).item() for j in range(4)] for i in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    torch.testing.assert_close(found, found.T)
    np.testing.assert_allclose(layer_cka(views.float()), expected, rtol=1e-4)


def test_a_layer_that_does_not_vary_is_like_no_other():
    views = draw(20, 3, 4)
    views[:, 0] = 1
    found = layer_cka(views)
    assert found[0].isnan().all()
    assert found[:, 0].isnan().all()
    assert found[1:, 1:].isfinite().all()


# Tokens


def test_token_cosines_are_all_cosines():
    states = draw(7, 5)
    np.testing.assert_allclose(token_cosines(states), cosine_similarity(states.numpy()), atol=1e-12)
    known = token_cosines(torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]))
    half = math.sqrt(0.5)
    np.testing.assert_allclose(known, [[1, 0, half, 0], [0, 1, half, 0], [half, half, 1, 0], [0, 0, 0, 0]], atol=1e-7)
    assert token_cosines(states.bfloat16()).dtype == torch.float32


A = torch.ones(3, 4)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: anisotropy(A[:1]), r"anisotropy is of pairs, and one embedding came"),
        (lambda: anisotropy(A[:0]), r"embeddings: the shape is \(0, 4\); expected \(rows, width\)"),
        (lambda: anisotropy(torch.cat([A, 0 * A[:1]])), r"embeddings: row 3 is zero and has no direction"),
        (lambda: spectrum(A[:1]), r"embeddings: one row does not vary; give at least two"),
        (lambda: spectrum(A[:0]), r"embeddings: the shape is \(0, 4\); expected \(rows, width\)"),
        (lambda: effective_rank(A[0]), r"embeddings: the shape is \(4,\); expected \(rows, width\)"),
        (lambda: linear_cka(A, A[0]), r"right: the shape is \(4,\)"),
        (lambda: linear_cka(A, A[:2]), r"left has 3 rows and right 2; give two representations of the same sentences"),
        (lambda: linear_cka(A[:1], A[:1]), r"left: one row does not vary"),
        (lambda: layer_cka(A), r"views: the shape is \(3, 4\); expected \(sentences, layers, width\)"),
        (lambda: layer_cka(torch.ones(1, 3, 4)), r"views: one row does not vary"),
        (lambda: token_cosines(A[0]), r"states: the shape is \(4,\); expected \(tokens, width\)"),
        (lambda: token_cosines(A[:0]), r"states: the shape is \(0, 4\)"),
    ],
)
def test_what_has_no_measure_is_refused_with_the_reason(call, text):
    with pytest.raises(InputError, match=text):
        call()
