"""ViewSearch: the best set of a model's views of a sentence; a view is a prompt × token pooling × layer.

A decoder with twenty prompts has hundreds of views. The choosing pairs first screen every single view; the poolings of
the best prompts go into a beam search over sets of their views, with exact scores; the reporting pairs then score the
choice. They share no sentence with a choosing pair, so that neither the screening nor the search has seen them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.encoder import parse_pooling
from layerwise.errors import InputError
from layerwise.mixes import Mean, Scale
from layerwise.mixes import Remove as Less
from layerwise.parameters import Parameters
from layerwise.search.apart import near_copies, parts_apart
from layerwise.search.choose import Choice
from layerwise.search.graded_pairs import GradedPairs
from layerwise.search.metrics import Metric, UserMetric, as_metric
from layerwise.search.problems import PairProblem, Progress, Rows, no_progress
from layerwise.search.select import (
    Part,
    Redraws,
    Report,
    SplitChoice,
    mean_gain,
    paired_gain,
    random_splits,
)
from layerwise.search.sources import FixedSimilarities
from layerwise.search.verdict import Verdict
from layerwise.search.view_candidates import Candidates
from layerwise.search.view_choice import ScoredViews, SetSearch
from layerwise.search.view_cost import Cost, Prices
from layerwise.search.view_encode import Encode, differing_views, views_by_pooling
from layerwise.search.view_fit import Corpus, FitOn, centres_of, check_components, texts_to_fit
from layerwise.search.view_screening import best_prompts, score_single_views
from layerwise.search.view_stability import ViewStability, view_stability

_MINIMUM = {"keep": 1, "most": 1, "width": 1, "bags": 0, "look": 2, "max_cost": 0, "max_passes": 1}
_INFINITY = float("inf")
_FRONT_COSTS = (1 / 6, 1 / 2, 1, 2)  # limits in passes, beside one block, of the front of quality against cost


@dataclass(frozen=True)
class _SplitResult:
    """A split's best views with their score, the corpus of their centres (None: the choosing sentences), candidates."""

    scored: ScoredViews
    corpus: Corpus | None
    candidates: Candidates


@dataclass(frozen=True)
class FrontSet:
    """A set of views with its scores and its cost."""

    choice: Choice
    cost: Cost


