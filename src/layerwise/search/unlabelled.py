"""Choose without labels, by similar and dissimilar pairs built from text.

Row i of both sides is a similar pair: the same sentence in two passes with dropout, or two related texts of the user's
(adjacent sentences, a title and its body). Dissimilar pairs are sentences of different rows, drawn at random. Good
layers separate the two.

A single criterion can mislead: lexical layers, for example, are best at recognising repeated words. So several criteria
may have to agree: a set is used only if no criterion scores it worse than the last layer and more than half of them
score it better. No score stands behind such a choice; `HITS` says how often it was better where scores exist.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from layerwise.encoder import Array, LayerEncoder, by_prompt
from layerwise.errors import InputError
from layerwise.evidence import Split, Splits, check_seed
from layerwise.mixes import Mean, Mix
from layerwise.search.alike import ALIKE, negative_rows
from layerwise.search.encode import CachedViews
from layerwise.search.graded_pairs import GradedPairs
from layerwise.search.metrics import FEWEST_PAIRS, METRICS, BatchMetric, Gold, Metric
from layerwise.search.problems import PairProblem, Progress, Rows, Scores, Weights, no_progress, scan
from layerwise.search.sources import Views
from layerwise.search.spaces import Masks, Space
from layerwise.texts import unique_texts

CRITERIA = tuple(ALIKE)
DROPOUT, PAIRS, ALL = "dropout", "pairs", "all"  # criteria of their own, and the rule of all of `CRITERIA`
KNOWN_CRITERIA = (DROPOUT, PAIRS, *CRITERIA, ALL)
GUARDED = "guarded-separation"
# Of choices on six models whose seven STS sets were scored afterwards (benchmarks/results/views-*.json): how many there
# were, how many were better than the last layer and worse, and the most points that one lost.
HITS = {
    "repetition": (12, 8, 0, 0.0),
    "deletion": (12, 6, 4, 4.5),
    "neighbours": (12, 6, 4, 2.0),
    "dropout": (10, 5, 0, 0.0),
    "all": (6, 2, 0, 0.0),
}
_MAX_TEXTS = 600  # from which pairs are built
_PASSES = {"first": 1, "second": 2}  # the name of a pass with dropout, and its seed
_TOLERANCE = 1e-6  # relative; smaller differences of separations are rounding errors
_GUARD_TOLERANCE = 1e-9  # of the guard in double precision
_NO_GUARD = (
    "No set of the space is as good as the last layer by alignment and uniformity, so none is chosen without labels; "
    "widen the space, or take the metric 'separation', which has no such guard"
)


@dataclass(frozen=True)
class Proposal:
    """The set that one criterion chose, and how well it separates similar from dissimilar pairs by each criterion."""

    criterion: str
    mix: Mix
    separations: Mapping[str, float]

    def gains(self, last: Mapping[str, float]) -> list[float]:
        """The gain by each criterion, relative to the last layer's separation; absolute if that is not positive."""
        return [
            (value - last[name]) / (last[name] if last[name] > 0 else 1.0) for name, value in self.separations.items()
        ]

    def is_agreed(self, last: Mapping[str, float]) -> bool:
        """Whether no criterion scores it worse than the last layer, and more than half of them better."""
        gains = np.array(self.gains(last))
        return bool((gains >= -_TOLERANCE).all() and (gains > _TOLERANCE).sum() > len(gains) / 2)


@dataclass(frozen=True)
class Criteria:
    """What criteria without labels propose, and the last layer's separation by each."""

    name: str
    proposals: tuple[Proposal, ...]
    last: Mapping[str, float]

    @property
    def agreed(self) -> Proposal | None:
        """The proposal that the criteria agree on, of several the one with the best mean gain; None without one."""
        agreed = [proposal for proposal in self.proposals if proposal.is_agreed(self.last)]
        return max(agreed, key=lambda proposal: float(np.mean(proposal.gains(self.last))), default=None)


def hit_rate(criterion: str) -> str:
    """How often choices by a criterion were better where scores exist, in words."""
    if criterion not in HITS:
        return f"How often choices by {criterion} are better was not measured" if criterion else ""
    choices, better, worse, most = HITS[criterion]
    named = "the rule of all criteria" if criterion == ALL else criterion
    lost = f"{worse} worse, by {most} points at most" if worse else "none worse"
    scored = f"Of {choices} choices by {named} that were scored afterwards"
    return f"{scored}, {better} were better than the last layer and {lost}"


