"""The search of layers for classes: BERT-LC's protocol, with the accuracies of scikit-learn's SAGA."""

from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerwise.data import Task
from layerwise.encoder import LayerEncoder
from layerwise.errors import InputError, LayerwiseError
from layerwise.evidence.gain import SPREAD
from layerwise.search import ClassProtocol, ClassRows, ClassScorer, Search, Space, training_size_ablation
from layerwise.threads import share
from support.plain_classifiers import saga
from support.tiny import WORDS

SMALL = ClassProtocol(outer=2, inner=3)


def scorer_of(views, labels, *, protocol=SMALL, space=None, pair_views=None, **options):
    pairs = None if pair_views is None else {"mean": pair_views}
    rows = ClassRows.of({"mean": views}, labels, pairs, "cpu")
    space = None if space is None else Space.parse(space)
    return ClassScorer(rows, protocol.splits(len(rows)), protocol, space, **options)


def fit(*arguments, seed=0, n_resamples=100, **options):
    return Search(seed=seed, n_resamples=n_resamples).fit_scorer(scorer_of(*arguments, **options)).selection_


def planted(rows: int = 400, layers: int = 6, width: int = 5, seed: int = 0):
    """Only the sum of layers 2 and 4 tells the label: each of them hides it under the same noise, of opposite sign."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, rows)
    views = random.normal(size=(rows, layers, width))
    noise = 5 * random.normal(size=(rows, width))
    signal = (2 * labels - 1)[:, None] + 0.3 * random.normal(size=(rows, width))
    views[:, 2], views[:, 4] = signal + noise, signal - noise
    return views.astype(np.float32), labels


# The protocol


def test_sizes_of_the_papers_protocol():
    splits = ClassProtocol().splits(1000)
    assert len(splits) == 10
    for split, folds in zip(splits, splits.folds, strict=True):
        assert (len(split.test), len(split.dev), len(folds)) == (150, 850, 10)
        assert sorted([*split.test, *split.dev]) == list(range(1000))
        for fold in folds:
            assert (len(fold.train), len(fold.dev)) == (697, 153)
            assert sorted([*fold.train, *fold.dev]) == sorted(split.dev)
    assert len({tuple(sorted(split.test)) for split in splits}) == 10
    again = ClassProtocol(outer=3).splits(1000)
    assert all((a.test == b.test).all() for a, b in zip(splits, again, strict=False))
    assert (ClassProtocol(seed=1).splits(1000)[0].test != splits[0].test).any()


def test_a_cut_leaves_the_reporting_rows_and_keeps_part_of_the_others():
    whole, half, quarter = (SMALL.splits(400, size=size) for size in (1.0, 0.5, 0.25))
    for a, b, c in zip(whole, half, quarter, strict=True):
        assert (a.test == b.test).all()
        assert (a.test == c.test).all()
        assert (len(a.dev), len(b.dev), len(c.dev)) == (340, 170, 85)
        assert set(a.dev) > set(b.dev) > set(c.dev)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outer": 0}, "outer is 0; it must be 1 or more"),
        ({"test": 1.0}, r"test is 1\.0; it must be a share"),
        ({"dev": 15}, "dev is 15; it must be a share"),
        ({"C": 0.0}, r"C is 0\.0; it must be above 0"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
    ],
)
def test_a_protocol_that_can_not_be(change, message):
    with pytest.raises(InputError, match=message):
        ClassProtocol(**change)


# What is chosen


def test_the_planted_layers_are_found():
    views, labels = planted()
    done = []
    selection = fit(views, labels, progress=done.append)
    assert selection.chosen.layers == (2, 4)
    assert [choice.best.layers for choice in selection.choices] == [(2, 4)] * 2
    assert len(selection.table) == sum(done) == sum(len(list(combinations(range(6), size))) for size in (1, 2, 3, 4))
    assert selection.table[0].layers == (2, 4)
    assert selection.chosen.test > 0.95
    assert selection.last.test < 0.65
    assert selection.verdict.is_gain
    assert selection.table.score_of((5,)) == pytest.approx(np.mean([choice.last.dev for choice in selection.choices]))
    assert selection.stability.views == {"2 @ mean": 1.0, "4 @ mean": 1.0}
    assert [point.layers for point in selection.front][-1] == (2, 4)
    assert selection.facts.protocol.metric == "accuracy"


def test_the_reported_figures_are_those_of_scikit_learn():
    views, labels = planted()
    selection = fit(views, labels, space="2,4; exactly 2")
    for choice, split, folds in zip(selection.choices, selection.splits, selection.splits.folds, strict=True):
        for layers, accuracy in (((2, 4), choice.best.test), ((5,), choice.last.test)):
            features = views[:, layers].mean(1)
            model = saga(features[split.dev], labels[split.dev])
            assert accuracy == pytest.approx(model.score(features[split.test], labels[split.test]), abs=0.02)
        features = views[:, [2, 4]].mean(1)
        dev = [
            saga(features[fold.train], labels[fold.train]).score(features[fold.dev], labels[fold.dev]) for fold in folds
        ]
        assert choice.best.dev == pytest.approx(np.mean(dev), abs=0.01)


def test_the_same_seed_gives_the_same_result_and_another_does_not():
    random = np.random.default_rng(0)
    views, labels = random.normal(size=(300, 3, 6)), random.choice(["dog", "cat", "cow"], 300)
    views[:, 1] += (labels == "cow")[:, None]
    one, same, other = (
        Search(seed=seed, splits=2, n_resamples=50, device="cpu").fit_classes(views, labels).selection_
        for seed in (3, 3, 4)
    )
    assert one.choices[0].best == same.choices[0].best
    assert list(one.table) == list(same.table)
    assert list(one.table) != list(other.table)
    assert list(one.scorer.rows.classes) == ["cat", "cow", "dog"]


def test_equal_sets_are_told_apart_by_size_then_by_highest_layer():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 200)
    views = np.repeat(random.normal(size=(200, 1, 4)) + labels[:, None, None], 5, axis=1)
    assert fit(views, labels, space="1-4; up to 2").chosen.layers == (1,)


def test_pairs_are_compared_by_difference_and_product():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 400)
    first, second = (random.normal(size=(400, 3, 6)) for _ in range(2))
    second[:, 1] = np.where(labels[:, None] == 1, first[:, 1] + 0.3 * second[:, 1], second[:, 1])
    selection = fit(first, labels, pair_views=second)
    assert selection.chosen.layers == (1,)
    assert selection.chosen.test > 0.9
    split = selection.splits[0]
    u, v = first[:, 1].astype(np.float32), second[:, 1].astype(np.float32)
    features = np.hstack([abs(u - v), u * v])
    model = saga(features[split.dev], labels[split.dev])
    expected = model.score(features[split.test], labels[split.test])
    assert selection.choices[0].best.test == pytest.approx(expected, abs=0.02)


def test_poolings_are_searched_together():
    views, labels = planted(rows=200)
    noise = np.random.default_rng(1).normal(size=views.shape)
    search = Search(splits=2, space="2,4,5; up to 2", n_resamples=50, device="cpu")
    selection = search.fit_classes({"max": noise, "cls": views}, labels).selection_
    assert str(selection.chosen.mix) == "2,4 @ cls"
    assert len(selection.table) == 12
    assert selection.last.mix.pooling == "max"


def test_rows_with_the_same_text_choose_or_report_together():
    views, labels = planted(rows=100)
    texts = [(f"text {row // 2}",) for row in range(100)]
    search = Search(splits=2, space="2,4,5; up to 2", n_resamples=50, device="cpu")
    for dev, test in search.fit_classes(views, labels, texts=texts).selection_.splits:
        assert not {texts[row] for row in dev} & {texts[row] for row in test}


# The interval


def test_the_interval_is_scaled_to_the_jackknife_and_widened_for_several_splits():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 150)
    views = random.normal(size=(150, 3, 4))
    views[:, 1] += 0.5 * (2 * labels - 1)[:, None]
    selection = fit(views, labels, space="0-2; exactly 1", n_resamples=300)
    items = np.full((len(selection.choices), 150), np.nan)
    for number, choice in enumerate(selection.choices):
        test = choice.split.test
        score = selection.scorer.redraw(number, [choice.best.mix, choice.last.mix])
        scores = score([np.array([unit]) for unit in test])
        items[number, test] = scores[:, 0] - scores[:, 1]

    def gain(units):
        return np.mean([np.nanmean(of_split[units]) for of_split in items])

    estimate, drawn = gain(np.arange(150)), np.random.default_rng(0)
    redrawn = np.array([gain(drawn.integers(150, size=150)) for _ in range(300)])
    left_out = np.array([gain(np.delete(np.arange(150), unit)) for unit in range(150)])
    jackknife = min(1.0, np.sqrt(149 * np.var(left_out) / np.var(redrawn)))
    spread = SPREAD * jackknife * (redrawn - estimate)
    reporting = len(np.unique(np.concatenate([choice.split.test for choice in selection.choices])))
    two_more = np.sqrt(1 + (0.5 / (reporting + 2) / spread.std()) ** 2)
    low, high = np.quantile(estimate + two_more * spread, [0.025, 0.975])
    assert (selection.gain.mean, selection.gain.low, selection.gain.high) == pytest.approx((estimate, low, high))
    assert selection.gain.mean == pytest.approx(selection.chosen.test - selection.last.test)
    one = fit(views, labels, space="2", protocol=ClassProtocol(outer=1, inner=2))
    assert (one.gain.mean, one.gain.low, one.gain.high, one.gain.p_value) == (0, 0, 0, 1)


# Less to train on


def test_less_to_train_on():
    views, labels = planted(rows=600)
    space = "2,4,5; up to 2"
    rows = ClassRows.of({"mean": views}, labels, device="cpu")
    scorers = training_size_ablation(rows, sizes=(1, 1 / 8, 1 / 64), space=Space.parse(space), protocol=SMALL)
    assert [len(scorer.splits[0].dev) for scorer in scorers.values()] == [510, 64, 8]
    whole = fit(views, labels, space=space).scorer
    assert scorers[1].best == whole.best
    assert scorers[1].best.test >= scorers[1 / 64].best.test
    assert all(scorer.best.test - scorer.last.test > 0.1 for scorer in list(scorers.values())[:2])


def test_less_than_every_class_to_train_on():
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [150, 140, 10])
    views = random.normal(size=(300, 2, 4)) + labels[:, None, None]
    (scorer,) = training_size_ablation(
        ClassRows.of({"mean": views}, labels, device="cpu"), sizes=(1 / 64,), protocol=SMALL
    ).values()
    assert len(scorer.splits[0].dev) == 4
    assert 0 <= scorer.best.test <= 1
    few = ClassRows.of({"mean": views[:12]}, np.array([0, 1] * 6), device="cpu")
    with pytest.raises(InputError, match=r"too few rows: a split leaves 1 of them"):
        training_size_ablation(few, sizes=(0.1,), protocol=SMALL)
    with pytest.raises(InputError, match=r"sizes are \(0,\)"):
        training_size_ablation(few, sizes=(0,))


def test_an_interrupt_leaves_nothing_half_done():
    def interrupt(_sets: int) -> None:
        raise KeyboardInterrupt

    scorer = scorer_of(*planted(rows=100), progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        _ = scorer.choices
    scorer.progress = int
    assert scorer.best.layers == (2, 4)


# Bad input


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
        (lambda v: v, lambda y: y, {"space": "2,6"}, r"no layer 6"),
        (lambda v: v, lambda y: y, {"device": "abacus"}, "device 'abacus' cannot be used here"),
    ],
)
def test_bad_input(views, labels, options, message):
    all_views, all_labels = planted(rows=100)
    settings = {"device": "cpu", "splits": 2} | options
    pair_views = settings.pop("pair_views", None)
    with pytest.raises(LayerwiseError, match=message):
        Search(**settings).fit_classes(
            views(all_views), labels(all_labels), pair_views=pair_views and pair_views(all_views)
        )


# From a task


def test_a_task_with_splits_of_its_own(tiny_layers, tmp_path):
    random = np.random.default_rng(0)
    rows = [
        {
            "text": f"{' '.join(random.choice(WORDS, 5))} {'river' if row % 2 else 'clock'}",
            "label": "water" if row % 2 else "time",
            "split": ("train", "dev", "test")[row // 30],
        }
        for row in range(90)
    ]
    rows[60] |= {"text": rows[0]["text"], "label": rows[0]["label"]}
    file = tmp_path / "classes.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    splits = {"train": ("train",), "dev": ("dev",), "test": ("test",)}
    task = Task(name="classes", kind="classification", file=str(file), splits=splits)
    selection = Search(space="0-4; up to 2", n_resamples=50).fit(tiny_layers, task).selection_
    ((dev, test),) = selection.splits
    assert (len(dev), len(test), selection.splits.left_out) == (60, 29, 1), "a text that trains does not report"
    ((fold,),) = selection.splits.folds
    assert (fold.train.tolist(), fold.dev.tolist()) == (list(range(30)), list(range(30, 60)))
    assert selection.chosen.test > 0.8
    assert selection.stability is None
    assert selection.model().mix == selection.verdict.use.mix


@pytest.mark.slow  # made-up classes are compared with the same solver above
@pytest.mark.shared
def test_real_questions_get_the_accuracy_of_scikit_learn(shared):
    table = pq.read_table(shared / "data" / "transfer" / "trec.parquet").slice(0, 240).to_pydict()
    labels = np.array(table["label"])
    views = LayerEncoder(shared / "models" / "wiki-mlm-12x384", device="cpu").encode_layers(table["text"])
    selection = fit(views, labels, space="0,4; exactly 2")
    folds = [fold for folds in selection.splits.folds for fold in folds]
    features, scores = views[:, [0, 4]].mean(1), np.zeros(len(folds))

    def score(number: int) -> None:
        train, dev = folds[number]
        scores[number] = saga(features[train], labels[train]).score(features[dev], labels[dev])

    share(range(len(folds)), score)
    assert selection.table.score_of((0, 4)) == pytest.approx(scores.mean(), abs=0.015)
    assert selection.chosen.test > 0.6
