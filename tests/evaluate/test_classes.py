"""Classes from embeddings: which protocol is run, how often, on which rows, and what becomes of odd rows."""

import logging
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from layerwise.classify import SentEvalProtocol, evaluate_classes, pair_features
from layerwise.data import Task, TaskRows, load_task
from layerwise.errors import InputError
from layerwise.evaluate import LayerSubject, Protocol, evaluate
from layerwise.evaluate.subject import problem_of
from layerwise.kinds import Outcome, prepare, problem_class
from layerwise.search import ClassProtocol
from support.tiny import WORDS

ROWS = 150


def some_rows(splits=(), *, pairs: bool = False, seed: int = 0) -> tuple[TaskRows, np.ndarray]:
    """Rows whose class is in their vectors, but for some noise. Of texts every third row is the one before again."""
    random = np.random.default_rng(seed)
    shares = {(): [1.0], ("train", "test"): [0.6, 0.4], ("train", "dev", "test"): [0.5, 0.2, 0.3]}[tuple(splits)]
    names = splits or ("test",)
    given = random.choice(len(names), ROWS, p=shares)
    task = Task(
        name="classes",
        kind="classification",
        file="rows",
        columns={"right": "other"} if pairs else {},
        splits={name: (name,) for name in splits},
    )
    left = [f"left {row - (row % 3 == 2)}" for row in range(ROWS)]
    right = [f"right {row}" for row in range(ROWS)] if pairs else []
    rows = TaskRows(
        task,
        left,
        right,
        [str(label) for label in random.integers(0, 2, ROWS)],
        [],
        {name: np.flatnonzero(given == place) for place, name in enumerate(names)},
        0,
    )
    vectors = random.normal(size=(len(rows.texts), 6)).astype(np.float32)
    own = {text: place for place, text in enumerate(rows.texts)}
    for text, label in zip(left, rows.labels, strict=True):
        vectors[own[text], 0] += 1.5 * (label == "1")
    return rows, vectors


def score_task(rows: TaskRows, vectors: np.ndarray, protocol: Protocol) -> Outcome:
    """The outcome of the vectors of `rows.texts`."""
    return problem_of(rows, protocol).score({"": vectors})


