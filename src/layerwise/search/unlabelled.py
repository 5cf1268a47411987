"""Choose layers without labels, by similar and dissimilar pairs built from text.

Row i of both sides is a similar pair: the same sentence in two passes with dropout, or two related texts of the user's
(adjacent sentences, a title and its body). Dissimilar pairs are sentences of different rows, drawn at random. Good
layers separate the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from layerwise.encoder import Array, LayerEncoder
from layerwise.errors import InputError
from layerwise.search.alike import negative_rows
from layerwise.search.metrics import FEWEST_PAIRS, METRICS, BatchMetric, Gold, Metric, check_seed
from layerwise.search.problems import PairProblem, Progress, Rows, Scores, Weights, no_progress, scan
from layerwise.search.sources import Views
from layerwise.search.spaces import Masks, Space
from layerwise.texts import unique_texts

_SEEDS = (1, 2)  # of the two passes
_TOLERANCE = 1e-9  # of the guard, for rounding errors


GUARDED = "guarded-separation"


def guarded_separation(threshold: float) -> Metric:
    """The separation where alignment and uniformity reach a threshold, NaN elsewhere."""

    def prepare(gold: Gold, device: torch.device) -> BatchMetric:
        guard, separation = METRICS["align-uniform"](gold, device), METRICS["separation"](gold, device)
        return lambda similarities: torch.where(
            guard(similarities) >= threshold, separation(similarities), similarities.new_tensor(torch.nan)
        )

    return Metric(GUARDED, prepare, binary=True)


@dataclass(frozen=True)
class GuardedProblem:
    """Separation of mixes that are no worse than the last layer by alignment and uniformity; NaN for other mixes.

    Dropout hardly changes some layers (the embeddings, in some encoders). These separate well whatever they encode; the
    guard prevents their choice if the last layer is better.
    """

    separation: PairProblem

    @property
    def guard(self) -> PairProblem:
        """The same pairs with the metric of alignment and uniformity."""
        return replace(self.separation, metric=METRICS["align-uniform"])

    @property
    def layers(self) -> int:
        """The number of layers."""
        return self.separation.layers

    def __len__(self) -> int:
        return len(self.separation)

    def scan(self, space: Space, *, progress: Progress = no_progress) -> tuple[Masks, Scores]:
        """Score every set of a space."""
        masks, scores = scan(self.separation.source, self._metric(), space, progress=progress)
        if np.isnan(scores).all() and not (self.guard.scan(space)[1] >= self._threshold()).any():
            raise InputError(
                "No set of the space is as good as the last layer by alignment and uniformity, so none is chosen "
                "without labels; widen the space, or take the metric 'separation', which has no such guard"
            )
        return masks, scores

    def scores(self, weights: Weights) -> Scores:
        """Scores of any weights or sets: (rows, layers) -> (rows,)"""
        return np.where(self.guard.scores(weights) >= self._threshold(), self.separation.scores(weights), np.nan)

    def pick(self, rows: Rows) -> "GuardedProblem":
        """The problem on a subset of the pairs."""
        return GuardedProblem(self.separation.pick(rows))

    def check(self) -> None:
        """Refuse pairs with constant labels."""
        self.separation.check()

    def redrawn(self, weights: Weights, draws: Sequence[Rows]) -> Scores:
        """Scores on resamples of the pairs."""
        guards = self.guard.redrawn(np.concatenate([weights, self._last()]), draws)
        return np.where(guards[:, :-1] >= guards[:, -1:] - _TOLERANCE, self.separation.redrawn(weights, draws), np.nan)

    def _metric(self) -> BatchMetric:
        """Both metrics on the same similarities, so that a space is scanned once."""
        problem = self.separation
        return guarded_separation(self._threshold())(problem.gold, problem.source.device)

    def _last(self) -> Weights:
        return np.eye(self.layers)[-1:]

    def _threshold(self) -> float:
        return float(self.guard.scores(self._last())[0]) - _TOLERANCE


def without_labels(
    left: Mapping[str, Views], right: Mapping[str, Views], *, seed: int = 0
) -> tuple[dict[str, Views], dict[str, Views], Gold]:
    """The similar pairs, then dissimilar ones drawn at random, with labels 1 and 0."""
    sizes = {len(views) for side in (left, right) for views in side.values()}
    if len(sizes) > 1:
        raise InputError(f"The two sides' lengths differ: {', '.join(map(str, sorted(sizes)))}")
    (size,) = sizes
    if size < FEWEST_PAIRS:
        raise InputError(f"{size} sentences are too few to choose layers by; give at least {FEWEST_PAIRS}")
    check_seed(seed)
    first, second = negative_rows(size, np.random.default_rng(seed))
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
    """The views of the unique sentences in two passes with dropout."""
    texts, _ = unique_texts(sentences)
    first, second = (
        encoder.encode_layers(texts, list(poolings), dropout_seed=seed, show_progress_bar=show_progress_bar)
        for seed in _SEEDS
    )
    return first, second
