"""Every measure equals its formula written out with plain loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.errors import InputError
from layerwise.measures import alignment, layer_similarity, token_similarity, uniformity


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def cosine(one, other):
    return float(one @ other / (one.norm() * other.norm()))


def unit(vector):
    return vector / vector.norm()


def naive_token_similarity(states, mask):
    result = []
    for sentence, kept in zip(states, mask, strict=True):
        tokens = [token for token, keep in zip(sentence, kept, strict=True) if keep]
        pairs = [cosine(a, b) for i, a in enumerate(tokens) for j, b in enumerate(tokens) if i != j]
        result.append(sum(pairs) / len(pairs) if pairs else math.nan)
    return torch.tensor(result, dtype=torch.float64)


@settings(deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4), st.integers(0, 1000))
def test_token_similarity_is_the_mean_over_pairs_of_kept_tokens(kept, seed):
    mask, states = torch.tensor(kept), draw(len(kept), 6, 3, seed=seed)
    expected = naive_token_similarity(states, mask)
    torch.testing.assert_close(token_similarity(states, mask), expected, equal_nan=True)
    torch.testing.assert_close(token_similarity(states, mask.long()), expected, equal_nan=True)
    ours = token_similarity(states.bfloat16(), mask)
    assert ours.dtype == torch.float32
    expected = naive_token_similarity(states.bfloat16().double(), mask).float()
    torch.testing.assert_close(ours, expected, equal_nan=True, atol=1e-6, rtol=1e-5)


def test_token_similarity_of_known_sentences():
    axes = torch.eye(3)
    states = torch.stack([axes, axes[[0, 0, 0]], torch.stack([axes[0], -axes[0], 0 * axes[0]])])
    result = token_similarity(states, torch.ones(3, 3))
    torch.testing.assert_close(result, torch.tensor([0.0, 1.0, -1 / 3]))
    assert token_similarity(states, torch.tensor([[1, 0, 0]] * 3)).isnan().all()


def test_long_sentences_lose_no_digits_and_make_no_matrix_of_tokens():
    states = draw(2, 512, 16) + 3
    mask = torch.arange(512).expand(2, 512) < torch.tensor([[512], [300]])
    units = states / states.norm(dim=-1, keepdim=True)
    expected = []
    for sentence, count in zip(units, (512, 300), strict=True):
        gram = sentence[:count] @ sentence[:count].T
        expected.append((gram.sum() - gram.trace()) / (count * (count - 1)))
    torch.testing.assert_close(token_similarity(states.float(), mask), torch.stack(expected).float(), rtol=1e-6, atol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(token_similarity(states.float(), mask), torch.stack(expected).float())


def test_layer_similarity_is_the_cosine_of_neighbours():
    views = draw(3, 5, 4)
    expected = [[cosine(layers[i], layers[i + 1]) for i in range(4)] for layers in views]
    torch.testing.assert_close(layer_similarity(views), torch.tensor(expected, dtype=torch.float64))
    assert layer_similarity(views.half()).dtype == torch.float32
    assert layer_similarity(torch.zeros(1, 2, 4)).tolist() == [[0.0]]


@pytest.mark.parametrize("power", [1, 2, 3.5])
def test_alignment_is_the_mean_distance_of_pairs(power):
    left, right = draw(5, 4), draw(5, 4, seed=1)
    expected = sum((unit(a) - unit(b)).norm() ** power for a, b in zip(left, right, strict=True)) / 5
    torch.testing.assert_close(alignment(left, right, power=power), expected)
    assert alignment(left, 7 * left, power=power) < 1e-12


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 9), st.sampled_from([0.5, 2, 300]), st.integers(0, 1000), st.integers(1, 4))
def test_uniformity_is_the_log_of_the_mean_over_pairs(count, t, seed, block):
    embeddings = draw(count, 3, seed=seed).requires_grad_()
    pairs = [
        -t * (unit(embeddings[i]) - unit(embeddings[j])).square().sum()
        for i in range(count)
        for j in range(i + 1, count)
    ]
    expected = torch.stack(pairs).logsumexp(0) - math.log(len(pairs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layerwise.measures.geometry._BLOCK", block)
        ours = uniformity(embeddings, t=t)
    torch.testing.assert_close(ours, expected)
    gradients = (torch.autograd.grad(loss, embeddings) for loss in (ours, expected))
    torch.testing.assert_close(*gradients)


def test_uniformity_of_thousands_equals_pdist():
    embeddings = draw(3000, 8)
    units = embeddings / embeddings.norm(dim=1, keepdim=True)
    expected = torch.nn.functional.pdist(units).square().mul(-2).exp().mean().log()
    torch.testing.assert_close(uniformity(embeddings), expected)
    torch.testing.assert_close(uniformity(embeddings.float()), expected.float())


def test_uniformity_of_known_places():
    assert uniformity(torch.ones(4, 3)).item() == pytest.approx(0, abs=1e-6)
    assert uniformity(torch.eye(4)).item() == pytest.approx(-4)
    assert uniformity(torch.tensor([[1.0], [-1.0]]), t=1000).item() == pytest.approx(-4000)


def test_measures_are_differentiable():
    states, mask = draw(2, 4, 3).index_fill(1, torch.tensor([2]), 0).requires_grad_(), torch.ones(2, 4)
    (token_similarity(states, mask).sum() + layer_similarity(states).sum()).backward()
    assert states.grad.isfinite().all()
    assert torch.autograd.gradcheck(
        lambda a, b: alignment(a, b) + uniformity(a), (draw(4, 3).requires_grad_(), draw(4, 3, seed=1))
    )


A = torch.ones(3, 4)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: token_similarity(A, A), r"states \(3, 4\) and mask \(3, 4\); expected \(sentences, tokens, width\)"),
        (lambda: token_similarity(torch.ones(3, 2, 4), A), r"states \(3, 2, 4\) and mask \(3, 4\)"),
        (lambda: layer_similarity(torch.ones(3, 1, 4)), r"views: the shape is \(3, 1, 4\); .* at least two layers"),
        (lambda: alignment(A, A[:2]), r"The shapes differ: left \(3, 4\), right \(2, 4\); give pairs"),
        (lambda: alignment(A, A, power=0), r"power 0 is not possible; give a number above 0"),
        (lambda: alignment(A[:0], A[:0]), r"left: the shape is \(0, 4\); expected \(rows, width\)"),
        (lambda: alignment(A, torch.cat([A[:2], 0 * A[:1]])), r"right: row 2 is zero and has no direction"),
        (lambda: uniformity(A[:1]), r"uniformity is of pairs, and one embedding came"),
        (lambda: uniformity(A, t=math.nan), r"t nan is not possible"),
        (lambda: uniformity(A[0]), r"embeddings: the shape is \(4,\); expected \(rows, width\)"),
    ],
)
def test_what_has_no_measure_is_refused_with_the_reason(call, text):
    with pytest.raises(InputError, match=text):
        call()
