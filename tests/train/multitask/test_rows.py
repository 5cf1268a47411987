"""A task's file to labelled rows: the same from every format, and every mistake one line with its row and remedy."""

import logging
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.data import label_name
from layerwise.errors import InputError
from layerwise.train import load_multitask_recipe, load_training_task
from layerwise.train.multitask.dev import with_fewer_dev_rows
from support.multitasking import setup
from support.row_files import write

CLASSED = [
    *({"text": f"low {row}", "label": 9, "split": "train"} for row in range(2)),
    *({"text": f"high {row}", "label": 10, "split": "train"} for row in range(3)),
    {"text": "looked at", "label": 10, "split": "dev"},
    {"text": "hidden", "label": -1, "split": "test"},
]
SCORED = [
    {"a": "one", "b": "two", "score": 0.5, "split": "train"},
    {"a": "three", "b": "four", "score": 5, "split": "train"},
    {"a": "five", "b": "six", "score": 1, "split": "dev"},
    {"a": "seven", "b": "eight", "score": 2, "split": "dev"},
]
ALL = {"train": "train", "dev": "dev", "test": "test"}


def classes(path, **more):
    return setup(**{"name": "mine", "kind": "classification", "file": str(path)} | more)


def graded(path, **more):
    return setup(**{"name": "sim", "kind": "sts", "file": str(path), "columns": {"left": "a", "right": "b"}} | more)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_classes_are_numbers_in_every_format(tmp_path, ending):
    found = load_training_task(classes(write(tmp_path / f"rows.{ending}", CLASSED)))
    assert found.labels == ("9", "10")  # as numbers, not as texts
    assert list(found.parts) == ["train", "dev"]
    assert found.parts["train"].columns == (("low 0", "low 1", "high 0", "high 1", "high 2"),)
    assert found.parts["train"].targets.tolist() == [0, 0, 1, 1, 1]
    assert found.parts["dev"].targets.tolist() == [1]
    assert found.parts["dev"].targets.dtype == np.int64
    assert (found.loss, found.outputs, len(found.parts["train"])) == ("cross-entropy", 2, 5)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_scores_are_numbers_in_every_format(tmp_path, ending):
    found = load_training_task(graded(write(tmp_path / f"rows.{ending}", SCORED)))
    assert (found.labels, found.loss, found.outputs) == ((), "mse", 1)
    assert found.parts["train"].columns == (("one", "three"), ("two", "four"))
    assert found.parts["train"].targets.tolist() == [0.5, 5.0]
    assert found.parts["dev"].targets.dtype == np.float64


def test_given_labels_keep_their_order(tmp_path):
    found = load_training_task(classes(write(tmp_path / "rows.csv", CLASSED), labels=("10", "9")))
    assert found.labels == ("10", "9")
    assert found.parts["train"].targets.tolist() == [1, 1, 0, 0, 0]


def test_named_classes_are_called_by_their_names_and_read_by_their_labels(tmp_path):
    file = write(tmp_path / "rows.csv", CLASSED)
    found = load_training_task(classes(file, labels=("10", "9"), label_names=("high", "low")))
    assert found.labels == ("high", "low")
    assert found.parts["train"].targets.tolist() == [1, 1, 0, 0, 0]
    with pytest.raises(InputError, match=r"rows\.csv:4: label '10' is not among the labels of the task: '9', '11'"):
        load_training_task(classes(file, labels=("9", "11"), label_names=("low", "high")))


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=8, unique=True))
@settings(max_examples=20, deadline=None)
def test_numbers_are_sorted_as_numbers(tmp_path_factory, numbers):
    rows = [{"text": "x", "label": number, "split": "train"} for number in numbers * 2]
    file = write(tmp_path_factory.mktemp("rows") / "rows.csv", [*rows, rows[0] | {"split": "dev"}])
    found = load_training_task(classes(file))
    assert found.labels == tuple(map(str, sorted(numbers)))
    assert [int(found.labels[number]) for number in found.parts["train"].targets] == numbers * 2


