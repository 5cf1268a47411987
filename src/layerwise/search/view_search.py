"""ViewSearch: the best few of all views that a model has of a sentence, which are prompt × token pooling × layer.

A decoder with twenty prompts has hundreds of them. The pairs that choose have a first look at every view alone; the
poolings of the best prompts go into a beam search over sets of their views, with exact scores; the pairs that did not
choose report. All of that is part of the choice, so the reporting pairs have seen none of it: no sentence of theirs is
in a pair that chose.
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
from layerwise.mixes import LayerSet, LayerViews, Less, Scale
from layerwise.parameters import Parameters
from layerwise.search.choose import Choice
from layerwise.search.graded_pairs import GradedPairs, ViewMix
from layerwise.search.metrics import Metric, UserMetric, as_metric
from layerwise.search.problems import PairProblem, Progress, Rows, no_progress
from layerwise.search.select import (
    Part,
    Redraws,
    Report,
    SplitChoice,
    mean_gain,
    paired_gain,
    parts_apart,
    random_splits,
)
from layerwise.search.sources import GivenSimilarities
from layerwise.search.verdict import Verdict
from layerwise.search.view_candidates import Candidates
from layerwise.search.view_choice import ScoredViews, SetSearch
from layerwise.search.view_cost import Cost, Prices
from layerwise.search.view_encode import Encode, differing_views, views_by_pooling
from layerwise.search.view_fit import Corpus, FitOn, centres_of, check_components, texts_to_fit
from layerwise.search.view_look import best_prompts, scores_alone

_LEAST = {"keep": 1, "most": 1, "width": 1, "bags": 0, "look": 2, "max_cost": 0, "max_passes": 1}
_INFINITY = float("inf")
_BUDGETS = (1 / 6, 1 / 2, 1, 2)  # passes beside one block, for the front of quality against cost


@dataclass(frozen=True)
class _Found:
    """A split's best views with their score, the text that they are fitted on (None: the choosing sentences)."""

    scored: ScoredViews
    text: Corpus | None
    candidates: Candidates


@dataclass(frozen=True)
class FrontSet:
    """A set of views with its scores and what it costs."""

    choice: Choice
    cost: Cost


