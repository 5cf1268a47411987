"""Selection: what a search chose, what that gains and how sure it is; the one result of every search."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from layerwise.errors import InputError
from layerwise.evidence import Gain, Rows, Verdict, few_units_warning, gain_in_words, name_mix, paired_gain
from layerwise.extras import require
from layerwise.mixes import Mix
from layerwise.model import LayerModel
from layerwise.postprocess import ENCODER, LAYERS, FittedOn
from layerwise.search.scored import Scored, Scorer, Stability
from layerwise.search.selection_facts import (
    CheaperFacts,
    CriteriaFacts,
    GainFacts,
    ProtocolFacts,
    ScoredFacts,
    SelectionFacts,
    SplitFacts,
    StabilityFacts,
    TasksFacts,
    VerdictFacts,
)
from layerwise.search.unlabelled import Criteria, hit_rate

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

POINT = 0.01  # a set that loses less, by its interval, is as good
UNSTABLE = 0.5  # the agreement of halves of the units below which a choice is unstable
CENTRES = "means of views"  # the `what` of the record of the text that they were fitted on
_LAZY = ("gain", "verdict", "front", "cheaper", "stability", "warnings", "facts", "records")
_NONE_REPORT = "All pairs chose, none are left to report: give dev (half of the pairs by default), and labels"


@dataclass(frozen=True)
class Cheaper:
    """A mix that runs fewer blocks than the recommended one and is as good.

    Args:
        scored: The mix.
        instead_of: The number of blocks of the recommended one.
        against: Its gain over the recommended one on unseen units; the interval lies above minus one point.
    """

    scored: Scored
    instead_of: int
    against: Gain

    def __str__(self) -> str:
        blocks = f"{self.scored.blocks} block{'s' * (self.scored.blocks != 1)}"
        return f"{name_mix(self.scored.mix)}, {blocks} instead of {self.instead_of}, {gain_in_words(self.against)}"


@dataclass(frozen=True)
class Searched:
    """Where a selection comes from.

    Args:
        model: The model that was searched; None if views were given.
        source: The name of the task or file.
        texts_of: Maps units to their texts, for the record of what chose.
        corpus: The text on which means and components of views were fitted.
        space: The sets or views that were searched, in words.
        options: What else describes the protocol: scale, method, …
        prompts: The prefixes of the texts of both sides.
        notes: Caveats about the model and the rows.
        seconds: The time of views and search.
        keep_heads: Whether the model's heads were searched with the mixes.
        seen_sentences: The number of reporting sentences in the corpus.
        started: When the search began, by `time.perf_counter`.
    """

    model: LayerModel | None = None
    source: str = "arrays"
    texts_of: Callable[[Rows], Sequence[str]] | None = None
    corpus: FittedOn | None = None
    space: str = "all sets"
    options: Mapping[str, Any] = field(default_factory=dict)
    prompts: tuple[str, str] = ("", "")
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    keep_heads: bool = False
    seen_sentences: int = 0
    started: float = field(default_factory=time.perf_counter)


class Selection:
    """What a search chose, with what that gains and how sure it is.

    Statistics are computed when they are first asked for; a pickled selection has them all, without the views.

    Attributes:
        chosen: The best mix by the choosing units, with its scores.
        baseline: What it must be better than: the last layer, or the highest one that may be chosen.
        last: The last layer.
        verdict: Which of them to use, and why.
        gain: The gain of `chosen` over `baseline` on unseen units with its interval; None without labels.
        table: What was scored on the choosing units, best first.
        front: The best mixes by cost, each better than all cheaper ones.
        cheaper: The mix of the fewest blocks that loses less than a point against the recommended one, by the interval.
        stability: What random halves of the choosing units choose.
        tasks: Of several tasks, what the choice for all of them costs each.
        criteria: Without labels, what each criterion proposes.
        unlabelled: What dropout chooses without the scores, if that was asked for.
        seconds: The time of views and search.
    """

    def __init__(
        self,
        scorer: Scorer,
        searched: Searched,
        *,
        seed: int = 0,
        n_resamples: int = 2000,
        labelled: int | None = None,
        has_labels: bool = True,
        criteria: Criteria | None = None,
        tasks: TasksFacts | None = None,
    ) -> None:
        self.scorer, self.searched = scorer, searched
        self.seed, self.n_resamples = seed, n_resamples
        self.units, self.unit, self.metric, self.candidates = len(scorer), scorer.unit, scorer.metric, scorer.candidates
        self.labelled = self.units if labelled is None else labelled
        self.splits, self.choices = scorer.splits, list(scorer.choices)
        self.chosen, self.last, self.baseline = scorer.best, scorer.last, scorer.baseline
        self.may_keep, self.table = scorer.may_keep, scorer.table
        self.has_evidence = has_labels and all(len(split.test) for split in self.splits)
        self.criteria, self.tasks = criteria, tasks
        self.seconds = dict(searched.seconds)
        self.unlabelled: Scored | None = None
        self._model_name: str | None = None

    @cached_property
    def gain(self) -> Gain | None:
        """The gain of the chosen mix over the baseline on unseen units, with its interval; None without labels."""
        if not self.has_evidence:
            return None
        return self._gain([choice.best.mix for choice in self.choices], self._baselines)

    @cached_property
    def verdict(self) -> Verdict[Scored]:
        """Which mix to use: the chosen one if it is reliably better than the baseline, else the baseline."""
        is_last = self.baseline is self.last
        options: dict[str, Any] = {"is_last": is_last, "may_keep": self.may_keep}
        if not self.has_evidence:
            options |= {"criterion": self._criterion, "hit_rate": hit_rate(self._criterion)}
            options["is_graded"] = self.criteria is None
            is_last_best = self.chosen.mix == self.baseline.mix
            options |= {"is_agreed": is_last_best or self.criteria is None or self.criteria.agreed is not None}
        verdict = Verdict(self.chosen, self.baseline, self.gain, self.labelled, self.unit, **options)
        if is_last or not self.has_evidence:
            return verdict
        keeps = verdict.use is self.baseline
        used = self._baselines if keeps else [choice.best.mix for choice in self.choices]
        against_last = self._gain(used, [choice.last.mix for choice in self.choices])
        return Verdict(
            self.chosen, self.baseline, self.gain, self.labelled, self.unit, against_last=against_last, **options
        )

    @cached_property
    def front(self) -> list[Scored]:
        """The best mixes by cost, each better than all cheaper ones, with mean scores over the splits."""
        return list(self.scorer.front)

    @cached_property
    def cheaper(self) -> Cheaper | None:
        """The mix of the fewest blocks that loses less than a point against the recommended one; None without one."""
        if not self.has_evidence:
            return None
        used, is_chosen = self.verdict.use, self.verdict.use is self.chosen
        used_by_split = [choice.best.mix if is_chosen else used.mix for choice in self.choices]
        for point in sorted(self.front, key=lambda scored: scored.blocks):
            if point.test is None or not point.by_split or point.blocks >= used.blocks:
                continue
            if not (used.test or 0.0) - point.test < POINT:
                continue
            against = self._gain([scored.mix for scored in point.by_split], used_by_split)
            if against.low > -POINT:
                return Cheaper(point, used.blocks, against)
        return None

    @cached_property
    def stability(self) -> Stability | None:
        """The share of random halves of the choosing units that choose each view, and how far halves agree."""
        return self.scorer.stability

    @property
    def n_choosing(self) -> int:
        """The number of units that choose, in the first split; without labels those that are pairs of the text."""
        return int((self.splits[0].dev < self.labelled).sum())

    @property
    def n_reporting(self) -> int:
        """The number of units that report, in the first split."""
        return len(self.splits[0].test)

    @cached_property
    def warnings(self) -> list[str]:
        """Caveats about the choice."""
        verdict = self.verdict if self.has_evidence else None
        few = few_units_warning(self.n_choosing, self.unit, self.candidates, verdict)
        warnings = [few] if few else []
        if self.has_evidence and self.stability is not None and self.stability.agreement < UNSTABLE:
            warnings.append(
                f"the choice is unstable: what two halves of the {self.unit} choose shares only "
                f"{self.stability.agreement:.0%} of its views; other sets may be as good"
            )
        warnings += self.splits.notes
        if copies := self._near_copies:
            warnings.append(
                f"{copies:,} reporting {self.unit} have a sentence that differs from one that chose in case, spaces or "
                f"punctuation only"
            )
        if self.searched.seen_sentences:
            warnings.append(
                f"{self.searched.seen_sentences:,} reporting sentences are in the corpus that means were fitted on: "
                f"the scores may be too good"
            )
        return [*warnings, *self.searched.notes]

    @property
    def how(self) -> str:
        """How the mix was chosen, for the model card."""
        if self.criteria is not None:
            return f"without labels, by {self._criterion}: the best of {self.candidates}. {self.verdict}"
        splits = f"{len(self.splits)} split{'s' * (len(self.splits) != 1)}"
        units = f"{self.n_choosing:,} {self.unit} ({splits})"
        return f"the best of {self.candidates} by {self.metric} on {units}. {self.verdict}"

    def model(self) -> LayerModel:
        """The model to use: of the chosen mix, or of the baseline if that is not reliably better."""
        searched, use = self._model, self.verdict.use
        if use is not self.chosen:
            how = f"kept by a search: {self.verdict}"
            return searched.replaced(chosen=how) if searched.mix == use.mix else _with_mix(searched, use.mix, how)
        keep_heads = self.searched.keep_heads
        return _with_mix(searched, use.mix, self.how, keep_heads=keep_heads, records=self.records)

    @cached_property
    def records(self) -> list[FittedOn]:
        """Which text chose the mix, and on which its means and components were fitted."""
        texts_of = self.searched.texts_of
        if texts_of is None:
            return []
        texts = list(dict.fromkeys(chain.from_iterable(texts_of(split.dev) for split in self.splits)))
        records = [FittedOn.of(texts, source=self.searched.source, what=LAYERS)]
        if self.chosen.mix.components is not None:
            centres = self.searched.corpus if self.scorer.fitted_on == "corpus" else None
            records.append((centres or FittedOn.of(texts, source=self.searched.source)).named(CENTRES))
        return records

    def to_frame(self) -> "DataFrame":
        """What was scored on the choosing units, best first, as a pandas frame: mix, layers, pooling, blocks, score."""
        import pandas as pd

        rows = [
            {"mix": str(row.mix), "layers": ",".join(map(str, row.layers)), "pooling": row.pooling}
            | {"blocks": row.blocks, "dev": row.dev}
            for row in self.table
        ]
        return pd.DataFrame(rows)

    def plot(self) -> "Figure":
        """A matplotlib figure: quality against cost, and the gain over the last layer with its interval."""
        require("report", "Selection.plot", "matplotlib")
        from layerwise.plots import gain_and_front

        points = [(scored.blocks, scored.dev if scored.test is None else scored.test) for scored in self.front]
        last = self.last.dev if self.last.test is None else self.last.test
        gain = None if self.gain is None else (100 * self.gain.mean, 100 * self.gain.low, 100 * self.gain.high)
        return gain_and_front(
            gain=gain,
            costs=[blocks for blocks, _ in points],
            scores=[100 * score for _, score in points],
            last=(self.last.blocks, 100 * last),
            title=f"{self.metric} x 100 by blocks that run",
        )

    @cached_property
    def facts(self) -> SelectionFacts:
        """All of it as plain values, for JSON. Scores are raw values of the metric: correlations from -1 to 1."""
        stability = self.stability if self.has_evidence or self.criteria is None else None
        return SelectionFacts(
            verdict=VerdictFacts(**self.verdict.as_dict()),
            chosen=ScoredFacts.of(self.chosen),
            baseline=ScoredFacts.of(self.baseline),
            last=ScoredFacts.of(self.last),
            gain=None if self.gain is None else GainFacts(**vars(self.gain)),
            candidates=self.candidates,
            front=tuple(ScoredFacts.of(point) for point in self.front) if self.has_evidence else (),
            cheaper=None if self.cheaper is None else CheaperFacts.of(self.cheaper.scored, self.cheaper.against),
            stability=None if stability is None else StabilityFacts.model_validate(vars(stability)),
            singles=None
            if (singles := self.scorer.singles) is None
            else {n: tuple(s.tolist()) for n, s in singles.items()},
            fitted_on=self.scorer.fitted_on,
            criteria=None if self.criteria is None else CriteriaFacts.of(self.criteria),
            tasks=self.tasks,
            unlabelled=None if self.unlabelled is None else ScoredFacts.of(self.unlabelled),
            splits=tuple(
                SplitFacts(
                    mix=str(choice.best.mix),
                    dev=choice.best.dev,
                    test=choice.best.test,
                    last_dev=choice.last.dev,
                    last_test=choice.last.test,
                )
                for choice in self.choices
            ),
            protocol=ProtocolFacts(
                metric=self.metric,
                unit=self.unit,
                space=self.searched.space,
                choosing=self.n_choosing,
                reporting=self.n_reporting,
                left_out=self.splits.left_out,
                near_copies=self._near_copies,
                seen_sentences=self.searched.seen_sentences,
                splits=len(self.splits),
                seed=self.seed,
                options=dict(self.searched.options),
            ),
            prompts=self.searched.prompts,
            seconds=self.seconds,
            warnings=tuple(self.warnings),
        )

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """All of it as JSON, by the schema of `SelectionFacts.model_json_schema()`."""
        return self.facts.model_dump_json(indent=indent)

    def __repr__(self) -> str:
        rows = [("chosen", self.chosen), *([] if self.baseline is self.last else [("baseline", self.baseline)])]
        lines = [
            f"  {name:12s} {_points(scored.dev):>6s} {_points(scored.test):>6s}  {scored.mix.in_words}"
            for name, scored in (*rows, ("last layer", self.last))
        ]
        unseen = f"; {self.n_reporting:,} others report" if self.has_evidence else ""
        title = f"Selection of {self.candidates} by {self.metric}: {self.n_choosing:,} {self.unit} choose{unseen}"
        return "\n".join([title, f"  {'':12s} {'dev':>6s} {'unseen':>6s}", *lines, str(self.verdict)])

    def __getstate__(self) -> dict[str, Any]:
        """All statistics, without the views and the model, which is loaded again by its name."""
        for name in _LAZY:
            getattr(self, name)
        kept = replace(self.searched, model=None, texts_of=None, corpus=None)
        model = self.searched.model
        named = {"searched": kept, "_model_name": self._model_name if model is None else model.encoder.name}
        return {name: value for name, value in self.__dict__.items() if name != "scorer"} | named

    @property
    def _model(self) -> LayerModel:
        if self.searched.model is not None:
            return self.searched.model
        if self._model_name is None:
            raise InputError(
                "views were searched without their model; give `verdict.use.mix` to the model that has them"
            )
        return LayerModel.load(self._model_name)

    @property
    def _criterion(self) -> str:
        return "" if self.criteria is None else self.criteria.name

    @property
    def _near_copies(self) -> int:
        return self.scorer.near_copies if self.has_evidence else 0

    @property
    def _baselines(self) -> list[Mix]:
        if self.baseline is self.last:
            return [choice.last.mix for choice in self.choices]
        return [self.baseline.mix] * len(self.choices)

    def _gain(self, mixes: Sequence[Mix], baselines: Sequence[Mix]) -> Gain:
        """The gain of a mix of each split over another on the split's reporting units."""
        if not self.has_evidence:
            raise InputError(_NONE_REPORT)
        if list(mixes) == list(baselines):
            return Gain(0.0, 0.0, 0.0, 1.0)
        scores = [self.scorer.redraw(number, pair) for number, pair in enumerate(zip(mixes, baselines, strict=True))]
        return paired_gain(
            scores,
            self.splits,
            size=self.units,
            seed=self.seed,
            resamples=self.n_resamples,
            smooth=self.scorer.smooth,
            starts=self.scorer.starts,
            are_means=self.scorer.are_means,
        )


def _with_mix(
    model: LayerModel, mix: Mix, chosen: str, *, keep_heads: bool = False, records: Sequence[FittedOn] = ()
) -> LayerModel:
    """The model with another mix, the same prompts, similarity and normalisation, and its heads if `keep_heads`.

    Embeddings are not truncated, as the search scored whole ones. `records` tell which text chose the mix, so that an
    evaluation on it can warn.
    """
    fitted_on = [record for record in model.fitted_on if keep_heads or record.what == ENCODER]
    heads = model.heads if keep_heads else ()
    return model.replaced(mix=mix, heads=heads, truncate_dim=None, chosen=chosen, fitted_on=[*fitted_on, *records])


def _points(score: float | None) -> str:
    return "-" if score is None or np.isnan(score) else f"{100 * score:.1f}"