@pytest.mark.parametrize(
    ("value", "name"), [(1, "1"), (1.0, "1"), ("1", "1"), (" a ", "a"), (0.5, "0.5"), (None, ""), (float("nan"), "")]
)
def test_a_label_is_one_name_from_every_format(value, name):
    assert label_name(value) == name


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("1.0", "1"),
        (" -1.00 ", "-1"),
        ("-0.0", "0"),
        (-0.0, "0"),
        (Decimal("3.00"), "3"),
        ("9" * 5000 + ".0", "9" * 5000),
        ("nan", ""),
        ("NaN", ""),
        # and what is a text, whatever else could be read into it
        ("007", "007"),
        ("+1", "+1"),
        ("1.", "1."),
        ("1.10", "1.10"),
        ("0.50", "0.50"),
        ("1e3", "1e3"),
        ("1_000", "1_000"),
        ("nan bread", "nan bread"),
        ("inf", "inf"),
        ("٣", "٣"),
    ],
)
def test_a_text_that_is_a_whole_number_is_that_number(value, name):
    assert label_name(value) == name


def test_whole_numbers_are_one_class_however_they_are_written(tmp_path):
    rows = [{"text": "x", "label": label, "split": "train"} for label in ("0", "1", "1.0", "0.0")]
    file = write(tmp_path / "rows.csv", [*rows, rows[2] | {"split": "dev"}])
    found = load_training_task(classes(file))
    assert found.labels == ("0", "1")
    assert found.parts["train"].targets.tolist() == [0, 1, 1, 0]
    assert found.parts["dev"].targets.tolist() == [1]
    for order in (("1", "0"), ("1.0", "0.0")):
        assert load_training_task(classes(file, labels=order)).parts["train"].targets.tolist() == [1, 0, 0, 1]
    assert load_training_task(classes(file, labels=("1.0", "0"))).labels == ("1", "0")


def test_a_test_split_of_hidden_labels_may_write_them_with_a_point(tmp_path):
    rows = [*CLASSED[:-1], CLASSED[-1] | {"label": "-1.0"}]
    assert list(load_training_task(classes(write(tmp_path / "rows.csv", rows), splits=ALL)).parts) == ["train", "dev"]


@pytest.mark.parametrize("hidden", [-1, None, ""])
def test_a_test_split_without_labels_is_left_out(tmp_path, hidden, caplog):
    rows = [*CLASSED[:-1], CLASSED[-1] | {"label": hidden}]
    with caplog.at_level(logging.INFO):
        found = load_training_task(classes(write(tmp_path / "rows.jsonl", rows), splits=ALL))
    assert list(found.parts) == ["train", "dev"]
    assert "task mine: its 1 test rows have no labels" in caplog.text


def test_a_test_split_with_labels_is_kept(tmp_path):
    rows = [*CLASSED[:-1], CLASSED[-1] | {"label": 9}]
    assert load_training_task(classes(write(tmp_path / "rows.csv", rows), splits=ALL)).parts[
        "test"
    ].targets.tolist() == [0]
    rows = [*SCORED, *({"a": "x", "b": "y", "score": score, "split": "test"} for score in (-1, 0))]
    found = load_training_task(graded(write(tmp_path / "scores.csv", rows), splits=ALL, scale=(-1.0, 5.0)))
    assert found.parts["test"].targets.tolist() == [-1, 0]


def test_the_limit_is_of_training_rows(tmp_path):
    rows = [*CLASSED, *(row | {"split": "dev"} for row in CLASSED[:5])]
    found = load_training_task(classes(write(tmp_path / "rows.csv", rows), limit=4))
    assert {role: len(part) for role, part in found.parts.items()} == {"train": 4, "dev": 6}