def sides(rows: TaskRows, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """The vectors of left and right texts."""
    return prepare(rows).sides({"": vectors})


def test_sides_are_the_texts_of_each_row():
    rows, vectors = some_rows(pairs=True)
    left, right = sides(rows, vectors)
    for row in range(ROWS):
        assert left[row].tolist() == vectors[rows.texts.index(rows.left[row])].tolist()
        assert right[row].tolist() == vectors[rows.texts.index(rows.right[row])].tolist()
    assert sides(*some_rows())[1] is None


@pytest.mark.parametrize("splits", [(), ("train", "test")])
def test_several_seeds_become_mean_and_deviation(splits):
    rows, vectors = some_rows(splits)
    found = score_task(rows, vectors, Protocol(seeds=(3, 4, 5)))
    left, _ = sides(rows, vectors)
    single = [
        evaluate_classes(left, np.asarray(rows.labels), SentEvalProtocol(seed=seed), rows.splits if splits else None)
        for seed in (3, 4, 5)
    ]
    accuracies = [100 * one.accuracy for one in single]
    assert found.figures["accuracy"] == pytest.approx(np.mean(accuracies))
    assert found.sd["accuracy"] == pytest.approx(np.std(accuracies, ddof=1))
    assert found.figures["f1"] == pytest.approx(100 * np.mean([one.f1 for one in single]))
    assert np.allclose(found.items, np.mean([one.correct for one in single], axis=0))
    assert len(found.items) == (len(rows.splits["test"]) if splits else ROWS)
    assert set(found.details["seeds"]) == {"3", "4", "5"}
    assert 60 < found.figures["accuracy"] < 95


@pytest.mark.parametrize(
    ("splits", "name", "times"),
    [
        ((), "senteval", 3),
        (("train", "test"), "senteval", 3),
        (("train", "dev", "test"), "senteval", 1),
        (("train", "dev", "test"), "senteval-mlp", 3),
    ],
)
def test_what_is_not_random_is_done_once(monkeypatch, splits, name, times):
    asked = []

    def spy(features, labels, protocol, given, **_):
        asked.append((protocol.classifier, protocol.seed, given is None))
        return evaluate_classes(features, labels, SentEvalProtocol(), given)

    monkeypatch.setattr("layerwise.classify.evaluate_classes", spy, raising=False)
    rows, vectors = some_rows(splits)
    found = score_task(rows, vectors, Protocol(name))
    classifier = "mlp" if name == "senteval-mlp" else "logistic"
    assert asked == [(classifier, seed, not splits) for seed in (1111, 1112, 1113)[:times]]
    assert bool(found.sd) == (times > 1)


@pytest.mark.slow
def test_the_perceptron_is_run_by_its_own_seeds():
    rows, vectors = some_rows(("train", "dev", "test"))
    found = score_task(rows, vectors, Protocol("senteval-mlp", seeds=(1, 2)))
    left, _ = sides(rows, vectors)
    for seed in (1, 2):
        how = SentEvalProtocol(classifier="mlp", seed=seed)
        alone = evaluate_classes(left, np.asarray(rows.labels), how, rows.splits)
        assert found.details["seeds"][str(seed)]["accuracy"] == pytest.approx(100 * alone.accuracy)
    assert found.sd.keys() == {"accuracy", "f1"}


def test_pairs_are_classified_by_difference_and_product():
    rows, vectors = some_rows(("train", "dev", "test"), pairs=True)
    found = score_task(rows, vectors, Protocol())
    left, right = sides(rows, vectors)
    features = np.concatenate([np.abs(left - right), left * right], axis=1)
    assert np.array_equal(pair_features(left, right), features)
    expected = evaluate_classes(features, np.asarray(rows.labels), SentEvalProtocol(), rows.splits)
    assert found.figures == {"accuracy": 100 * expected.accuracy, "f1": 100 * expected.f1}


def test_three_classes_have_no_f1():
    rows, vectors = some_rows(("train", "dev", "test"))
    rows.labels[:40] = ["2"] * 40
    assert set(score_task(rows, vectors, Protocol()).figures) == {"accuracy"}


def test_labels_seen_in_test_only_are_errors_and_logged(caplog):
    rows, vectors = some_rows(("train", "dev", "test"))
    test = rows.splits["test"]
    before = score_task(rows, vectors, Protocol())
    right = [place for place, value in enumerate(before.items) if value == 1][:5]
    for place in right:
        rows.labels[test[place]] = "new"
    with caplog.at_level(logging.WARNING):
        after = score_task(rows, vectors, Protocol())
    assert "5 tested rows are of classes that no training row has; they count as errors" in caplog.text
    expected = before.items.copy()
    expected[right] = 0
    assert after.items.tolist() == expected.tolist()
    assert after.figures["accuracy"] == pytest.approx(100 * expected.mean())


@pytest.mark.parametrize(("splits", "random"), [(("train", "dev", "test"), False), ((), True)])
def test_seeds_decide_where_something_is_random(splits, random):
    rows, vectors = some_rows(splits)
    protocols = [Protocol(seeds=(1,)), Protocol(seeds=(2, 3))]
    one, other = (problem_class(rows.task).settings(rows.task, protocol) for protocol in protocols)
    assert (one != other) == ("seeds" in one) == random
    found = [score_task(rows, vectors, protocol) for protocol in protocols]
    assert (found[0].figures != found[1].figures) == random
    assert all(
        "seeds" in problem_class(rows.task).settings(rows.task, Protocol(name)) for name in ("senteval-mlp", "lc")
    )


@pytest.mark.parametrize("pairs", [False, True])
def test_lc_is_a_plain_loop_of_scikit_learn(pairs):
    rows, vectors = some_rows(("train", "test"), pairs=pairs)
    found = score_task(rows, vectors, Protocol("lc", seeds=(0, 7)))
    left, right = sides(rows, vectors)
    features = left if right is None else np.concatenate([np.abs(left - right), left * right], axis=1)
    labels, expected = np.asarray(rows.labels), []
    for seed in (0, 7):
        for split in ClassProtocol(seed=seed, inner=1).splits(ROWS):
            assert len(split.test) == 23  # 15 %, rounded up
            model = LogisticRegression(C=10, solver="saga", tol=0.01, max_iter=200, random_state=seed)
            expected.append(
                model.fit(features[split.dev], labels[split.dev]).score(features[split.test], labels[split.test])
            )
    assert len(expected) == 20
    assert found.figures["accuracy"] == pytest.approx(100 * np.mean(expected), abs=0.5)
    assert found.sd["accuracy"] == pytest.approx(100 * np.std(expected, ddof=1), abs=0.5)
    assert len(found.items) == 0


def test_what_decides_a_score_and_which_rows_it_is_of():
    protocol = Protocol("senteval", split="dev", seeds=(1,))
    pairs, classed, search = (
        Task(name="rows", kind=kind, file="rows") for kind in ("sts", "classification", "retrieval")
    )
    assert problem_class(pairs).settings(pairs, protocol) == {"protocol": "sts", "split": "dev"}
    assert problem_class(classed).settings(classed, protocol) == {"protocol": "senteval", "seeds": [1]}
    assert problem_class(pairs).settings(pairs, Protocol("lc")) == {"protocol": "lc", "seeds": [0]}
    assert problem_class(search).settings(search, Protocol("lc")) == problem_class(search).settings(search, protocol)
    rows, _ = some_rows(("train", "dev", "test"))
    with pytest.raises(InputError, match="--split dev is for STS; task 'classes' is scored on its test rows"):
        problem_class(rows.task).scored(rows.task, rows.splits, protocol)  # dev rows choose, they are not scored
    assert problem_class(rows.task).scored(rows.task, rows.splits, Protocol()) == "test"
    assert problem_class(rows.task).scored(rows.task, rows.splits, Protocol("lc")) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"name": "sentevl"}, "Unknown protocol 'sentevl'. Did you mean 'senteval'. Known: senteval, senteval-mlp, lc"),
        ({"aggregation": "median"}, "Unknown aggregation 'median'. Did you mean 'mean'. Known: all, mean, wmean"),
        ({"split": "val"}, "Unknown split 'val'. Known: train, dev, test"),
        ({"seeds": (1, 1)}, "seeds are"),
        ({"seeds": (-1,)}, "seeds are"),
    ],
)
def test_bad_protocols_are_refused(given, told):
    with pytest.raises(InputError, match=told):
        Protocol(**given)


