"""Choosing layers without labels: what should be alike and what should not, from text alone.

Row i of both sides is alike: the same sentence through two passes with dropout, or two neighbouring sentences
of the user's text (neighbours, a title and its body). Sentences of different rows, drawn at random, are unlike. Good
layers keep the two kinds apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from layerwise.encoder import Array, LayerEncoder
from layerwise.errors import InputError
from layerwise.search.metrics import FEWEST_PAIRS, METRICS, BatchMetric, Gold, check_seed
from layerwise.search.problems import PairProblem, Progress, Rows, Scores, Weights, no_progress, scan
from layerwise.search.sources import Views
from layerwise.search.spaces import Masks, Space
from layerwise.texts import unique_texts

_UNLIKE = 5  # pairs of unlike sentences for each alike one
_SEEDS = (1, 2)  # of the two passes
_SLACK = 1e-9  # of the guard, for rounding


GUARDED = "guarded-separation"


@dataclass(frozen=True)
class GuardedProblem:
    """Separation, but only of mixes that are no worse than the last layer by alignment and uniformity; NaN of others.

    Dropout leaves some layers almost as they are (the embeddings, in some encoders). Those separate well however
    little they mean; the guard keeps them from being chosen where the last layer is a good one.
    """

    separation: PairProblem

    @property
    def guard(self) -> PairProblem:
        """The same pairs by alignment and uniformity."""
        return replace(self.separation, metric=METRICS["align-uniform"])

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return self.separation.layers

    def __len__(self) -> int:
        return len(self.separation)

    def scan(self, space: Space, *, progress: Progress = no_progress) -> tuple[Masks, Scores]:
        """Every set of a space."""
        masks, scores = scan(self.separation.source, self._metric(), space, progress=progress)
        if np.isnan(scores).all() and not (self.guard.scan(space)[1] >= self._bar()).any():
            raise InputError(
                "No set of the space is as good as the last layer by alignment and uniformity, so none is chosen "
                "without labels; widen the space, or take the metric 'separation', which has no such guard"
            )
        return masks, scores

    def scores(self, weights: Weights) -> Scores:
        """Given weights or sets."""
        return np.where(self.guard.scores(weights) >= self._bar(), self.separation.scores(weights), np.nan)

    def pick(self, rows: Rows) -> "GuardedProblem":
        """The same on some of the pairs."""
        return GuardedProblem(self.separation.pick(rows))

    def check(self) -> None:
        """Refuse pairs of one kind only."""
        self.separation.check()

    def redrawn(self, weights: Weights, draws: Sequence[Rows]) -> Scores:
        """Scores on resamples of the pairs."""
        guards = self.guard.redrawn(np.concatenate([weights, self._last()]), draws)
        return np.where(guards[:, :-1] >= guards[:, -1:] - _SLACK, self.separation.redrawn(weights, draws), np.nan)

    def _metric(self) -> BatchMetric:
        """Both metrics of the same similarities, so that a space is walked through once."""
        separation, guard = (
            problem.metric(problem.gold, problem.source.device) for problem in (self.separation, self.guard)
        )
        bar = self._bar()

        def score(similarities: Tensor) -> Tensor:
            return torch.where(guard(similarities) >= bar, separation(similarities), torch.nan)

        return score

    def _last(self) -> Weights:
        return np.eye(self.layers)[-1:]

    def _bar(self) -> float:
        return float(self.guard.scores(self._last())[0]) - _SLACK


def without_labels(
    left: Mapping[str, Views], right: Mapping[str, Views], *, seed: int = 0
) -> tuple[dict[str, Views], dict[str, Views], Gold]:
    """Alike pairs as they are, then unlike ones drawn at random, and labels 1 and 0 for them."""
    sizes = {len(views) for side in (left, right) for views in side.values()}
    if len(sizes) > 1:
        raise InputError(f"The two sides' lengths differ: {', '.join(map(str, sorted(sizes)))}")
    (size,) = sizes
    if size < FEWEST_PAIRS:
        raise InputError(f"{size} sentences are too few to choose layers by; give at least {FEWEST_PAIRS}")
    check_seed(seed)
    random = np.random.default_rng(seed)
    first = np.tile(np.arange(size), _UNLIKE)
    second = (first + random.integers(2, size - 1, len(first))) % size  # never a row with itself or its neighbours
    rows = [np.concatenate([np.arange(size), drawn]) for drawn in (first, second)]
    labels = np.concatenate([np.ones(size), np.zeros(len(first))])
    return (
        {name: views[rows[0]] for name, views in left.items()},
        {name: views[rows[1]] for name, views in right.items()},
        labels,
    )


def dropout_passes(
    encoder: LayerEncoder, sentences: Sequence[str], poolings: Sequence[str], *, show_progress_bar: bool = False
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The views of two passes with dropout over the different ones of some sentences."""
    texts, _ = unique_texts(sentences)
    one, other = (
        encoder.encode_layers(texts, list(poolings), dropout_seed=seed, show_progress_bar=show_progress_bar)
        for seed in _SEEDS
    )
    return one, other