class ViewSearch(Parameters):
    """Searches sets of views by their scores on graded sentence pairs.

    Args:
        poolings: The views' poolings, each in its prompt, such as "mean" or "last in eol": every layer of each.
        metric: As for `LayerSearch`, of pairs: "spearman" without it.
        scale: "unit" makes every view's length 1 before they are averaged; "none" leaves it.
        less: How many components to take away of each view beside its mean: 0 for the mean alone, None for neither.
            With several, they are tried alone and together, where a set may have each view in each of these forms, and
            the choosing pairs decide.
        fit_on: The text that means and components are of: "corpus" (the choosing sentences where none is given),
            "pairs" for the choosing sentences, "either" for the one by which these pairs choose better.
        against: Whether views of which nothing is taken away may count against others, which takes away what these
            share: it needs no text to fit a mean on.
        most: Views in a set, before resamples choose.
        width: Sets of each size that the beam keeps; 1 is greedy.
        bags: How many resamples of the choosing pairs choose again among the passes of the best set; every view then
            counts as often as it was chosen, which generalises better. 0 leaves the best set as it is.
        keep: Prompts that go from the first look into the full search, each with its two best poolings: one pass has
            both.
        look: Pairs of the choosing ones that have the first look, which takes views as they are, or without their mean
            where `less` says so; all without it.
        max_cost: The most that an embedding may cost, in passes through all blocks.
        max_passes: The most passes, which is prompts, whatever their blocks.
        dev, splits, parts, seed, resamples, device, progress: As for `LayerSearch`.

    Attributes:
        verdict_: Which views to use: the best where they are reliably better than the last layer, else that one.
        best_, last_: The best set and the last layer, with their scores.
        report_: Scores on unseen pairs, split by split, and the gain with its interval.
        singles_: Of each pooling the score of every layer alone, by the pairs that had the first look, NaN where it is
            the same for all texts; and `kept_`, the poolings that went into the full search; both of the first split.
        front_: The best sets by what they cost.
        cost_: What the best set costs.
        fitted_on_: The text that its means and components are of.
        left_out_: Reporting pairs, of all splits, that were left out for a sentence of theirs had chosen.
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
            encode: From texts and poolings to the views (texts, layers, width) of each, as
                `LayerEncoder.encode_layers` gives them.
            left: The pairs' first sentences.
            right: Their second sentences.
            gold: The pairs' scores.
            prices: What passes cost.
            own: The pooling of the last layer that is the baseline.
            corpus: The text that means and components are fitted on; without it the choosing sentences themselves.
        """
        for fitted in ("report_", "front_"):  # of an earlier fit
            self.__dict__.pop(fitted, None)
        self._check_options()
        metric, device = as_metric(self.metric or "spearman"), self.device
        self._pairs = GradedPairs.of(left, right, gold, metric=metric, encode=encode, device=device)
        self.prices_, self._own = prices, str(parse_pooling(own))
        text = corpus if corpus is None or isinstance(corpus, Corpus) else Corpus(corpus, encode, self.device)
        self._texts = texts_to_fit(text, self.fit_on)
        self._names = list(dict.fromkeys(str(parse_pooling(name)) for name in self.poolings))
        if not self._names:
            raise InputError("No poolings to search; give one or more, such as 'mean' or 'last in eol'")
        self.parts_, self.left_out_ = self._splits()
        self._check_components()
        self._fitted = list[tuple[LayerViews, Corpus | None]]()
        self._choices = [self._choose(*part) for part in self.parts_]
        self.best_, self.last_ = self._means()
        return self

    @cached_property
    def report_(self) -> Report:
        """What the search is worth on unseen pairs."""
        self._check_reporting()
        smooth, gains = self._pairs.metric.smooth, []
        redraws = Redraws.of(len(self._pairs), seed=self.seed, resamples=self.resamples, smooth=smooth)
        for choice, similarities in self._choices:
            problem = PairProblem(
                GivenSimilarities(torch.from_numpy(similarities)), self._pairs.gold, self._pairs.metric
            )
            both = partial(problem.redrawn, np.eye(2))
            gains.append(paired_gain(both, choice.test, redraws))
        dev, test = self.parts_[0]
        results = tuple(choice.result for choice, _ in self._choices)
        return Report(results, mean_gain(gains), len(dev), len(test), self.seed)

    @property
    def verdict_(self) -> Verdict:
        """Which views to use."""
        return Verdict(self.best_, self.last_, self.report_.gain, len(self._pairs))

    @property
    def fitted_on_(self) -> FitOn | None:
        """The text that means and components of the best set are of; None where nothing is taken away."""
        mix = self.best_.mix
        if not isinstance(mix, LayerViews) or mix.components is None:
            return None
        return next("pairs" if text is None else "corpus" for best, text in self._fitted if best is mix)

    @property
    def cost_(self) -> Cost:
        """What the best set costs."""
        return self.prices_.of_mix(self.best_.mix)

    @property
    def most_components(self) -> Less:
        """How many components are tried at most; None where nothing is taken away."""
        return max((less for less in self.less if less is not None), default=None)

    def check_width(self, width: int) -> None:
        """Refuse more components than views of so many numbers have, before texts are encoded."""
        most = self.most_components
        if most is not None and most >= width:
            raise InputError(
                f"less {most}: views of {width} numbers have fewer components; take away at most {width - 1}"
            )

    @property
    def metric_name_(self) -> str:
        """The name of the metric."""
        return self._pairs.metric.name

    def similarities(self, mix: ViewMix, rows: Rows) -> NDArray[np.float64]:
        """The cosines of some pairs by a mix: (rows,)"""
        return self._pairs.similarities(mix, rows)

    def score(self, mix: ViewMix) -> float:
        """Of a mix, on all pairs."""
        return self._pairs.score(mix, np.arange(len(self._pairs)))

    def _splits(self) -> tuple[list[Part], int]:
        """The splits, their reporting pairs without those that share a sentence with a choosing one."""
        size = len(self._pairs)
        if self.dev is None and self.parts is None:
            return [(np.arange(size), np.arange(0))], 0
        parts = self.parts if self.parts is not None else random_splits(size, self.dev or 0, self.splits, self.seed)
        return parts_apart(parts, self._pairs.left, self._pairs.right, self._pairs.gold)

    def _choose(self, dev: Rows, test: Rows) -> tuple[SplitChoice, NDArray[np.float64]]:
        """One split's choice and the last layer; and their similarities on the split's reporting pairs, (2, pairs)."""
        if np.ptp(self._pairs.gold[dev]) == 0:
            raise InputError("The choosing pairs all have the same score, which says nothing about layers")
        kept, singles = self._first_look(dev)
        found = self._best_found(dev, kept)
        if found is None:
            raise InputError("No view that may be taken tells the choosing pairs apart; allow more cost, or prompts")
        dev_score, best = found.scored
        if not self._fitted:
            self.singles_, self.kept_, self._first = singles, kept, found
        self._fitted.append((best, found.text))
        last = LayerSet.of(self.prices_.depth, pooling=self._own)
        both = np.zeros((2, len(self._pairs)))
        if len(test):
            both[0, test], both[1, test] = self.similarities(best, test), self.similarities(last, test)
        metric = (
            self._pairs.metric(self._pairs.gold[test])
            if len(test)
            else lambda _similarities: torch.full((2,), torch.nan)
        )
        best_test, last_test = metric(torch.from_numpy(both[:, test])).tolist()
        last_dev = self._pairs.score(last, dev)
        return SplitChoice(Choice(best, dev_score, best_test), Choice(last, last_dev, last_test), test), both

    def _first_look(self, dev: Rows) -> tuple[list[str], dict[str, NDArray[np.float64]]]:
        """The poolings that go into the full search, and the scores of every view alone."""
        rows = dev if self.look is None or self.look >= len(dev) else dev[: self.look]
        if np.ptp(self._pairs.gold[rows]) == 0:
            rows = dev
        texts, sides = self._pairs.texts(rows)
        metric, singles = self._pairs.metric(self._pairs.gold[rows], self.device), {}
        for name, views in views_by_pooling(self._pairs.encode, texts, self._names, self.device):
            self.check_width(views.shape[-1])
            singles[name] = scores_alone(views, sides, metric, self.less)
            self._progress(len(singles[name]))
        return best_prompts(singles, self.keep, budget=self.max_cost), singles

    def _best_found(self, dev: Rows, kept: Sequence[str]) -> "_Found | None":
        """The best views of the kept poolings, by the text that suits; None where all are the same for all texts."""
        found = [
            _Found(scored, text, candidates)
            for text, candidates in self._candidates(dev, kept)
            if (scored := self._within(candidates, self.max_cost)) is not None
        ]
        return max(found, key=lambda one: one.scored[0], default=None)

    def _candidates(self, dev: Rows, kept: Sequence[str]) -> Iterator[tuple[Corpus | None, Candidates]]:
        """The views of the kept poolings that tell texts apart, by each text that they may be fitted on."""
        texts, sides = self._pairs.texts(dev)
        layers, gold, most = self.prices_.depth + 1, self._pairs.gold[dev], self.most_components
        views = dict(views_by_pooling(self._pairs.encode, texts, kept, self.device))
        vectors = torch.cat(list(views.values()), dim=1)
        names = [(name, layer) for name in views for layer in range(layers)]
        differing = differing_views(vectors).tolist()
        if not differing:
            return
        names, vectors = [names[view] for view in differing], vectors[:, differing]
        for text in self._texts if most is not None else (None,):
            candidates = Candidates.of(
                names,
                vectors,
                sides,
                less=list(dict.fromkeys(self.less)),
                centres=centres_of(names, vectors, text, most),
                scale=self.scale,
                gold=gold,
                metric=self._pairs.metric(gold, self.device),
                against=self.against,
            )
            yield text, candidates

    def _check_options(self) -> None:
        """Refuse numbers that no search can have."""
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:  # NaN is not either
                raise InputError(f"{name} {value} is not possible; give at least {least}")
        if self.parts is not None and not len(self.parts):
            raise InputError("No splits to choose and report by; give parts, or leave them out")
        if not self.less or any(one is not None and one < 0 for one in self.less):
            raise InputError(f"less {list(self.less)} is not possible; give None, 0 or a number of components")

    def _check_reporting(self) -> None:
        if self.dev is None and self.parts is None:
            raise InputError("All pairs chose, none are left to report: give dev (half of the pairs by default)")

    def _check_components(self) -> None:
        """Refuse more components than texts have, before any of them is encoded."""
        for text in self._texts:
            if text is None:
                fewest = min(len(self._pairs.texts(dev)[0]) for dev, _ in self.parts_)
                check_components(self.most_components, fewest, "The choosing pairs")
            else:
                check_components(self.most_components, len(text.texts), "The corpus")

    def _within(self, candidates: Candidates, budget: float | None) -> ScoredViews | None:
        """The best views within a budget, with their score; None where it allows none."""
        return SetSearch(
            most=self.most,
            width=self.width,
            bags=self.bags,
            seed=self.seed,
            metric=self._pairs.metric,
            device=self.device,
            passes=self.max_passes,
            budget=budget,
            depth=self.prices_.depth,
            progress=self._progress,
        ).best(candidates)

    def _budgets(self) -> list[float]:
        most = _INFINITY if self.max_cost is None else self.max_cost
        return [budget for budget in sorted({1 / self.prices_.depth, *_BUDGETS}) if budget < most]

    @cached_property
    def front_(self) -> list[FrontSet]:
        """The best sets of the first split by cost, each better on its choosing pairs than all that cost less."""
        self._check_reporting()
        first, rows = self._first, self.parts_[0][1]
        sets = [*(self._within(first.candidates, budget) for budget in self._budgets()), first.scored]
        priced = [(self.prices_.of_mix(mix), score, mix) for score, mix in filter(None, sets)]
        front: list[FrontSet] = []
        for cost, score, mix in sorted(priced, key=lambda one: (one[0].passes, -one[1])):
            if not front or score > front[-1].choice.dev:
                front.append(FrontSet(Choice(mix, score, self._pairs.score(mix, rows)), cost))
        return front

    def _means(self) -> tuple[Choice, Choice]:
        """One split: its choice. Several: that of the splits' choices that is best on all their choosing pairs."""
        choices = [choice for choice, _ in self._choices]
        mix = choices[0].best.mix if len(choices) == 1 else self._best_of_all([choice.best.mix for choice in choices])
        results = [choice.result for choice in choices]
        dev, test, last_dev, last_test = np.mean([[r.dev, r.test, r.last_dev, r.last_test] for r in results], axis=0)
        last = Choice(choices[0].last.mix, float(last_dev), float(last_test))
        return Choice(mix, float(dev), float(test)), last

    def _best_of_all(self, mixes: Sequence[ViewMix]) -> ViewMix:
        rows = np.unique(np.concatenate([dev for dev, _ in self.parts_]))
        return max(mixes, key=lambda mix: self._pairs.score(mix, rows))

    @property
    def _progress(self) -> Progress:
        return self.progress or no_progress
