"""SentEval's MLP, many at once: every fold with every weight decay.

As there: one hidden layer of 50 sigmoids, no dropout, Adam with 64 rows a step; every four epochs the dev accuracy is
taken, the sixth time that it is no new best ends the training, and the best model is kept. Where a fold has no dev
rows, 5 % of its training rows are. Each model draws its weights and batches from the same seed, so that it is the same
alone and among others.

On two cores a model takes about 25 microseconds for a row and an epoch: a task of 10,000 rows without splits, with its
410 models, about an hour. A GPU trains them together; the logistic regression takes seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.classify.classifiers import CLASSIFIERS, ClassRows
from layerwise.classify.mlp_step import Networks, Training
from layerwise.threads import share as share_work

_BYTES = 2**27  # of weights, moments and batches at a time
_GPU_BYTES = 2**32


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
    """A model to train: its rows, those that say when to stop (None: a share of its own), its weight decay."""

    train: NDArray[np.int64]
    dev: NDArray[np.int64] | None
    decay: float


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
    found = Networks.drawn(len(jobs), features.shape[1], settings.hidden, classes, seed=seed).to(features.device)
    best = np.zeros(len(jobs))
    gpu = features.is_cuda
    room = max(
        1, (_GPU_BYTES if gpu else _BYTES) // (4 * features.shape[1] * (5 * settings.hidden + 2 * settings.batch))
    )
    parts = np.array_split(np.arange(len(jobs)), max(-(-len(jobs) // room), min(2, len(jobs))))

    def work(part: NDArray[np.int64]) -> None:
        courses = [_course(jobs[job], seed, settings.held) for job in part]
        kept = torch.as_tensor(part, device=features.device)
        decay = torch.tensor([jobs[job].decay for job in part], device=features.device)
        training = Training.begin(found[kept], decay, settings.rate)
        best[part] = _train(features, labels, courses, training, found, kept, settings)

    share_work(parts, work, threads=1 if gpu else None)
    return found, best


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
    found: Networks,
    kept: Tensor,
    settings: MlpSettings,
) -> NDArray[np.float64]:
    """Train some models to their ends; their best versions go to the places `kept` of `found`."""
    everyone = courses
    for _ in range(0, settings.epochs, settings.epoch_size):
        for _ in range(settings.epoch_size):
            _epoch(features, labels, courses, training, settings.batch)
        scores = _accuracies(features, labels, courses, training.networks, settings.batch)
        better = torch.tensor(
            [score > course.best for score, course in zip(scores, courses, strict=True)], device=kept.device
        )
        for values, now in zip(found.parameters, training.networks.parameters, strict=True):
            values[kept[better]] = now[better]
        for score, course in zip(scores, courses, strict=True):
            course.failures += score <= course.best
            course.best = max(course.best, score)
        going = [number for number, course in enumerate(courses) if course.failures <= settings.tenacity]
        if not going:
            break
        if len(going) < len(courses):
            courses, still = [courses[number] for number in going], torch.tensor(going, device=kept.device)
            training, kept = training[still], kept[still]
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
