"""SentEval's MLP: the batched one against plain PyTorch, alone against among others, and what it can learn."""

import numpy as np
import pytest
import torch
from torch import nn

from layerwise.classify import SentEvalProtocol, evaluate_classes
from layerwise.classify.mlp import Job, MlpSettings, train_mlps
from support.plain_classifiers import planted

SHORT = MlpSettings(hidden=8, epochs=12)


def plain_mlp(features, labels, job: Job, *, classes: int, seed: int, settings: MlpSettings):
    """One model as SentEval trains it, by torch's own modules: its parameters and its best dev accuracy."""
    torch.manual_seed(seed)
    random = np.random.RandomState(seed)
    model = nn.Sequential(
        nn.Linear(features.shape[1], settings.hidden), nn.Sigmoid(), nn.Linear(settings.hidden, classes)
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.rate, weight_decay=job.decay)
    train, dev = job.train, job.dev
    if dev is None:
        mixed, count = train[random.permutation(len(train))], int(settings.held * len(train))
        train, dev = mixed[count:], mixed[:count]
    best, kept, failures, epoch = -1.0, None, 0, 0
    while epoch < settings.epochs and failures <= settings.tenacity:
        for _ in range(settings.epoch_size):
            order = train[random.permutation(len(train))]
            for start in range(0, len(order), settings.batch):
                rows = order[start : start + settings.batch]
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(features[rows]), labels[rows]).backward()
                optimiser.step()
        epoch += settings.epoch_size
        accuracy = float((model(features[dev]).argmax(1) == labels[dev]).double().mean())
        if accuracy > best:
            best, kept = accuracy, [values.detach().clone() for values in model.parameters()]
        else:
            failures += 1
    return kept, best


def tensors(classes: int = 3, rows: int = 200):
    features, labels = planted(rows=rows, classes=classes)
    return torch.tensor(features), torch.tensor(labels)


JOBS = [
    Job(np.arange(150), np.arange(150, 200), 1e-5),
    Job(np.arange(150), np.arange(150, 200), 1e-2),
    Job(np.arange(40, 170), None, 1e-3),  # fewer rows: its epochs end before the others'
    Job(np.arange(0, 200, 2), np.arange(1, 200, 4), 1e-4),
]


@pytest.mark.parametrize("settings", [SHORT, MlpSettings(hidden=5, rate=0.05, epochs=60, tenacity=1)])
def test_a_batch_of_models_is_plain_pytorch(settings):
    features, labels = tensors()
    found, best = train_mlps(features, labels, JOBS, classes=3, seed=5, settings=settings)
    for number, job in enumerate(JOBS):
        plain, accuracy = plain_mlp(features, labels, job, classes=3, seed=5, settings=settings)
        assert best[number] == pytest.approx(accuracy, abs=0.021)  # a row on the border
        for mine, theirs in zip(found.parameters, plain, strict=True):
            torch.testing.assert_close(mine[number], theirs, atol=2e-3, rtol=0)


def test_a_model_is_the_same_alone_and_among_others():
    features, labels = tensors()
    together, best = train_mlps(features, labels, JOBS, classes=3, seed=5, settings=SHORT)
    for number, job in enumerate(JOBS):
        alone, own = train_mlps(features, labels, [job], classes=3, seed=5, settings=SHORT)
        assert own[0] == best[number]
        for one, other in zip(together.parameters, alone.parameters, strict=True):
            torch.testing.assert_close(one[number], other[0], atol=1e-5, rtol=0)


@pytest.mark.slow
def test_it_learns_what_no_line_separates():
    random = np.random.default_rng(0)
    features = random.uniform(-3, 3, size=(1200, 2)).astype(np.float32)
    labels = (features.prod(1) > 0).astype(int)
    splits = {"train": np.arange(800), "dev": np.arange(800, 1000), "test": np.arange(1000, 1200)}
    line = evaluate_classes(features, labels, splits=splits).accuracy
    curve = evaluate_classes(features, labels, SentEvalProtocol("mlp", grid=(1e-5,)), splits).accuracy
    assert line < 0.65
    assert curve > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("splits", [None, {"train": np.arange(400), "test": np.arange(400, 600)}])
def test_the_three_protocols_take_it(splits):
    features, labels = planted(rows=600, noise=0.5)
    protocol = SentEvalProtocol("mlp", folds=2, inner=2, grid=(1e-5, 1e-2))
    found = evaluate_classes(features, labels, protocol, splits)
    assert found.accuracy > 0.8
    assert set(found.chosen) <= {1e-5, 1e-2}
    again = evaluate_classes(features, labels, protocol, splits)
    assert again.predictions.tolist() == found.predictions.tolist()
