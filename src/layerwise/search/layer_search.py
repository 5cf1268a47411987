"""LayerSearch: an estimator, in scikit-learn's conventions, of the best combination of an encoder's layers."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch

from layerwise.encoder import parse_pooling
from layerwise.errors import InputError
from layerwise.mixes import LayerSet, LayerViews, LayerWeights
from layerwise.model import Head
from layerwise.parameters import Parameters
from layerwise.search.choose import (
    BEAM_WIDTH,
    Choice,
    best_of,
    check_method,
    last_layer,
    make_table,
    pick,
    scores_every_set,
    weights_mix,
)
from layerwise.search.front import BestWithin, Cheaper, best_within, cheaper_set
from layerwise.search.heads import HeadPairs
from layerwise.search.joint_problem import JointProblem
from layerwise.search.kind_problem import KindProblem
from layerwise.search.metrics import Metric, UserMetric, as_metric, check_gold
from layerwise.search.problems import PairProblem, Problem, Progress, Scores, no_progress
from layerwise.search.retrieval import RetrievalMetric, RetrievalProblem
from layerwise.search.select import (
    Part,
    Report,
    SplitChoice,
    bootstrap_gain,
    choose_by_splits,
    make_report,
    random_splits,
)
from layerwise.search.sources import PairGrams, PairSource, Views
from layerwise.search.spaces import Space
from layerwise.search.stability import Stability, stability
from layerwise.search.table import ScoreTable
from layerwise.search.unlabelled import GUARDED, GuardedProblem, without_labels
from layerwise.search.verdict import Verdict, few_pairs_warning

log = logging.getLogger(__name__)
UNSTABLE = 0.5  # the agreement of halves of the pairs below which a choice is unstable
_NONE_REPORT = "All pairs chose, none are left to report: give dev (half of the pairs by default), and labels"
_FITTED = (
    *("best_", "last_", "table_", "parts_", "report_", "stability_", "verdict_"),
    *("front_", "cheaper_", "_front"),
)
AnyMetric = str | Metric | UserMetric


class LayerSearch(Parameters):
    """Searches combinations of layers by their scores on sentence pairs.

    Args:
        metric: "spearman" (the default), "pearson", "cosine_ap", "cosine_accuracy" (labels 0 and 1), "mrr@10",
            "recall@5", "ndcg@10" or any other cut-off (queries and candidates), or a function of (similarities,
            scores), which several threads may call at once. Without labels "guarded-separation" (the default then),
            "separation" or "align-uniform".
        space: The sets to choose from, a `Space` or its text; all sets by default.
        method: "exhaustive", "beam" or "greedy" search; "auto" is exhaustive for at most 2^26 sets, else a beam search;
            "weights" optimises continuous layer weights from the best set.
        beam_width: The number of sets of each size that a beam keeps.
        head: An MLP head after the mix, e.g. SimCSE's.
        dev: The number (or, below 1, the share) of pairs that choose; the others report. With None all pairs choose and
            none report, for a choice that is scored elsewhere: there is no verdict then.
        splits: The number of random splits; the paper's protocol is `dev=350, splits=5`.
        parts: Fixed splits instead of random ones: the rows of the dev pairs and of the test pairs of each.
        seed: The seed of splits and resamples.
        resamples: The number of resamples of the paired bootstrap.
        device: The device of the search, such as "cuda"; "cpu" by default.
        progress: Called with the number of sets just scored.

    Attributes:
        verdict_: Which layers to use: the best set if it is reliably better than the last layer, else the last layer.
        best_: The best set: `best_.layers`, `best_.pooling`, `best_.mix`, `best_.dev`, on unseen pairs `best_.test`.
        last_: The last layer's scores on the same pairs.
        table_: Every set's mean score on the dev pairs of the splits; `table_[0]` is the best.
        front_: The best sets by highest layer, with their scores: quality against cost.
        cheaper_: The set of the fewest blocks that loses less than a point against the recommended one, by the interval
            of their difference, as `cheaper_.choice`; None if there is none.
        report_: Scores on unseen pairs, split by split, and the gain over the last layer with its interval.
        stability_: The share of random halves of the pairs that choose each layer; `stability_.agreement`.
        parts_: The splits, as rows of the dev pairs and of the test pairs.
        problems_, space_: The problems that were searched, by token pooling, and the space.
        metric_name_, unit_: The name of the metric, and the unit of its samples: "pairs", "queries", "rows".
        warnings_: Caveats about the result; `few_pairs_`, in view of the verdict, is the first of them.

    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> left = random.normal(size=(200, 4, 8))
    >>> noise, gold = random.normal(size=(200, 4, 8)), random.random(200)
    >>> noise[:, 2] *= gold[:, None]
    >>> LayerSearch().fit(left, left + noise, -gold).best_.layers
    (2,)
    """

    def __init__(
        self,
        *,
        metric: AnyMetric | None = None,
        space: Space | str | None = None,
        method: str = "auto",
        beam_width: int = BEAM_WIDTH,
        head: Head | None = None,
        dev: int | float | None = 0.5,
        splits: int = 1,
        parts: Sequence[Part] | None = None,
        seed: int = 0,
        resamples: int = 2000,
        device: str | torch.device = "cpu",
        progress: Progress | None = None,
    ) -> None:
        self.metric = metric
        self.space = space
        self.method = method
        self.beam_width = beam_width
        self.head = head
        self.dev = dev
        self.splits = splits
        self.parts = parts
        self.seed = seed
        self.resamples = resamples
        self.device = device
        self.progress = progress

    def fit(
        self, views_a: Views | Mapping[str, Views], views_b: Views | Mapping[str, Views], gold: object = None
    ) -> Self:
        """Choose layers.

        Args:
            views_a: Views of the pairs' first sentences, (pairs, layers, width), or a mapping from token poolings to
                such views, all of which are searched. For retrieval, the queries.
            views_b: The same of the second sentences; for retrieval, the candidates.
            gold: The pairs' scores or labels; for retrieval, each query's relevant candidates. Without it, the two
                sentences of a row count as similar (two dropout passes, or adjacent sentences of a text), those of
                different rows as dissimilar, and the metric is "guarded-separation".
        """
        left, right = by_pooling(views_a), by_pooling(views_b)
        self._default_metric = "spearman" if gold is not None else GUARDED
        n_similar, has_labels = None, gold is not None
        if gold is None:
            n_similar = len(next(iter(left.values())))
            left, right, gold = without_labels(left, right, seed=self.seed)
        metric = self.metric or self._default_metric
        problems = self._make_problems(left, right, gold)
        unit = "queries" if retrieval_metric(metric) else "pairs"
        return self._fit(problems, metric_name(metric), unit, has_labels=has_labels, labelled=n_similar)

    def fit_problems(self, problems: Mapping[str, Problem], *, metric: str, unit: str) -> Self:
        """Choose layers for prepared problems, one for each token pooling.

        Args:
            problems: Anything that scores sets of layers on all or some of its rows, such as `KindProblem`.
            metric: The name of their scores.
            unit: The unit of their rows, such as "queries".
        """
        return self._fit(dict(problems), metric, unit)

    def _fit(
        self,
        problems: dict[str, Problem],
        metric: str,
        unit: str,
        *,
        has_labels: bool = True,
        labelled: int | None = None,
    ) -> Self:
        """Search; `labelled` is the number of pairs without drawn dissimilar ones."""
        for name in _FITTED:  # of an earlier fit
            self.__dict__.pop(name, None)
        check_method(self.method)
        self.space_, self.problems_ = _as_space(self.space), problems
        self.metric_name_, self.unit_, self._has_labels = metric, unit, has_labels
        self._labelled = self._pairs if labelled is None else labelled
        if not self._is_split:
            self._choices = None
            self.table_ = make_table(
                self.problems_, self.space_, self.method, width=self.beam_width, progress=self._progress
            )
            self.best_ = best_of(self.problems_, self.table_, self.method)
            self.last_ = last_layer(self.problems_)
        else:
            self._choices, self.table_ = self._split_choices()
            self._choose_by_mean(self._choices)
        if self.few_pairs_:
            log.warning("%s", self.few_pairs_)
        return self

    @cached_property
    def parts_(self) -> list[Part]:
        """The splits: the rows of the dev pairs and of the test pairs."""
        if self.parts is not None:
            return list(self.parts)
        if self.dev is None or not self._is_split:
            raise InputError(_NONE_REPORT)
        return random_splits(self._pairs, self.dev, self.splits, self.seed)

    @cached_property
    def report_(self) -> Report:
        """Scores on unseen pairs, and the gain with its interval."""
        if self._choices is None:
            raise InputError(_NONE_REPORT)
        return make_report(self.problems_, self._choices, seed=self.seed, resamples=self.resamples)

    @cached_property
    def verdict_(self) -> Verdict:
        """Which layers to use: the best set if it is reliably better than the baseline, else the baseline.

        The baseline is the last layer; in a space without it, the highest layer that is a set by itself.
        """
        layer = self.space_.highest_single(self._layers)
        is_last = layer in (None, self._layers - 1)
        if layer is None or is_last:
            baseline, gain = self.last_, self.report_.gain
        else:
            baseline = self._scored(LayerSet.of(layer, pooling=self.last_.pooling))
            choices = [(choice.best, baseline, choice.test) for choice in self._choices or ()]
            gain = bootstrap_gain(self.problems_, choices, seed=self.seed, resamples=self.resamples)
        verdict = Verdict(
            self.best_, baseline, gain, self._labelled, self.unit_, is_last=is_last, may_keep=layer is not None
        )
        if is_last:
            return verdict
        keeps_baseline = verdict.use is baseline
        choices = [
            (baseline if keeps_baseline else choice.best, self.last_, choice.test) for choice in self._choices or ()
        ]
        against_last = bootstrap_gain(self.problems_, choices, seed=self.seed, resamples=self.resamples)
        return replace(verdict, against_last=against_last)

    @cached_property
    def stability_(self) -> Stability:
        """Which layers random halves of the pairs choose; halves of the dev pairs if sets are scored one by one."""
        slow = any(isinstance(problem, KindProblem | JointProblem) for problem in self.problems_.values())
        problems = pick(self.problems_, self.parts_[0][0]) if slow and self._is_split else self.problems_
        return stability(problems, self.table_, seed=self.seed)

    @cached_property
    def front_(self) -> list[Choice]:
        """The best sets by highest layer, each better than all sets of fewer blocks."""
        return [within.choice for within in self._front]

    @cached_property
    def cheaper_(self) -> Cheaper | None:
        """The set of the fewest blocks that loses less than a point against the recommended one, by the interval."""
        options = {"seed": self.seed, "resamples": self.resamples}
        return cheaper_set(self._front, self.problems_, self._choices or (), self.verdict_, **options)

    @cached_property
    def _front(self) -> list[BestWithin]:
        return best_within(self.table_.front(), self.problems_, self._choices or ())

    @property
    def few_pairs_(self) -> str:
        """A warning if there are too few dev pairs, else empty."""
        return self._few_pairs()

    @property
    def warnings_(self) -> list[str]:
        """Caveats about the result."""
        few_pairs = self._few_pairs(self.verdict_ if self.few_pairs_ and self._choices is not None else None)
        warnings = [few_pairs] if few_pairs else []
        if self.stability_.agreement < UNSTABLE:
            warnings.append(
                f"the choice is unstable: the sets that two halves of the {self.unit_} choose share only "
                f"{self.stability_.agreement:.0%} of their layers; other sets may be as good"
            )
        return warnings

    def _few_pairs(self, verdict: Verdict | None = None) -> str:
        rows = self.parts_[0][0] if self._is_split else np.arange(self._pairs)
        n_choosing = int((rows < self._labelled).sum())
        return few_pairs_warning(n_choosing, self.unit_, f"{len(self.table_):,} sets", verdict)

    def score(self, views_a: Views | Mapping[str, Views], views_b: Views | Mapping[str, Views], gold: object) -> float:
        """The score of the mix of `transform` on other pairs."""
        return self._use.on(self._make_problems(by_pooling(views_a), by_pooling(views_b), gold))

    def unseen_scores(self, mixes: Sequence[LayerSet | LayerWeights | LayerViews]) -> Scores:
        """Scores of any mixes on the test pairs of each split: (mixes, splits)"""
        scores = []
        for _, test in self.parts_:
            reporting = pick(self.problems_, test)
            scores.append([Choice(mix, np.nan).on(reporting) for mix in mixes])
        return np.array(scores).reshape(len(self.parts_), len(mixes)).T

    def sets_to_score(self, layers: int, poolings: int = 1) -> int | None:
        """The number of sets that `fit` scores, for a progress bar; None for a beam, which cannot know."""
        space = _as_space(self.space)
        if not scores_every_set(space, self.method, layers):
            return None
        splits = len(self.parts) if self.parts is not None else 1 if self.dev is None else self.splits
        return space.count(layers) * poolings * splits

    def transform(self, views: Any) -> Any:
        """Views (..., layers, width) to embeddings (..., width) by the recommended mix.

        Without pairs that report, by the best set.
        """
        return self._use.mix(views[self._use.pooling] if isinstance(views, Mapping) else views)

    @property
    def _is_split(self) -> bool:
        """Whether there are dev and test pairs; without labels there is nothing to report."""
        return self._has_labels and (self.dev is not None or self.parts is not None)

    def _scored(self, mix: LayerSet) -> Choice:
        """A mix with its mean scores on the dev pairs and on the test pairs of the splits."""
        dev = np.mean([Choice(mix, np.nan).on(pick(self.problems_, rows)) for rows, _ in self.parts_])
        return Choice(mix, float(dev), float(self.unseen_scores([mix]).mean()))

    @property
    def _use(self) -> Choice:
        return self.verdict_.use if self._is_split else self.best_

    @property
    def _progress(self) -> Progress:
        return self.progress or no_progress

    @property
    def _pairs(self) -> int:
        return len(next(iter(self.problems_.values())))

    def _split_choices(self) -> tuple[list[SplitChoice], ScoreTable]:
        return choose_by_splits(
            self.problems_, self.space_, self.method, self.parts_, width=self.beam_width, progress=self._progress
        )

    def _choose_by_mean(self, choices: list[SplitChoice]) -> None:
        """Set the best set and the last layer, with mean scores; of several splits the set that is best on average."""
        best = choices[0].best if len(choices) == 1 else self._best_of_all(choices)
        results = [choice.result for choice in choices]
        dev, test, last_dev, last_test = np.mean([[r.dev, r.test, r.last_dev, r.last_test] for r in results], axis=0)
        self.best_ = Choice(best.mix, float(dev), float(test))
        self.last_ = Choice(choices[0].last.mix, float(last_dev), float(last_test))

    def _best_of_all(self, choices: list[SplitChoice]) -> Choice:
        if self.method != "weights":
            best = self.table_.best
            return Choice(best.mix, best.score)
        (pooling, _), *_ = Counter(choice.best.pooling for choice in choices).most_common()
        weights = [choice.best.weights(self._layers) for choice in choices if choice.best.pooling == pooling]
        return replace(choices[0].best, mix=weights_mix(np.concatenate(weights).mean(0), pooling))

    @property
    def _layers(self) -> int:
        return next(iter(self.problems_.values())).layers

    def _make_problems(self, left: dict[str, Views], right: dict[str, Views], gold: object) -> dict[str, Problem]:
        metric = self.metric or self._default_metric
        return make_problems(left, right, gold, metric, head=self.head, device=self.device)


def _as_space(space: Space | str | None) -> Space:
    return space if isinstance(space, Space) else Space.parse(space or "all")


def by_pooling(views: Views | Mapping[str, Views]) -> dict[str, Views]:
    """Views by the name of their token pooling; a single array is of mean pooling."""
    if not isinstance(views, Mapping):
        return {"mean": _array(views)}
    if not views:
        raise InputError("No views: give an array, or a mapping from token poolings to arrays")
    for pooling in views:
        parse_pooling(pooling)
    return {pooling: _array(array) for pooling, array in views.items()}


def metric_name(metric: AnyMetric) -> str:
    """The name of any metric."""
    if metric == GUARDED:
        return GUARDED
    retrieval = retrieval_metric(metric)
    return retrieval.name if retrieval else as_metric(metric).name


def retrieval_metric(metric: AnyMetric | None) -> RetrievalMetric | None:
    """The retrieval metric of this name; None if it is a metric of pairs."""
    return RetrievalMetric.parse(metric) if isinstance(metric, str) else None


def make_problems(
    left: Mapping[str, Views],
    right: Mapping[str, Views],
    gold: object,
    metric: AnyMetric,
    *,
    head: Head | None = None,
    device: str | torch.device = "cpu",
) -> dict[str, Problem]:
    """A problem for each token pooling: the views of both sides with the grades and the metric."""
    if set(left) != set(right):
        raise InputError(f"The two sides' poolings differ: {', '.join(left)} and {', '.join(right)}")
    return {name: _problem(left[name], right[name], gold, metric, head, device) for name in left}


def _problem(
    left: Views, right: Views, gold: object, metric: AnyMetric, head: Head | None, device: str | torch.device
) -> Problem:
    retrieval = retrieval_metric(metric)
    if retrieval is not None:
        if head is not None:
            raise InputError("A head is searched with pair metrics, not with retrieval")
        return RetrievalProblem.of(left, right, gold, retrieval, device=device)
    is_guarded = metric == GUARDED
    pair_metric = as_metric("separation" if is_guarded else metric)
    values = check_gold(gold, pair_metric)
    if not len(left) == len(right) == len(values):
        raise InputError(f"{len(left)} and {len(right)} sentences for {len(values)} scores: the lengths differ")
    source: PairSource = (
        PairGrams.of(left, right, device=device) if head is None else HeadPairs.of(left, right, head, device=device)
    )
    pairs = PairProblem(source, values, pair_metric)
    return GuardedProblem(pairs) if is_guarded else pairs


def _array(views: Views) -> Views:
    return views if isinstance(views, torch.Tensor) else np.asarray(views)
