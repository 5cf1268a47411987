"""Builds the page from measured values: answer, figures, table, pairs, protocol, commands."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from layerwise.measures import (
    SECTIONS,
    ChosenLayers,
    Geometry,
    LayerColumn,
    LayerScores,
    Measure,
    PairSimilarities,
    Projection,
    all_measures,
)
from layerwise.measures import Figure as MeasureFigure
from layerwise.metrics import cosine
from layerwise.plots import inline_svg, theme_css
from layerwise.report.answer import answer, headline
from layerwise.report.data import ModelResults, ReportData
from layerwise.report.page import Cell, Column, Explorer, Figure, Page, Section, Table
from layerwise.report.smoothing import smoothing_answer
from layerwise.report.tasks import tasks_section
from layerwise.report.views import views_section
from layerwise.version import __version__


def build_page(data: ReportData, commands: Sequence[str] = ()) -> Page:
    """Build the whole report; `commands` reproduce it."""
    model, baseline = data.model, data.baseline
    against = f" against {baseline.name}" if baseline else ""
    subject = model.subject
    return Page(
        title=f"The layers of {model.name}{against}",
        subtitle=f"{subject.layers} layers, {subject.model.encoder.width} wide, embeddings by {model.mix}; measured on "
        f"{subject.pairs.described}",
        answer=answer(data),
        headline=headline(data),
        sections=sections(data),
        measures=layer_table(data.models),
        explorer=pair_explorer(data),
        protocol=_protocol(data),
        commands=tuple(commands),
        css=theme_css(),
        generated=f"layerwise {__version__}, {datetime.now(UTC):%d %B %Y}",
    )


def sections(data: ReportData) -> tuple[Section, ...]:
    """Return the figures of all measures by section, without empty ones; views follow the search, tasks come last."""
    drawn = [section(data, name) for name in SECTIONS]
    if data.views is not None:
        drawn.insert(1 + [*SECTIONS].index("search"), views_section(data.views))
    if data.matrix is not None:
        drawn.append(tasks_section(data.matrix))
    return tuple(section for section in drawn if section.figures)


def section(data: ReportData, name: str) -> Section:
    """Return the figures of one section, by measure; a section with a question begins with its answer."""
    chosen = [(measure, figure) for measure in all_measures() for figure in measure.figures if figure.section == name]
    figures = [drawn for measure, figure in chosen for drawn in _figures(data, measure, figure)]
    text = smoothing_answer(data) if name == "smoothing" and figures else ""
    return Section(name, SECTIONS[name], tuple(figures), text)


def _figures(data: ReportData, measure: Measure, figure: MeasureFigure) -> list[Figure]:
    """Return the drawings of a figure; one that shows one of two models has the model's name in its title."""
    related = {name: data.values(name) for name in figure.uses}
    figures: list[Figure] = []
    for values in figure.groups(data.values(measure.name)):
        (name, *more) = values
        label = f", {name}" if measure.of == "model" and len(data.models) > 1 and not more else ""
        prefix = f"{measure.name}-{measure.figures.index(figure)}-{len(figures)}"
        drawing = figure.draw(values, related=related)
        svg = inline_svg(drawing, prefix)
        note = figure.note(values, **figure.used(related))
        figures.append(Figure(svg, figure.title + label, figure.reading, note, wide='class="wide"' in svg))
    return figures


def layer_table(models: Sequence[ModelResults]) -> Table:
    """Build the table of values by layer and of the mix; two models follow each other."""
    is_comparison = len(models) > 1
    names = list(_columns(models[-1]))
    rows: list[tuple[Cell, ...]] = []
    for results in models:
        columns = _columns(results)
        for layer in range(results.subject.layers + 1):
            label = str(layer) if layer < results.subject.layers else "own mix"
            cells = (_cell(columns[name], layer) for name in names)
            rows.append((label, *((results.name,) if is_comparison else ()), *cells))
    heads = [Column("layers", "text"), *([Column("model", "text")] if is_comparison else [])]
    heads += [Column(column.name, digits=column.digits, help=column.help) for column in _columns(models[-1]).values()]
    return Table(tuple(heads), tuple(rows))


def _columns(results: ModelResults) -> dict[str, LayerColumn]:
    return {column.name: column for value in results.values.values() for column in value.layer_columns()}


def _cell(column: LayerColumn, layer: int) -> float | None:
    value = float(column.values[layer]) if layer < len(column.values) else column.mix
    return None if np.isnan(value) else value


def pair_explorer(data: ReportData) -> Explorer:
    """Build the data of every pair's cosines, with those of the baseline."""
    similarities = data.model.get(PairSimilarities)
    other = None if data.baseline is None else data.baseline.get(PairSimilarities)
    return Explorer(
        pairs=similarities.pairs,
        layers=[str(layer) for layer in range(similarities.layers.shape[1])],
        similarities=similarities.layers,
        mix_name=similarities.mix,
        mix_similarities=similarities.mix_similarities,
        name=data.model.name,
        other_name=data.baseline.name if data.baseline else "",
        other_similarities=None if other is None else other.layers,
        other_layers=() if other is None else [str(layer) for layer in range(other.layers.shape[1])],
        explained=data.explained,
        **_recommended(data.model, similarities.mix),
    )


def _recommended(results: ModelResults, own_mix: str) -> dict[str, Any]:
    """Return the recommended set of layers, with every pair's cosine unless it is the model's mix."""
    chosen = results.find(ChosenLayers)
    if chosen is None:
        return {}
    subject, mix = results.subject, chosen.verdict.use.mix
    if str(mix) == own_mix:
        return {"recommended": own_mix}
    picked = np.stack([subject.pooled(pooling)[:, list(mix.layers)] for pooling in mix.poolings], axis=1)
    cosines = cosine(*subject.sides(mix.combine(picked)))
    return {"recommended": str(mix), "recommended_similarities": cosines}


def _protocol(data: ReportData) -> tuple[tuple[str, str], ...]:
    model = data.model
    encoder, subject = model.subject.model.encoder, model.subject
    lines = [
        ("pairs", subject.pairs.described),
        ("sentences", f"{len(subject.texts):,} different ones, cut to {encoder.max_length} tokens"),
        ("encoder", f"{model.name}: {encoder.depth} blocks, {encoder.width} wide, computed in {encoder.dtype}"),
        ("own mix", model.mix),
        ("alignment", f"over {model.get(Geometry).alike}"),
    ]
    if (scores := model.find(LayerScores)) is not None:
        lines.append(("score", f"Spearman × 100 of the pairs' cosine with their grades, {_scored_pairs(scores)}"))
    if (chosen := model.find(ChosenLayers)) is not None:
        lines += [("search", note[:1].upper() + note[1:]) for note in chosen.notes]
    if data.baseline is not None:
        lines.append(("against", "the same pairs for both; intervals by the paired bootstrap, 2,000 resamples"))
    if (points := model.find(Projection)) is not None:
        lines.append(("t-SNE", f"{len(points.grades)} pairs of the highest and lowest grades, seed {points.seed}"))
    return tuple(lines)


def _scored_pairs(scores: LayerScores) -> str:
    count = f"{scores.pairs:,} pairs together"
    return f"on the {count} that choose no layers" if scores.unseen else f"all {count}"
