"""Search the views of a model on graded pairs: the library side of `layerwise search --prompts`."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from layerwise.data import TaskRows
from layerwise.encoder import Array, Prompt
from layerwise.model import LayerModel
from layerwise.postprocess import LAYERS, FittedOn
from layerwise.search.run import Watch, choice_facts, chosen_model, kept_model, model_notes, unwatched
from layerwise.search.verdict import Verdict, few_pairs_warning
from layerwise.search.view_cost import prices_of
from layerwise.search.view_search import ViewSearch

CENTRES = "means of views"  # the `what` of the record of the text that they were fitted on
_ALL_POOLINGS = ("mean", "last", "weighted-mean", "mean-but-first", "max")


@dataclass(frozen=True)
class ViewResult:
    """A fitted search of views with its verdict and timings.

    `searched` is the model that was searched, `rows` are the pairs, `corpus` records the text on which means were
    fitted, `prompt` is the model's prefix of texts, `notes` are about the model.
    """

    searched: LayerModel
    rows: TaskRows
    search: ViewSearch
    corpus: FittedOn | None
    seconds: dict[str, float]
    prompt: str
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Which views to use."""
        return self.search.verdict_

    @property
    def model(self) -> LayerModel:
        """The model to use: of the chosen views, or of the last layer if they are not reliably better."""
        verdict = self.verdict
        if verdict.use is not verdict.chosen:
            return kept_model(self.searched, verdict.use.mix, f"kept by a search: {verdict}")
        texts = self._choosing_texts()
        record = FittedOn.of(texts, source=self.rows.task.name, what=LAYERS)
        model = chosen_model(self.searched, verdict.use.mix, self.how, chosen_on=record)
        if verdict.use.mix.components is None:
            return model
        corpus = self.corpus if self.search.fitted_on_ == "corpus" else None
        centres = corpus or FittedOn.of(texts, source=self.rows.task.name)
        return model.replaced(fitted_on=(*model.fitted_on, centres.named(CENTRES)))

    @property
    def how(self) -> str:
        """How the views were chosen, for the model card."""
        search, report = self.search, self.search.report_
        return (
            f"the best views of {len(search.singles_)} prompts and poolings by {search.metric_name_} on "
            f"{report.dev_pairs:,} pairs ({len(report.splits)} split(s)). {self.verdict}"
        )

    @property
    def seen(self) -> int:
        """The number of unique reporting sentences in the corpus on which means were fitted."""
        if self.corpus is None or self.search.fit_on == "pairs":
            return 0
        rows = self.rows.pick(self.search.parts_[0][1])
        return int(self.corpus.seen(list(dict.fromkeys([*rows.left, *rows.right]))).sum())

    @property
    def warnings(self) -> list[str]:
        """Caveats about the scores."""
        warnings, views = list(self.notes), sum(map(len, self.search.singles_.values()))
        few_pairs = few_pairs_warning(self.search.report_.dev_pairs, "pairs", f"{views:,} views", self.verdict)
        if few_pairs:
            warnings.append(few_pairs)
        if self.search.left_out_:
            warnings.append(
                f"{self.search.left_out_:,} reporting pairs were left out, for a sentence of theirs had chosen"
            )
        if self.search.near_copies_:
            warnings.append(
                f"{self.search.near_copies_:,} reporting pairs have a sentence that differs from one that chose in "
                f"case, spaces or punctuation only"
            )
        if self.seen:
            warnings.append(
                f"{self.seen:,} reporting sentences are in the corpus that means were fitted on: the scores may be too "
                f"good"
            )
        return warnings

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Scores are raw values of the metric: correlations from -1 to 1."""
        search, report = self.search, self.search.report_
        return {
            "verdict": self.verdict.as_dict(),
            "best": choice_facts(search.best_) | {"cost": search.cost_.as_dict(), "fitted_on": search.fitted_on_},
            "last": choice_facts(search.last_),
            "gain": vars(report.gain),
            "views": sum(map(len, search.singles_.values())),
            "singles": {
                pooling: [None if np.isnan(score) else score for score in scores.tolist()]
                for pooling, scores in search.singles_.items()
            },
            "kept": search.kept_,
            "stability": search.stability_.as_dict(),
            "front": [choice_facts(point.choice) | {"cost": point.cost.as_dict()} for point in search.front_],
            "protocol": {
                "metric": search.metric_name_,
                "scale": search.scale,
                "less": list(search.less),
                "fit_on": search.fit_on,
                "max_cost": search.max_cost,
                "max_passes": search.max_passes,
                "dev_pairs": report.dev_pairs,
                "test_pairs": report.test_pairs,
                "left_out_pairs": search.left_out_,
                "near_copies": search.near_copies_,
                "seen_sentences": self.seen,
                "splits": len(report.splits),
                "seed": search.seed,
            },
            "prompts": [self.prompt] * 2,
            "splits": [vars(split) for split in report.splits],
            "seconds": self.seconds,
            "warnings": self.warnings,
        }

    def _choosing_texts(self) -> list[str]:
        parts = (self.rows.pick(dev) for dev, _ in self.search.parts_)
        return list(dict.fromkeys(chain.from_iterable((*rows.left, *rows.right) for rows in parts)))


class TimedViews:
    """Encodes texts for a search of views, using the cache, and measures the time.

    Args:
        model: The model whose encoder is used.
        prompt: The prefix of every text.
        show_progress_bar: Show a progress bar of the sentences.
    """

    def __init__(self, model: LayerModel, prompt: str, show_progress_bar: bool) -> None:
        self.encoder = model.encoder
        self.prompt = prompt
        self.show_progress_bar = show_progress_bar
        self.seconds = 0.0

    def __call__(self, texts: list[str], poolings: list[str]) -> dict[str, Array]:
        """Encode texts: a mapping of each pooling to its views (texts, layers, width)."""
        start = time.perf_counter()
        views = self._encode(texts, poolings)
        self.seconds += time.perf_counter() - start
        return views

    def _encode(self, texts: list[str], poolings: list[str]) -> dict[str, Array]:
        prompted = [self.prompt + text for text in texts]
        return self.encoder.encode_layers(prompted, poolings, cache=True, show_progress_bar=self.show_progress_bar)

    def timings(self, start: float) -> dict[str, float]:
        """The seconds since `start` that encoding took, and the rest, which the search took."""
        return {"views": self.seconds, "search": time.perf_counter() - start - self.seconds}


def search_views(
    model: LayerModel,
    pairs: TaskRows,
    search: ViewSearch,
    watch: Watch = unwatched,
    *,
    corpus: Sequence[str] | None = None,
    corpus_name: str = "text",
    show_progress_bar: bool = False,
) -> ViewResult:
    """Encode the views that the search needs, using the cache, and search.

    Args:
        model: The model. The baseline is its last layer with its own pooling.
        pairs: Graded pairs.
        search: The search with its options.
        watch: Shows a progress bar of the sets.
        corpus: The text on which means and components are fitted, if any are removed; the choosing pairs by default.
        corpus_name: The name of that text in the model's record.
        show_progress_bar: Show a progress bar of the sentences.
    """
    start, prompt = time.perf_counter(), model.prompt()
    encode = TimedViews(model, prompt, show_progress_bar)
    baseline, *_ = model.mix.poolings
    search.check_width(model.encoder.width)
    prices = prices_of(model.encoder, [*search.poolings, baseline], [prompt + text for text in pairs.left])
    with watch("Searching", None) as progress:
        search.progress = progress
        search.fit(encode, pairs.left, pairs.right, pairs.labels, prices=prices, own=baseline, corpus=corpus)
        search.report_, search.front_, search.stability_  # noqa: B018 - computed here, so that the timings include them
    seconds = encode.timings(start)
    record = FittedOn.of(corpus, source=corpus_name, what=CENTRES) if corpus is not None else None
    return ViewResult(model, pairs, search, record, seconds, prompt, model_notes(model, search))


def view_poolings(model: LayerModel, plain: Sequence[str], prompts: Iterable[Prompt]) -> list[str]:
    """The poolings to search: `plain` ones without a prompt, and each prompt with its default pooling and the mean.

    `plain` defaults to the poolings of the model's mix; "all" stands for all that suit the model.
    """
    names = list(plain or model.mix.poolings)
    if "all" in plain:
        has_cls = model.tokenizer.mask_token is not None
        names = [*model.mix.poolings, *_ALL_POOLINGS, *(["cls"] if has_cls else [])]
    in_prompts = [f"{pooling} in {prompt.label}" for prompt in prompts for pooling in (prompt.pooling, "mean")]
    return list(dict.fromkeys([*names, *in_prompts]))
