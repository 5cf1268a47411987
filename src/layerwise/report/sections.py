"""The figures of a report, each with one line on how to read it."""

from collections.abc import Sequence

import numpy as np

from layerwise.measures.measure import MEASURES
from layerwise.plots import Drawing, inline_svg
from layerwise.report import drawings
from layerwise.report.findings import Findings, Gathered
from layerwise.report.page import Figure, Section


def sections(gathered: Gathered) -> list[Section]:
    """One for each question; one that nothing was measured for has no figures."""
    found = gathered.found
    models = [found] if gathered.compared is None else [gathered.compared.first, found]
    return [
        Section("scores", "What each layer is worth", _score_figures(gathered)),
        Section("search", _titled("What a search chooses", found, models), _search_figures(found)),
        Section("smoothing", "Is it over-smoothed?", _smoothing_figures(models)),
        Section("space", "How the space is used", _space_figures(models)),
        Section("attention", "Attention over layers", _attention_figures(models)),
        Section("training", "Training", _training_figures(gathered)),
    ]


def _score_figures(gathered: Gathered) -> tuple[Figure, ...]:
    found, compared = gathered.found, gathered.compared
    if found.scores is None:
        return ()
    figures = [
        _figure(
            drawings.scores({found.name: found.scores}, chosen=found.chosen),
            "Score by layer" if compared is None else f"Score by layer, {found.name}",
            "Higher is better; a peak left of the last layer says that the last is not the one to take."
            + (_LINE_ACROSS.format(" or ".join(found.chosen.poolings)) if found.chosen else ""),
        )
    ]
    if compared is not None and compared.first.scores is not None:
        both = {one.name: one.scores for one in (compared.first, found) if one.scores is not None}
        figures.append(
            _figure(drawings.scores(both), "Both models", "Each model by the token pooling of its best layer.")
        )
        figures.append(
            _figure(
                drawings.changes({"": compared.changes}),
                "Every figure of both",
                "Each row has a scale of its own, from 0; the longer the bar between the dots, the more has changed.",
            )
        )
    return tuple(figures)


_LINE_ACROSS = " The line across is the best set of layers by {}, scored on pairs that did not choose it."


def _search_figures(found: Findings) -> tuple[Figure, ...]:
    chosen = found.chosen
    if chosen is None:
        return ()
    return (
        _figure(
            drawings.chosen_layers({found.name: chosen}),
            "How often each layer is chosen",
            "By random halves of the pairs: a layer near 100 % is in every half's best set, whatever the pairs.",
        ),
        _figure(
            drawings.by_size(chosen),
            "Score by number of layers",
            "Where the curve is flat, more layers add nothing; the band is one standard deviation of the splits.",
        ),
        _figure(
            drawings.without_layer(chosen),
            "Score without a layer",
            "The deeper the drop, the less the others can stand in for that layer.",
        ),
        _figure(
            drawings.by_pairs(chosen),
            "How many pairs are needed to choose",
            "Where the curve rises above the last layer's, so many graded pairs are enough to gain by a search.",
        ),
    )


def _smoothing_figures(models: Sequence[Findings]) -> tuple[Figure, ...]:
    figures = [
        _figure(
            drawings.smoothing({one.name: one.smooth for one in models}),
            "SetSim and TokSim",
            "Near 1 a layer repeats the one below (SetSim, of mean vectors), or all tokens of a sentence are alike "
            "(TokSim).",
        )
    ]
    alike_cut = len({one.tokens.tokens for one in models}) == 1
    figures += [
        _figure(
            drawings.token_matrices({one.name: one.tokens for one in group}),
            "Tokens of a sentence" if len(models) == 1 or alike_cut else f"Tokens of a sentence, {group[0].name}",
            "The cosine of every token with every other: a field of one colour says that they can't be told apart.",
            note=f"“{group[0].tokens.sentence}”",
        )
        for group in ([list(models)] if alike_cut else [[one] for one in models])
    ]
    return tuple(figures)


def _space_figures(models: Sequence[Findings]) -> tuple[Figure, ...]:
    figures = [
        _figure(
            drawings.geometry({one.name: one.space for one in models}),
            "Geometry by layer",
            f"{MEASURES['geometry'].reading} A dashed level is the own mix of a model that takes more than its last "
            "layer.",
            note="Token poolings: " + ", ".join(f"{one.space.pooling} of {one.name}" for one in models) + ".",
        ),
        _figure(
            drawings.variance({one.name: one.variance for one in models}),
            "Shares of variance by direction",
            "A steep fall: a few directions hold everything. A slow one: the whole space is used.",
        ),
    ]
    figures += [
        _figure(
            drawings.likeness({one.name: one.alike}),
            _titled("Layers alike (CKA)", one, models),
            _CKA,
            note=_CONSTANT if np.isnan(one.alike.cka).any() else "",
        )
        for one in models
    ]
    points = {one.name: one.points for one in models if one.points is not None}
    if points:
        figures.append(
            _figure(
                drawings.points(points),
                "The most and the least alike pairs (t-SNE)",
                "The two sentences of a pair are joined: those of high grade should lie together, of low grade apart.",
            )
        )
    return tuple(figures)


_CKA = "Nearer 1: two layers arrange the sentences alike; blocks along the diagonal are stages of the encoder."


_CONSTANT = "A layer that is the same for all sentences is like no other; it is drawn as 0."


def _attention_figures(models: Sequence[Findings]) -> tuple[Figure, ...]:
    return tuple(
        _figure(
            drawings.attention({one.name: one.attention}),
            _titled("Weight of each layer", one, models),
            "How much of each layer the pooler takes, for the shortest and the longest quarter of the sentences; on "
            "the dotted level all layers weigh the same.",
        )
        for one in models
        if one.attention is not None
    )


def _training_figures(gathered: Gathered) -> tuple[Figure, ...]:
    if not gathered.trainings:
        return ()
    curves = {curve.name: curve for curve in gathered.trainings}
    return (
        _figure(
            drawings.convergence(curves), "Convergence", "Where a curve is flat, training longer would not have helped."
        ),
    )


def _figure(drawing: Drawing, title: str, how_to_read: str, *, note: str = "") -> Figure:
    """A drawing that says itself that it is wide gets the whole row."""
    svg = inline_svg(drawing, "own")  # the page makes ids its own
    return Figure(svg, title, how_to_read, note, wide='class="wide"' in svg)


def _titled(title: str, one: Findings, models: Sequence[Findings]) -> str:
    return title if len(models) == 1 else f"{title}, {one.name}"
