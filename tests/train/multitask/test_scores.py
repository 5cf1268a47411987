"""Scores of a multitask training: confusions, tasks that diverge, and which step is the best."""

import csv

import numpy as np
import pytest

from layerwise.encoder import LayerEncoder
from layerwise.errors import ModelError
from layerwise.predict import Predictor
from layerwise.train.multitask.dev import Report, score_tasks
from layerwise.train.multitask.metrics import overall
from support.multitasking import recipe, task, train_tasks
from support.row_files import write
from support.task_batches import all_tasks


@pytest.mark.slow
def test_a_confusion_has_the_true_class_in_its_row(data, tiny_bert, tmp_path):
    with (data / "mood.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    fewer = [row for row in rows if row["split"] == "train" or row["label"] == "good"] + [
        row for row in rows if row["split"] == "dev" and row["label"] == "bad"
    ][:3]
    write(tmp_path / "mood.csv", fewer)
    what = recipe(task("mood", tmp_path), steps=1)
    trained = train_tasks(what, tmp_path / "run", encoder=LayerEncoder(tiny_bert, device="cpu"))
    dev = [row for row in fewer if row["split"] == "dev"]
    said = trained.model.predict("mood", [row["text"] for row in dev]).labels
    names = trained.facts["tasks"]["mood"]["labels"]
    by_hand = [
        [sum((row["label"], own) == (true, taken) for row, own in zip(dev, said, strict=True)) for taken in names]
        for true in names
    ]
    assert [sum(row) for row in by_hand] == [3, 8]
    assert by_hand != np.transpose(by_hand).tolist()
    assert trained.facts["dev"]["confusions"]["mood"] == by_hand


@pytest.mark.slow
def test_a_diverged_task_has_no_score_and_leaves_no_overall_one(data, tiny_bert, tmp_path, monkeypatch):
    real = Predictor.outputs

    def outputs(self, name, columns, **_):
        found = real(self, name, columns)
        found[3] = np.nan if name in ("near", "mood") else found[3]
        return found

    monkeypatch.setattr(Predictor, "outputs", outputs)
    encoder = LayerEncoder(tiny_bert, device="cpu")
    trained = train_tasks(recipe(*all_tasks(data), steps=2, dev={"every": 1}), tmp_path / "run", encoder=encoder)
    scores = trained.facts["dev"]["scores"]  # as result.json has them
    assert (scores["near/pearson"], scores["mood/accuracy"], scores["overall"]) == (None, None, None)
    assert scores["same/accuracy"] > 0
    assert set(trained.facts["dev"]["confusions"]) == {"same"}
    trained.model.save(tmp_path / "model")
    for name, row in (("mood", "rain"), ("near", ("rain", "door"))):
        with pytest.raises(ModelError, match=rf"task '{name}': the model gives no numbers .* train it again"):
            trained.model.predict(name, [row] * 4)


@pytest.mark.slow
def test_a_step_without_a_score_is_never_the_best(data, tiny_bert, tmp_path, monkeypatch):
    looks = iter([np.nan, -0.9, np.nan, -0.95])

    def scripted(*given):
        if len(given) == 3:
            return score_tasks(*given)
        score = next(looks)
        return Report({"near/pearson": score}, overall({"near/pearson": score}), {})

    monkeypatch.setattr("layerwise.train.multitask.dev.score_tasks", scripted)
    what = recipe(task("near", data), steps=4, dev={"every": 1})
    trained = train_tasks(what, tmp_path / "run", encoder=LayerEncoder(tiny_bert, device="cpu"))
    assert trained.facts["best"]["at_step"] == 2
    assert trained.facts["best"]["score"] == pytest.approx(0.05)
