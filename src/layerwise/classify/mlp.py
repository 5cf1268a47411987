"""SentEval's MLP, trained for every fold and every weight decay at once.

As in SentEval: one hidden layer of 50 sigmoids, no dropout, Adam with batches of 64 rows; the dev accuracy is evaluated
every four epochs, training stops the sixth time that it does not improve, and the best model is returned. If a fold has
no dev rows, 5 % of its training rows are used. Each model draws its weights and batches from the same seed, so that it
does not depend on which models are trained with it.

On two cores a model takes about 25 microseconds per row and epoch: a task of 10,000 rows without splits, with its
410 models, about an hour. A GPU trains all of them at once; the logistic regression takes seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.classify.classifiers import CLASSIFIERS, ClassRows
from layerwise.threads import share as share_work

_BYTES = 2**27  # of weights, moments and batches at once
_GPU_BYTES = 2**32
_DECAY1, _DECAY2, _SMALL = 0.9, 0.999, 1e-8  # Adam's


@dataclass(frozen=True)
class MlpSettings:
    """SentEval's hyperparameters."""

    hidden: int = 50
    rate: float = 1e-3
    batch: int = 64
    epoch_size: int = 4
    tenacity: int = 5
    epochs: int = 200
    held: float = 0.05


@dataclass(frozen=True)
class Job:
    """A model to train: its rows, its dev rows for early stopping (None: a share of `train`), its weight decay."""

    train: NDArray[np.int64]
    dev: NDArray[np.int64] | None
    decay: float


