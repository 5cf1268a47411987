"""The settings of a multitask training: what follows from the kind of a task, and every refusal with its reason."""

import json

import pytest

from layerwise.errors import InputError
from layerwise.train import MixingSettings, MultitaskDev, MultitaskRecipe
from support.multitasking import setup


def task(kind="classification", **given):
    """A classification of texts or of "pairs", or graded pairs."""
    columns = {"columns": {"right": "other"}} if kind == "pairs" else {}
    kind = "classification" if kind == "pairs" else kind
    return setup(**{"name": "mine", "kind": kind, "file": "rows.csv", **columns} | given)


def recipe(*setups, **given):
    several = setups or (task(),)
    tasks, objectives = [one.task for one in several], [one.objective for one in several]
    return MultitaskRecipe(name="all", tasks=tuple(tasks), objectives=tuple(objectives), **given)


@pytest.mark.parametrize(
    ("kind", "classes", "loss", "outputs", "metric"),
    [
        ("classification", 2, "cross-entropy", 2, "accuracy"),
        ("classification", 5, "cross-entropy", 5, "accuracy"),
        ("pairs", 2, "binary", 1, "accuracy"),
        ("pairs", 3, "cross-entropy", 3, "accuracy"),
        ("sts", 0, "mse", 1, "spearman"),
    ],
)
def test_loss_outputs_and_metric_follow_from_the_kind(kind, classes, loss, outputs, metric):
    made = task(kind)
    assert (made.loss_for(classes), made.outputs_for(classes), made.task.metric) == (loss, outputs, metric)
    assert made.task.is_pair == (kind != "classification")


def test_a_named_loss_decides():
    assert task("pairs", loss="cross-entropy").outputs_for(2) == 2
    assert task(loss="binary").outputs_for(2) == 1
    assert task("sts", metric="pearson").task.metric == "pearson"


def test_a_split_may_be_one_name():
    assert task(splits={"train": "fit", "dev": ["a", "b"]}).task.splits == {"train": ("fit",), "dev": ("a", "b")}