def test_dev_rows_that_are_drawn_with_one_score_are_refused(tmp_path):
    rows = [{"a": "x", "b": "y", "score": 5 * (row == 99), "split": "dev"} for row in range(100)]
    file = write(tmp_path / "rows.csv", [*SCORED[:2], *rows])
    found = load_training_task(graded(file))
    said = (
        r"rows\.csv: \[dev\] limit 10 draws rows whose every score is 0; .*raise it \(task 'sim' has 100 dev rows\), or"
    )
    with pytest.raises(InputError, match=said):
        with_fewer_dev_rows(found, 10)
    assert with_fewer_dev_rows(found, 0) is with_fewer_dev_rows(found, 100) is found
    mixed = [row | {"score": number % 2} for number, row in enumerate(rows)]
    found = load_training_task(graded(write(tmp_path / "mixed.csv", [*SCORED[:2], *mixed])))
    assert len(with_fewer_dev_rows(found, 10).parts["dev"]) == 10


def test_a_name_is_looked_up_in_the_data_folder(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    write(tmp_path / "own" / "rows.csv", CLASSED)
    assert load_training_task(classes("own/rows.csv"), tmp_path).labels == ("9", "10")
    monkeypatch.setenv("LAYERWISE_DATA", str(tmp_path))
    assert load_training_task(classes("own/rows.csv")).labels == ("9", "10")
    said = rf"^other\.csv: no such file of task 'mine', nor in the data folder {tmp_path}; check the path"
    with pytest.raises(InputError, match=said):
        load_training_task(classes("other.csv"))
    monkeypatch.delenv("LAYERWISE_DATA")
    with pytest.raises(InputError, match=r"no such file of task 'mine', and there is no data folder; check the path"):
        load_training_task(classes("own/rows.csv"))


def test_a_file_at_its_path_comes_before_the_data_folders(tmp_path, monkeypatch):
    for place, label in (("here", "here"), ("data", "data"), ("home", "home")):
        (tmp_path / place).mkdir()
        write(tmp_path / place / "rows.csv", [row | {"label": f"{label} {row['label']}"} for row in CLASSED])
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LAYERWISE_DATA", str(tmp_path / "data"))
    found = [load_training_task(classes(name)).labels[0] for name in ("rows.csv", "~/rows.csv", "../data/rows.csv")]
    assert found == ["here 10", "home 10", "data 10"]
    (tmp_path / "here" / "rows.csv").unlink()
    assert load_training_task(classes("rows.csv")).labels[0] == "data 10"


@pytest.mark.parametrize("folder", [".", "data"])
def test_a_file_whose_ending_tells_no_format_is_refused_with_those_that_do(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / folder / "rows.xls").write_text("text,label,split")
    with pytest.raises(InputError, match=r"rows\.xls: its ending '\.xls' names no format; rename it to \.csv"):
        load_training_task(classes("rows.xls"), "data")


def changed(row, **values):
    return [old | (values if number == row else {}) for number, old in enumerate(CLASSED)]


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        (
            CLASSED,
            {"columns": {"left": "sentence"}},
            "no column 'sentence'; it has .*; needed: sentence .left., label .label., split .split.",
        ),
        (CLASSED, {"columns": {"label": "class"}}, "no column 'class'; it has 'text', 'label', 'split'"),
        (CLASSED, {"columns": {"split": "part"}}, "no column 'part'"),
        (CLASSED, {"splits": {"train": "train", "dev": "valid"}}, r"no rows of the split valid \(dev\).* 'test'"),
        (changed(5, label=7), {}, r"rows\.csv:7: dev has '7', a label never seen in training, which has '9', '10'"),
        (changed(5, label=""), {}, r"rows\.csv:7: no label in 'label'; every row needs a class"),
        (changed(0, label=""), {}, r"rows\.csv:2: no label in 'label'; every row needs a class"),
        (
            changed(0, label="nan"),
            {},
            r"rows\.csv:2: no label in 'label' \('nan' is none\); every row needs a class",
        ),
        (changed(2, label=8), {}, r"rows\.csv:4: class '8' has one example in train; give 2 or more"),
        (changed(1, text="  "), {}, r"rows\.csv:3: column 'text' is empty; give a text, or drop the row"),
        (CLASSED, {"labels": ("9", "11")}, r"rows\.csv:4: label '10' is not among the labels of the task: '9', '11'"),
        (CLASSED, {"labels": ("9", "10", "11")}, "class '11' has no example in train"),
        (CLASSED[2:], {}, "1 class; a classification needs 2 or more; train has '10'"),
        (CLASSED, {"limit": 3}, "class '10' has one example in train"),
        ([*CLASSED, *changed(6, label=9)[6:]], {"splits": ALL}, r"rows\.csv:8: test has '-1', a label never seen"),
    ],
)
def test_mistakes_in_classes_are_named(tmp_path, rows, more, message):
    with pytest.raises(InputError, match=message) as caught:
        load_training_task(classes(write(tmp_path / "rows.csv", rows), **more))
    assert "\n" not in str(caught.value)


