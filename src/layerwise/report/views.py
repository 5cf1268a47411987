"""The report's part on views: what each prompt and token pooling is worth by layer, and which views a search takes."""

from collections.abc import Sequence

from layerwise.encoder import Prompt
from layerwise.measures import ModelOnPairs
from layerwise.plots import inline_svg, view_scores
from layerwise.report.page import Figure, Section
from layerwise.search import Scored, Search, Selection


def measure_views(subject: ModelOnPairs, prompts: str | Sequence[Prompt], *, seed: int = 0) -> Selection:
    """Search the views of the pairs in all prompts ("auto") or these; half of the pairs choose."""
    search = Search(prompts=prompts, poolings="all", seed=seed)
    return search.fit(subject.model, subject.pairs).selection_


def views_section(selection: Selection) -> Section:
    """The scores of all views, with the best set marked, and the verdict."""
    scores = {name: 100 * score for name, score in (selection.scorer.singles or {}).items()}
    best = selection.chosen
    chosen = [(pooling, layer) for pooling, layers in best.mix.needs.items() for layer in layers]
    drawing = view_scores(scores=scores, chosen=[view for view in chosen if view[0] in scores])
    figure = Figure(
        inline_svg(drawing, "views-0"),
        "Score by layer for each prompt and token pooling",
        "A row is a prompt and a token pooling, a column a layer; dots are the views of the best set that was found.",
        f"Every view alone on the {selection.n_choosing:,} pairs that choose. The best set is {best.mix}: "
        f"{_points(best)} on the {selection.n_reporting:,} others, the last layer {_points(selection.last)}; it costs "
        f"{best.cost}.",
        wide=True,
    )
    return Section("views", "What prompts and poolings are worth", (figure,), str(selection.verdict))


def _points(scored: Scored) -> str:
    return "-" if scored.test is None else f"{100 * scored.test:.1f}"
