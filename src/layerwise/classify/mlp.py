"""SentEval's MLP, many at once: every fold with every weight decay.

As there: one hidden layer of 50 sigmoids, no dropout, Adam with 64 rows a step; every four epochs the dev accuracy is
taken, the sixth time that it is no new best ends the training, and the best model is returned. Where a fold has no dev
rows, 5 % of its training rows are. Each model draws its weights and batches from the same seed, so that it is the same
alone and among others.

On two cores a model takes about 25 microseconds for a row and an epoch: a task of 10,000 rows without splits, with its
410 models, about an hour. A GPU trains them together; the logistic regression takes seconds.
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

_BYTES = 2**27  # of weights, moments and batches at a time
_GPU_BYTES = 2**32
_DECAY1, _DECAY2, _SMALL = 0.9, 0.999, 1e-8  # Adam's


@dataclass(frozen=True)
class MlpSettings:
    """SentEval's."""

    hidden: int = 50
    rate: float = 1e-3
    batch: int = 64
    epoch_size: int = 4
    tenacity: int = 5
    epochs: int = 200
    held: float = 0.05


@dataclass(frozen=True)
class Job:
    """A model to train: its rows, those that say when to stop (None: a share of `train`), its weight decay."""

    train: NDArray[np.int64]
    dev: NDArray[np.int64] | None
    decay: float