def test_a_binary_loss_needs_two_classes(tmp_path):
    rows = [*CLASSED, *({"text": "x", "label": 11, "split": "train"} for _ in range(2))]
    with pytest.raises(InputError, match=r"loss 'binary' is for two classes, there are 3; train has '9', '10'"):
        load_training_task(classes(write(tmp_path / "rows.csv", rows), loss="binary"))


@pytest.mark.parametrize(
    ("row", "values", "message"),
    [
        (0, {"score": "high"}, r"rows\.csv:2: score 'high' is not a number; every row needs one"),
        (2, {"score": "nan"}, r"rows\.csv:4: score 'nan' is not a number; every row needs one"),
        (2, {"score": ""}, r"rows\.csv:4: score '' is not a number"),
        (1, {"score": 5.5}, r"rows\.csv:3: score 5\.5 is outside the scale 0 to 5; correct it, or set scale"),
        (3, {"score": -1}, r"rows\.csv:5: score -1 is outside the scale"),
        (3, {"score": 1}, r"every score of dev is 1 \(2 rows\); a correlation needs different ones"),
        (3, {"b": ""}, r"rows\.csv:5: column 'b' is empty"),
    ],
)
def test_mistakes_in_scores_are_named(tmp_path, row, values, message):
    rows = [old | (values if number == row else {}) for number, old in enumerate(SCORED)]
    with pytest.raises(InputError, match=message):
        load_training_task(graded(write(tmp_path / "rows.csv", rows)))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows.csv", "", "the file is empty; expected a header row"),
        ("rows.csv", "text,label,split\n", "no rows; needed: text .left., label .label., split .split."),
        ("rows.jsonl", "", "no rows; needed: text"),
        ("rows.jsonl", '{"text": "a", "label": 1, "split": "train"}\n' * 2, "no rows of the split dev"),
        ("rows.txt", "a line\n", "a text file has no column 'label'"),
    ],
)
def test_files_with_nothing_to_read_are_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        load_training_task(classes(tmp_path / name))


def measured(name, shared, measure):
    """The classes of the shipped recipe's task, and the mean of a measure over each one's training rows."""
    (shipped,) = load_multitask_recipe("cs224n").only([name]).setups
    found = load_training_task(shipped, shared / "data")
    rows = found.parts["train"]
    values = np.array([measure(*texts) for texts in zip(*rows.columns, strict=True)])
    return found.labels, [values[rows.targets == number].mean() for number in range(len(found.labels))]


@pytest.mark.shared
@pytest.mark.parametrize("name", ["sst", "cfimdb"])
def test_the_shipped_recipe_names_reviews_from_negative_to_positive(shared, name):
    bad, good = ("worst", "awful", "boring", "dull", "bad "), ("wonderful", "excellent", "best", "great ", "moving")
    names, tones = measured(
        name,
        shared,
        lambda text: sum(word in text.lower() for word in good) - sum(word in text.lower() for word in bad),
    )
    five = ("very negative", "negative", "neutral", "positive", "very positive")
    assert names == (five if name == "sst" else ("negative", "positive"))
    assert tones == sorted(tones)
    assert tones[0] < 0 < tones[-1]


