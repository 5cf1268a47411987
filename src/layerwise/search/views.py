"""Sets of views with exact scores: a view is a prompt × token pooling × layer, of which a decoder has hundreds.

The choosing pairs first screen every single view; the poolings of the best prompts go into a beam search over sets of
their views, and resamples of the choosing pairs weigh the views of the best set. The reporting pairs then score the
choice; they share no sentence with a choosing pair, so that neither the screening nor the search has seen them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder import by_prompt
from layerwise.errors import InputError
from layerwise.evidence import Rows, Splits, draw_halves, near_copies
from layerwise.mixes import Mean, Mix, Remove, Scale, View
from layerwise.search.graded_pairs import GradedPairs, Sides, differing_views, views_by_pooling
from layerwise.search.metrics import BatchMetric
from layerwise.search.pair_views import cosine_from_products
from layerwise.search.problems import PairProblem, Progress, Scores, no_progress
from layerwise.search.scored import Redraw, Scored, Scorer, SplitChoice, Stability
from layerwise.search.sources import FixedSimilarities
from layerwise.search.view_beam import PreparedResample, bagged_views, beam_search_views, greedy_sets
from layerwise.search.view_candidates import Candidates, CostLimits, max_blocks
from layerwise.search.view_cost import Prices
from layerwise.search.view_fit import Corpus, centres_of, check_components, texts_to_fit

_INFINITY = float("inf")
_FRONT_COSTS = (1 / 6, 1 / 2, 1, 2)  # limits in passes, beside one block, of the front of quality against cost
_POOLINGS_PER_PROMPT = 2  # in the full search
_HALVES = 10  # pairs of complementary halves
_MAX_CANDIDATES = 64  # best single views by all choosing pairs among which halves choose, beside the best set's
_MINIMUM = {"n_prompts": 1, "max_views": 1, "beam_width": 1, "n_bootstraps": 0, "screen_pairs": 2, "max_passes": 1}


@dataclass(frozen=True)
class ViewOptions:
    """How sets of views are searched; the parameters of `Search` that are about views."""

    poolings: tuple[str, ...] = ("mean",)
    scale: Scale = "unit"
    remove: tuple[Remove, ...] = (None,)
    fit_on: str = "corpus"
    signed: bool = True
    max_views: int = 8
    beam_width: int = 8
    n_bootstraps: int = 30
    n_prompts: int = 16
    screen_pairs: int | None = None
    max_cost: float | None = None
    max_passes: int | None = None

    def __post_init__(self) -> None:
        for name, minimum in _MINIMUM.items():
            value = getattr(self, name)
            if value is not None and not value >= minimum:  # true of NaN too
                raise InputError(f"{name} {value} is not possible; give at least {minimum}")
        if self.max_cost is not None and not self.max_cost > 0:
            raise InputError(f"max_cost {self.max_cost} is not possible; give more than 0")
        if not self.remove or any(count is not None and count < 0 for count in self.remove):
            raise InputError(f"remove {list(self.remove)} is not possible; give None, 0 or a number of components")
        if not self.poolings:
            raise InputError("No poolings to search; give one or more, such as 'mean' or 'last in eol'")

    @property
    def components(self) -> Remove:
        """The maximum number of components that are removed; None if nothing is removed."""
        return max((count for count in self.remove if count is not None), default=None)

    def check_width(self, width: int) -> None:
        """Refuse more components than views of this width have, before texts are encoded."""
        if self.components is not None and self.components >= width:
            raise InputError(
                f"remove {self.components}: views of {width} numbers have fewer components; take away at most "
                f"{width - 1}"
            )


@dataclass(frozen=True)
class _Found:
    """A split's best views with their score.

    `corpus` is that of their centres (None: the choosing sentences), `kept` the poolings that passed the screening.
    """

    score: float
    mix: Mean
    corpus: Corpus | None
    kept: list[str]


@dataclass(eq=False)
class ViewScorer(Scorer):
    """Scores sets of views on graded pairs.

    Args:
        pairs: The pairs, which encode their views.
        splits: Which pairs choose and which report.
        options: How sets are searched.
        prices: The token counts from which costs follow.
        pooling: The pooling of the last layer.
        corpus: The text on which means and components are fitted; the choosing sentences without it.
        seed: The seed of resamples and halves.
        progress: Called with the number of sets just scored.
    """

    pairs: GradedPairs
    splits: Splits
    options: ViewOptions
    prices: Prices
    pooling: str = "mean"
    corpus: Corpus | None = None
    seed: int = 0
    progress: Progress = no_progress
    unit: str = field(default="pairs", init=False)

    def __post_init__(self) -> None:
        self.metric = self.pairs.metric.name
        self._corpora = texts_to_fit(self.corpus, self.options.fit_on)
        for corpus in self._corpora:
            if corpus is None:
                fewest = min(len(self.pairs.texts(split.dev)[0]) for split in self.splits.parts)
                check_components(self.options.components, fewest, "The choosing pairs")
            else:
                check_components(self.options.components, len(corpus.texts), "The corpus")
        self._similarities: dict[tuple[int, Mix], NDArray[np.float64]] = {}
        self._first: Candidates | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def candidates(self) -> str:
        """Such as "480 views"."""
        return f"{sum(map(len, self.singles.values())):,} views"

    @property
    def smooth(self) -> bool:
        """Whether no single pair changes the metric much."""
        return self.pairs.metric.smooth

    @cached_property
    def choices(self) -> list[SplitChoice]:
        """What each split chooses."""
        return [self._split_choice(number, found) for number, found in enumerate(self._found)]

    @property
    def table(self) -> list[Scored]:
        """Every single view of the screening of the first split, best first."""
        rows = [
            self._scored(Mean.of(layer, pooling=pooling), float(score))
            for pooling, scores in self.singles.items()
            for layer, score in enumerate(scores)
            if not np.isnan(score)
        ]
        return sorted(rows, key=lambda row: -row.dev)

    @cached_property
    def best(self) -> Scored:
        """The best set with mean scores; of several splits' sets the best on all choosing pairs."""
        return self._mean([choice.best for choice in self.choices])

    @cached_property
    def last(self) -> Scored:
        """The last layer with its own pooling."""
        last = [choice.last for choice in self.choices]
        return Scored.mean(last[0].mix, last, self.prices.of_mix(last[0].mix))

    @cached_property
    def singles(self) -> Mapping[str, Scores]:
        """The score of every layer of each pooling in the first split's screening; NaN where all texts are alike."""
        return self._screen(self.splits[0].dev)

    @property
    def kept(self) -> list[str]:
        """The poolings that passed the screening of the first split."""
        return self._found[0].kept

    @property
    def fitted_on(self) -> str | None:
        """The text on which the best set's means and components were fitted; None if nothing is removed."""
        mix = self.best.mix
        if mix.components is None:
            return None
        return next("pairs" if found.corpus is None else "corpus" for found in self._found if found.mix is mix)

    @property
    def near_copies(self) -> int:
        """The number of reporting pairs with a sentence that is nearly a choosing one."""
        return near_copies(self.splits, self.pairs.unit_texts)

    @cached_property
    def front(self) -> list[Scored]:
        """The best sets by cost; each split chooses its own set within a cost, the best of which is shown."""
        points = []
        for choices in zip(*map(self._choices_by_cost, range(len(self.splits))), strict=True):
            allowed = [choice for choice in choices if choice is not None]
            if len(allowed) == len(choices):
                points.append(self._mean(allowed))
        front: list[Scored] = []
        for point in sorted(points, key=lambda point: (point.cost.passes if point.cost else 0.0, -point.dev)):
            if not front or point.dev > front[-1].dev:
                front.append(point)
        return front

    @cached_property
    def stability(self) -> Stability:
        """What halves of the first split's choosing pairs choose, each by a greedy search.

        They choose among the best set's views and the best single ones; if costs are limited, only among views that
        need no passes or blocks beyond the best set's.
        """
        candidates, metric = self._candidates_of(0), self.pairs.metric
        halves, groups = list[PreparedResample](), self.splits.groups[self.splits[0].dev]
        drawn = draw_halves(len(candidates.gold), _HALVES, self.seed, groups=groups)
        for pair in zip(drawn[::2], drawn[1::2], strict=True):
            if all(np.ptp(candidates.gold[rows]) for rows in pair):
                halves += [(rows, metric(candidates.gold[rows], self.pairs.device)) for rows in pair]
        sets = greedy_sets(
            candidates.views,
            halves,
            max_views=self.options.max_views,
            allowed=self._stable_candidates(candidates),
            progress=self.progress,
        )
        return Stability.of([[candidates.chosen_view(view) for view in views] for views in sets])

    def score(self, mix: Mix, rows: Rows | None = None) -> float:
        """The score of a mix on the pairs at `rows`, on all pairs without them."""
        return self.pairs.score(mix, np.arange(len(self.pairs)) if rows is None else rows)

    def redraw(self, number: int, mixes: Sequence[Mix]) -> Redraw:
        """A function from draws of reporting pairs to the scores of mixes on them: draws -> (draws, mixes)"""
        table = np.zeros((len(mixes), len(self.pairs)))
        test = self.splits[number].test
        for row, mix in enumerate(mixes):
            table[row, test] = self._cosines(number, mix)
        problem = PairProblem(FixedSimilarities(torch.from_numpy(table)), self.pairs.gold, self.pairs.metric)
        return lambda draws: problem.redrawn(np.eye(len(mixes)), draws)

    @cached_property
    def _found(self) -> list[_Found]:
        """The best views of each split."""
        found = []
        for number, split in enumerate(self.splits):
            if np.ptp(self.pairs.gold[split.dev]) == 0:
                raise InputError("The choosing pairs all have the same score, which says nothing about layers")
            singles = self._screen(split.dev) if number else self.singles
            kept = _best_prompts(singles, self.options.n_prompts, max_cost=self.options.max_cost)
            found.append(self._search(number, kept))
        return found

    def _split_choice(self, number: int, found: _Found) -> SplitChoice:
        split, last = self.splits[number], Mean.of(self.prices.depth, pooling=self.pooling)
        tests: list[float | None] = [None, None]
        if len(split.test):
            cosines = np.stack([self._cosines(number, mix) for mix in (found.mix, last)])
            tests = self.pairs.metric(self.pairs.gold[split.test])(torch.from_numpy(cosines)).tolist()
        best = Scored(found.mix, found.score, tests[0])
        return SplitChoice(best, Scored(last, self.pairs.score(last, split.dev), tests[1]), split)

    def _cosines(self, number: int, mix: Mix) -> NDArray[np.float64]:
        """The cosines of a split's reporting pairs; equal texts of mixes have the same centres within a split."""
        if (number, mix) not in self._similarities:
            self._similarities[number, mix] = self.pairs.similarities(mix, self.splits[number].test)
        return self._similarities[number, mix]

    def _screen(self, dev: Rows) -> dict[str, Scores]:
        """The scores of all single views by pooling."""
        most = self.options.screen_pairs
        rows = dev if most is None or most >= len(dev) else dev[:most]
        if np.ptp(self.pairs.gold[rows]) == 0:
            rows = dev
        texts, sides = self.pairs.texts(rows)
        metric, singles = self.pairs.metric(self.pairs.gold[rows], self.pairs.device), {}
        for name, views in views_by_pooling(self.pairs.encode, texts, self.options.poolings, self.pairs.device):
            self.options.check_width(views.shape[-1])
            singles[name] = _score_single_views(views, sides, metric, self.options.remove)
            self.progress(len(singles[name]))
        return singles

    def _search(self, number: int, kept: list[str]) -> _Found:
        """The best views of the poolings over all corpora."""
        best: _Found | None = None
        for corpus, candidates in self._candidates(self.splits[number].dev, kept):
            scored = self._best_within(candidates, self.options.max_cost)
            if scored is not None and (best is None or scored[0] > best.score):
                best = _Found(*scored, corpus, kept)
                if number == 0:  # those of all splits would take too much memory
                    self._first = candidates
        if best is None:
            raise InputError("No view that may be taken tells the choosing pairs apart; allow more cost or prompts")
        return best

    def _candidates_of(self, number: int) -> Candidates:
        """The views among which a split found its best set; those of other splits than the first are encoded again."""
        found = self._found[number]
        if number == 0 and self._first is not None:
            return self._first
        by_corpus = self._candidates(self.splits[number].dev, found.kept)
        return next(candidates for corpus, candidates in by_corpus if corpus is found.corpus)

    def _candidates(self, dev: Rows, poolings: Sequence[str]) -> Iterator[tuple[Corpus | None, Candidates]]:
        """The views of the poolings that differ between texts, once for each corpus that may be fitted on."""
        texts, sides = self.pairs.texts(dev)
        gold, options = self.pairs.gold[dev], self.options
        views = dict(views_by_pooling(self.pairs.encode, texts, poolings, self.pairs.device))
        vectors = torch.cat(list(views.values()), dim=1)
        layers = [View(layer, name) for name in views for layer in range(self.prices.depth + 1)]
        differing = differing_views(vectors).tolist()
        if not differing:
            return
        layers, vectors = [layers[place] for place in differing], vectors[:, differing]
        for corpus in self._corpora if options.components is not None else (None,):
            yield (
                corpus,
                Candidates.of(
                    layers,
                    vectors,
                    sides,
                    remove=list(dict.fromkeys(options.remove)),
                    centres=centres_of(layers, vectors, corpus, options.components),
                    scale=options.scale,
                    gold=gold,
                    metric=self.pairs.metric(gold, self.pairs.device),
                    signed=options.signed,
                ),
            )

    def _best_within(self, candidates: Candidates, max_cost: float | None) -> tuple[float, Mean] | None:
        """The best set over all forms of the views within a cost, with its score; None if the limits allow no set."""
        results = [self._best_of(subset, max_cost) for subset in candidates.by_form_and_all()]
        return max(filter(None, results), key=lambda result: result[0], default=None)

    def _best_of(self, candidates: Candidates, max_cost: float | None) -> tuple[float, Mean] | None:
        """The best set of all beam searches, with weights by the resamples of the pairs that select each view."""
        limits = CostLimits(candidates, max_cost, self.options.max_passes, self.prices.depth)
        scores: dict[tuple[int, ...], float] = {}
        for places, allowed in limits.subsets():
            results = beam_search_views(
                candidates.views if len(places) == len(candidates.names) else candidates.views.pick(places),
                candidates.metric,
                max_views=self.options.max_views,
                width=self.options.beam_width,
                allowed=allowed,
                progress=self.progress,
            )
            scores |= {tuple(places[list(views)].tolist()): score for views, score in results.items()}
        best = min(scores, key=lambda views: (-scores[views], len(views), views), default=None)
        if best is None:
            return None
        counts = self._bagged(candidates, limits.without_extra_cost(best)) if self.options.n_bootstraps else {}
        if not max(counts.values(), default=0) > 0:
            counts = candidates.net_counts(dict.fromkeys(best, 1))
        cosines = candidates.views.cosines(list(counts), list(map(float, counts.values())))
        return float(candidates.metric(cosines[None].contiguous())[0]), candidates.mix(counts)

    def _bagged(self, candidates: Candidates, allowed: NDArray[np.bool_]) -> dict[int, int]:
        """How many resamples of the choosing pairs select each view, less those that select its negative."""
        gold, metric, device = candidates.gold, self.pairs.metric, self.pairs.device

        def prepare(rows: NDArray[np.intp]) -> PreparedResample | None:
            return metric.resampled(gold, rows, device) if np.ptp(gold[rows]) else None

        return candidates.net_counts(
            bagged_views(
                candidates.views,
                prepare,
                n_resamples=self.options.n_bootstraps,
                max_views=self.options.max_views,
                allowed=allowed,
                seed=self.seed,
                progress=self.progress,
            )
        )

    def _choices_by_cost(self, number: int) -> list[Scored | None]:
        """A split's best set within each cost of the front, None where no view is allowed, then its best set of all."""
        test, candidates = self.splits[number].test, self._candidates_of(number)
        most = _INFINITY if self.options.max_cost is None else self.options.max_cost
        choices = list[Scored | None]()
        for max_cost in (cost for cost in sorted({1 / self.prices.depth, *_FRONT_COSTS}) if cost < most):
            scored = self._best_within(candidates, max_cost)
            choices.append(scored and Scored(scored[1], scored[0], self._on(scored[1], test)))
        return [*choices, self.choices[number].best]

    def _stable_candidates(self, candidates: Candidates) -> NDArray[np.bool_]:
        """A mask of the views that halves may choose: those of the best set, and the best single ones: (views,)"""
        best = self._found[0].mix
        chosen = {(view.pooling, view.layer) for view in best.views}
        in_best = np.array([(view.pooling, view.layer) in chosen for view in candidates.names])
        allowed = np.ones(len(in_best), dtype=bool)
        if self.options.max_cost is not None or self.options.max_passes is not None:
            limits = CostLimits(candidates, self.options.max_cost, self.options.max_passes, self.prices.depth)
            allowed = limits.without_extra_cost(tuple(np.flatnonzero(in_best)))
        cosines = cosine_from_products(candidates.views.self_products.double())
        scores = np.nan_to_num(candidates.metric(cosines.mT.contiguous()).cpu().numpy(), nan=-np.inf)
        ranks = np.argsort(np.argsort(-np.where(allowed, scores, -np.inf), kind="stable"))
        mask: NDArray[np.bool_] = allowed & (in_best | (ranks < _MAX_CANDIDATES))
        return mask

    def _mean(self, by_split: Sequence[Scored]) -> Scored:
        """The mean scores of the splits' sets, with the best of these sets on all choosing pairs."""
        mix = by_split[0].mix
        if len(by_split) > 1:
            rows = np.unique(np.concatenate([split.dev for split in self.splits.parts]))
            mix = max((scored.mix for scored in by_split), key=lambda one: self.pairs.score(one, rows))
        return Scored.mean(mix, by_split, self.prices.of_mix(mix))

    def _scored(self, mix: Mix, dev: float) -> Scored:
        return Scored(mix, dev, cost=self.prices.of_mix(mix))

    def _on(self, mix: Mix, rows: Rows) -> float | None:
        return self.pairs.score(mix, rows) if len(rows) else None