@dataclass(frozen=True)
class Networks:
    """Weights (models, hidden, width), (models, hidden), (models, classes, hidden), (models, classes)."""

    parameters: tuple[Tensor, Tensor, Tensor, Tensor]

    @classmethod
    def drawn(cls, models: int, width: int, hidden: int, classes: int, *, seed: int) -> Self:
        """As `torch.manual_seed(seed)` and two `nn.Linear` draw them; the same for all, as SentEval has it."""
        random = torch.Generator().manual_seed(seed)
        shapes = ((hidden, width), (hidden,), (classes, hidden), (classes,))
        ends = (width**-0.5, width**-0.5, hidden**-0.5, hidden**-0.5)
        drawn = [
            torch.empty(shape).uniform_(-end, end, generator=random) for shape, end in zip(shapes, ends, strict=True)
        ]
        a, b, c, d = (values.expand(models, *values.shape).clone() for values in drawn)
        return cls((a, b, c, d))

    def __getitem__(self, picked: Tensor | int) -> Self:
        """Some of them, copied."""
        a, b, c, d = (values[picked] for values in self.parameters)
        return type(self)((a, b, c, d))

    def to(self, device: torch.device) -> Self:
        """On another device."""
        a, b, c, d = (values.to(device) for values in self.parameters)
        return type(self)((a, b, c, d))

    def zeros(self) -> Self:
        """Zeros of the same shapes."""
        a, b, c, d = (torch.zeros_like(values) for values in self.parameters)
        return type(self)((a, b, c, d))

    def hidden(self, rows: Tensor) -> Tensor:
        """(models, b, width) -> (models, b, hidden)"""
        weights, offsets = self.parameters[:2]
        return torch.baddbmm(offsets[:, None], rows, weights.mT).sigmoid_()

    def scores(self, hidden: Tensor) -> Tensor:
        """(models, b, hidden) -> (models, b, classes)"""
        weights, offsets = self.parameters[2:]
        return torch.baddbmm(offsets[:, None], hidden, weights.mT)

    def gradients(self, rows: Tensor, targets: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of the cross-entropy. Rows (models, b, width), targets (models, b), share (models, b): a row's weight."""
        hidden = self.hidden(rows)
        errors = self.scores(hidden).softmax(-1)
        errors.scatter_add_(-1, targets[..., None], -torch.ones_like(share)[..., None])
        errors *= share[..., None]
        back = torch.bmm(errors, self.parameters[2]).mul_(hidden * (1 - hidden))
        return torch.bmm(back.mT, rows), back.sum(1), torch.bmm(errors.mT, hidden), errors.sum(1)


@dataclass(frozen=True)
class Training:
    """Networks with Adam's moments. A step changes all of them in place."""

    networks: Networks
    first: Networks
    second: Networks
    steps: Tensor
    """(models,)"""
    decay: Tensor
    """(models,): weight decay, which torch's Adam adds to the gradient."""
    rate: float

    @classmethod
    def begin(cls, networks: Networks, decay: Tensor, rate: float) -> Self:
        """Networks before their first step."""
        return cls(networks, networks.zeros(), networks.zeros(), torch.zeros_like(decay), decay, rate)

    def __getitem__(self, picked: Tensor) -> Self:
        """Some of them."""
        networks, first, second = (part[picked] for part in (self.networks, self.first, self.second))
        return type(self)(networks, first, second, self.steps[picked], self.decay[picked], self.rate)

    def step(self, rows: Tensor, targets: Tensor, share: Tensor) -> None:
        """A model without a row in its batch (a share of 0 for all) stays as it is."""
        active = (share > 0).any(1).to(rows.dtype)
        self.steps.add_(active)
        taken = self.steps.clamp_min(1)
        gradients = self.networks.gradients(rows, targets, share)
        groups = zip(self.networks.parameters, self.first.parameters, self.second.parameters, gradients, strict=True)
        for weights, first, second, slope in groups:
            models = (-1,) + (1,) * (weights.ndim - 1)
            on = active.view(models)
            slope += self.decay.view(models) * weights
            first.add_((slope - first).mul_((1 - _DECAY1) * on))
            second.add_((slope.square_() - second).mul_((1 - _DECAY2) * on))
            scale = (1 - _DECAY2**taken).sqrt().view(models)
            length = (self.rate / (1 - _DECAY1**taken)).view(models) * on
            weights.sub_(length * first / (second.sqrt().div_(scale).add_(_SMALL)))


@dataclass
class _Course:
    """A job under way: its random numbers, its rows, and how often its dev accuracy was no new best."""

    random: np.random.RandomState
    train: NDArray[np.int64]
    dev: NDArray[np.int64]
    best: float = -1.0
    failures: int = 0

    def epoch(self, batch: int, steps: int) -> NDArray[np.int64]:
        """Rows by step, -1 where there is none: (steps, batch)"""
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
    """The trained models, in the jobs' order, and their best dev accuracies. Features (n, width), labels (n,)"""
    settings = settings or MlpSettings()
    trained = Networks.drawn(len(jobs), features.shape[1], settings.hidden, classes, seed=seed).to(features.device)
    best = np.zeros(len(jobs))
    gpu = features.is_cuda
    room = max(
        1, (_GPU_BYTES if gpu else _BYTES) // (4 * features.shape[1] * (5 * settings.hidden + 2 * settings.batch))
    )
    parts = np.array_split(np.arange(len(jobs)), max(-(-len(jobs) // room), min(2, len(jobs))))

    def work(part: NDArray[np.int64]) -> None:
        courses = [_course(jobs[job], seed, settings.held) for job in part]
        numbers = torch.as_tensor(part, device=features.device)
        decay = torch.tensor([jobs[job].decay for job in part], device=features.device)
        training = Training.begin(trained[numbers], decay, settings.rate)
        best[part] = _train(features, labels, courses, training, trained, numbers, settings)

    share_work(parts, work, threads=1 if gpu else None)
    return trained, best


def _course(job: Job, seed: int, held: float) -> _Course:
    random = np.random.RandomState(seed)
    if job.dev is not None:
        return _Course(random, job.train, job.dev)
    mixed, count = job.train[random.permutation(len(job.train))], max(1, int(held * len(job.train)))
    return _Course(random, mixed[count:], mixed[:count])


def _train(
    features: Tensor,
    labels: Tensor,
    courses: list[_Course],
    training: Training,
    trained: Networks,
    numbers: Tensor,
    settings: MlpSettings,
) -> NDArray[np.float64]:
    """Train some models to their ends; their best versions go to `trained[numbers]`."""
    everyone = courses
    for _ in range(0, settings.epochs, settings.epoch_size):
        for _ in range(settings.epoch_size):
            _epoch(features, labels, courses, training, settings.batch)
        scores = _accuracies(features, labels, courses, training.networks, settings.batch)
        better = torch.tensor(
            [score > course.best for score, course in zip(scores, courses, strict=True)], device=numbers.device
        )
        for values, now in zip(trained.parameters, training.networks.parameters, strict=True):
            values[numbers[better]] = now[better]
        for score, course in zip(scores, courses, strict=True):
            course.failures += score <= course.best
            course.best = max(course.best, score)
        going = [number for number, course in enumerate(courses) if course.failures <= settings.tenacity]
        if not going:
            break
        if len(going) < len(courses):
            courses, still = [courses[number] for number in going], torch.tensor(going, device=numbers.device)
            training, numbers = training[still], numbers[still]
    return np.array([course.best for course in everyone])


def _epoch(features: Tensor, labels: Tensor, courses: list[_Course], training: Training, batch: int) -> None:
    steps = max(-(-len(course.train) // batch) for course in courses)
    every = np.stack([course.epoch(batch, steps) for course in courses], 1)
    for rows in torch.as_tensor(every, device=features.device):  # (models, batch)
        here = (rows >= 0).to(features.dtype)
        picked = rows.clamp_min(0)
        training.step(features[picked], labels[picked], here / here.sum(1, keepdim=True).clamp_min(1))


def _accuracies(
    features: Tensor, labels: Tensor, courses: list[_Course], networks: Networks, batch: int
) -> list[float]:
    """Of every model on its dev rows."""
    longest = max(len(course.dev) for course in courses)
    padded = np.stack([np.pad(course.dev, (0, longest - len(course.dev)), constant_values=-1) for course in courses])
    rows = torch.as_tensor(padded, device=features.device)
    right = torch.zeros(len(courses), device=features.device)
    for part in torch.split(rows, batch, 1):
        picked = part.clamp_min(0)
        guesses = networks.scores(networks.hidden(features[picked])).argmax(-1)
        right += ((guesses == labels[picked]) & (part >= 0)).sum(1)
    return [float(count) / len(course.dev) for count, course in zip(right, courses, strict=True)]


@CLASSIFIERS.register("mlp")
class MlpClassifier:
    """The MLP, by weight decay."""

    def __init__(self, task: ClassRows) -> None:
        self.task = task

    def accuracies(self, train: Tensor, scored: Tensor) -> Tensor:
        """The scored rows say when to stop too, as SentEval has it."""
        pairs = [(_rows(one), _rows(other)) for one, other in zip(train, scored, strict=True)]
        jobs = [Job(*pair, decay) for pair in pairs for decay in self.task.settings]
        best = _train_for(self.task, jobs)[1]
        return torch.as_tensor(best).view(len(train), -1)

    def predictions(self, train: Tensor, setting: Tensor, dev: Tensor | None) -> Tensor:
        """Of every row by every fold."""
        held = None if dev is None else _rows(dev)
        jobs = [
            Job(_rows(one), held, self.task.settings[number])
            for one, number in zip(train, setting.tolist(), strict=True)
        ]
        networks, _ = _train_for(self.task, jobs)
        every = [networks[torch.tensor([number], device=train.device)] for number in range(len(jobs))]
        return torch.cat([one.scores(one.hidden(self.task.features[None])).argmax(-1) for one in every])


def _train_for(task: ClassRows, jobs: Sequence[Job]) -> tuple[Networks, NDArray[np.float64]]:
    return train_mlps(task.features, task.labels, jobs, classes=task.classes, seed=task.seed)


def _rows(mask: Tensor) -> NDArray[np.int64]:
    return mask.nonzero()[:, 0].cpu().numpy()