def test_objectives_are_frozen_and_hashable():
    made = task().objective
    with pytest.raises(ValueError, match="frozen"):
        made.weight = 2.0
    assert len({made, task().objective, task(weight=2.0).objective}) == 2


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("classification", {"name": "my.task"}, "task 'my.task': a trained task's name has letters, digits, - and _"),
        ("retrieval", {}, "a retrieval task cannot be trained; classification and sts tasks can"),
        ("classification", {"head": "cosine"}, "Unknown head of classification 'cosine'. Known: linear, mlp"),
        ("pairs", {"head": "cosine"}, "objective of task 'mine': Unknown head of classification 'cosine'"),
        ("pairs", {"features": "sum"}, "Unknown features 'sum'. Known: concat, difference-sum, all"),
        ("pairs", {"loss": "contrastive"}, "Unknown loss of classification 'contrastive'"),
        ("sts", {"loss": "binary"}, "Unknown loss of sts 'binary'. Known: mse"),
        ("sts", {"metric": "accuracy"}, "Unknown metric of sts 'accuracy'. Known: spearman, pearson"),
        ("classification", {"columns": {"label": ""}}, "columns.label must not be empty"),
        ("classification", {"file": ""}, "file must not be empty"),
        ("classification", {"labels": ("a", "b", "a")}, "labels: 'a' comes twice; name each class once"),
        ("classification", {"labels": ("1", "0", "1.0")}, "labels: '1' comes twice; name each class once"),
        ("classification", {"labels": ("a", "nan")}, "an empty name and nan stand for no label"),
        ("classification", {"labels": ("a", " ")}, "an empty name and nan stand for no label"),
        ("pairs", {"label_names": ("no", "yes")}, "label_names: 2 for 0 labels; give labels = .*, the file's classes"),
        ("pairs", {"labels": ("0", "1", "2"), "label_names": ("no", "yes")}, "label_names: 2 for 3 labels"),
        ("pairs", {"labels": ("0", "1"), "label_names": ("no", "no")}, "label_names: 'no' comes twice"),
        ("pairs", {"labels": ("0", "1"), "label_names": ("no", " ")}, "label_names: a name must not be empty"),
        ("sts", {"label_names": ("no", "yes")}, "labels and label_names are for classes; sts has none"),
        ("classification", {"labels": ("a",)}, "1 class; a classification needs 2 or more"),
        ("sts", {"labels": ("a", "b")}, "labels and label_names are for classes"),
        ("pairs", {"labels": ("a", "b", "c"), "loss": "binary"}, "loss 'binary' is for two classes, there are 3"),
        ("pairs", {"labels": ("a", "b", "c"), "metric": "f1"}, "metric 'f1' is for two classes, but there are 3"),
        ("sts", {"scale": (5.0, 0.0)}, r"scale is \[5.0, 0.0\]; expected the lowest and the highest"),
        ("sts", {"scale": (0.0, float("inf"))}, "scale.1 is inf; expected a finite number"),
        ("pairs", {"scale": (0.0, 1.0)}, "scale is for sts; classification has no scores"),
        ("sts", {"scale": (1.0,)}, "scale.1 is missing"),
        ("classification", {"splits": {"train": "a", "dev": "b", "valid": "c"}}, "Unknown key of splits 'valid'"),
        ("classification", {"weight": -1.0}, "weight is -1.0; expected 0.0 or more"),
        ("classification", {"weight": float("nan")}, "weight is nan; expected"),
        ("classification", {"contrast": -0.1}, "contrast is -0.1; expected 0.0 or more"),
        ("classification", {"contrast_temperature": 0.0}, "contrast_temperature is 0.0; expected a number above 0"),
        ("classification", {"dropout": 1.0}, "dropout is 1.0; expected a number below 1"),
        ("classification", {"contrast_dropout": -0.1}, "contrast_dropout is -0.1; expected 0.0 or more"),
        ("classification", {"contrast_dropout": 0.1}, "contrast_dropout has no effect without contrast; set contrast"),
        ("classification", {"supervised": False}, "leaves contrast alone, but contrast is 0"),
        ("classification", {"max_length": 2}, "max_length is 2; expected 3 or more"),
        ("classification", {"limit": 1}, "limit is 1; expected 2 or more"),
    ],
)
def test_a_task_that_can_not_be_is_refused(kind, given, message):
    with pytest.raises(InputError, match=message):
        task(kind, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": {"left": "a", "right": "a"}}, "columns: 'a' comes twice; texts, label and split differ"),
        ({"columns": {"left": "label"}}, "columns: 'label' comes twice"),
        ({"splits": {}}, r"splits declare no train rows, which training needs; write splits = \{ train = "),
        ({"splits": {"train": ("train",)}}, "splits declare no dev rows"),
        ({"splits": {"train": (), "dev": ("dev",)}}, "splits declare no train rows"),
        ({"splits": {"train": "a", "dev": ("b", "a")}}, "'a' comes twice; rows that train neither choose nor test"),
    ],
)
def test_a_task_that_can_not_be_trained_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        recipe(task(**given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"iteration": "cycle"}, ".mixing. Unknown iteration 'cycle'. .*Known: cycling, padding"),
        ({"weights": "size"}, ".mixing. Unknown weights 'size'. .*Known: equal, inverse-size, given, learned"),
        ({"temperature": 0.0, "iteration": "temperature"}, "temperature is 0.0; expected a number above 0"),
        (
            {"temperature": 2.0},
            "temperature 2 has no effect with iteration = 'cycling'; set temperature = 1, or iteration = ",
        ),
    ],
)
def test_mixing_that_can_not_be_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        MixingSettings(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": 0}, "every is 0; expected 1"),
        ({"log_every": 0}, "log_every is 0"),
        ({"patience": -1}, "patience is -1"),
    ],
)
def test_evaluations_that_can_not_be_are_refused(given, message):
    with pytest.raises(InputError, match=rf"\[dev\] {message}"):
        MultitaskDev(**given)


def test_a_recipe_needs_tasks_of_different_names():
    with pytest.raises(InputError, match="no tasks; name task files"):
        MultitaskRecipe(name="all", tasks=())
    with pytest.raises(InputError, match="task 'mine' comes twice"):
        recipe(task(), task("pairs"))


def test_every_task_has_an_objective_in_its_order():
    tasks, objectives = (task(name="b").task, task(name="a").task), (task(name="a", head="mlp").objective,)
    made = MultitaskRecipe(name="all", tasks=tasks, objectives=objectives)
    assert [(one.task, one.head) for one in made.objectives] == [("b", ""), ("a", "mlp")]
    assert [one.head for one in made.setups] == ["linear", "mlp"]
    with pytest.raises(
        InputError, match=r"\[\[objective\]\]: Unknown task 'mines'\. Did you mean 'mine'\? Known: mine"
    ):
        MultitaskRecipe(name="all", tasks=(task().task,), objectives=(task(name="mines").objective,))
    with pytest.raises(InputError, match="objective of task 'mine' comes twice"):
        MultitaskRecipe(name="all", tasks=(task().task,), objectives=(task().objective, task().objective))


def test_a_weight_that_nobody_reads_is_refused():
    with pytest.raises(InputError, match=r"task 'mine': weight 2 has no effect with .* 'equal'; set weights"):
        recipe(task(weight=2.0))
    with pytest.raises(InputError, match="every task has the weight 0"):
        recipe(task(weight=0.0), mixing=MixingSettings(weights="given"))
    assert recipe(task(weight=2.0), mixing=MixingSettings(weights="given")).objectives[0].weight == 2


def test_facts_are_json():
    found = json.loads(json.dumps(recipe(task(), task("sts", name="sts", scale=(0, 5))).facts()))
    assert found["tasks"][1]["scale"] == [0.0, 5.0]
    assert found["tasks"][0]["splits"] == {"train": ["train"], "dev": ["dev"]}
    assert found["mixing"]["iteration"] == "cycling"
