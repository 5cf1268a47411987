"""Search the layers of a model on pairs: the library side of `layerwise search`."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from layerwise.data import TaskRows, pairs_in_memory
from layerwise.encoder import Array, LayerEncoder
from layerwise.errors import InputError, ModelError
from layerwise.mixes import Mix
from layerwise.model import LayerModel
from layerwise.postprocess import ENCODER, LAYERS, FittedOn
from layerwise.search.apart import rows_apart
from layerwise.search.choose import Choice
from layerwise.search.layer_search import LayerSearch, retrieval_metric
from layerwise.search.problems import Rows, no_progress
from layerwise.search.request import as_retrieval
from layerwise.search.unlabelled import dropout_passes
from layerwise.search.verdict import Verdict
from layerwise.search.view_search import ViewSearch
from layerwise.texts import unique_texts

_UNLABELLED_SENTENCES = 512  # that are encoded twice with dropout for the choice without labels
Watch = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
ViewsOf = tuple[dict[str, Array], dict[str, Array]]


def unwatched(_what: str, _total: int | None) -> AbstractContextManager[Callable[[int], None]]:
    """Show no progress bar."""
    return nullcontext(no_progress)


@dataclass(frozen=True)
class SearchResult:
    """A fitted search with its verdict, the choice without labels, and timings.

    `searched` is the model that was searched, `rows` are the task's, `texts_of` maps pairs or queries to their texts,
    `prompts` are the prefixes of the texts of both sides, and `notes` are about the model.
    """

    searched: LayerModel
    rows: TaskRows
    search: LayerSearch
    texts_of: Callable[[Rows], list[str]]
    unlabelled: Choice | None
    unlabelled_note: str
    seconds: dict[str, float]
    prompts: tuple[str, str]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """Which layers to use."""
        return self.search.verdict_

    @property
    def model(self) -> LayerModel:
        """The model to use: of the chosen layers, or of the last layer if they are not reliably better."""
        return model_to_use(self.searched, self.search, self.how, self.rows.task.name, self.texts_of)

    @property
    def how(self) -> str:
        """How the layers were chosen, for the model card."""
        search, report = self.search, self.search.report_
        splits = "the task's dev split" if search.parts is not None else f"{len(report.splits)} random split(s)"
        return (
            f"the best of {len(search.table_):,} sets by {search.metric_name_} on {report.dev_pairs:,} "
            f"{search.unit_} ({splits}). {self.verdict}"
        )

    @property
    def warnings(self) -> list[str]:
        """Caveats about the result."""
        return [*self.search.warnings_, *self.notes]

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Scores are raw values of the metric: correlations from -1 to 1."""
        search, report = self.search, self.search.report_
        return {
            "verdict": self.verdict.as_dict(),
            "best": choice_facts(search.best_),
            "last": choice_facts(search.last_),
            "gain": {"mean": report.gain.mean, "low": report.gain.low, "high": report.gain.high}
            | {"p_value": report.gain.p_value},
            "subsets": len(search.table_),
            "seconds": self.seconds,
            "front": [choice_facts(choice) for choice in search.front_],
            "cheaper": search.cheaper_.as_dict() if search.cheaper_ else None,
            "stability": {
                "layers": dict(search.stability_),
                "poolings": dict(search.stability_.poolings),
                "agreement": search.stability_.agreement,
            },
            "unlabelled": choice_facts(self.unlabelled) if self.unlabelled else {"note": self.unlabelled_note},
            "protocol": {
                "metric": search.metric_name_,
                "space": str(search.space_),
                "unit": search.unit_,
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
    """A search fitted without labels, by a criterion such as "dropout", and timings."""

    searched: LayerModel
    texts: list[str]
    criterion: str
    search: LayerSearch
    seconds: dict[str, float]
    prompt: str
    notes: tuple[str, ...]

    @property
    def warnings(self) -> list[str]:
        """Caveats about the result, without the stability, which takes longer than the search."""
        return [*([self.search.few_pairs_] if self.search.few_pairs_ else []), *self.notes]

    @property
    def model(self) -> LayerModel:
        """The model of the chosen layers."""
        record = FittedOn.of(self.texts, source=f"text, by {self.criterion}", what=LAYERS)
        how = (
            f"without labels, by {self.criterion}: the best of {len(self.search.table_):,} sets in telling alike from "
            f"unlike sentences"
        )
        keep_heads = self.search.head is not None
        return chosen_model(self.searched, self.search.best_.mix, how, keep_heads=keep_heads, chosen_on=record)

    def as_dict(self) -> dict[str, Any]:
        """For JSON. `separation`: the standard deviations between similar and dissimilar sentences."""
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


def search_layers(
    model: LayerModel | str | os.PathLike[str],
    left: Sequence[str],
    right: Sequence[str],
    scores: Sequence[float],
    *,
    poolings: Sequence[str] | None = None,
    **options: Any,
) -> SearchResult:
    """From a model and graded pairs to the model to use, in one call.

    Args:
        model: A model, or its folder or name.
        left: The pairs' first sentences.
        right: Their second sentences.
        scores: The similarity scores of the pairs.
        poolings: The token poolings to search; those of the model's mix by default.
        options: As for `LayerSearch`: metric, space, dev, seed, …

    >>> from layerwise.data import demo_rows
    >>> pairs = demo_rows()
    >>> result = search_layers("default", pairs.left, pairs.right, pairs.labels)
    >>> result.model.mix == result.verdict.use.mix
    True
    """
    loaded = model if isinstance(model, LayerModel) else LayerModel.load(model)
    rows = pairs_in_memory(left, right, scores)
    return search_pairs(loaded, rows, poolings or loaded.mix.poolings, LayerSearch(**options))


def search_pairs(
    model: LayerModel,
    pairs: TaskRows,
    poolings: Sequence[str],
    search: LayerSearch,
    watch: Watch = unwatched,
    *,
    unlabelled: bool = False,
    show_progress_bar: bool = False,
) -> SearchResult:
    """Encode the views, using the cache, and search.

    Texts get the model's prompts: for retrieval those of queries and documents, else the default one. `unlabelled` adds
    the choice without labels, which takes two dropout passes; `show_progress_bar` shows a progress bar of the
    sentences, `watch` one of the sets.
    """
    start = time.perf_counter()
    retrieval = retrieval_metric(search.metric) is not None
    texts_of = partial(texts_of_queries if retrieval else texts_of_pairs, pairs)
    left, right, gold = as_retrieval(pairs) if retrieval else (pairs.left, pairs.right, pairs.labels)
    prompts = (model.prompt("query"), model.prompt("document")) if retrieval else (model.prompt(), model.prompt())
    left, right = ([prompt + text for text in side] for prompt, side in zip(prompts, (left, right), strict=True))
    views = encode_sides(model.encoder, left, right, poolings, show_progress_bar=show_progress_bar)
    encoded = time.perf_counter()
    _fit(model, views, gold, search, watch)
    seconds = {"views": encoded - start, "search": time.perf_counter() - encoded}
    choice, note = None, "not asked for"
    if unlabelled:
        searched = time.perf_counter()
        choice, note = _without_labels(model.encoder, [*left, *right], poolings, search, show_progress_bar)
        seconds["without labels"] = time.perf_counter() - searched
    notes = (*model_notes(model, search), *(() if retrieval else shared_sentences(pairs, search)))
    return SearchResult(model, pairs, search, texts_of, choice, note, seconds, prompts, notes)


def texts_of_pairs(rows: TaskRows, pairs: Rows) -> list[str]:
    """The texts of pairs."""
    picked = rows.pick(pairs)
    return [*picked.left, *picked.right]


def texts_of_queries(rows: TaskRows, queries: Rows) -> list[str]:
    """The texts of queries and of their relevant passages."""
    texts, passages, relevant = as_retrieval(rows)
    return [texts[n] for n in queries] + [passages[p] for n in queries for p in relevant[n]]


def search_text(
    model: LayerModel,
    left: Sequence[str],
    right: Sequence[str] | None,
    poolings: Sequence[str],
    search: LayerSearch,
    watch: Watch,
    *,
    criterion: str = "",
    show_progress_bar: bool = False,
) -> TextResult:
    """Choose layers without labels, by two dropout passes over sentences or by pairs of related texts.

    `criterion` names the source of the pairs for the model card; "dropout" or "pairs" by default.
    """
    start, prompt = time.perf_counter(), model.prompt()
    first = [prompt + text for text in left]
    if right is None:
        views: ViewsOf = dropout_passes(model.encoder, first, poolings, show_progress_bar=show_progress_bar)
    else:
        second = [prompt + text for text in right]
        views = encode_sides(model.encoder, first, second, poolings, show_progress_bar=show_progress_bar)
    encoded = time.perf_counter()
    _fit(model, views, None, search, watch)
    seconds = {"views": encoded - start, "search": time.perf_counter() - encoded}
    criterion = criterion or ("dropout" if right is None else "pairs")
    texts = unique_texts(left, right or [])[0]
    return TextResult(model, texts, criterion, search, seconds, prompt, model_notes(model, search))


def encode_sides(
    encoder: LayerEncoder,
    left: Sequence[str],
    right: Sequence[str],
    poolings: Sequence[str],
    *,
    show_progress_bar: bool = False,
) -> ViewsOf:
    """The views of both sides; each unique text is encoded once and cached on disk."""
    texts, (first, second) = unique_texts(left, right)
    views = encoder.encode_layers(texts, list(poolings), cache=True, show_progress_bar=show_progress_bar)
    return {name: array[first] for name, array in views.items()}, {name: array[second] for name, array in views.items()}


def model_to_use(
    model: LayerModel, search: LayerSearch, how: str, source: str, texts_of: Callable[[Rows], list[str]]
) -> LayerModel:
    """The model with the recommended mix and a record of the text that chose its layers."""
    verdict = search.verdict_
    if verdict.use is not verdict.chosen:
        return kept_model(model, verdict.use.mix, f"kept by a search: {verdict}")
    choosing = [texts_of(dev) for dev, _ in search.parts_]
    record = FittedOn.of(list(dict.fromkeys(chain(*choosing))), source=source, what=LAYERS)
    return chosen_model(model, verdict.use.mix, how, keep_heads=search.head is not None, chosen_on=record)


def chosen_model(
    model: LayerModel, mix: Mix, chosen: str, *, keep_heads: bool = False, chosen_on: FittedOn | None = None
) -> LayerModel:
    """The model with another mix, the same prompts, similarity and normalisation, and its heads if `keep_heads`.

    Embeddings are not truncated, as the search scored whole ones. `chosen_on` records the text that chose the layers,
    so that an evaluation on it can warn.
    """
    fitted_on = [record for record in model.fitted_on if keep_heads or record.what == ENCODER]
    fitted_on += [chosen_on] if chosen_on is not None else []
    heads = model.heads if keep_heads else ()
    return model.replaced(mix=mix, heads=heads, truncate_dim=None, chosen=chosen, fitted_on=fitted_on)


def kept_model(model: LayerModel, mix: Mix, chosen: str) -> LayerModel:
    """The model if a search keeps the baseline: unchanged if that is its mix already, else with this mix only."""
    return model.replaced(chosen=chosen) if model.mix == mix else chosen_model(model, mix, chosen)


def shared_sentences(pairs: TaskRows, search: LayerSearch) -> tuple[str, ...]:
    """A note if reporting pairs share a sentence with a choosing one, so that they are not quite unseen."""
    if search.dev is None and search.parts is None:
        return ()
    dev, test = search.parts_[0]
    shared = len(test) - len(rows_apart(pairs.left, pairs.right, dev, test))
    return (f"{shared} of {len(test)} reporting pairs share a sentence with one that chooses",) if shared else ()


def model_notes(model: LayerModel, search: LayerSearch | ViewSearch) -> tuple[str, ...]:
    """Notes on differences between the searched embeddings and the model's, or in how they are compared."""
    notes = []
    if not model.mix.is_plain:
        notes.append(f"sets of layers are searched, so the model's mix {model.mix} is left out")
    if model.heads and getattr(search, "head", None) is None:
        notes.append(f"the model's {len(model.heads)} head(s) after the mix are left out")
    if model.truncate_dim is not None:
        notes.append(
            f"whole embeddings are searched, so the model's truncation to {model.truncate_dim} dimensions is left out"
        )
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
    unique, _ = unique_texts(texts)
    order = np.random.default_rng(search.seed).permutation(len(unique))[:_UNLABELLED_SENTENCES]
    unlabelled = LayerSearch(space=search.space, seed=search.seed, head=search.head, device=search.device)
    try:
        passes = dropout_passes(encoder, [unique[place] for place in order], poolings, show_progress_bar=bar)
        chosen = unlabelled.fit(*passes).best_
    except (ModelError, InputError) as error:
        return None, str(error)
    return Choice(chosen.mix, chosen.dev, float(search.unseen_scores([chosen.mix]).mean())), ""


def choice_facts(choice: Choice) -> dict[str, Any]:
    """A choice with its scores, for JSON."""
    return {
        "layers": list(choice.layers),
        "pooling": choice.pooling,
        "mix": str(choice.mix),
        "dev": choice.dev,
        "test": choice.test,
    }
