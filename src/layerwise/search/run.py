"""From a model and a file's pairs to a report and another model: what `layerwise search` does, except printing."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.data import TaskRows
from layerwise.encoder import Array, LayerEncoder
from layerwise.errors import InputError, ModelError
from layerwise.mixes import LayerAttention, LayerJoin, LayerMix
from layerwise.model import LayerModel
from layerwise.postprocess import ENCODER
from layerwise.search.choose import Choice
from layerwise.search.layer_search import LayerSearch, retrieval_metric
from layerwise.search.request import as_retrieval
from layerwise.search.unlabelled import dropout_passes
from layerwise.texts import unique_texts

_UNLABELLED_SENTENCES = 512  # that are encoded twice with dropout, to show what a choice without labels would be
Watch = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
ViewsOf = tuple[dict[str, Array], dict[str, Array]]


@dataclass(frozen=True)
class SearchResult:
    """A fitted search, what a choice without labels would have been, and how long things took.

    `prompts` are what was put before the texts of either side; `notes` are about the model.
    """

    search: LayerSearch
    unlabelled: Choice | None
    unlabelled_note: str
    seconds: dict[str, float]
    prompts: tuple[str, str]
    notes: tuple[str, ...]

    @property
    def warnings(self) -> list[str]:
        """What a careful reader should know."""
        return [*self.search.warnings_, *self.notes]

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Scores are as the metric gives them: correlations from -1 to 1."""
        search, report = self.search, self.search.report_
        return {
            "best": _choice(search.best_),
            "last": _choice(search.last_),
            "gain": {"mean": report.gain.mean, "low": report.gain.low, "high": report.gain.high}
            | {"p_value": report.gain.p_value},
            "subsets": len(search.table_),
            "seconds": self.seconds,
            "front": [_choice(choice) for choice in front_with_tests(search)],
            "stability": {
                "layers": dict(search.stability_),
                "poolings": dict(search.stability_.poolings),
                "agreement": search.stability_.agreement,
            },
            "unlabelled": _choice(self.unlabelled) if self.unlabelled else {"note": self.unlabelled_note},
            "protocol": {
                "metric": search.metric_name_,
                "space": str(search.space_),
                "dev_pairs": report.dev_pairs,
                "test_pairs": report.test_pairs,
                "splits": len(report.splits),
                "seed": search.seed,
            },
            "prompts": list(self.prompts),
            "head": search.head is not None,
            "splits": [vars(split) for split in report.splits],
            "warnings": self.warnings,
        }


@dataclass(frozen=True)
class TextResult:
    """A search fitted without labels, and how long things took."""

    search: LayerSearch
    seconds: dict[str, float]
    prompt: str
    notes: tuple[str, ...]

    @property
    def warnings(self) -> list[str]:
        """What a careful reader should know; halves of the pairs are not asked, for that takes longer than the rest."""
        return [*([self.search.few_pairs_] if self.search.few_pairs_ else []), *self.notes]

    def as_dict(self) -> dict[str, Any]:
        """For JSON. `separation`: how many standard deviations alike and unlike sentences lie apart."""
        best, last = (
            {"layers": list(choice.layers), "pooling": choice.pooling, "mix": str(choice.mix), "separation": choice.dev}
            for choice in (self.search.best_, self.search.last_)
        )
        return {
            "best": best,
            "last": last,
            "subsets": len(self.search.table_),
            "seconds": self.seconds,
            "prompts": [self.prompt] * 2,
            "head": self.search.head is not None,
            "warnings": self.warnings,
        }


def search_pairs(
    model: LayerModel,
    pairs: TaskRows,
    poolings: Sequence[str],
    search: LayerSearch,
    watch: Watch,
    *,
    show_progress_bar: bool = False,
) -> SearchResult:
    """Views (from the cache, if they are there), the search, and a choice without labels to compare with.

    Texts get the prompts that the model would put before them: for retrieval those of queries and documents, else the
    default one. `show_progress_bar` shows one of the sentences, `watch` shows one of the sets.
    """
    began = time.perf_counter()
    retrieval = retrieval_metric(search.metric) is not None
    left, right, gold = as_retrieval(pairs) if retrieval else (pairs.left, pairs.right, pairs.labels)
    prompts = (model.prompt("query"), model.prompt("document")) if retrieval else (model.prompt(), model.prompt())
    left, right = ([prompt + text for text in side] for prompt, side in zip(prompts, (left, right), strict=True))
    views = encode_sides(model.encoder, left, right, poolings, show_progress_bar=show_progress_bar)
    seen = time.perf_counter()
    _fit(model, views, gold, search, watch)
    seconds = {"views": seen - began, "search": time.perf_counter() - seen}
    unlabelled, note = _without_labels(model.encoder, [*left, *right], poolings, search, show_progress_bar)
    return SearchResult(search, unlabelled, note, seconds, prompts, model_notes(model, search))