def no_splits(units: int) -> Splits:
    """All units choose and none report."""
    return Splits((Split(np.arange(units), np.arange(0)),), 0, np.arange(units))


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

    scans_fast: ClassVar[bool] = True
    starts: ClassVar[int] = 1
    is_mean: ClassVar[bool] = False

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
        """Score every set of a space, both metrics on the same similarities."""
        problem = self.separation
        metric = guarded_separation(self._threshold())(problem.gold, problem.source.device)
        masks, scores = scan(problem.source, metric, space, progress=progress)
        if np.isnan(scores).all() and not (self.guard.scan(space)[1] >= self._threshold()).any():
            raise InputError(_NO_GUARD)
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
        guards = self.guard.redrawn(np.concatenate([weights, np.eye(self.layers)[-1:]]), draws)
        is_good = guards[:, :-1] >= guards[:, -1:] - _GUARD_TOLERANCE
        return np.where(is_good, self.separation.redrawn(weights, draws), np.nan)

    def _threshold(self) -> float:
        return float(self.guard.scores(np.eye(self.layers)[-1:])[0]) - _GUARD_TOLERANCE


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
    drawn = negative_rows(size, np.random.default_rng(seed))
    first, second = (np.concatenate([np.arange(size), rows]) for rows in drawn)
    labels = np.concatenate([np.ones(size), np.zeros(len(first) - size)])
    picked = [{name: views[rows] for name, views in side.items()} for side, rows in ((left, first), (right, second))]
    return picked[0], picked[1], labels


def dropout_passes(
    encoder: LayerEncoder, sentences: Sequence[str], poolings: Sequence[str], *, show_progress_bar: bool = False
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The views of the unique sentences in two passes with dropout."""
    texts, _ = unique_texts(sentences)
    first, second = (
        encoder.encode_layers(texts, list(poolings), dropout_seed=seed, show_progress_bar=show_progress_bar)
        for seed in _PASSES.values()
    )
    return first, second


def sample_of(texts: Sequence[str], criterion: str) -> list[str]:
    """Evenly spaced texts, at most 600; for "neighbours" the first ones, which are consecutive."""
    if len(texts) <= _MAX_TEXTS or criterion == "neighbours":
        return list(texts[: _MAX_TEXTS + 1])
    return [texts[n] for n in np.linspace(0, len(texts) - 1, _MAX_TEXTS).astype(int)]


def two_passes(texts: Sequence[str], *, seed: int = 0) -> tuple[list[str], list[str], list[float]]:
    """Each text as the input of both passes, then two different texts, with labels 1 and 0; for `DropoutViews`."""
    check_seed(seed)
    unique, _ = unique_texts(texts)
    if len(unique) < FEWEST_PAIRS:
        raise InputError(
            f"{len(unique)} sentences are too few to choose views by dropout; give at least {FEWEST_PAIRS}"
        )
    first, second = negative_rows(len(unique), np.random.default_rng(seed))
    left, right = ([f"{name} {text}" for text in unique] for name in _PASSES)
    labels = [1.0] * len(unique) + [0.0] * len(first)
    return left + [left[n] for n in first], right + [right[n] for n in second], labels


class DropoutViews(CachedViews):
    """Encodes the texts of `two_passes` with the dropout of their pass, without the cache.

    A call with the same texts gives the same views, whatever other prompts are encoded with them.
    """

    def _encode(self, texts: list[str], poolings: list[str]) -> dict[str, Array]:
        named = [text.split(" ", 1) for text in texts]
        shape = (len(texts), self.encoder.depth + 1, self.encoder.width)
        views = {pooling: np.empty(shape, dtype=np.float32) for pooling in poolings}
        for names in by_prompt(poolings).values():
            for of_pass, seed in _PASSES.items():
                rows = [row for row, (name, _) in enumerate(named) if name == of_pass]
                if not rows:
                    continue
                prompted = [self.prompt + named[row][1] for row in rows]
                encoded = self.encoder.encode_layers(
                    prompted, names, dropout_seed=seed, show_progress_bar=self.show_progress_bar
                )
                for name in names:
                    views[name][rows] = encoded[name]
        return views


def dropout_metric(
    pairs: tuple[list[str], list[str], list[float]], encode: DropoutViews, last: Mean, device: str | torch.device
) -> Metric:
    """The separation of sets that are no worse than the last layer by alignment and uniformity; NaN for others."""
    guard = GradedPairs.of(*pairs, metric=METRICS["align-uniform"], encode=encode, device=device)
    return guarded_separation(guard.score(last, np.arange(len(guard))) - _TOLERANCE)