class ViewSearch(Parameters):
    """Searches sets of views by their scores on graded sentence pairs.

    Args:
        poolings: The poolings of the views, each with its prompt, such as "mean" or "last in eol". All layers of each
            pooling are searched.
        metric: A metric of pairs, as for `LayerSearch`; "spearman" by default.
        scale: "unit" normalises every view to length 1 before averaging; "none" does not.
        less: The forms of each view: how many principal components to remove in addition to the mean; 0 removes the
            mean only, None removes nothing. Several forms are searched one by one and together, where a set may contain
            the same view in several forms, and the choosing pairs decide.
        fit_on: The text on which means and components are fitted: "corpus" (the choosing sentences if there is no
            corpus), "pairs" for the choosing sentences, "either" for the one that scores better on the choosing pairs.
        against: Whether unchanged views may have negative weights, which removes what they share with the others and
            needs no text to fit on.
        most: The maximum number of views in a set, before bagging.
        width: The beam width: sets kept of each size; 1 is a greedy search.
        bags: The number of resamples of the choosing pairs. Each selects views again, among those that need no passes
            beyond the best set's, and a view's weight is the number of resamples that selected it, which generalises
            better. 0 keeps the best set with equal weights.
        keep: The number of prompts that pass the screening, each with its two best poolings, which share one pass.
        look: The number of choosing pairs used for the screening, which scores views unchanged or, if `less` asks for
            it, without their mean; all of them by default.
        max_cost: The maximum cost of an embedding, in passes through all blocks.
        max_passes: The maximum number of passes, one per prompt, whatever their blocks.
        dev, splits, parts, seed, resamples, device, progress: As for `LayerSearch`.

    Attributes:
        verdict_: Which views to use: the best set if it is reliably better than the last layer, else the last layer.
        best_, last_: The best set and the last layer, with their scores.
        report_: Scores on unseen pairs, split by split, and the gain with its interval.
        singles_: The score of every layer of each pooling in the screening of the first split; NaN for a layer that is
            the same for all texts.
        kept_: The poolings that passed the screening of the first split.
        front_: The best sets by cost, with mean scores over the splits.
        stability_: The share of random halves of the first split's choosing pairs that choose each view and pooling;
            `stability_.agreement`.
        cost_: The cost of the best set.
        fitted_on_: The text on which its means and components were fitted.
        left_out_: The number of reporting pairs, over all splits, left out because they share a sentence with a
            choosing pair.
        near_copies_: The number of other reporting pairs, over all splits, with a sentence that differs from a choosing
            one in case, spaces or punctuation only. They are not left out.
    """

    def __init__(
        self,
        poolings: Sequence[str] = ("mean",),
        *,
        metric: str | Metric | UserMetric | None = None,
        scale: Scale = "unit",
        less: Sequence[Less] = (None,),
        fit_on: FitOn = "corpus",
        against: bool = True,
        most: int = 8,
        width: int = 8,
        bags: int = 30,
        keep: int = 16,
        look: int | None = None,
        max_cost: float | None = None,
        max_passes: int | None = None,
        dev: int | float | None = 0.5,
        splits: int = 1,
        parts: Sequence[Part] | None = None,
        seed: int = 0,
        resamples: int = 2000,
        device: str | torch.device = "cpu",
        progress: Progress | None = None,
    ) -> None:
        self.poolings = poolings
        self.metric = metric
        self.scale = scale
        self.less = less
        self.fit_on = fit_on
        self.against = against
        self.most = most
        self.width = width
        self.bags = bags
        self.keep = keep
        self.look = look
        self.max_cost = max_cost
        self.max_passes = max_passes
        self.dev = dev
        self.splits = splits
        self.parts = parts
        self.seed = seed
        self.resamples = resamples
        self.device = device
        self.progress = progress

    def fit(
        self,
        encode: Encode,
        left: Sequence[str],
        right: Sequence[str],
        gold: object,
        *,
        prices: Prices,
        own: str = "mean",
        corpus: "Sequence[str] | Corpus | None" = None,
    ) -> Self:
        """Choose views.

        Args:
            encode: Maps texts and poolings to the views (texts, layers, width) of each pooling, like
                `LayerEncoder.encode_layers`.
            left: The pairs' first sentences.
            right: Their second sentences.
            gold: The pairs' scores.
            prices: The token counts from which costs follow.
            own: The pooling of the baseline, which is the last layer.
            corpus: The text on which means and components are fitted; the choosing sentences by default.
        """
        for name in ("report_", "front_", "stability_", "near_copies_"):  # cached by an earlier fit
            self.__dict__.pop(name, None)
        self._check_options()
        metric, device = as_metric(self.metric or "spearman"), self.device
        self._pairs = GradedPairs.of(left, right, gold, metric=metric, encode=encode, device=device)
        self.prices_, self._baseline_pooling = prices, str(parse_pooling(own))
        if corpus is not None and not isinstance(corpus, Corpus):
            corpus = Corpus(corpus, encode, self.device)
        self._corpora = texts_to_fit(corpus, self.fit_on)
        self._poolings = list(dict.fromkeys(str(parse_pooling(name)) for name in self.poolings))
        if not self._poolings:
            raise InputError("No poolings to search; give one or more, such as 'mean' or 'last in eol'")
        self.parts_, self.left_out_ = self._splits()
        self._check_components()
        self._fitted_on = list[tuple[Mean, Corpus | None]]()
        self._kept = list[list[str]]()
        self._choices = [self._choose(*part) for part in self.parts_]
        self.best_, self.last_ = self._mean_choices()
        return self

    @cached_property
    def report_(self) -> Report:
        """Scores and gain on unseen pairs."""
        self._check_reporting()
        smooth, gains = self._pairs.metric.smooth, []
        redraws = Redraws.of(len(self._pairs), seed=self.seed, resamples=self.resamples, smooth=smooth)
        for choice, similarities in self._choices:
            problem = PairProblem(
                FixedSimilarities(torch.from_numpy(similarities)), self._pairs.gold, self._pairs.metric
            )
            gains.append(paired_gain(partial(problem.redrawn, np.eye(2)), choice.test, redraws))
        dev, test = self.parts_[0]
        results = tuple(choice.result for choice, _ in self._choices)
        return Report(results, mean_gain(gains), len(dev), len(test), self.seed)

    @property
    def verdict_(self) -> Verdict:
        """Which views to use."""
        return Verdict(self.best_, self.last_, self.report_.gain, len(self._pairs))

    @cached_property
    def stability_(self) -> ViewStability:
        """Which views halves of the choosing pairs choose."""
        _, best = self._first.scored
        return view_stability(self._first.candidates, best, self._set_search(self.max_cost))

    @property
    def fitted_on_(self) -> FitOn | None:
        """The text on which the best set's means and components were fitted; None if nothing is removed."""
        mix = self.best_.mix
        if mix.components is None:
            return None
        return next("pairs" if corpus is None else "corpus" for best, corpus in self._fitted_on if best is mix)

    @property
    def cost_(self) -> Cost:
        """The cost of the best set."""
        return self.prices_.of_mix(self.best_.mix)

    @cached_property
    def near_copies_(self) -> int:
        """The number of reporting pairs with a sentence that is nearly a choosing one."""
        return near_copies(self.parts_, self._pairs.left, self._pairs.right)

    @property
    def most_components(self) -> Less:
        """The maximum number of components that are removed; None if nothing is removed."""
        return max((less for less in self.less if less is not None), default=None)

    def check_width(self, width: int) -> None:
        """Refuse more components than views of this width have, before texts are encoded."""
        most = self.most_components
        if most is not None and most >= width:
            raise InputError(
                f"less {most}: views of {width} numbers have fewer components; take away at most {width - 1}"
            )

    @property
    def metric_name_(self) -> str:
        """The name of the metric."""
        return self._pairs.metric.name

    def similarities(self, mix: Mean, rows: Rows) -> NDArray[np.float64]:
        """The cosines of the pairs at `rows` by a mix: (rows,)"""
        return self._pairs.similarities(mix, rows)

    def score(self, mix: Mean) -> float:
        """The score of a mix on all pairs."""
        return self._pairs.score(mix, np.arange(len(self._pairs)))

    def _splits(self) -> tuple[list[Part], int]:
        """The splits without leaking reporting pairs, and the number of pairs left out for sharing a sentence."""
        size = len(self._pairs)
        if self.dev is None and self.parts is None:
            return [(np.arange(size), np.arange(0))], 0
        parts = self.parts if self.parts is not None else random_splits(size, self.dev or 0, self.splits, self.seed)
        return parts_apart(parts, self._pairs.left, self._pairs.right, self._pairs.gold)

    def _choose(self, dev: Rows, test: Rows) -> tuple[SplitChoice, NDArray[np.float64]]:
        """The choice and the last layer of a split, and their similarities on its reporting pairs: (2, pairs)"""
        if np.ptp(self._pairs.gold[dev]) == 0:
            raise InputError("The choosing pairs all have the same score, which says nothing about layers")
        kept, singles = self._screen(dev)
        result = self._search(dev, kept)
        if result is None:
            raise InputError("No view that may be taken tells the choosing pairs apart; allow more cost, or prompts")
        dev_score, best = result.scored
        if not self._fitted_on:
            self.singles_, self.kept_, self._first = singles, kept, result
        self._fitted_on.append((best, result.corpus))
        self._kept.append(kept)
        last = Mean.of(self.prices_.depth, pooling=self._baseline_pooling)
        similarities = np.zeros((2, len(self._pairs)))
        best_test = last_test = float("nan")
        if len(test):
            similarities[0, test], similarities[1, test] = self.similarities(best, test), self.similarities(last, test)
            metric = self._pairs.metric(self._pairs.gold[test])
            best_test, last_test = metric(torch.from_numpy(similarities[:, test])).tolist()
        last_dev = self._pairs.score(last, dev)
        return SplitChoice(Choice(best, dev_score, best_test), Choice(last, last_dev, last_test), test), similarities

    def _screen(self, dev: Rows) -> tuple[list[str], dict[str, NDArray[np.float64]]]:
        """The poolings for the full search, and the scores of all single views by pooling."""
        rows = dev if self.look is None or self.look >= len(dev) else dev[: self.look]
        if np.ptp(self._pairs.gold[rows]) == 0:
            rows = dev
        texts, sides = self._pairs.texts(rows)
        metric, singles = self._pairs.metric(self._pairs.gold[rows], self.device), {}
        for name, views in views_by_pooling(self._pairs.encode, texts, self._poolings, self.device):
            self.check_width(views.shape[-1])
            singles[name] = score_single_views(views, sides, metric, self.less)
            self._progress(len(singles[name]))
        return best_prompts(singles, self.keep, max_cost=self.max_cost), singles

    def _search(self, dev: Rows, poolings: Sequence[str]) -> _SplitResult | None:
        """The best views of the poolings over all corpora; None if no view may be selected."""
        results = [
            _SplitResult(scored, corpus, candidates)
            for corpus, candidates in self._candidates(dev, poolings)
            if (scored := self._best_within(candidates, self.max_cost)) is not None
        ]
        return max(results, key=lambda result: result.scored[0], default=None)

    def _candidates(self, dev: Rows, poolings: Sequence[str]) -> Iterator[tuple[Corpus | None, Candidates]]:
        """The views of the poolings that differ between texts, once for each corpus that may be fitted on."""
        texts, sides = self._pairs.texts(dev)
        layers, gold, n_components = self.prices_.depth + 1, self._pairs.gold[dev], self.most_components
        views = dict(views_by_pooling(self._pairs.encode, texts, poolings, self.device))
        vectors = torch.cat(list(views.values()), dim=1)
        names = [(name, layer) for name in views for layer in range(layers)]
        differing = differing_views(vectors).tolist()
        if not differing:
            return
        names, vectors = [names[view] for view in differing], vectors[:, differing]
        for corpus in self._corpora if n_components is not None else (None,):
            candidates = Candidates.of(
                names,
                vectors,
                sides,
                less=list(dict.fromkeys(self.less)),
                centres=centres_of(names, vectors, corpus, n_components),
                scale=self.scale,
                gold=gold,
                metric=self._pairs.metric(gold, self.device),
                against=self.against,
            )
            yield corpus, candidates

    def _check_options(self) -> None:
        """Refuse options out of range."""
        for name, minimum in _MINIMUM.items():
            value = getattr(self, name)
            if value is not None and not value >= minimum:  # true of NaN too
                raise InputError(f"{name} {value} is not possible; give at least {minimum}")
        if self.parts is not None and not len(self.parts):
            raise InputError("No splits to choose and report by; give parts, or leave them out")
        if not self.less or any(count is not None and count < 0 for count in self.less):
            raise InputError(f"less {list(self.less)} is not possible; give None, 0 or a number of components")

    def _check_reporting(self) -> None:
        if self.dev is None and self.parts is None:
            raise InputError("All pairs chose, none are left to report: give dev (half of the pairs by default)")

    def _check_components(self) -> None:
        """Refuse more components than texts have, before any of them is encoded."""
        for corpus in self._corpora:
            if corpus is None:
                fewest = min(len(self._pairs.texts(dev)[0]) for dev, _ in self.parts_)
                check_components(self.most_components, fewest, "The choosing pairs")
            else:
                check_components(self.most_components, len(corpus.texts), "The corpus")

    def _best_within(self, candidates: Candidates, max_cost: float | None) -> ScoredViews | None:
        """The best views within a cost limit, with their score; None if it allows no view."""
        return self._set_search(max_cost).best(candidates)

    def _set_search(self, max_cost: float | None) -> SetSearch:
        return SetSearch(
            max_views=self.most,
            width=self.width,
            n_resamples=self.bags,
            seed=self.seed,
            metric=self._pairs.metric,
            device=self.device,
            max_passes=self.max_passes,
            max_cost=max_cost,
            depth=self.prices_.depth,
            progress=self._progress,
        )

    def _front_costs(self) -> list[float]:
        """The cost limits of the front, all below `max_cost`."""
        max_cost = _INFINITY if self.max_cost is None else self.max_cost
        return [cost for cost in sorted({1 / self.prices_.depth, *_FRONT_COSTS}) if cost < max_cost]

    @cached_property
    def front_(self) -> list[FrontSet]:
        """The best sets by cost, each better on the choosing pairs than all cheaper ones.

        Scores are means over the splits, each of which chooses its own set within the cost; the set shown is the best
        of these on all choosing pairs.
        """
        self._check_reporting()
        points = []
        for choices in zip(*map(self._choices_by_cost, range(len(self.parts_))), strict=True):
            allowed = [choice for choice in choices if choice is not None]
            if len(allowed) == len(choices):
                choice = self._mean_choice(allowed)
                points.append(FrontSet(choice, self.prices_.of_mix(choice.mix)))
        front: list[FrontSet] = []
        for point in sorted(points, key=lambda point: (point.cost.passes, -point.choice.dev)):
            if not front or point.choice.dev > front[-1].choice.dev:
                front.append(point)
        return front

    def _choices_by_cost(self, split: int) -> list[Choice | None]:
        """A split's best set within each cost of the front, None where no view is allowed, then its best set of all."""
        dev, test = self.parts_[split]
        candidates, corpus = self._first.candidates, self._fitted_on[split][1]
        if split:  # encoded again, because the candidates of all splits would take too much memory
            by_corpus = self._candidates(dev, self._kept[split])
            candidates = next(candidates for fitted, candidates in by_corpus if fitted is corpus)
        choices = list[Choice | None]()
        for max_cost in self._front_costs():
            scored = self._best_within(candidates, max_cost)
            choices.append(scored and Choice(scored[1], scored[0], self._pairs.score(scored[1], test)))
        return [*choices, self._choices[split][0].best]

    def _mean_choices(self) -> tuple[Choice, Choice]:
        """The best set and the last layer with mean scores."""
        splits = [choice for choice, _ in self._choices]
        last = np.mean([[split.result.last_dev, split.result.last_test] for split in splits], axis=0)
        return self._mean_choice([split.best for split in splits]), Choice(splits[0].last.mix, *map(float, last))

    def _mean_choice(self, choices: Sequence[Choice]) -> Choice:
        """The mean scores of the splits' sets, with the best of these sets on all choosing pairs."""
        mix = choices[0].mix if len(choices) == 1 else self._best_of_all([choice.mix for choice in choices])
        tests = [np.nan if choice.test is None else choice.test for choice in choices]
        return Choice(mix, float(np.mean([choice.dev for choice in choices])), float(np.mean(tests)))

    def _best_of_all(self, mixes: Sequence[Mean]) -> Mean:
        rows = np.unique(np.concatenate([dev for dev, _ in self.parts_]))
        return max(mixes, key=lambda mix: self._pairs.score(mix, rows))

    @property
    def _progress(self) -> Progress:
        return self.progress or no_progress
