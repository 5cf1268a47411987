"""The batched logistic regressions against scikit-learn's, and the search of layers for a classification task."""

import json
import warnings
from dataclasses import replace
from itertools import combinations

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from layerwise import LayerEncoder
from layerwise.classify import fit_like_saga, fit_optimum, logistic
from layerwise.errors import InputError, LayerwiseError
from layerwise.search import (
    Gain,
    TransferProtocol,
    TransferReport,
    TransferSearch,
    draw_splits,
    training_size_ablation,
    transfer,
)
from layerwise.search.transfer_protocol import TransferSplit, bootstrap_accuracies

SMALL = TransferProtocol(outer=2, inner=3)


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


def saga(features, labels, *, seed=0, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(
            **{"solver": "saga", "C": 10, "tol": 0.01, "max_iter": 200, "random_state": seed} | options
        ).fit(features, labels)


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


def test_sizes_of_the_papers_protocol():
    splits = draw_splits(1000, TransferProtocol())
    assert len(splits) == 10
    for split in splits:
        assert (len(split.test), len(split.rest), len(split.inner)) == (150, 850, 10)
        assert sorted([*split.test, *split.rest]) == list(range(1000))
        for trained, scored in split.inner:
            assert (len(trained), len(scored)) == (697, 153)
            assert sorted([*trained, *scored]) == sorted(split.rest)
    assert len({tuple(sorted(split.test)) for split in splits}) == 10
    again = draw_splits(1000, TransferProtocol(outer=3))
    assert all((a.test == b.test).all() for a, b in zip(splits, again, strict=False))
    assert (draw_splits(1000, TransferProtocol(seed=1))[0].test != splits[0].test).any()


def test_a_cut_leaves_the_test_rows_and_keeps_part_of_the_others():
    whole, half, quarter = (draw_splits(400, SMALL, size=size) for size in (1.0, 0.5, 0.25))
    for a, b, c in zip(whole, half, quarter, strict=True):
        assert (a.test == b.test).all()
        assert (a.test == c.test).all()
        assert (len(a.rest), len(b.rest), len(c.rest)) == (340, 170, 85)
        assert set(a.rest) > set(b.rest) > set(c.rest)


def planted(rows: int = 400, layers: int = 6, width: int = 5, seed: int = 0):
    """Only the sum of layers 2 and 4 tells the label: each of them hides it under the same noise, of opposite sign."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, rows)
    views = random.normal(size=(rows, layers, width))
    noise = 5 * random.normal(size=(rows, width))
    signal = (2 * labels - 1)[:, None] + 0.3 * random.normal(size=(rows, width))
    views[:, 2], views[:, 4] = signal + noise, signal - noise
    return views.astype(np.float32), labels


def test_the_planted_layers_are_found():
    views, labels = planted()
    done = []
    search = TransferSearch(protocol=SMALL, device="cpu", progress=done.append).fit(views, labels)
    assert search.layers_ == (2, 4)
    assert [split.layers for split in search.splits_] == [(2, 4)] * 2
    assert len(search.table_) == sum(done) == sum(len(list(combinations(range(6), size))) for size in (1, 2, 3, 4))
    assert max(search.table_, key=search.table_.get) == (2, 4)
    report = search.report_
    assert report.mean > 0.95
    assert report.last_mean < 0.65
    assert report.times_chosen == {2: 2, 4: 2}
    assert search.table_[(5,)] == pytest.approx(np.mean([split.last_dev for split in search.splits_]))
    assert json.loads(json.dumps(report.as_dict()))["protocol"]["C"] == 10


def test_the_reported_figures_are_those_of_scikit_learn():
    views, labels = planted()
    search = TransferSearch(protocol=SMALL, sets=[(2, 4), (1,)], device="cpu").fit(views, labels)
    for split, found in zip(draw_splits(400, SMALL), search.splits_, strict=True):
        for layers, accuracy in (((2, 4), found.test), ((5,), found.last_test)):
            features = views[:, layers].mean(1)
            model = saga(features[split.rest], labels[split.rest])
            assert accuracy == pytest.approx(model.score(features[split.test], labels[split.test]), abs=0.02)
        dev = [saga(views[t][:, [2, 4]].mean(1), labels[t]).score(views[s][:, [2, 4]].mean(1), labels[s])
               for t, s in split.inner]  # fmt: skip
        assert found.dev == pytest.approx(np.mean(dev), abs=0.01)


def test_the_same_seed_gives_the_same_result_and_another_does_not():
    random = np.random.default_rng(0)
    views, labels = random.normal(size=(300, 4, 6)), random.choice(["dog", "cat", "cow"], 300)
    views[:, 1] += (labels == "cow")[:, None]
    one, same, other = (
        TransferSearch(protocol=replace(SMALL, seed=seed), device="cpu").fit(views, labels) for seed in (3, 3, 4)
    )
    assert one.report_ == same.report_
    assert one.table_ == same.table_
    assert one.table_ != other.table_
    assert list(one.classes_) == ["cat", "cow", "dog"]


def test_equal_sets_are_told_apart_by_size_then_by_highest_layer():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 200)
    views = np.repeat(random.normal(size=(200, 1, 4)) + labels[:, None, None], 5, axis=1)
    sets = [(0, 4), (3,), (1,), (2,), (-5, 1)]
    assert TransferSearch(protocol=SMALL, sets=sets, device="cpu").fit(views, labels).layers_ == (1,)


def test_pairs_are_compared_by_difference_and_product():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 400)
    first, second = (random.normal(size=(400, 3, 6)) for _ in range(2))
    second[:, 1] = np.where(labels[:, None] == 1, first[:, 1] + 0.3 * second[:, 1], second[:, 1])
    search = TransferSearch(protocol=SMALL, device="cpu").fit(first, labels, pair_views=second)
    assert search.layers_ == (1,)
    assert search.report_.mean > 0.9
    split = draw_splits(400, SMALL)[0]
    u, v = first[:, 1].astype(np.float32), second[:, 1].astype(np.float32)
    features = np.hstack([abs(u - v), u * v])
    model = saga(features[split.rest], labels[split.rest])
    assert search.splits_[0].test == pytest.approx(model.score(features[split.test], labels[split.test]), abs=0.02)


def test_figures_of_a_report_by_hand():
    splits = [TransferSplit((1,), 0.8, 0.9, 0.7, 0.8), TransferSplit((1, 3), 0.8, 0.7, 0.7, 0.6)]
    gain = Gain(0.1, 0.05, 0.15, 0.01)
    report = TransferReport.of(splits, gain, 85, TransferProtocol(outer=2))
    assert report.interval == gain
    assert report.mean == pytest.approx(0.8)
    assert report.sd == pytest.approx(0.2 / 2**0.5)
    assert (report.gain, report.gain_sd) == pytest.approx((0.1, 0))
    assert report.error_reduction == pytest.approx(0.1 / 0.3)
    assert report.times_chosen == {1: 2, 3: 1}
    perfect = TransferReport.of([TransferSplit((1,), 1, 1, 1, 1)], gain, 85, TransferProtocol(outer=1))
    assert (perfect.error_reduction, perfect.sd) == (0, 0)


def test_the_interval_of_a_gain_is_the_bootstrap_of_its_rows():
    random = np.random.default_rng(0)
    chosen, last = random.random(500) < 0.9, random.random(500) < 0.7
    one = bootstrap_accuracies(500, [(np.arange(500), chosen, last)])
    assert one.mean == pytest.approx(chosen.mean() - last.mean())
    spread = (chosen.astype(float) - last).std() / 500**0.5
    assert (one.low, one.high) == pytest.approx((one.mean - 1.96 * spread, one.mean + 1.96 * spread), abs=0.006)
    rows = random.permutation(500)[:100]
    parts = [(np.arange(500), chosen, last), (rows, chosen[rows], chosen[rows])]
    both = bootstrap_accuracies(500, parts)
    assert both.mean == pytest.approx(one.mean / 2)
    assert bootstrap_accuracies(500, parts) == both
    same = bootstrap_accuracies(500, [(rows, chosen[rows], chosen[rows])])
    assert (same.mean, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def test_less_to_train_on():
    views, labels = planted(rows=600)
    reports = training_size_ablation(views, labels, sizes=(1, 1 / 8, 1 / 64), sets=[(2, 4), (5,)], protocol=SMALL)
    assert [report.rows for report in reports.values()] == [510, 64, 8]
    whole = TransferSearch(protocol=SMALL, sets=[(2, 4), (5,)]).fit(views, labels).report_
    assert reports[1] == whole
    assert reports[1].mean >= reports[1 / 64].mean
    assert all(report.gain > 0.1 for report in list(reports.values())[:2])


def test_less_than_every_class_to_train_on():
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [150, 140, 10])
    views = random.normal(size=(300, 2, 4)) + labels[:, None, None]
    reports = training_size_ablation(views, labels, sizes=(1 / 64,), protocol=SMALL, device="cpu")
    assert reports[1 / 64].rows == 4
    with pytest.raises(InputError, match=r"too few rows: a split leaves 1 of them"):
        training_size_ablation(views[:12], labels[:12] == [0, 1] * 6, sizes=(0.1,), protocol=SMALL, device="cpu")


def test_an_interrupt_leaves_nothing_half_done():
    def interrupt(_sets: int) -> None:
        raise KeyboardInterrupt

    views, labels = planted(rows=100)
    search = TransferSearch(protocol=SMALL, device="cpu", progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        search.fit(views, labels)
    assert not [name for name in vars(search) if name.endswith("_")]
    search.progress = None
    assert search.fit(views, labels).layers_ == (2, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outer": 0}, "outer is 0; it must be 1 or more"),
        ({"largest": 0}, "largest is 0; it must be 1 or more"),
        ({"test": 1.0}, r"test is 1\.0; it must be a share"),
        ({"dev": 15}, "dev is 15; it must be a share"),
        ({"C": 0.0}, r"C is 0\.0; it must be above 0"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
    ],
)
def test_a_protocol_that_can_not_be(change, message):
    with pytest.raises(InputError, match=message):
        TransferProtocol(**change)


def bad_row(views):
    views = views.copy()
    views[17, 3, 0] = np.nan
    return views


@pytest.mark.parametrize(
    ("views", "labels", "options", "message"),
    [
        (lambda v: v[0], lambda y: y, {}, r"views have the shape \(6, 5\); expected \(rows, layers, width\)"),
        (lambda v: v, lambda y: y[:-1], {}, r"100 rows of views but labels of shape \(99,\): the lengths differ"),
        (lambda v: v, lambda y: y * 0, {}, "100 rows of 1 class: a classification needs 2"),
        (lambda v: v, lambda y: np.where(y, np.nan, 1.0), {}, "label .* is not a finite number"),
        (bad_row, lambda y: y, {}, "row 17 of views has NaN or infinite numbers"),
        (lambda v: v, lambda y: y, {"pair_views": bad_row}, "row 17 of pair_views has NaN"),
        (lambda v: v, lambda y: y, {"pair_views": lambda v: v[:, :2]}, "pair_views have the shape .* they must agree"),
        (lambda v: v[:3], lambda y: np.array([0, 1, 1]), {}, "too few rows: a split leaves 2"),
        (lambda v: v, lambda y: np.arange(100) // 99, {}, r"class 1 \(1 of 100 rows\) is in no training row"),
        (lambda v: v, lambda y: y, {"sets": [(2, 6)]}, r"no layer 6 in set \(2, 6\): there are layers 0 to 5"),
        (lambda v: v, lambda y: y, {"sets": [()]}, "a set of layers is empty"),
        (lambda v: v, lambda y: y, {"sets": []}, "sets is empty"),
        (lambda v: v, lambda y: y, {"device": "abacus"}, "device 'abacus' cannot be used here"),
    ],
)
def test_bad_input(views, labels, options, message):
    all_views, all_labels = planted(rows=100)
    given_pairs = options.get("pair_views")
    settings = {name: value for name, value in options.items() if name != "pair_views"}
    with pytest.raises(LayerwiseError, match=message):
        TransferSearch(protocol=SMALL, **{"device": "cpu"} | settings).fit(
            views(all_views), labels(all_labels), pair_views=given_pairs and given_pairs(all_views)
        )


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


def test_sizes_that_can_not_be_and_c_of_nothing():
    with pytest.raises(InputError, match=r"sizes are \(0,\)"):
        training_size_ablation(*planted(), sizes=(0,))
    with pytest.raises(InputError, match="C is 0; it must be above 0"):
        fit_like_saga(*tensors(*problem(2)), c=0)


@pytest.mark.slow  # made-up classes are compared with the same solver above
@pytest.mark.shared
def test_real_questions_get_the_accuracy_of_scikit_learn(shared):
    table = pq.read_table(shared / "data" / "transfer" / "trec.parquet").slice(0, 240).to_pydict()
    labels = np.array(table["label"])
    views = LayerEncoder(shared / "models" / "wiki-mlm-12x384", device="cpu").encode_layers(table["text"])
    protocol = TransferProtocol(outer=2, inner=3)
    search = TransferSearch(protocol=protocol, sets=[(0, 4)], device="cpu").fit(views, labels)
    folds = [fold for split in draw_splits(len(labels), protocol) for fold in split.inner]
    features, found = views[:, [0, 4]].mean(1), np.zeros(len(folds))

    def score(fold: int) -> None:
        trained, scored = folds[fold]
        found[fold] = saga(features[trained], labels[trained]).score(features[scored], labels[scored])

    transfer.share(range(len(folds)), score)
    assert search.table_[(0, 4)] == pytest.approx(found.mean(), abs=0.015)
    assert search.report_.mean > 0.6
