"""Scores without training beside those of a training, and how long little data is trained."""

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from layerwise.model import LayerModel
from layerwise.train import MultitaskJob
from layerwise.train.multitask import baselines
from layerwise.train.multitask.baselines import FROZEN, MAJORITY, score_baselines
from support.multitasking import read, recipe, save_tasks, task, train_tasks
from support.slow_cases import one_in


def cosine(left, right):
    left, right = left.astype(np.float64), right.astype(np.float64)
    return (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)


def test_baselines_are_what_scikit_learn_and_scipy_say(data, encoder):
    tasks = {one.name: one for one in read(task("mood", data), task("same", data), task("near", data))}
    found = score_baselines(encoder, list(tasks.values()))["dev"]
    model = LayerModel(encoder, "last @ mean")
    for name in ("mood", "same"):
        train, dev = tasks[name].parts["train"], tasks[name].parts["dev"]
        features = []
        for rows in (train, dev):
            sides = [model.encode(list(column)) for column in rows.columns]
            pair = sides if len(sides) == 1 else [abs(sides[0] - sides[1]), sides[0] * sides[1]]
            features.append(np.hstack(pair))
        regression = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(features[0], train.targets)
        scores = found[f"{name}/accuracy"]
        assert scores[FROZEN] == pytest.approx(regression.score(features[1], dev.targets))
        commonest = np.bincount(train.targets).argmax()
        assert scores[MAJORITY] == pytest.approx(np.mean(dev.targets == commonest))
    dev = tasks["near"].parts["dev"]
    expected = pearsonr(cosine(*(model.encode(list(column)) for column in dev.columns)), dev.targets).statistic
    assert found["near/pearson"] == {FROZEN: pytest.approx(expected, abs=1e-6)}


def test_large_tasks_are_sampled_evenly(data, encoder, monkeypatch):
    (mood,) = read(task("mood", data))
    sizes = []
    encode = LayerModel.encode
    monkeypatch.setattr(LayerModel, "encode", lambda self, texts: sizes.append(len(texts)) or encode(self, texts))
    monkeypatch.setattr(baselines, "_MOST_TRAIN", 20)
    monkeypatch.setattr(baselines, "_MOST_SCORED", 7)
    score_baselines(encoder, [mood])
    assert sizes == [20, 7]


@pytest.mark.slow
def test_results_have_them_and_training_is_as_without(data, encoder, tmp_path):
    trained = train_tasks(recipe(task("mood", data), steps=2), encoder=encoder, folder=tmp_path / "run")
    assert trained.facts["baselines"]["dev"]["mood/accuracy"].keys() == {MAJORITY, FROZEN}


@pytest.mark.parametrize(("rows", "batch", "epochs"), one_in(3, [(40, 8, 30), (400, 8, 10), (8000, 8, 1)]))
def test_little_data_is_trained_for_more_epochs(tmp_path, encoder, rows, batch, epochs):
    folder = save_tasks(tmp_path, train=rows)
    what = recipe(task("mood", folder), batch_size=batch, steps=None)
    job = MultitaskJob(what, encoder=encoder)
    job.read_data()
    assert what.train.epochs == "auto"
    assert job.epochs == epochs
    told = MultitaskJob(recipe(task("mood", folder), batch_size=batch, steps=None, epochs=2), encoder=encoder)
    assert told.epochs == 2


@pytest.mark.parametrize(("steps", "warned"), [(99, True), (100, False)])
def test_few_steps_are_warned_of(data, encoder, caplog, steps, warned):
    job = MultitaskJob(recipe(task("mood", data), steps=steps), encoder=encoder)
    job.read_data()
    with caplog.at_level("WARNING", "layerwise.train.multitask.job"):
        job.build(encoder, seed=0)
    assert any(message.startswith(f"{steps} steps train little") for message in caplog.messages) == warned