def _score_single_views(views: Tensor, pairs: Sides, metric: BatchMetric, remove: Sequence[Remove]) -> Scores:
    """The score of every layer of a pooling, unchanged or centred, as `remove` allows: (layers,)

    NaN for a layer that is the same for all texts. Components are not removed, which would cost too much here.
    """
    unchanged = views.double()
    forms = [unchanged] if None in remove else []
    if set(remove) != {None}:
        forms.append(unchanged - unchanged.mean(0))
    left, right = pairs
    normalized = (torch.nn.functional.normalize(form, dim=-1) for form in forms)
    form_scores = torch.stack([metric((unit[left] * unit[right]).sum(-1).mT.contiguous()) for unit in normalized])
    best = torch.nan_to_num(form_scores, nan=-torch.inf).amax(0)
    differing = differing_views(views)
    masked = torch.full_like(best, -torch.inf)
    masked[differing] = best[differing]
    scores: Scores = masked.cpu().numpy()
    return np.where(np.isfinite(scores), scores, np.nan)


def _best_prompts(singles: Mapping[str, Scores], n_prompts: int, *, max_cost: float | None) -> list[str]:
    """The best two poolings of each of the best prompts, by the layers that `max_cost` allows."""

    def best_score(pooling: str) -> float:
        scores = singles[pooling]
        allowed = np.arange(len(scores)) <= max_blocks(max_cost, len(scores) - 1)
        return float(np.nan_to_num(scores[allowed], nan=-np.inf).max())

    prompts = by_prompt(sorted(singles, key=best_score, reverse=True))
    return [name for names in list(prompts.values())[:n_prompts] for name in names[:_POOLINGS_PER_PROMPT]]