# With files and an encoder


def write(tmp_path, rows: list[dict], **options) -> Task:
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    return Task(name="own", kind="classification", file=str(tmp_path / "rows.parquet"), **options)


def test_empty_texts_become_a_full_stop_and_are_logged(tmp_path, tiny_layers, caplog):
    random = np.random.default_rng(0)
    rows = [{"text": " ".join(random.choice(WORDS, 3)), "label": row % 2} for row in range(80)]
    rows[5]["text"], rows[9]["text"] = "", " \t"
    task = write(tmp_path, rows)
    with caplog.at_level(logging.INFO):
        result = evaluate(LayerSubject(tiny_layers), [task], protocol=Protocol(seeds=(1,))).runs[0].results["own"]
    assert "own: 2 empty texts are encoded as '.', as SentEval does" in caplog.text
    assert "sentences are empty" not in caplog.text
    assert result.stamp["empty_texts"] == 2
    assert load_task(task).left[5] == load_task(task).left[9] == "."


def test_an_encoder_from_file_to_accuracy(tmp_path, tiny_layers):
    random = np.random.default_rng(0)
    rows = [
        {"text": f"{random.choice(WORDS)} {'river' if row % 2 else 'clock'}", "label": row % 2, "split": part}
        for row, part in enumerate(random.choice(["train", "dev", "test"], 120))
    ]
    task = write(tmp_path, rows, splits={part: part for part in ("train", "dev", "test")})
    found = evaluate(LayerSubject(tiny_layers, ["0", "last"]), [task])
    for run in found.runs:
        assert run.average > 95  # the word stands in the text
        result = run.results["own"]
        assert (result.metric, result.sd) == ("accuracy", {})
        assert len(result.items) == sum(row["split"] == "test" for row in rows)


