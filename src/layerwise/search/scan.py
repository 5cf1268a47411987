"""Every set of a space scored: the walks of a source shared between the cores, or one after the other on a GPU."""

from collections.abc import Callable
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.search.metrics import BatchMetric
from layerwise.search.sources import Source, Walk
from layerwise.search.spaces import Masks, Space
from layerwise.threads import share

Progress = Callable[[int], None]
Scores = NDArray[np.float64]


def no_progress(_sets: int) -> None:
    """Nobody watches."""


def scan(
    source: Source, metric: BatchMetric, space: Space, *, progress: Progress = no_progress
) -> tuple[Masks, Scores]:
    """All sets of a space and their scores, in an order that does not depend on the number of cores."""
    space.count(source.layers)  # a space without members is refused
    found: dict[int, tuple[Masks, Scores]] = {}
    lock = Lock()

    def work(task: tuple[int, Walk]) -> None:
        number, walk = task
        masks, scores = _walked(walk, metric)
        with lock:
            found[number] = masks, scores
            progress(len(masks))

    tasks = enumerate(source.sweep(space))
    if source.device.type == "cpu":
        share(tasks, work)
    else:
        for task in tasks:
            work(task)
    parts = [found[number] for number in sorted(found)]
    return np.concatenate([masks for masks, _ in parts]), np.concatenate([scores for _, scores in parts])


def _walked(walk: Walk, metric: BatchMetric) -> tuple[Masks, Scores]:
    pieces = [(masks, metric(similarities)) for masks, similarities in walk()]
    if not pieces:
        return np.zeros(0, dtype=np.uint64), np.zeros(0)
    scores = torch.cat([score for _, score in pieces]).cpu().numpy()
    return np.concatenate([masks for masks, _ in pieces]), scores
