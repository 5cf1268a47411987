"""SentEval's protocols against plain scikit-learn, and the batched regressions against it one by one."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from layerwise.classify import GRIDS, SentEvalProtocol, evaluate_classes, pair_features
from layerwise.classify.grid import Guide
from layerwise.classify.problems import Rows, predictions
from layerwise.errors import InputError, LayerwiseError
from support.plain_classifiers import (
    plain_kfold,
    plain_train_dev_test,
    plain_train_test,
    planted,
)
from support.slow_cases import most_slow

SMALL = SentEvalProtocol(folds=3, inner=3)


def splits_of(rows: int, dev: bool) -> dict[str, np.ndarray]:
    order = np.random.default_rng(1).permutation(rows)
    parts = np.split(order, [rows // 2, 3 * rows // 4])
    return (
        dict(zip(("train", "dev", "test"), parts, strict=True))
        if dev
        else {"train": order[: rows // 2], "test": parts[2]}
    )


@pytest.mark.parametrize("classes", [2, 4])
def test_a_task_without_splits_is_scored_as_by_scikit_learn(classes):
    features, labels = planted(classes=classes)
    found = evaluate_classes(features, labels, SMALL)
    accuracy, chosen, predicted = plain_kfold(features, labels, folds=3, inner=3)
    assert found.accuracy == pytest.approx(accuracy, abs=0.001)
    assert found.chosen == tuple(chosen)
    assert (found.predictions == predicted).mean() > 0.995
    assert found.rows.tolist() == list(range(300))
    assert found.accuracy == pytest.approx(np.mean(found.by_fold))
    assert (found.kind, found.sizes) == ("kfold", {"all": 300})


@pytest.mark.parametrize("classes", [2, 5])
def test_train_and_test(classes):
    features, labels = planted(classes=classes, rows=400)
    splits = splits_of(400, dev=False)
    found = evaluate_classes(features, labels, SMALL, splits)
    accuracy, chosen, predicted = plain_train_test(features, labels, splits, inner=3)
    assert (found.accuracy, found.chosen) == (pytest.approx(accuracy, abs=0.001), (chosen,))
    assert found.rows.tolist() == sorted(splits["test"])
    assert (found.predictions == predicted[np.argsort(splits["test"])]).mean() > 0.99
    assert found.correct.mean() == pytest.approx(found.accuracy)
    assert found.sizes == {"train": 200, "test": 100}
    if classes == 2:
        assert found.f1 == pytest.approx(f1_score(labels[found.rows], found.predictions))
    else:
        assert found.f1 is None


@pytest.mark.parametrize("classes", [2, 3])
def test_train_dev_and_test(classes):
    features, labels = planted(classes=classes, rows=400, noise=2)
    splits = splits_of(400, dev=True)
    found = evaluate_classes(features, labels, splits=splits)
    accuracy, chosen = plain_train_dev_test(features, labels, splits)
    assert (found.accuracy, found.chosen) == (pytest.approx(accuracy, abs=0.001), (chosen,))
    assert found.kind == "train-dev-test"


@pytest.mark.parametrize("classes", most_slow([2, 4, 40], now=[4]))
def test_weights_are_scikit_learns(classes):
    features, labels = planted(classes=classes, rows=600)
    rows = Rows.of(torch.tensor(features).double(), torch.tensor(labels), classes)
    guide = Guide.of(rows, (0.25, 1.0, 4.0), tolerance=1e-9, rounds=5000)
    folds, fold, c = some_folds(labels, cs=3)
    found = guide.fit(folds, fold, c)
    assert bool(found.converged.all())
    for number in (0, 4, 8):
        train, value = folds[fold[number]].numpy(), guide.cs[c[number]]
        model = LogisticRegression(C=value, solver="newton-cholesky", tol=1e-10)  # L-BFGS halts earlier
        model.fit(features[train].astype(np.float64), labels[train])
        np.testing.assert_allclose(found.weights[number, :, :-1].numpy(), model.coef_, atol=1e-5)
        np.testing.assert_allclose(found.weights[number, :, -1].numpy(), model.intercept_, atol=1e-5)


def some_folds(labels, cs: int, count: int = 3):
    """Masks of training rows, and the fold and the number of C of every pair of them."""
    masks = np.ones((count, len(labels)), dtype=bool)
    for mask, (_, held) in zip(
        masks, StratifiedKFold(count, shuffle=True, random_state=0).split(labels, labels), strict=True
    ):
        mask[held] = False
    return torch.tensor(masks), torch.arange(count).repeat_interleave(cs), torch.arange(cs).repeat(count)


@pytest.mark.parametrize("classes", [2, 3])
def test_where_a_fold_starts_does_not_matter(classes):
    """The guide has seen the held-out rows; the optimum that it leads to has not."""
    features, labels = planted(classes=classes)
    folds, fold, c = some_folds(labels, cs=2)
    rows = Rows.of(torch.tensor(features).double(), torch.tensor(labels), classes)
    other = labels.copy()
    other[~folds[0].numpy()] = (other[~folds[0].numpy()] + 1) % classes  # the guide is told lies about held-out rows
    lied_to = Rows.of(rows.features[:, :-1], torch.tensor(other), classes)
    guides = [Guide.of(one, (0.5, 8.0), tolerance=1e-9) for one in (rows, lied_to)]
    mine = [guide.fit(folds, fold, c).weights[:2] for guide in guides]
    random = torch.randn(6, *mine[0].shape[1:], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mine.append(guides[0].fit(folds, fold, c, start=random).weights[:2])
    torch.testing.assert_close(mine[1], mine[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(mine[2], mine[0], atol=1e-6, rtol=0)


def test_held_out_rows_change_nothing_in_a_score():
    features, labels = planted()
    splits = splits_of(300, dev=True)
    before = evaluate_classes(features, labels, splits=splits)
    changed = features.copy()
    changed[splits["test"]] *= -1
    after = evaluate_classes(changed, labels, splits=splits)
    assert (after.chosen, after.dev) == (before.chosen, before.dev)
    assert after.accuracy < 0.5 < before.accuracy


def test_a_fold_that_lacks_a_class_is_scikit_learns():
    features, labels = planted(classes=4, rows=200)
    rows = Rows.of(torch.tensor(features).double(), torch.tensor(labels), 4)
    guide = Guide.of(rows, (1.0,), tolerance=1e-9)
    lacks = torch.tensor(np.stack([labels != 2, (labels == 0) | (labels == 3), labels == 1]))
    each, first = torch.arange(3), torch.zeros(3, dtype=torch.int64)
    found = guide.fit(lacks, each, first)
    guessed = predictions(rows.features, found.weights, guide.problems(lacks, each, first).absent)
    assert set(guessed[2].tolist()) == {1}
    for fold in (0, 1):
        train = lacks[fold].numpy()
        model = LogisticRegression(tol=1e-10, max_iter=10_000).fit(features[train].astype(np.float64), labels[train])
        assert (guessed[fold].numpy() == model.predict(features)).all()


def test_many_classes_share_a_block():
    random = np.random.default_rng(0)
    labels = np.arange(720) % 60
    features = (random.normal(size=(60, 30))[labels] + 0.5 * random.normal(size=(720, 30))).astype(np.float32)
    splits = {"train": np.arange(240), "dev": np.arange(240, 480), "test": np.arange(480, 720)}
    found = evaluate_classes(features, labels, splits=splits)
    accuracy, _ = plain_train_dev_test(features, labels, splits)
    assert found.accuracy == pytest.approx(accuracy, abs=0.005)
    assert found.accuracy > 0.9


def test_equal_settings_give_the_first():
    features = np.repeat([[1.0], [-1.0]], 50, axis=0)
    found = evaluate_classes(features, np.repeat(["no", "yes"], 50), SMALL)
    assert (found.accuracy, found.f1, found.chosen) == (1, 1, (0.25,) * 3)
    assert found.predictions.tolist() == ["no"] * 50 + ["yes"] * 50
    backwards = SentEvalProtocol(folds=3, inner=3, grid=(8.0, 0.5))
    assert evaluate_classes(features, np.repeat([0, 1], 50), backwards).chosen == (8.0,) * 3


def test_the_order_of_a_grid_does_not_change_its_fits():
    features, labels = planted(noise=2)
    up, down = (SentEvalProtocol(folds=3, inner=3, grid=grid) for grid in ((0.01, 1.0), (1.0, 0.01)))
    assert evaluate_classes(features, labels, up).dev == evaluate_classes(features, labels, down).dev


def test_classes_that_only_test_rows_have_are_errors(caplog):
    features, labels = planted(rows=200)
    labels[190:] = 7
    found = evaluate_classes(features, labels, SMALL, {"train": np.arange(150), "test": np.arange(150, 200)})
    assert "10 tested rows are of classes that no training row has; they count as errors" in caplog.text
    assert set(found.predictions.tolist()) == {0, 1}
    assert not found.correct[40:].any()
    assert found.accuracy <= 0.8


@pytest.mark.slow
def test_features_of_any_size_and_constant_ones():
    features, labels = planted(rows=200)
    wide = np.concatenate([30 * features, np.ones((200, 3)), np.zeros((200, 2))], 1)
    accuracy, *_ = plain_kfold(wide, labels, folds=3, inner=3)
    assert evaluate_classes(wide, labels, SMALL).accuracy == pytest.approx(accuracy, abs=0.01)


def test_pairs_are_described_by_difference_and_product():
    made = pair_features([[1.0, -2.0]], [[3.0, 4.0]])
    assert made.tolist() == [[2, 6, 3, -8]]
    with pytest.raises(InputError, match=r"left \(1, 2\) and right \(1, 3\) must both be \(pairs, width\)"):
        pair_features(np.ones((1, 2)), np.ones((1, 3)))


def test_the_grids_are_sentevals():
    assert GRIDS["logistic"]["kfold"] == (0.25, 0.5, 1, 2, 4, 8)
    assert GRIDS["logistic"]["train-test"] == (0.5, 1, 2, 4, 8, 16, 32)
    assert GRIDS["mlp"]["train-dev-test"] == pytest.approx((1e-5, 1e-4, 1e-3, 1e-2))


def test_as_dict_is_for_json():
    assert "predictions" not in evaluate_classes(*planted(rows=60), SMALL).as_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classifier": "logistik"}, "Unknown classifier 'logistik'. Did you mean 'logistic'?"),
        ({"folds": 1}, "folds is 1; it must be 2 or more"),
        ({"inner": 0}, "inner is 0; it must be 2 or more"),
        ({"grid": ()}, r"grid is \(\); it must hold one setting or more, each above 0"),
        ({"grid": (1.0, -1.0)}, "each above 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_a_protocol_that_can_not_be(change, message):
    with pytest.raises(LayerwiseError, match=message):
        SentEvalProtocol(**change)


def with_nan(features):
    features = features.copy()
    features[17, 2] = np.nan
    return features


@pytest.mark.parametrize(
    ("features", "labels", "splits", "message"),
    [
        (lambda x: x[0], lambda y: y, None, r"features have the shape \(12,\); expected \(rows, width\)"),
        (lambda x: x, lambda y: y[:-1], None, r"60 rows of features but labels of shape \(59,\)"),
        (with_nan, lambda y: y, None, "row 17 of features has NaN or infinite numbers"),
        (lambda x: x, lambda y: y * 0, None, "the training rows are all of class 0: a classification needs 2 classes"),
        (lambda x: x, lambda y: np.where(y, np.nan, 1.0), None, "label .* is not a finite number"),
        (lambda x: x, lambda y: np.arange(60), None, "no class has more than 1 cannot be split into 3 folds"),
        (lambda x: x, lambda y: np.arange(60) // 59, None, "training rows of a fold are all of class 0"),
        (lambda x: x, lambda y: y, {"train": [0]}, "splits has train; expected train, test and maybe dev"),
        (lambda x: x, lambda y: y, {"train": [0, 1, 2], "test": [60]}, "split 'test' must be .* from 0 to 59"),
        (
            lambda x: x,
            lambda y: y,
            {"train": [0, 1], "test": []},
            r"split 'test' must be .* not float64 of shape \(0,\)",
        ),
        (lambda x: x, lambda y: y, {"train": range(40), "test": [39, 40]}, "row 39 is in the splits twice"),
    ],
)
def test_bad_input(features, labels, splits, message):
    x, y = planted(rows=60)
    with pytest.raises(InputError, match=message):
        evaluate_classes(features(x), labels(y), SMALL, splits)