@pytest.mark.shared
def test_the_shipped_recipe_names_pairs_of_more_common_words_duplicates(shared):
    names, common = measured("quora", shared, lambda a, b: len({*a.split()} & {*b.split()}) / len({*a.split()}))
    assert names == ("different", "duplicate")
    assert common[1] > 1.2 * common[0]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "kind", "labels", "counts"),
    [
        ("sst", "classification", ("0", "1", "2", "3", "4"), (8544, 1101)),
        ("cfimdb", "classification", ("0", "1"), (1707, 245)),
        ("quora", "classification", ("0", "1"), (14137, 20212)),
        ("sts", "sts", (), (6040, 863)),
    ],
)
def test_the_real_files(shared, name, kind, labels, counts):
    columns = {"left": "sentence1", "right": "sentence2"} if name == "quora" else {}
    splits = {"train": "train", "dev": "dev"} | ({} if name == "quora" else {"test": "test-student"})
    file = f"multitask/{name}.parquet"
    found = load_training_task(setup(name=name, kind=kind, file=file, columns=columns, splits=splits), shared / "data")
    assert found.labels == labels
    assert list(found.parts) == ["train", "dev"]  # the test splits carry no labels
    assert tuple(len(part) for part in found.parts.values()) == counts
    assert all(len(column) == len(part) for part in found.parts.values() for column in part.columns)


def test_a_limit_that_leaves_too_few_rows_is_named(tmp_path):
    rows = [{"text": f"word {n}", "label": n // 4, "split": "dev" if n % 4 == 3 else "train"} for n in range(8)]
    path = write(tmp_path / "rows.csv", rows)
    given = {"name": "a", "kind": "classification", "file": str(path)}
    assert len(load_training_task(setup(**given, limit=99)).parts["train"]) == 6
    with pytest.raises(InputError, match=r"rows.csv:6: class .1. .* \(limit = 4 leaves 4 rows of train\)$"):
        load_training_task(setup(**given, limit=4))


def test_rows_of_no_split_and_rows_that_train_has_too_are_told_of(tmp_path, caplog):
    more = [{"text": "low 0", "label": 9, "split": "dev"}, {"text": "lost", "label": 9, "split": "tran"}]
    with caplog.at_level(logging.INFO, "layerwise.train.multitask.rows"):
        load_training_task(classes(write(tmp_path / "rows.csv", [*CLASSED[:-1], *more])))
    unused, repeated = caplog.records
    assert unused.levelname == "INFO"
    assert unused.getMessage() == "task mine: 1 rows are left out, as no split names their 'tran'"
    assert repeated.levelname == "WARNING"
    assert repeated.getMessage().startswith("task mine: 1 of its 2 dev rows have texts that train has too")


def test_pairs_are_the_same_only_as_pairs(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "layerwise.train.multitask.rows"):
        load_training_task(graded(write(tmp_path / "one.csv", [*SCORED, {**SCORED[0], "b": "six", "split": "dev"}])))
    assert not caplog.records


def test_a_class_is_one_value(tmp_path):
    rows = [CLASSED[0] | {"label": ["9", "10"]}, *CLASSED[1:]]
    with pytest.raises(
        InputError, match=r"rows\.jsonl:1: label is \['9', '10'\]; expected one class, a text or a number"
    ):
        load_training_task(classes(write(tmp_path / "rows.jsonl", rows)))


@pytest.mark.parametrize("separator", [",", "\t"])
def test_two_columns_of_one_name_are_no_training_rows(tmp_path, separator):
    path = tmp_path / ("rows.csv" if separator == "," else "rows.tsv")
    path.write_text(separator.join(["text", "text", "label", "split"]) + "\n")
    with pytest.raises(InputError, match=r"rows\..sv: the column 'text' comes twice; rename one of them"):
        load_training_task(classes(path))