def test_too_few_rows_and_missing_splits_are_one_line(tmp_path, tiny_layers):
    few = write(tmp_path, [{"text": word, "label": row % 2} for row, word in enumerate(WORDS[:6])])
    with pytest.raises(InputError, match=r"cannot be split into 10 folds"):
        evaluate(LayerSubject(tiny_layers), [few])
    only = write(tmp_path, [{"text": word, "label": 0, "split": "test"} for word in WORDS], splits={"test": "test"})
    with pytest.raises(InputError, match=r"task 'own' has no train rows; it has test"):
        evaluate(LayerSubject(tiny_layers), [only])
    same = write(tmp_path, [{"text": word, "label": 0} for word in WORDS])
    with pytest.raises(InputError, match=r"all of class 0: a classification needs 2 classes"):
        evaluate(LayerSubject(tiny_layers), [same])


def test_a_task_without_test_rows_is_read_but_not_scored(tmp_path, tiny_layers):
    rows = [{"text": word, "label": row % 2, "split": "train"} for row, word in enumerate(WORDS)]
    task = write(tmp_path, rows, splits={"train": "train"})
    assert load_task(task).counts == {"train": len(WORDS)}
    with pytest.raises(InputError, match=r"task 'own' has no test rows; it has train"):
        evaluate(LayerSubject(tiny_layers), [task])


@pytest.mark.parametrize("labels", [(), ("1", "0")])
def test_f1_is_of_the_second_of_the_declared_classes(labels):
    rows, vectors = some_rows(("train", "dev", "test"))
    task = rows.task.replaced(metric="f1", labels=labels)
    found = score_task(replace(rows, task=task), vectors, Protocol(seeds=(1,)))
    tested = np.array(rows.labels)[rows.splits["test"]]
    right = found.items.astype(bool)
    predicted = np.where(right, tested, np.where(tested == "1", "0", "1"))
    assert found.figures["f1"] == pytest.approx(
        100 * f1_score(tested, predicted, pos_label=labels[1] if labels else "1")
    )
    assert problem_class(task).headline(task, Protocol()) == "f1"


def test_f1_needs_two_classes_and_a_protocol_that_gives_it(tmp_path, tiny_layers):
    task = write(tmp_path, [{"text": word, "label": row % 3} for row, word in enumerate(WORDS * 4)], metric="f1")
    with pytest.raises(InputError, match="task 'own': metric 'f1' is for two classes, but there are 3"):
        evaluate(LayerSubject(tiny_layers), [task])
    with pytest.raises(InputError, match="the protocol 'lc' gives accuracies, not f1"):
        evaluate(LayerSubject(tiny_layers), [task], protocol=Protocol("lc"))


def test_classes_that_are_only_tested_are_told_once_with_the_task(tmp_path, tiny_layers, caplog):
    rows = [
        {"text": f"{word} {row}", "label": row % 2 if row else "new", "split": "test" if row % 4 == 0 else "train"}
        for row, word in enumerate(WORDS * 3)
    ]
    rows = [row | {"label": str(row["label"])} for row in rows]
    task = write(tmp_path, rows, splits={"train": "train", "test": "test"})
    with caplog.at_level(logging.WARNING):
        evaluate(LayerSubject(tiny_layers, ["0", "1"]), [task], protocol=Protocol(seeds=(1, 2, 3)))
    told = [record.getMessage() for record in caplog.records if "training row" in record.getMessage()]
    assert told == ["own: 1 tested rows are of classes that no training row has; they count as errors"]
