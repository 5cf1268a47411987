"""The settings of a multitask training: what follows from the kind of a task, and every refusal with its reason."""

import json
from dataclasses import FrozenInstanceError

import pytest

from layerwise.errors import InputError
from layerwise.multitask.settings import MixingSettings, MultitaskDev, MultitaskRecipe, TaskSettings

COLUMNS = {"classification": ("text",), "pairs": ("left", "right"), "similarity": ("left", "right")}


def task(kind="classification", **given):
    return TaskSettings(**{"name": "mine", "kind": kind, "file": "rows.csv", "columns": COLUMNS[kind]} | given)


def recipe(*tasks, **given):
    return MultitaskRecipe(name="all", tasks=tasks or (task(),), **given)


@pytest.mark.parametrize(
    ("kind", "classes", "loss", "outputs", "metric"),
    [
        ("classification", 2, "cross-entropy", 2, "accuracy"),
        ("classification", 5, "cross-entropy", 5, "accuracy"),
        ("pairs", 2, "binary", 1, "accuracy"),
        ("pairs", 3, "cross-entropy", 3, "accuracy"),
        ("similarity", 0, "mse", 1, "pearson"),
    ],
)
def test_loss_outputs_and_metric_follow_from_the_kind(kind, classes, loss, outputs, metric):
    made = task(kind)
    assert (made.loss_for(classes), made.outputs_for(classes), made.metric) == (loss, outputs, metric)
    assert made.is_pair == (kind != "classification")


def test_a_named_loss_decides():
    assert task("pairs", loss="cross-entropy").outputs_for(2) == 2
    assert task(loss="binary").outputs_for(2) == 1
    assert task("similarity", metric="spearman").metric == "spearman"


def test_a_split_may_be_one_name():
    assert task(splits={"train": "fit", "dev": ["a", "b"]}).splits == {"train": ("fit",), "dev": ("a", "b")}


def test_settings_are_frozen_and_hashable():
    made = task()
    with pytest.raises(FrozenInstanceError, match="cannot assign"):
        made.weight = 2.0
    assert len({made, task(), task(weight=2.0)}) == 2


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("classification", {"name": "my task"}, "task name 'my task': give letters, digits"),
        ("classification", {"name": ""}, "task name ''"),
        ("classification", {"head": "cosine"}, "head of classification 'cosine' is not known; known: linear, mlp"),
        ("pairs", {"head": "cosine"}, "head of pairs 'cosine' is not known"),
        ("pairs", {"features": "sum"}, "features 'sum' is not known; known: concat, difference-sum, all"),
        ("pairs", {"loss": "contrastive"}, "loss 'contrastive' is not known"),
        ("similarity", {"loss": "binary"}, "loss 'binary' is not known"),
        ("similarity", {"metric": "accuracy"}, "metric 'accuracy' is not known; known: pearson, spearman"),
        ("classification", {"columns": ("a", "b")}, "columns: classification takes 1, not 2"),
        ("pairs", {"columns": ("a",)}, "columns: pairs takes 2, not 1"),
        ("pairs", {"columns": ("a", "a")}, "one comes twice"),
        ("classification", {"label": "text"}, "one comes twice"),
        ("classification", {"label": ""}, "none of them may be empty"),
        ("classification", {"file": ""}, "none of them may be empty"),
        ("classification", {"labels": ("a", "b", "a")}, "labels: 'a' comes twice; name each class once"),
        ("classification", {"labels": ("1", "0", "1.0")}, "labels: '1' comes twice; name each class once"),
        ("classification", {"labels": ("a", "nan")}, "an empty one or nan stands for no label"),
        ("classification", {"labels": ("a", " ")}, "an empty one or nan stands for no label"),
        ("pairs", {"label_names": ("no", "yes")}, "label_names: 2 for 0 labels; give labels = .*, the file's classes"),
        ("pairs", {"labels": ("0", "1", "2"), "label_names": ("no", "yes")}, "label_names: 2 for 3 labels"),
        ("pairs", {"labels": ("0", "1"), "label_names": ("no", "no")}, "label_names: 'no' comes twice"),
        ("pairs", {"labels": ("0", "1"), "label_names": ("no", " ")}, "label_names: one is empty"),
        ("similarity", {"label_names": ("no", "yes")}, "label_names: 2 for 0 labels"),
        ("classification", {"labels": ("a",)}, "1 class; there is nothing to tell apart"),
        ("similarity", {"labels": ("a", "b")}, "labels are for classes"),
        ("pairs", {"labels": ("a", "b", "c"), "loss": "binary"}, "loss 'binary' is for two classes, but there are 3"),
        ("pairs", {"labels": ("a", "b", "c"), "metric": "f1"}, "metric 'f1' is for two classes, but there are 3"),
        ("similarity", {"scale": (5.0, 0.0)}, r"scale \[5.0, 0.0\]: give the lowest and the highest"),
        ("similarity", {"scale": (0.0, float("inf"))}, "give the lowest and the highest"),
        ("pairs", {"scale": (0.0, 1.0)}, "scale is for similarity; pairs has labels"),
        ("similarity", {"scale": (1.0,)}, "give the lowest and the highest"),
        ("classification", {"splits": {"train": ("train",)}}, r"splits name no dev; say which rows: dev = \[...\]"),
        ("classification", {"splits": {"train": (), "dev": ("dev",)}}, "splits name no train"),
        ("classification", {"splits": {"train": "a", "dev": "b", "valid": "c"}}, "splits 'valid' is not known"),
        ("classification", {"splits": {"train": "a", "dev": ("b", "a")}}, "'a' comes twice; rows that train neither"),
        ("classification", {"weight": -1.0}, "weight -1.0: give 0 or more"),
        ("classification", {"weight": float("nan")}, "weight nan: give 0 or more"),
        ("classification", {"contrast": -0.1}, "contrast -0.1: give 0 or more"),
        ("classification", {"contrast_temperature": 0.0}, "contrast_temperature must be above 0"),
        ("classification", {"dropout": 1.0}, "dropout 1.0 is not from 0 to below 1"),
        ("classification", {"contrast_dropout": -0.1}, "contrast_dropout -0.1 is not from 0"),
        ("classification", {"contrast_dropout": 0.1}, "contrast_dropout is not read without contrast; set contrast"),
        ("classification", {"supervised": False}, "leaves contrast alone, but contrast is 0"),
        ("classification", {"max_length": 2}, "max_length 2: give 3 or more"),
        ("classification", {"limit": 1}, "limit 1: give 2 or more rows"),
    ],
)
def test_a_task_that_can_not_be_is_refused(kind, given, message):
    with pytest.raises(InputError, match=message):
        task(kind, **given)