def search_text(
    model: LayerModel,
    left: Sequence[str],
    right: Sequence[str] | None,
    poolings: Sequence[str],
    search: LayerSearch,
    watch: Watch,
    *,
    show_progress_bar: bool = False,
) -> TextResult:
    """A choice without labels: by two dropout passes over sentences, or by pairs of text that belong together."""
    began, prompt = time.perf_counter(), model.prompt()
    first = [prompt + text for text in left]
    if right is None:
        views: ViewsOf = dropout_passes(model.encoder, first, poolings, show_progress_bar=show_progress_bar)
    else:
        second = [prompt + text for text in right]
        views = encode_sides(model.encoder, first, second, poolings, show_progress_bar=show_progress_bar)
    seen = time.perf_counter()
    _fit(model, views, None, search, watch)
    seconds = {"views": seen - began, "search": time.perf_counter() - seen}
    return TextResult(search, seconds, prompt, model_notes(model, search))


def front_with_tests(search: LayerSearch) -> list[Choice]:
    """The Pareto front with scores on the test pairs, mean of the splits."""
    front = search.front_
    tests = search.unseen_scores([best.mix for best in front]).mean(1)
    return [Choice(best.mix, best.score, float(test)) for best, test in zip(front, tests, strict=True)]


def encode_sides(
    encoder: LayerEncoder,
    left: Sequence[str],
    right: Sequence[str],
    poolings: Sequence[str],
    *,
    show_progress_bar: bool = False,
) -> ViewsOf:
    """The views of either side, each different text once, cached on disk."""
    texts, (first, second) = unique_texts(left, right)
    views = encoder.encode_layers(texts, list(poolings), cache=True, show_progress_bar=show_progress_bar)
    return {name: array[first] for name, array in views.items()}, {name: array[second] for name, array in views.items()}


def chosen_model(model: LayerModel, mix: LayerMix, chosen: str, *, keep_heads: bool = False) -> LayerModel:
    """The model with another mix: its prompts, similarity and normalising stay, its heads only where asked for."""
    fitted_on = [record for record in model.fitted_on if keep_heads or record.what == ENCODER]
    heads = model.heads if keep_heads else ()
    return model.replaced(mix=mix, heads=heads, chosen=chosen, fitted_on=fitted_on)


def model_notes(model: LayerModel, search: LayerSearch) -> tuple[str, ...]:
    """Where the search scores other embeddings than the model gives, or compares them in another way."""
    notes = []
    if isinstance(model.mix, LayerAttention | LayerJoin):
        notes.append(f"sets of layers are searched, so the model's mix {model.mix} is left out")
    if model.heads and search.head is None:
        notes.append(f"the model's {len(model.heads)} head(s) after the mix are left out")
    if model.similarity_fn_name != "cosine" and not model.normalize:
        notes.append(f"layers are chosen by cosine, but the model compares by {model.similarity_fn_name}")
    return tuple(notes)


def _fit(model: LayerModel, views: ViewsOf, gold: object, search: LayerSearch, watch: Watch) -> None:
    with watch("Searching", search.sets_to_score(model.encoder.depth + 1, len(views[0]))) as progress:
        search.progress = progress
        search.fit(*views, gold)


def _without_labels(
    encoder: LayerEncoder, texts: Sequence[str], poolings: Sequence[str], search: LayerSearch, bar: bool
) -> tuple[Choice | None, str]:
    different, _ = unique_texts(texts)
    order = np.random.default_rng(search.seed).permutation(len(different))[:_UNLABELLED_SENTENCES]
    free = LayerSearch(space=search.space, seed=search.seed, head=search.head, device=search.device)
    try:
        passes = dropout_passes(encoder, [different[place] for place in order], poolings, show_progress_bar=bar)
        chosen = free.fit(*passes).best_
    except (ModelError, InputError) as error:
        return None, str(error)
    return Choice(chosen.mix, chosen.dev, float(search.unseen_scores([chosen.mix]).mean())), ""


def _choice(choice: Choice) -> dict[str, Any]:
    return {
        "layers": list(choice.layers),
        "pooling": choice.pooling,
        "mix": str(choice.mix),
        "dev": choice.dev,
        "test": choice.test,
    }
