"""`layerwise analyze MODEL`: measures of a model's layers, and of trainings, as tables, JSON and figures."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.analyze_out import Finding, check_look, check_out, write
from layerwise.cli.loading import Loading, loads_model
from layerwise.cli.options import (
    AsJson,
    DataFolder,
    DrawSeed,
    LeftColumn,
    MostPairs,
    PairsOrTask,
    RightColumn,
    ScoreColumn,
    TaskSplit,
    Trainings,
)
from layerwise.cli.screen import print_json, print_line, print_table, screen_width
from layerwise.errors import InputError, LayerwiseError

if TYPE_CHECKING:
    from layerwise.measures import Material, TextPairs

_FIRST = ("scores", "setsim", "toksim", "geometry")  # where no measure is named
_NEGATIVES = "negatives"  # the measure that is of trainings, not of a model
_MOST_ROWS, _MOST_COLUMNS = 50, 14  # of a table on the screen
_COLUMN = 9  # letters that a column needs at least
_FEW_COLUMNS = 6  # beside which longer texts have room


@loads_model
def analyze(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model folder, a hub name, or 'default' for the embedded all-MiniLM-L6-v2; not needed with --train.",
            show_default=False,
        ),
    ] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            help="scores, setsim, toksim, geometry (these by default), spectrum, cka, tokens, attention, chosen, "
            "projection, pairs, or all (repeat, or commas); of trainings: negatives.",
        ),
    ] = None,
    pairs: PairsOrTask = None,
    left: LeftColumn = "sentence1",
    right: RightColumn = "sentence2",
    score: ScoreColumn = None,
    split: TaskSplit = "test",
    limit: MostPairs = 1000,
    seed: DrawSeed = 0,
    pooling: Annotated[
        str | None, typer.Option(help="mean, cls or max, where a measure is of one; else its own.")
    ] = None,
    sentence: Annotated[str | None, typer.Option(help="For tokens: a text; else the first of the pairs.")] = None,
    layers: Annotated[str | None, typer.Option(help="For tokens: layers such as 1,6,-1.")] = None,
    method: Annotated[str, typer.Option(help="For projection: pca or tsne.")] = "pca",
    against: Annotated[
        str | None,
        typer.Option(
            help="Another model on the same pairs: the measures of both, or, without --measure, what differs."
        ),
    ] = None,
    trainings: Trainings = None,
    data: DataFolder = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write *.json; or of a single measure *.csv, or its figure as *.png or *.svg."
        ),
    ] = None,
    theme: Annotated[str, typer.Option(help="Of a figure: light or dark.")] = "light",
    view: Annotated[
        str,
        typer.Option(
            "--figure",
            help="For the figure of chosen: halves (how often each layer is chosen), or the score by sizes of sets, "
            "without each layer, or by the number of pairs.",
        ),
    ] = "halves",
    as_json: AsJson = False,
    *,
    loading: Loading,
) -> None:
    """Measure a model's layers: what each is worth, over-smoothing, geometry, attention, what a search chooses.

    With --train, also how trainings went: their curves, or, by --measure negatives, which layers were good negatives.
    """
    check_look(theme, view)
    named = [name.strip() for given in measures or () for name in given.split(",") if name.strip()]
    _check_given(model, against, named, trainings or ())
    findings = _of_trainings(trainings or (), named)
    wanted = _wanted(named, other=bool(against or trainings))
    _check_for_tokens({"--layers": layers, "--sentence": sentence}, wanted)
    both = bool(against) and not wanted
    tables = len(wanted) * (2 if against else 1) + both + sum(len(finding.measured) for finding in findings.values())
    check_out(out, figures=len(wanted) + both + len(findings), tables=tables)
    facts: dict[str, Any] = {}
    if model is not None and (wanted or against):
        options = {"seed": seed, "sentence": sentence, "layers": _numbers(layers), "pooling": pooling, "method": method}
        drawn = _pairs(pairs, (left, right), score, split, data).limited(limit, seed=seed)
        if named and "all" not in named:
            _check_graded(wanted, drawn)
        found = _loaded([against, model] if against else [model], drawn, loading)
        own, missed = _measured(found, wanted, options, strict="all" not in named and bool(named))
        findings = own | (_compared(found) if both else {}) | findings
        material = list(found.values())[-1]
        facts |= {"model": material.name, "mix": str(material.model.mix), "pairs": drawn.described}
        facts |= {"demo": pairs is None, "left_out": missed}
    facts["measures"] = {key: table for name, one in findings.items() for key, table in one.tables(name).items()}
    if out is not None:
        write(out, facts, list(findings.values()), theme=theme, view=view)
    if as_json:
        print_json(facts)
    else:
        _show(facts, out)


def _check_given(model: str | None, against: str | None, named: Sequence[str], trainings: Sequence[Path]) -> None:
    of_model = [name for name in named if name != _NEGATIVES]
    if model is None and (of_model or against or not trainings):
        what = f"--measure {of_model[0]}" if of_model else "--against" if against else "analyze"
        raise InputError(f"{what} is of a model, and none was named; give a folder, a hub name or 'default'")
    if _NEGATIVES in named and not trainings:
        raise InputError(f"--measure {_NEGATIVES} is of trainings; name their folders by --train")
    if model is not None and against is not None and Path(against) == Path(model):
        raise InputError(f"{model}: a model against itself says nothing; give another one to --against")


def _of_trainings(folders: Sequence[Path], named: Sequence[str]) -> dict[str, Finding]:
    """What becomes of --train: the layers that were negatives, where they are asked for, else curves."""
    from layerwise.measures import layer_negatives, training_curves

    if _NEGATIVES in named:
        reading = "Score by the layers that SSCL took as negatives: where it is highest, they taught most."
        return {_NEGATIVES: Finding("Layers as negatives", reading, {"": layer_negatives(folders)})}
    curves = {curve.name: curve for curve in training_curves(folders)}
    return {"training": Finding("A training by step", "As logged.", curves, labelled=True)} if curves else {}


def _wanted(named: list[str], *, other: bool) -> list[str]:
    from layerwise.measures import MEASURES

    if "all" in named:
        if len(named) > 1:
            raise InputError("--measure all stands alone: it is every measure that the model and the pairs allow")
        return list(MEASURES)
    own = [name for name in named if name != _NEGATIVES]
    return list(dict.fromkeys(MEASURES[name].name for name in own)) or ([] if other else list(_FIRST))


def _check_for_tokens(options: dict[str, str | None], wanted: Sequence[str]) -> None:
    """Refuse options that no measure would read."""
    for name, value in options.items():
        if value is not None and "tokens" not in wanted:
            raise InputError(f"{name} is for --measure tokens, which is not asked for; add it, or leave {name}")


def _numbers(layers: str | None) -> list[int] | None:
    try:
        return None if layers is None else [int(part) for part in layers.split(",")]
    except ValueError as error:
        raise InputError(f"--layers {layers!r}: give layer numbers with commas between, such as 1,6,-1") from error


def _pairs(given: str | None, columns: tuple[str, str], score: str | None, split: str, data: str | None) -> "TextPairs":
    from layerwise.measures import TextPairs, pairs_of

    if given is None:
        return TextPairs.demo()
    return pairs_of(given, columns=columns, score=score, split=split, data=data)


def _check_graded(names: Sequence[str], pairs: "TextPairs") -> None:
    """Refuse before a model is loaded."""
    from layerwise.measures import MEASURES

    for name in names:
        if MEASURES[name].graded and pairs.gold is None:
            raise InputError(f"{pairs.source}: the pairs have no scores, which {name} needs; name them by --score")


def _loaded(names: Sequence[str], pairs: "TextPairs", loading: dict[str, Any]) -> dict[str, "Material"]:
    """Models by short names, the one that they are compared with first."""
    from layerwise.measures import Material, told_apart
    from layerwise.model.layer_model import LayerModel

    bar = sys.stderr.isatty()
    found = [Material(LayerModel.load(name, **loading), pairs, show_progress_bar=bar) for name in names]
    given = [one.name if name == "default" else name for name, one in zip(names, found, strict=True)]
    return dict(zip(told_apart(given), found, strict=True))


def _measured(
    materials: dict[str, "Material"], names: Sequence[str], options: dict[str, Any], *, strict: bool
) -> tuple[dict[str, Finding], dict[str, str]]:
    """name -> what was found, and name -> why not; what the user named must be possible."""
    from layerwise.measures import MEASURES

    found, missed = {}, {}
    for name in names:
        measure = MEASURES[name]
        try:
            of_each = {label: measure(material, **options) for label, material in materials.items()}
        except LayerwiseError as error:
            if strict:
                raise
            missed[name] = str(error)
        else:
            found[name] = Finding(measure.title, measure.reading, of_each)
    return found, missed


def _compared(materials: dict[str, "Material"]) -> dict[str, Finding]:
    from layerwise.measures import before_after

    first, second = materials.values()
    reading = "Every figure of both, and the second less the first."
    return {"against": Finding("Compared with another model", reading, {"": before_after(first, second)})}


def _show(facts: dict[str, Any], out: Path | None) -> None:
    if "model" in facts:
        print_line(f"{facts['model']} by {facts['mix']}, on {facts['pairs']}")
    if facts.get("demo"):
        print_line("A demonstration on pairs written for it; give --pairs for your own, or a task such as stsb.")
    for place, table in enumerate(facts["measures"].values()):
        if place or "model" in facts:
            print_line()
        print_line(" ".join(part for part in (f"{table['title']}.", table["reading"]) if part))
        _show_rows(table["rows"])
        for note in table["notes"]:
            print_line(f"Note: {note}.")
    for name, why in facts.get("left_out", {}).items():
        print_line(f"{name} is left out: {why}")
    if out is not None:
        print_line(f"wrote {out}")


def _show_rows(rows: list[dict[str, Any]]) -> None:
    """As many rows and columns as a screen takes; what is left out is said."""
    columns = list(rows[0])[: min(_MOST_COLUMNS, screen_width() // _COLUMN)]
    digits, letters = (3, 48) if len(columns) <= _FEW_COLUMNS else (2, 24)
    print_table(columns, [[_cell(row[name], digits, letters) for name in columns] for row in rows[:_MOST_ROWS]])
    hidden = {"rows": len(rows) - _MOST_ROWS, "columns": len(rows[0]) - len(columns)}
    more = " and ".join(f"{count:,} more {what}" for what, count in hidden.items() if count > 0)
    if more:
        print_line(f"… {more}: --json shows all, --out writes them to a file.")


def _cell(value: Any, digits: int, letters: int) -> str:
    """Numbers with few digits, long texts cut; nothing for what is missing or not a number."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 10 else f"{value:.{digits}f}"
    text = str(value)
    return text if len(text) <= letters else text[: letters - 1] + "…"
