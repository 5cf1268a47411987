"""The report's part on views: what each prompt and token pooling is worth by layer, and which views a search takes."""

from collections.abc import Sequence

from layerwise.encoder import Prompt
from layerwise.measures import ModelOnPairs
from layerwise.plots import inline_svg, view_scores
from layerwise.report.page import Figure, Section
from layerwise.search import Choice, ViewResult, ViewSearch, search_views, view_poolings


def measure_views(subject: ModelOnPairs, prompts: Sequence[Prompt], *, seed: int = 0) -> ViewResult:
    """Search the views of the pairs; half of them choose."""
    poolings = view_poolings(subject.model, ["all"], prompts)
    search = ViewSearch(poolings, seed=seed)
    return search_views(subject.model, subject.pairs, search, show_progress_bar=subject.show_progress_bar)


def views_section(result: ViewResult) -> Section:
    """The scores of all views, with the best set marked, and the verdict."""
    search = result.search
    scores = {name: 100 * score for name, score in search.singles_.items()}
    best, (dev, test) = search.best_, (search.report_.dev_pairs, search.report_.test_pairs)
    chosen = [(view.pooling, view.layer) for view in best.mix.views if view.pooling in scores]
    drawing = view_scores(scores=scores, chosen=chosen)
    figure = Figure(
        inline_svg(drawing, "views-0"),
        "Score by layer for each prompt and token pooling",
        "A row is a prompt and a token pooling, a column a layer; dots are the views of the best set that was found.",
        f"Every view alone on the {dev:,} pairs that choose. The best set is {best.mix}: {_points(best)} on the "
        f"{test:,} others, the last layer {_points(search.last_)}; it costs {search.cost_}.",
        wide=True,
    )
    return Section("views", "What prompts and poolings are worth", (figure,), str(result.verdict))


def _points(choice: Choice) -> str:
    return "-" if choice.test is None else f"{100 * choice.test:.1f}"