@dataclass(frozen=True)
class Networks:
    """Weights (models, hidden, width), (models, hidden), (models, classes, hidden), (models, classes)."""

    parameters: tuple[Tensor, Tensor, Tensor, Tensor]

    @classmethod
    def drawn(cls, models: int, width: int, hidden: int, classes: int, *, seed: int) -> Self:
        """Initialise as `torch.manual_seed(seed)` and two `nn.Linear` do; all models alike, as in SentEval."""
        random = torch.Generator().manual_seed(seed)
        shapes = ((hidden, width), (hidden,), (classes, hidden), (classes,))
        bounds = (width**-0.5, width**-0.5, hidden**-0.5, hidden**-0.5)
        drawn = [
            torch.empty(shape).uniform_(-bound, bound, generator=random)
            for shape, bound in zip(shapes, bounds, strict=True)
        ]
        a, b, c, d = (values.expand(models, *values.shape).clone() for values in drawn)
        return cls((a, b, c, d))

    def __getitem__(self, picked: Tensor | int) -> Self:
        """Select models, which are copied."""
        a, b, c, d = (values[picked] for values in self.parameters)
        return type(self)((a, b, c, d))

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        a, b, c, d = (values.to(device) for values in self.parameters)
        return type(self)((a, b, c, d))

    def zeros(self) -> Self:
        """Zeros of the same shapes."""
        a, b, c, d = (torch.zeros_like(values) for values in self.parameters)
        return type(self)((a, b, c, d))

    def hidden(self, rows: Tensor) -> Tensor:
        """The hidden activations: (models, b, width) -> (models, b, hidden)"""
        weights, bias = self.parameters[:2]
        return torch.baddbmm(bias[:, None], rows, weights.mT).sigmoid_()

    def scores(self, hidden: Tensor) -> Tensor:
        """The logits: (models, b, hidden) -> (models, b, classes)"""
        weights, bias = self.parameters[2:]
        return torch.baddbmm(bias[:, None], hidden, weights.mT)

    def gradients(self, rows: Tensor, targets: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The gradients of the cross-entropy: rows (models, b, width), targets (models, b), row weights (models, b)."""
        hidden = self.hidden(rows)
        errors = self.scores(hidden).softmax(-1)
        errors.scatter_add_(-1, targets[..., None], -torch.ones_like(share)[..., None])
        errors *= share[..., None]
        back = torch.bmm(errors, self.parameters[2]).mul_(hidden * (1 - hidden))
        return torch.bmm(back.mT, rows), back.sum(1), torch.bmm(errors.mT, hidden), errors.sum(1)


@dataclass(frozen=True)
class Training:
    """Networks with Adam's moments, which a step updates in place."""

    networks: Networks
    first: Networks
    second: Networks
    steps: Tensor
    """(models,)"""
    decay: Tensor
    """(models,): weight decay, added to the gradient as in torch's Adam."""
    rate: float

    @classmethod
    def begin(cls, networks: Networks, decay: Tensor, rate: float) -> Self:
        """Start with zero moments."""
        return cls(networks, networks.zeros(), networks.zeros(), torch.zeros_like(decay), decay, rate)

    def __getitem__(self, picked: Tensor) -> Self:
        """Select models."""
        networks, first, second = (part[picked] for part in (self.networks, self.first, self.second))
        return type(self)(networks, first, second, self.steps[picked], self.decay[picked], self.rate)

    def step(self, rows: Tensor, targets: Tensor, share: Tensor) -> None:
        """Take a step; models without rows in their batch (all shares 0) are not changed."""
        active = (share > 0).any(1).to(rows.dtype)
        self.steps.add_(active)
        steps = self.steps.clamp_min(1)
        gradients = self.networks.gradients(rows, targets, share)
        groups = zip(self.networks.parameters, self.first.parameters, self.second.parameters, gradients, strict=True)
        for weights, first, second, gradient in groups:
            models = (-1,) + (1,) * (weights.ndim - 1)
            mask = active.view(models)
            gradient += self.decay.view(models) * weights
            first.add_((gradient - first).mul_((1 - _DECAY1) * mask))
            second.add_((gradient.square_() - second).mul_((1 - _DECAY2) * mask))
            scale = (1 - _DECAY2**steps).sqrt().view(models)
            length = (self.rate / (1 - _DECAY1**steps)).view(models) * mask
            weights.sub_(length * first / (second.sqrt().div_(scale).add_(_SMALL)))


@dataclass
class _Run:
    """The state of a job: its random numbers, its rows, and how often its dev accuracy did not improve."""

    random: np.random.RandomState
    train: NDArray[np.int64]
    dev: NDArray[np.int64]
    best: float = -1.0
    failures: int = 0

    def epoch(self, batch: int, steps: int) -> NDArray[np.int64]:
        """The shuffled rows of an epoch by step, padded with -1: (steps, batch)"""
        rows = np.full(steps * batch, -1, dtype=np.int64)
        rows[: len(self.train)] = self.train[self.random.permutation(len(self.train))]
        return rows.reshape(steps, batch)


def train_mlps(
    features: Tensor,
    labels: Tensor,
    jobs: Sequence[Job],
    *,
    classes: int,
    seed: int,
    settings: MlpSettings | None = None,
) -> tuple[Networks, NDArray[np.float64]]:
    """Train a model per job; returns them with their best dev accuracies. Features (n, width), labels (n,)"""
    settings = settings or MlpSettings()
    trained = Networks.drawn(len(jobs), features.shape[1], settings.hidden, classes, seed=seed).to(features.device)
    best = np.zeros(len(jobs))
    is_gpu = features.is_cuda
    chunk_size = max(
        1, (_GPU_BYTES if is_gpu else _BYTES) // (4 * features.shape[1] * (5 * settings.hidden + 2 * settings.batch))
    )
    parts = np.array_split(np.arange(len(jobs)), max(-(-len(jobs) // chunk_size), min(2, len(jobs))))

    def work(part: NDArray[np.int64]) -> None:
        runs = [_start(jobs[job], seed, settings.held) for job in part]
        numbers = torch.as_tensor(part, device=features.device)
        decay = torch.tensor([jobs[job].decay for job in part], device=features.device)
        training = Training.begin(trained[numbers], decay, settings.rate)
        best[part] = _train(features, labels, runs, training, trained, numbers, settings)

    share_work(parts, work, threads=1 if is_gpu else None)
    return trained, best


def _start(job: Job, seed: int, held: float) -> _Run:
    random = np.random.RandomState(seed)
    if job.dev is not None:
        return _Run(random, job.train, job.dev)
    shuffled, count = job.train[random.permutation(len(job.train))], max(1, int(held * len(job.train)))
    return _Run(random, shuffled[count:], shuffled[:count])


def _train(
    features: Tensor,
    labels: Tensor,
    runs: list[_Run],
    training: Training,
    trained: Networks,
    numbers: Tensor,
    settings: MlpSettings,
) -> NDArray[np.float64]:
    """Train models until they stop; the best version of each is written to `trained[numbers]`."""
    all_runs = runs
    for _ in range(0, settings.epochs, settings.epoch_size):
        for _ in range(settings.epoch_size):
            _epoch(features, labels, runs, training, settings.batch)
        scores = _accuracies(features, labels, runs, training.networks, settings.batch)
        better = torch.tensor(
            [score > run.best for score, run in zip(scores, runs, strict=True)], device=numbers.device
        )
        for best, current in zip(trained.parameters, training.networks.parameters, strict=True):
            best[numbers[better]] = current[better]
        for score, run in zip(scores, runs, strict=True):
            run.failures += score <= run.best
            run.best = max(run.best, score)
        active = [number for number, run in enumerate(runs) if run.failures <= settings.tenacity]
        if not active:
            break
        if len(active) < len(runs):
            runs, index = [runs[number] for number in active], torch.tensor(active, device=numbers.device)
            training, numbers = training[index], numbers[index]
    return np.array([run.best for run in all_runs])


def _epoch(features: Tensor, labels: Tensor, runs: list[_Run], training: Training, batch: int) -> None:
    steps = max(-(-len(run.train) // batch) for run in runs)
    batches = np.stack([run.epoch(batch, steps) for run in runs], 1)
    for rows in torch.as_tensor(batches, device=features.device):  # (models, batch)
        mask = (rows >= 0).to(features.dtype)
        picked = rows.clamp_min(0)
        training.step(features[picked], labels[picked], mask / mask.sum(1, keepdim=True).clamp_min(1))


def _accuracies(features: Tensor, labels: Tensor, runs: list[_Run], networks: Networks, batch: int) -> list[float]:
    """The accuracy of every model on its dev rows."""
    longest = max(len(run.dev) for run in runs)
    padded = np.stack([np.pad(run.dev, (0, longest - len(run.dev)), constant_values=-1) for run in runs])
    rows = torch.as_tensor(padded, device=features.device)
    correct = torch.zeros(len(runs), device=features.device)
    for part in torch.split(rows, batch, 1):
        picked = part.clamp_min(0)
        predicted = networks.scores(networks.hidden(features[picked])).argmax(-1)
        correct += ((predicted == labels[picked]) & (part >= 0)).sum(1)
    return [float(count) / len(run.dev) for count, run in zip(correct, runs, strict=True)]


@CLASSIFIERS.register("mlp")
class MlpClassifier:
    """The MLP, with weight decay as its hyperparameter."""

    def __init__(self, task: ClassRows) -> None:
        self.task = task

    def accuracies(self, train: Tensor, scored: Tensor) -> Tensor:
        """The dev accuracies of each fold and setting; the scored rows also stop training, as in SentEval."""
        pairs = [(_rows(fold), _rows(dev)) for fold, dev in zip(train, scored, strict=True)]
        jobs = [Job(*pair, decay) for pair in pairs for decay in self.task.settings]
        best = _train_for(self.task, jobs)[1]
        return torch.as_tensor(best).view(len(train), -1)

    def predictions(self, train: Tensor, setting: Tensor, dev: Tensor | None) -> Tensor:
        """The predicted class of every row by every fold."""
        dev_rows = None if dev is None else _rows(dev)
        jobs = [
            Job(_rows(fold), dev_rows, self.task.settings[number])
            for fold, number in zip(train, setting.tolist(), strict=True)
        ]
        networks, _ = _train_for(self.task, jobs)
        models = [networks[torch.tensor([number], device=train.device)] for number in range(len(jobs))]
        return torch.cat([model.scores(model.hidden(self.task.features[None])).argmax(-1) for model in models])


def _train_for(task: ClassRows, jobs: Sequence[Job]) -> tuple[Networks, NDArray[np.float64]]:
    return train_mlps(task.features, task.labels, jobs, classes=task.classes, seed=task.seed)


def _rows(mask: Tensor) -> NDArray[np.int64]:
    return mask.nonzero()[:, 0].cpu().numpy()