def test_an_unknown_kind_lists_the_known():
    with pytest.raises(InputError, match="kind 'tagging' is not known; known: classification, pairs, similarity"):
        TaskSettings(name="mine", kind="tagging", file="rows.csv", columns=("text",))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"iteration": "cycle"}, "iteration 'cycle' is not known; known: cycling, padding"),
        ({"weights": "size"}, "weights 'size' is not known; known: equal, inverse-size, given, learned"),
        ({"temperature": 0.0, "iteration": "temperature"}, "temperature 0.0: give a number above 0"),
        (
            {"temperature": 2.0},
            "temperature 2 is not read with iteration = 'cycling'; set temperature = 1, or iteration = \"temperature\"",
        ),
    ],
)
def test_mixing_that_can_not_be_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        MixingSettings(**given)


@pytest.mark.parametrize("given", [{"every": 0}, {"log_every": 0}, {"patience": -1}])
def test_looks_that_can_not_be_are_refused(given):
    with pytest.raises(InputError, match="every and log_every are 1 or more"):
        MultitaskDev(**given)


def test_a_recipe_needs_tasks_of_different_names():
    with pytest.raises(InputError, match=r"recipe 'all' has no \[\[task\]\]"):
        MultitaskRecipe(name="all", tasks=())
    with pytest.raises(InputError, match="task 'mine' comes twice"):
        recipe(task(), task("pairs"))


def test_a_weight_that_nobody_reads_is_refused():
    with pytest.raises(InputError, match=r"task 'mine': weight 2 is not read with .* 'equal'; set weights"):
        recipe(task(weight=2.0))
    with pytest.raises(InputError, match="every task has the weight 0"):
        recipe(task(weight=0.0), mixing=MixingSettings(weights="given"))
    assert recipe(task(weight=2.0), mixing=MixingSettings(weights="given")).tasks[0].weight == 2


def test_facts_are_json():
    found = json.loads(json.dumps(recipe(task(), task("similarity", name="sts")).facts()))
    assert found["tasks"][1]["scale"] == [0.0, 5.0]
    assert found["tasks"][0]["splits"] == {"train": ["train"], "dev": ["dev"]}
    assert found["mixing"]["iteration"] == "cycling"
