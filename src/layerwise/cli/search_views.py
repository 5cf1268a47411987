"""The part of `layerwise search` that searches views: its options, its search, and what it prints."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.cli.inputs import check_file
from layerwise.cli.screen import counting, points, print_line, print_table, spent
from layerwise.errors import InputError
from layerwise.registry import check_known

if TYPE_CHECKING:
    from layerwise.data import TaskRows
    from layerwise.encoder import Prompt
    from layerwise.model import LayerModel
    from layerwise.search import LayerSearch, ViewResult, ViewSearch, ViewTextResult

_LOOK = 100  # choosing pairs that have a first look at every view
_SINGLES = 8  # best views alone that are shown


@dataclass(frozen=True)
class ViewOptions:
    """The options of a search of views."""

    prompts: "tuple[Prompt, ...] | None"  # None for all that suit the model
    scale: str
    less: tuple[int | None, ...]
    corpus: Path | None
    fit_on: str
    max_cost: float | None
    max_passes: int | None
    asked_by: str  # the first option that asked for views

    @classmethod
    def of(
        cls,
        prompts: str | None,
        scale: str | None,
        less: str | None,
        corpus: Path | None,
        fit_on: str | None,
        max_cost: float | None,
        max_passes: int | None,
        *,
        needed: bool = False,
    ) -> "ViewOptions | None":
        """Read the options; None if none is given, unless they are needed."""
        given = {
            "--prompts": prompts,
            "--scale": scale,
            "--less": less,
            "--corpus": corpus,
            "--fit-on": fit_on,
            "--max-cost": max_cost,
            "--max-passes": max_passes,
        }
        asked_by = next((option for option, value in given.items() if value is not None), "--no-labels all")
        if not needed and asked_by not in given:
            return None
        from layerwise.mixes import SCALES

        check_known(scale or "unit", SCALES, "scale")
        for option, limit in (("--max-cost", max_cost), ("--max-passes", max_passes)):
            if limit is not None and not limit > 0:
                raise InputError(f"{option} {limit} is not possible; give more than 0")
        if corpus is not None and less is None:
            raise InputError("--corpus is the text that --less is fitted on; give --less too, such as --less mean")
        if fit_on is not None:
            _check_fit_on(fit_on, less, corpus)
        if corpus is not None:
            check_file(corpus)
        chosen = read_prompt_option(prompts)
        scale, fit_on = scale or "unit", fit_on or "corpus"
        return cls(chosen, scale, _read_less(less), corpus, fit_on, max_cost, max_passes, asked_by)

    def check(self, rows: "TaskRows", criterion: str | None, **others: object) -> None:
        """Raise for options that a search of views does not use."""
        if rows.task.has_classes or rows.task.kind == "retrieval":
            raise InputError(f"task {rows.task.name!r} has no graded pairs, by which views of prompts are searched")
        if criterion == "pairs":
            raise InputError(
                "--no-labels pairs is for sets of layers; views are chosen by neighbours, repetition, deletion, "
                "dropout or all"
            )
        if criterion is not None and self.corpus is not None:
            raise InputError("--corpus is for graded pairs; without labels the text itself is what --less is fitted on")
        plain = {"method": "auto", "layers": "all", "max_layer": None, "head": False, "table": None}
        plain["compare_unlabelled"] = False
        for name, value in plain.items():
            if others[name] != value:
                raise InputError(f"--{name.replace('_', '-')} is for sets of layers; leave it out with {self.asked_by}")


def _check_fit_on(fit_on: str, less: str | None, corpus: Path | None) -> None:
    from layerwise.search import FIT_ON

    check_known(fit_on, FIT_ON, "--fit-on")
    if less is None:
        raise InputError(f"--fit-on {fit_on} says what --less is fitted on; give --less too, such as --less mean")
    if corpus is None and fit_on != "pairs":
        raise InputError(f"--fit-on {fit_on} needs a text; give --corpus too")
    if corpus is not None and fit_on == "pairs":
        raise InputError("--fit-on pairs has no use for --corpus; leave one of them out, or give --fit-on either")


def read_prompt_option(prompts: str | None) -> "tuple[Prompt, ...] | None":
    """Read prompts from a file or by name; empty without any, None for "auto"."""
    from layerwise.encoder import named_prompt, read_prompts

    if prompts is None:
        return ()
    if prompts == "auto":
        return None
    if Path(prompts).suffix in (".toml", ".txt"):
        check_file(prompts)
    if Path(prompts).is_file():
        return tuple(read_prompts(Path(prompts)).values())
    return tuple(named_prompt(name.strip()) for name in prompts.split(","))


def _read_less(less: str | None) -> tuple[int | None, ...]:
    counts: list[int | None] = []
    for part in (less or "none").split(","):
        word = part.strip()
        if word not in ("none", "mean") and not (word.isdecimal() and int(word)):
            raise InputError(f"--less {less!r}: {word!r} is neither none, mean nor a number of components")
        counts.append(None if word == "none" else 0 if word == "mean" else int(word))
    return tuple(dict.fromkeys(counts))


def search_views_of(
    model: "LayerModel", rows: "TaskRows", poolings: list[str], search: "LayerSearch", options: ViewOptions
) -> "ViewResult":
    """Search by graded pairs."""
    from layerwise.search import search_views

    corpus = None if options.corpus is None else _read_corpus(options.corpus)
    name = "" if options.corpus is None else options.corpus.name
    watch, bar = partial(counting, unit="sets"), sys.stderr.isatty()
    views = _view_search(model, poolings, search, options)
    return search_views(model, rows, views, watch, corpus=corpus, corpus_name=name, show_progress_bar=bar)


def search_text_views(
    model: "LayerModel",
    rows: "TaskRows",
    poolings: list[str],
    search: "LayerSearch",
    options: ViewOptions,
    criterion: str,
) -> "ViewTextResult":
    """Search by text alone."""
    from layerwise.search import CRITERIA, search_view_text

    watch, bar = partial(counting, unit="sets"), sys.stderr.isatty()
    criteria = CRITERIA if criterion == "all" else (criterion,)
    views = _view_search(model, poolings, search, options)
    return search_view_text(model, rows.left, views, watch, criteria=criteria, show_progress_bar=bar)


def _view_search(model: "LayerModel", poolings: list[str], search: "LayerSearch", options: ViewOptions) -> "ViewSearch":
    from layerwise.encoder import prompts_for
    from layerwise.search import ViewSearch, view_poolings

    prompts = prompts_for(model.tokenizer) if options.prompts is None else options.prompts
    return ViewSearch(
        view_poolings(model, poolings, prompts),
        metric=search.metric,
        scale=options.scale,  # type: ignore[arg-type] # checked
        less=options.less,
        fit_on=options.fit_on,  # type: ignore[arg-type] # checked
        look=_LOOK,
        max_cost=options.max_cost,
        max_passes=options.max_passes,
        dev=0.5 if search.dev is None else search.dev,
        splits=search.splits,
        parts=search.parts,
        seed=search.seed,
        device=search.device if model.encoder.device.type != "cuda" else model.encoder.device,
    )


def _read_corpus(path: Path) -> list[str]:
    from layerwise.data import RowSource, text_of

    rows = RowSource.of(str(path), ("text",))
    texts = [text for row in rows if (text := text_of(rows, row, 0)).strip()]
    if len(texts) < 2:
        raise InputError(f"{path}: {len(texts)} sentences are too few to fit on; give thousands")
    return texts


def show_views(result: "ViewResult") -> None:
    """Print a search of views."""
    search, report = result.search, result.search.report_
    best, last = search.best_, search.last_
    many = f", means of {len(report.splits)} splits" if len(report.splits) > 1 else ""
    views = sum(map(len, search.singles_.values()))
    title = (
        f"{views:,} views of {len(search.singles_)} prompts and poolings, {search.metric_name_} x 100; "
        f"{report.dev_pairs:,} pairs choose, {report.test_pairs:,} others report{many}"
    )
    rows = [
        ("best found", str(best.mix), points(best.dev), points(best.test)),
        ("last layer", str(last.mix), points(last.dev), points(last.test)),
    ]
    print_table(("", "views", "dev", "unseen"), rows, title=title)
    print_line(f"{result.verdict}")
    if search.fit_on == "either" and (text := search.fitted_on_) is not None:
        named = result.corpus.source if text == "corpus" and result.corpus else "the choosing pairs"
        print_line(f"What is taken away was fitted on {named}: by that text they chose better.")
    print_line(f"The best found costs {search.cost_}.")
    stability = search.stability_
    shares = ", ".join(f"{view} ({share:.0%})" for view, share in list(stability.views.items())[:_SINGLES])
    print_line(f"Most often chosen by halves of the pairs: {shares}; agreement {stability.agreement:.0%}.\n")
    import numpy as np

    scored = [(name, np.nan_to_num(scores, nan=-np.inf)) for name, scores in search.singles_.items()]
    alone = sorted(scored, key=lambda item: -item[1].max())[:_SINGLES]
    singles = [(name, str(int(scores.argmax())), points(float(scores.max()))) for name, scores in alone]
    looked = min(search.look or report.dev_pairs, report.dev_pairs)
    title = f"The best views alone, on {looked:,} of the pairs that choose"
    print_table(("pooling", "best layer", "score"), singles, title=title)
    front = [
        (str(len(one.cost.blocks)), str(sum(one.cost.blocks)), f"{one.cost.work:.2f}", str(one.choice.mix),
         points(one.choice.dev), points(one.choice.test))
        for one in search.front_
    ]  # fmt: skip
    heads = ("passes", "blocks", "work", "best set that costs no more", "dev", "unseen")
    print_table(heads, front, title="Quality against cost")
    _show_notes(result)


def show_text_views(result: "ViewTextResult") -> None:
    """Print what criteria without labels chose."""
    rows = [
        (f"chosen by {one.criterion}", str(one.mix), *(f"{value:.2f}" for value in one.separations.values()))
        for one in result.proposals
    ]
    rows.append(("last layer", str(result.last_mix), *(f"{value:.2f}" for value in result.last.values())))
    title = "How many standard deviations alike and unlike sentences lie apart, by each criterion"
    print_table(("", "views", *result.last), rows, title=title)
    print_line(f"{result}")
    _show_notes(result)


def _show_notes(result: "ViewResult | ViewTextResult") -> None:
    if result.prompt:
        print_line(f"Put before the texts: {result.prompt!r}.")
    for warning in result.warnings:
        print_line(f"Note: {warning}.")
    print_line(spent(result.seconds))
