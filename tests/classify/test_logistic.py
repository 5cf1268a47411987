"""The batched logistic regressions of folds against scikit-learn's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from layerwise.classify import fit_like_saga, fit_optimum, logistic
from layerwise.errors import InputError
from support.plain_classifiers import saga


def problem(classes: int, *, rows: int = 400, width: int = 20, folds: int = 5, seed: int = 0):
    """Correlated features with a common offset, as sentence vectors have; noisy labels; random folds."""
    random = np.random.default_rng(seed)
    scales = np.geomspace(2, 0.05, width)
    features = random.normal(size=(rows, width)) @ np.linalg.qr(random.normal(size=(width, width)))[0] * scales + 0.5
    scores = features @ random.normal(size=(width, classes))
    scores += random.gumbel(size=(rows, classes)) - scores.mean(0)
    training = random.random((folds, rows)) < 0.7
    return features, scores.argmax(1), training


def tensors(features, labels, training, dtype=torch.float64):
    return torch.tensor(features, dtype=dtype), torch.tensor(labels), torch.tensor(training)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_the_optimum_is_that_of_scikit_learn(classes):
    features, labels, training = problem(classes, rows=250, width=12, folds=2)
    fits = fit_optimum(*tensors(features, labels, training), tolerance=1e-8)
    assert fits.converged.all()
    for fold, rows in enumerate(training):
        reference = LogisticRegression(C=10, tol=1e-9, max_iter=10_000).fit(features[rows], labels[rows])
        assert fits.weights[fold].numpy() == pytest.approx(reference.coef_, abs=1e-4)
        spread = fits.intercepts[fold].numpy() - reference.intercept_
        assert np.ptp(spread) < 1e-4  # of several classes, intercepts are free up to a common number
        if classes == 2:
            assert abs(spread) < 1e-4
        assert (fits.predict(torch.tensor(features))[fold].numpy() == reference.predict(features)).all()


@pytest.mark.parametrize("classes", [2, 4])
def test_the_optimum_in_float32(classes):
    features, labels, training = problem(classes, rows=250, width=12, folds=2)
    fits = fit_optimum(*tensors(features, labels, training, torch.float32))
    for fold, rows in enumerate(training):
        reference = LogisticRegression(C=10, tol=1e-9, max_iter=10_000).fit(features[rows], labels[rows])
        scores = features @ fits.weights[fold].numpy().T.astype(float) + fits.intercepts[fold].numpy()
        chances = 1 / (1 + np.exp(-scores)) if classes == 2 else np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        assert chances == pytest.approx(reference.predict_proba(features)[:, 1:] if classes == 2
                                        else reference.predict_proba(features), abs=5e-3)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 5])
def test_where_saga_halts_is_not_the_optimum_and_we_halt_there_too(classes):
    features, labels, training = problem(classes, rows=1500, width=60)
    near = fit_like_saga(*tensors(features, labels, training, torch.float32))
    optimum = fit_optimum(*tensors(features, labels, training, torch.float32))
    for fold, rows in enumerate(training):
        reference = saga(features[rows], labels[rows])
        size = np.linalg.norm(reference.coef_)
        ours = np.linalg.norm(near.weights[fold].numpy() - reference.coef_) / size
        theirs = np.linalg.norm(optimum.weights[fold].numpy() - reference.coef_) / size
        assert ours < 0.1  # scikit-learn with two seeds: 0.03
        assert ours < theirs / 2
        assert abs(int(near.rounds[fold]) - int(reference.n_iter_.max())) <= 8
        agree = (near.predict(torch.tensor(features).float())[fold].numpy() == reference.predict(features)).mean()
        assert agree > 0.985


def test_a_looser_and_a_tighter_tolerance_and_the_epochs_allowed():
    features, labels, training = tensors(*problem(2))
    rounds = [int(fit_like_saga(features, labels, training, tolerance=t).rounds.max()) for t in (0.1, 0.01, 0.001)]
    assert rounds == sorted(rounds)
    assert rounds[0] < rounds[1]
    cut = fit_like_saga(features, labels, training, epochs=3)
    assert (cut.rounds == 3).all()
    assert not cut.converged.any()
    assert not fit_optimum(features, labels, training, rounds=2).converged.any()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.permutations(range(5)), st.sampled_from([2, 3]))
def test_folds_do_not_know_of_each_other(seed, order, classes):
    features, labels, training = tensors(*problem(classes, rows=80, width=6, seed=seed))
    for fit in (fit_like_saga, fit_optimum):
        whole = fit(features, labels, training)
        some = fit(features, labels, training[order[:2]])
        assert torch.allclose(whole.weights[order[:2]], some.weights, atol=1e-8)
        assert (whole.rounds[order[:2]] == some.rounds).all()


@pytest.mark.parametrize("fit", [fit_like_saga, fit_optimum])
def test_labels_of_other_rows_have_no_part(fit):
    features, labels, training = tensors(*problem(3, folds=1))
    changed = torch.where(training[0], labels, (labels + 1) % 3)
    assert torch.equal(fit(features, labels, training).weights, fit(features, changed, training).weights)


@pytest.mark.parametrize("fit", [fit_like_saga, fit_optimum])
def test_several_sets_and_small_memory_change_nothing(fit, monkeypatch):
    features, labels, training = tensors(*problem(3))
    both = torch.stack([features, features.flip(1) ** 2])
    together = fit(both, labels, training)
    assert together.weights.shape == (2, 5, 3, 20)
    assert together.predict(both).shape == (2, 5, 400)
    monkeypatch.setattr(logistic, "_workspace", lambda _device: 1)
    for own, matrix in enumerate(both):
        alone = fit(matrix, labels, training)
        assert torch.allclose(together[own].weights, alone.weights, atol=1e-8)
        assert (together.predict(both)[own] == alone.predict(matrix)).all()


@pytest.mark.parametrize("fit", [fit_like_saga, fit_optimum])
def test_a_class_that_a_fold_has_not_seen_is_never_predicted(fit):
    features, labels, training = problem(4, folds=2)
    training[1] &= labels != 2
    fits = fit(*tensors(features, labels, training))
    predicted = fits.predict(torch.tensor(features)).numpy()
    assert (predicted[0] == 2).any()
    assert not (predicted[1] == 2).any()
    if fit is fit_optimum:
        reference = LogisticRegression(C=10, tol=1e-8, max_iter=10_000).fit(features[training[1]], labels[training[1]])
        assert (predicted[1] == reference.predict(features)).mean() > 0.99


def test_curvature_that_differs_from_row_to_row_does_not_make_it_swing():
    """Few rows far out, many classes, one of them rare: the mean curvature says little about such axes."""
    random = np.random.default_rng(0)
    features, labels, training = problem(6, rows=600, width=30)
    features[:20] *= 30 * random.random((20, 1))
    labels[labels == 5] = np.where(random.random((labels == 5).sum()) < 0.1, 5, 0)
    labels[:2] = 5
    training[:, :2] = True
    fits = fit_like_saga(*tensors(features, labels, training, torch.float32), tolerance=1e-4)
    assert torch.isfinite(fits.weights).all()
    for fold, rows in enumerate(training):
        size = np.linalg.norm(saga(features[rows], labels[rows], tol=1e-4).coef_)
        assert np.linalg.norm(fits.weights[fold].numpy()) < 1.5 * size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y, t: (x, y[:-1], t), r"don't fit together: expected \(n, width\), \(n,\) and \(folds, n\) of bool"),
        (lambda x, y, t: (x, y, t.float()), "of bool"),
        (lambda x, y, t: (x, y, t & False), "a training row in every fold"),
        (lambda x, y, t: (x, y * 0, t), "labels from 0 to at least 1"),
    ],
)
def test_rows_that_do_not_fit(change, message):
    with pytest.raises(InputError, match=message):
        fit_optimum(*change(*tensors(*problem(2))))


def test_c_of_nothing():
    with pytest.raises(InputError, match="C is 0; it must be above 0"):
        fit_like_saga(*tensors(*problem(2)), c=0)
