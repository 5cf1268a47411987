"""From findings to the page: answer, figures, tables, pairs, protocol, commands."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime

from layerwise.measures import Measured
from layerwise.plots import theme_css
from layerwise.report.answer import answer, headline
from layerwise.report.explorer import Explorer
from layerwise.report.findings import Findings, Gathered
from layerwise.report.page import Cell, Column, Page, Table
from layerwise.report.sections import sections
from layerwise.version import __version__


def build_page(gathered: Gathered, commands: Sequence[str] = ()) -> Page:
    """The whole report; `commands` are what makes it again."""
    found, compared = gathered.found, gathered.compared
    against = f" against {compared.first.name}" if compared else ""
    return Page(
        title=f"The layers of {found.name}{against}",
        subtitle=f"{found.material.layers} layers, {found.material.model.encoder.width} wide, embeddings by "
        f"{found.mix}; measured on {found.material.pairs.described}",
        answer=answer(gathered),
        headline=headline(gathered),
        sections=tuple(section for section in sections(gathered) if section.figures),
        measures=_measures(gathered),
        explorer=_explorer(gathered),
        protocol=_protocol(gathered),
        commands=tuple(commands),
        css=theme_css(),
        generated=f"layerwise {__version__}, {datetime.now(UTC):%d %B %Y}",
    )


def _measures(gathered: Gathered) -> Table:
    """Every layer's figures, and the own mix; of two models, one after the other."""
    models = [gathered.found] if gathered.compared is None else [gathered.compared.first, gathered.found]
    columns = (
        Column("layers", "text"),
        *((Column("model", "text"),) if len(models) > 1 else ()),
        *(
            Column(f"score, {name}", digits=1, help="Spearman × 100 with the grades.")
            for name in ("cls", "mean", "max")
        ),
        Column("TokSim", digits=3, help="Mean cosine of a sentence's tokens."),
        Column("SetSim", digits=3, help="Cosine to the layer below, of mean vectors."),
        Column("anisotropy", digits=3, help="Mean cosine of different sentences."),
        Column("alignment", digits=3, help=f"Mean squared distance of {gathered.found.space.alike}; lower is better."),
        Column("uniformity", digits=2, help="How spread out sentences are; lower is better."),
        Column("effective rank", digits=1, help="How many directions are in use."),
        Column("chosen", digits=2, help="By what share of random halves of the pairs a search takes the layer."),
    )
    return Table(columns, tuple(row for one in models for row in _rows(one, named=len(models) > 1)))


def _rows(found: Findings, *, named: bool) -> list[tuple[Cell, ...]]:
    space, scores = found.space, found.scores
    sets = [None, *found.smooth.setsim.of("mean").tolist()]
    rows: list[tuple[Cell, ...]] = []
    for layer, label in enumerate(space.labels):
        own = layer == len(space.labels) - 1
        by_pooling: list[Cell] = [None] * 3
        if scores is not None:
            pooling = found.material.pooling
            by_pooling = [
                (scores.own if name == pooling else None) if own else float(scores.of(name)[layer])
                for name in ("cls", "mean", "max")
            ]
        rows.append(
            (
                "own mix" if own else label,
                *((found.name,) if named else ()),
                *by_pooling,
                None if own else float(found.smooth.toksim.means[layer]),
                None if own else sets[layer],
                *(float(getattr(space, name)[layer]) for name in _SPACE),
                None if own or found.chosen is None else float(found.chosen.shares[layer]),
            )
        )
    return rows


_SPACE = ("anisotropy", "alignment", "uniformity", "effective_rank")


def _explorer(gathered: Gathered) -> Explorer:
    own = gathered.found.pairs
    gold = [None] * len(own.left) if own.gold is None else own.gold.tolist()
    other = None if gathered.compared is None else gathered.compared.first
    return Explorer(
        pairs=list(zip(own.left, own.right, gold, strict=True)),
        layers=[str(layer) for layer in range(own.layers.shape[1])],
        similarities=own.layers,
        mix_name=own.mix,
        mix_similarities=own.own,
        name=gathered.found.name,
        other_name=other.name if other else "",
        other_similarities=other.pairs.layers if other else None,
        other_layers=[str(layer) for layer in range(other.material.layers)] if other else (),
    )


def _protocol(gathered: Gathered) -> tuple[tuple[str, str], ...]:
    found = gathered.found
    encoder, pairs = found.material.model.encoder, found.material.pairs
    told = [
        ("pairs", pairs.described),
        ("sentences", f"{len(found.material.texts):,} different ones, cut to {encoder.max_length} tokens"),
        ("encoder", f"{found.name}: {encoder.depth} blocks, {encoder.width} wide, computed in {encoder.dtype}"),
        ("own mix", found.mix),
        ("alignment", f"over {found.space.alike}"),
    ]
    if found.scores is not None:
        told.append(("score", "Spearman × 100 of the pairs' cosine with their grades, all pairs together"))
    if found.chosen is not None:
        told += [("search", note) for note in _sentences(found.chosen)]
    if gathered.compared is not None:
        told.append(("against", "the same pairs for both; intervals by the paired bootstrap, 2,000 resamples"))
    if found.points is not None:
        told.append(
            ("t-SNE", f"{len(found.points.gold)} pairs of the highest and lowest grades, seed {found.points.seed}")
        )
    return tuple(told)


def _sentences(measured: Measured) -> tuple[str, ...]:
    return tuple(note[:1].upper() + note[1:] for note in measured.notes)


def command_line(*words: str) -> str:
    """A command as it is typed."""
    return shlex.join(["layerwise", *words])
