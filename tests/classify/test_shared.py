"""SentEval's tasks with real embeddings: the accuracy of plain scikit-learn, within half a point.

scikit-learn takes a second or more for a regression here, so that its whole protocol runs in the slow tests only; the
others give both the same fewer folds and settings.
"""

import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest

from layerwise import LayerEncoder
from layerwise.classify import SentEvalProtocol, evaluate_classes, pair_features
from support.plain_classifiers import plain_choice, plain_kfold, plain_train_dev_test, plain_train_test

pytestmark = pytest.mark.shared

CS = (0.5, 4.0)


@pytest.fixture(scope="module")
def encoder() -> LayerEncoder:
    return LayerEncoder(device="cpu")


def read_task(shared, encoder, name: str, every: int = 1):
    """Features, labels and splits of a task; of every so many rows."""
    table = pq.read_table(shared / "data" / "transfer" / f"{name}.parquet").to_pydict()
    columns = {key: np.array(values)[::every] for key, values in table.items()}
    split = columns["split"]
    split[split == "train_val"] = "train"  # of MRPC, which SentEval has as one
    views = [
        encoder.encode_layers(columns[key].tolist(), layers=[-1])[:, 0]
        for key in ("text", "sentence1", "sentence2")
        if key in columns
    ]
    features = views[0] if len(views) == 1 else pair_features(*views)
    splits = {key: np.flatnonzero(split == key) for key in ("train", "dev", "test") if (split == key).any()}
    return features, columns["label"], splits or None


@pytest.mark.slow  # the questions and paraphrases below are compared in the same way
def test_reviews_trained_on_a_part(shared, encoder):
    features, labels, _ = read_task(shared, encoder, "cr", every=20)
    warnings.simplefilter("ignore")
    found = evaluate_classes(features, labels, SentEvalProtocol(folds=3, inner=3))
    accuracy, _, predicted = plain_kfold(features, labels, folds=3, inner=3)
    assert found.accuracy == pytest.approx(accuracy, abs=0.005)
    assert (found.predictions == predicted).mean() > 0.99


@pytest.mark.slow
@pytest.mark.parametrize(("name", "every"), [("trec", 60), ("mrpc", 90)])
def test_questions_and_paraphrases(shared, encoder, name, every):
    features, labels, splits = read_task(shared, encoder, name, every)
    found = evaluate_classes(features, labels, SentEvalProtocol(inner=3, grid=CS), splits)
    train, test = splits["train"], splits["test"]
    model = plain_choice(features[train], labels[train], CS, 3, 1111)
    assert found.chosen == (model.C,)
    assert (found.predictions == model.predict(features[test])).mean() > 0.98


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", ["cr", "trec", "mrpc", "sst5"])
def test_whole_tasks(shared, encoder, name):
    features, labels, splits = read_task(shared, encoder, name)
    found = evaluate_classes(features, labels, splits=splits)
    if splits is None:
        accuracy = plain_kfold(features, labels)[0]
    else:
        accuracy = (plain_train_dev_test if "dev" in splits else plain_train_test)(features, labels, splits)[0]
    assert found.accuracy == pytest.approx(accuracy, abs=0.005)
