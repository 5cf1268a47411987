"""Heads, losses and scores of tasks: formulas written out, rows of padding that count for nothing, bad input."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import confusion_matrix, f1_score
from torch import nn

from layerwise.errors import InputError
from layerwise.objectives import info_nce
from layerwise.predict import predicted_classes, task_head
from layerwise.predict.heads import on_scale, pair_features
from layerwise.train.multitask.losses import contrast_loss, task_loss
from layerwise.train.multitask.metrics import confusion, overall, task_metric
from support.multitasking import setup

WIDTH = 6
LOSSES = ["cross-entropy", "binary", "mse"]


def task(kind, **given):
    """A classification of texts or of "pairs", or graded pairs."""
    columns = {"columns": {"right": "other"}} if kind == "pairs" else {}
    return setup(name="mine", kind="classification" if kind == "pairs" else kind, file="rows.csv", **columns, **given)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def test_pair_features_are_those_of_the_paper():
    u, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 1.0]])
    assert pair_features(u, v, "concat").tolist() == [[1, -2, 3, 1]]
    assert pair_features(u, v, "difference-sum").tolist() == [[2, 3, 4, 1]]
    assert pair_features(u, v, "all").tolist() == [[1, -2, 3, 1, 2, 3, 3, -2]]
    assert torch.equal(pair_features(u, v, "difference-sum"), pair_features(v, u, "difference-sum"))
    with pytest.raises(InputError, match="Unknown features 'sum'"):
        pair_features(u, v, "sum")
    with pytest.raises(InputError, match=r"The shapes differ: u \(1, 2\), v \(2, 2\)"):
        pair_features(u, v.repeat(2, 1), "concat")


@pytest.mark.parametrize(("features", "times"), [("concat", 2), ("difference-sum", 2), ("all", 4)])
@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_head_is_its_layers_on_the_features(features, times, kind):
    head = task_head(task("pairs", head=kind, features=features), WIDTH, 3, seed=1).eval()
    u, v = draw(4, WIDTH, dtype=torch.float32), draw(4, WIDTH, seed=1, dtype=torch.float32)
    layers = [layer for layer in head.network if isinstance(layer, nn.Linear)]
    widths = [times * WIDTH, 3] if kind == "linear" else [times * WIDTH, WIDTH, WIDTH, 3]
    assert [layers[0].in_features, *(layer.out_features for layer in layers)] == widths
    states = pair_features(u, v, features)
    for number, layer in enumerate(layers):
        states = (states.relu() if number else states) @ layer.weight.T + layer.bias
    torch.testing.assert_close(head(u, v), states)


@pytest.mark.parametrize(("kind", "outputs", "shape"), [("classification", 5, (4, 5)), ("classification", 1, (4,))])
def test_a_single_text_head(kind, outputs, shape):
    assert task_head(task(kind), WIDTH, outputs, seed=0)(draw(4, WIDTH, dtype=torch.float32)).shape == shape


@pytest.mark.parametrize(("cosine", "score"), [(1.0, 5.0), (0.0, 1.0), (0.5, 3.0), (-0.5, -1.0)])
def test_right_angles_are_the_lowest_of_the_scale(cosine, score):
    head = task_head(task("sts", head="cosine", scale=(1.0, 5.0)), 2, 1, seed=0)
    u, v = torch.tensor([[2.0, 0.0]]), torch.tensor([[3 * cosine, 3 * math.sqrt(1 - cosine**2)]])
    torch.testing.assert_close(head(u, v), torch.tensor([score]))
    assert not list(head.parameters())


def test_the_cosine_is_precise_in_half_precision_and_safe_at_zero():
    head = task_head(task("sts", head="cosine"), WIDTH, 1, seed=0)
    u, v = (draw(4, WIDTH, seed=seed, dtype=torch.bfloat16) for seed in (0, 1))
    wanted = on_scale(torch.cosine_similarity(u.double(), v.double()), (0.0, 5.0), lowest=0.0)
    torch.testing.assert_close(head(u, v), wanted.float())
    zero = torch.zeros(2, WIDTH, requires_grad=True)
    head(zero, torch.ones(2, WIDTH)).sum().backward()
    assert torch.isfinite(zero.grad).all()


def test_a_fresh_regression_starts_in_the_middle_of_its_scale():
    head = task_head(task("sts", head="mlp"), WIDTH, 1, seed=0).eval()
    assert head(*(draw(9, WIDTH, seed=seed, dtype=torch.float32) for seed in (0, 1))).sub(2.5).abs().max() < 0.1


def test_fresh_weights_depend_on_the_seed_alone():
    def weights(seed):
        return torch.cat([weight.flatten() for weight in task_head(task("pairs"), 400, 3, seed=seed).parameters()])

    torch.manual_seed(5)
    first = weights(1)
    assert torch.equal(first, weights(1))
    assert not torch.equal(first, weights(2))
    assert first[:-3].std().item() == pytest.approx(0.02, rel=0.05)
    assert not first[-3:].any()  # the biases


@pytest.mark.parametrize(("kind", "layers"), [("linear", 1), ("mlp", 3)])
def test_dropout_is_in_training_only_and_before_every_layer(kind, layers):
    head, u = task_head(task("classification", head=kind, dropout=0.5), WIDTH, 2, seed=0), torch.ones(4, WIDTH)
    assert not torch.equal(head.train()(u), head(u))
    assert torch.equal(head.eval()(u), head(u))
    order = [type(module) for module in head.network]
    assert order == [nn.Dropout, nn.Linear, *[nn.ReLU, nn.Dropout, nn.Linear] * (layers - 1)]


def test_embeddings_that_do_not_fit_are_refused():
    u = torch.ones(2, WIDTH)
    with pytest.raises(InputError, match=r"task 'mine' takes 2 column\(s\) of embeddings; 1 came"):
        task_head(task("pairs"), WIDTH, 1, seed=0)(u)
    with pytest.raises(InputError, match=r"takes 1 column\(s\) of embeddings; 2 came"):
        task_head(task("classification"), WIDTH, 2, seed=0)(u, u)
    with pytest.raises(InputError, match=r"u: the shape is \(6,\); expected \(rows, width\)"):
        task_head(task("classification"), WIDTH, 2, seed=0)(u[0])
    with pytest.raises(InputError, match="sts has one number a row, not 5"):
        task_head(task("sts"), WIDTH, 5, seed=0)


def batch(kind, rows, seed=0):
    """Logits and targets of a kind, drawn by the seed."""
    random = torch.Generator().manual_seed(seed + 100)
    if kind == "mse":
        return draw(rows, seed=seed), 5 * torch.rand(rows, generator=random, dtype=torch.float64)
    classes = 3 if kind == "cross-entropy" else 2
    shape = (rows, classes) if kind == "cross-entropy" else (rows,)
    return draw(*shape, seed=seed), torch.randint(classes, (rows,), generator=random)


def naive_loss(logits, targets, kind):
    """One row after the other."""
    losses = []
    for own, target in zip(logits, targets, strict=True):
        if kind == "cross-entropy":
            losses.append(torch.log(torch.exp(own).sum()) - own[target])
        elif kind == "binary":
            chance = 1 / (1 + torch.exp(-own))
            losses.append(-torch.log(chance if target else 1 - chance))
        else:
            losses.append((own - target) ** 2)
    return sum(losses) / len(losses)


@pytest.mark.parametrize("kind", LOSSES)
@given(rows=st.integers(1, 6), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_a_loss_is_its_formula(kind, rows, seed):
    logits, targets = batch(kind, rows, seed)
    ours, naive = task_loss(logits, targets, kind), naive_loss(logits, targets, kind)
    torch.testing.assert_close(ours, naive)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (ours, naive)))


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("filling", [0.0, 1e4, math.nan, math.inf])
@given(row_mask=st.lists(st.booleans(), min_size=1, max_size=7), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_padding_gives_neither_loss_nor_gradient(kind, filling, row_mask, seed):
    logits, targets = batch(kind, len(row_mask), seed)
    rows = torch.tensor(row_mask)
    with torch.no_grad():
        logits[~rows] = filling
        targets[~rows] = -1
    loss = task_loss(logits, targets, kind, row_mask=rows)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert not gradient[~rows].any()
    if rows.any():
        alone = task_loss(logits[rows], targets[rows], kind)
        torch.testing.assert_close(loss, alone)
        torch.testing.assert_close(gradient, torch.autograd.grad(alone, logits)[0])
    else:
        assert loss.item() == 0


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_are_float32_at_least(kind):
    logits, targets = batch(kind, 5)
    half = logits.detach().bfloat16()
    assert task_loss(half, targets, kind).dtype == torch.float32
    torch.testing.assert_close(task_loss(half, targets, kind), naive_loss(half.double(), targets, kind).float())
    with torch.autocast("cpu", torch.bfloat16):
        assert task_loss(logits, targets, kind).dtype == torch.float64


def test_contrast_takes_every_text_but_padding_and_the_other_one_of_a_pair_as_a_negative():
    first, second = draw(6, WIDTH), draw(6, WIDTH, seed=1)
    row_mask = torch.tensor([True, False, True])
    scores = torch.cosine_similarity(first[:, None], second, dim=-1) / 0.1
    logs = []
    for text, others in {0: [2, 5], 2: [0, 3], 3: [2, 5], 5: [0, 3]}.items():  # 1 and 4 are padding
        logs.append(scores[text, text] - torch.logsumexp(scores[text, [text, *others]], 0))
    loss = contrast_loss(first, second, row_mask, columns=2, temperature=0.1)
    torch.testing.assert_close(loss, -torch.stack(logs).mean())
    grads = torch.autograd.grad(loss, (first, second))
    assert all((grad[[1, 4]] == 0).all() for grad in grads)


def test_contrast_of_single_texts_is_info_nce_and_of_one_pair_nothing():
    first, second = draw(5, WIDTH), draw(5, WIDTH, seed=1)
    every = torch.ones(5, dtype=torch.bool)
    plain = contrast_loss(first, second, every, columns=1, temperature=0.05)
    torch.testing.assert_close(plain, info_nce(first, second, temperature=0.05))
    assert contrast_loss(first[:2], second[:2], every[:1], columns=2, temperature=0.05) == 0


def test_losses_refuse_what_does_not_fit():
    logits, targets = batch("cross-entropy", 4)
    with pytest.raises(InputError, match=r"Unknown loss 'hinge'. Known: cross-entropy, binary, mse"):
        task_loss(logits, targets, "hinge")
    with pytest.raises(InputError, match=r"logits: the shape is \(4, 3\); the loss 'mse' needs \(rows,\)"):
        task_loss(logits, targets, "mse")
    with pytest.raises(InputError, match=r"targets: the shape is \(3,\); expected one for each of 4 rows"):
        task_loss(logits, targets[:3], "cross-entropy")
    with pytest.raises(InputError, match=r"row_mask: torch\.int64 came; expected bool"):
        task_loss(logits, targets, "cross-entropy", row_mask=torch.ones(4, dtype=torch.int64))


numbers = st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9)), min_size=3, max_size=30)


@given(numbers)
@settings(max_examples=50, deadline=None)
def test_correlations_are_scipys(pairs):
    targets, outputs = np.array(pairs, dtype=np.float64).T
    if np.ptp(targets) == 0 or np.ptp(outputs) == 0:
        assert math.isnan(task_metric("pearson", targets, outputs))
        assert math.isnan(task_metric("spearman", targets, outputs))
    else:
        assert task_metric("pearson", targets, outputs) == pytest.approx(pearsonr(targets, outputs).statistic)
        assert task_metric("spearman", targets, outputs) == pytest.approx(spearmanr(targets, outputs).statistic)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None)
def test_f1_and_confusion_are_scikit_learns(pairs):
    targets, predicted = np.array(pairs).T
    assert task_metric("f1", targets, predicted) == pytest.approx(f1_score(targets, predicted, zero_division=0))
    assert task_metric("f1", targets, predicted - 0.5) == task_metric("f1", targets, predicted)  # as logits
    counts = confusion(targets, predicted, 3)
    assert counts.dtype == np.int64
    assert np.array_equal(counts, confusion_matrix(targets, predicted, labels=range(3)))
    assert np.trace(counts) / len(targets) == pytest.approx(task_metric("accuracy", targets, predicted))


def test_classes_are_read_from_every_kind_of_output():
    assert predicted_classes(np.array([[0.1, 2.0, 1.0], [3.0, 2.0, 1.0]])).tolist() == [1, 0]
    assert predicted_classes(np.array([-0.1, 0.2])).tolist() == [0, 1]
    assert predicted_classes(np.array([4, 2])).tolist() == [4, 2]


@pytest.mark.parametrize("kind", ["accuracy", "f1", "pearson", "spearman"])
def test_a_diverged_model_has_no_score(kind):
    assert math.isnan(task_metric(kind, np.array([0, 1, 1]), np.array([0.5, math.nan, 1.0])))


@pytest.mark.parametrize("kind", ["pearson", "spearman"])
@pytest.mark.parametrize("size", [1e-3, 2.5, -300.0])
def test_outputs_that_differ_by_rounding_alone_have_no_correlation(kind, size):
    targets = np.arange(200.0)
    steps = np.random.default_rng(0).integers(-2, 3, 200)
    rounded = (np.float32(size) + steps * np.spacing(np.float32(size))).astype(np.float32)
    assert np.ptp(rounded) > 0
    assert math.isnan(task_metric(kind, targets, rounded))
    assert task_metric(kind, targets, 1e-9 * targets) == pytest.approx(1)  # small, but not for rounding
    assert task_metric(kind, 1e9 + targets, size + 0.01 * targets * abs(size)) == pytest.approx(1)
    assert math.isnan(task_metric(kind, targets, np.where(targets < 3, math.inf, targets)))


def test_the_overall_score_is_the_papers():
    scores = {"sst/accuracy": 0.441, "quora/accuracy": 0.675, "sts/pearson": 0.269}
    assert overall(scores) == pytest.approx(0.583, abs=1e-3)  # table 8, last row
    first = {"sst/accuracy": 0.321, "quora/accuracy": 0.379, "sts/pearson": -0.059}
    assert overall(first) == pytest.approx(0.390, abs=1e-3)  # and its first
    assert overall({"accuracy": 1.0, "sts/spearman": -1.0}) == 0.5
    assert math.isnan(overall(scores | {"sts/pearson": math.nan}))


def test_scores_of_nothing_are_refused():
    with pytest.raises(InputError, match="no scores to average"):
        overall({})
    with pytest.raises(InputError, match=r"Unknown metric 'bleu'. Known: accuracy, f1, pearson, spearman"):
        overall({"sst/bleu": 1.0})
    with pytest.raises(InputError, match=r"targets \(2,\) and outputs \(3,\): give one output for each target"):
        task_metric("accuracy", np.zeros(2), np.zeros(3))
    with pytest.raises(InputError, match=r"outputs \(2, 2\): pearson needs one number"):
        task_metric("pearson", np.zeros(2), np.zeros((2, 2)))
    with pytest.raises(InputError, match="predicted: 0 to 3 came; 3 classes are numbered from 0"):
        confusion(np.array([0, 1]), np.array([0, 3]), 3)
    with pytest.raises(InputError, match=r"targets \(2,\) and predicted \(1,\)"):
        confusion(np.array([0, 1]), np.array([0]), 3)
