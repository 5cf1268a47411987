"""`layerwise analyze MODEL`: measures of a model's layers, and of trainings, as tables, JSON and figures."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.analyze_out import THEMES, Result, check_out, write
from layerwise.cli.inputs import check_pairs, check_split
from layerwise.cli.loading import Loading, loads_model
from layerwise.cli.options import (
    AsJson,
    DataFolder,
    Delimiter,
    DrawSeed,
    Encoding,
    LeftColumn,
    MostPairs,
    PairsOrTask,
    RightColumn,
    ScoreColumn,
    TaskSplit,
    Trainings,
)
from layerwise.cli.screen import decimals, print_json, print_line, print_table, screen_width
from layerwise.errors import InputError, LayerwiseError
from layerwise.registry import check_known

if TYPE_CHECKING:
    from layerwise.data import TaskRows
    from layerwise.measures import Measure, ModelOnPairs

_MOST_ROWS, _MOST_COLUMNS = 50, 14  # of a table on the screen
_COLUMN_WIDTH = 9  # characters that a column needs at least
_FEW_COLUMNS = 6  # beside which longer texts have room


def _list_measures(wanted: bool) -> None:
    """Print all measures and stop."""
    if not wanted:
        return
    from layerwise.measures import MEASURES

    subjects = {"model": "a model", "models": "two models", "trainings": "trainings"}
    rows = [(name, subjects[MEASURES[name].of], MEASURES[name].title) for name in MEASURES]
    print_table(("measure", "of", "what it shows"), rows)
    raise typer.Exit


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
            help="A measure by name, such as scores, toksim or chosen, or all of a model (repeat, or use commas); "
            "--list shows the names.",
        ),
    ] = None,
    pairs: PairsOrTask = None,
    left: LeftColumn = "sentence1",
    right: RightColumn = "sentence2",
    score: ScoreColumn = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    split: TaskSplit = None,
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
    figure: Annotated[
        str | None,
        typer.Option(
            help="For chosen, which has several: halves (how often each layer is chosen; the default), or the score by "
            "sizes of sets, without each layer, or by the number of pairs.",
        ),
    ] = None,
    as_json: AsJson = False,
    _list: Annotated[
        bool,
        typer.Option("--list", metavar="", callback=_list_measures, is_eager=True, help="List all measures and stop."),
    ] = False,
    *,
    loading: Loading,
) -> None:
    """Measure a model's layers: what each is worth, over-smoothing, geometry, attention, what a search chooses.

    With --train, also the curves of trainings, or, by --measure negatives, which layers were good negatives.
    """
    check_known(theme, THEMES, "theme")
    check_known(method, ("pca", "tsne"), "method")
    if pooling is not None:
        check_known(pooling, ("cls", "mean", "max"), "token pooling")
    check_split(split, data, pairs)
    if seed < 0:
        raise InputError(f"--seed {seed} is not possible; give 0 or more")
    if pairs is not None:
        check_pairs(pairs)
    out = None if out is None else out.expanduser()
    names = [name.strip() for text in measures or () for name in text.split(",") if name.strip()]
    every = "all" in names
    selected = _select(names, against=against is not None, trainings=bool(trainings))
    _check_subjects(model, against, trainings or (), [] if every else names)
    _check_options(selected, sentence=sentence, layers=layers, figure=figure)
    results = [Result(measure, measure(trainings)) for measure in selected if measure.of == "trainings"]
    on_models = [measure for measure in selected if measure.of != "trainings"]
    if out is not None:
        copies = sum(2 if against and measure.of == "model" else 1 for measure in on_models)
        check_out(out, selected, figure=figure, tables=copies + sum(len(result.values) for result in results))
    facts: dict[str, Any] = {}
    if model is not None and on_models:
        options = {"seed": seed, "sentence": sentence, "layers": _numbers(layers), "pooling": pooling, "method": method}
        named = {"score": score, "split": split or "test", "data": data, "encoding": encoding, "delimiter": delimiter}
        drawn = _pairs(pairs, (left, right), named).limited(limit, seed=seed)
        if names and not every:
            _check_graded(on_models, drawn)
        subjects = _load([against, model] if against else [model], drawn, loading)
        measured, left_out = _measure(subjects, on_models, options, strict=bool(names) and not every)
        results = measured + results
        subject = list(subjects.values())[-1]
        facts |= {"model": subject.name, "mix": str(subject.model.mix), "pairs": drawn.described}
        facts |= {"demo": pairs is None, "left_out": left_out}
    facts["measures"] = {name: table for result in results for name, table in result.tables().items()}
    if out is not None:
        write(out, facts, results, theme=theme, figure=figure)
    if as_json:
        print_json(facts)
    else:
        _show(facts, out)


def _select(names: Sequence[str], *, against: bool, trainings: bool) -> list["Measure"]:
    """Select the named measures, and the defaults of each subject without a named one."""
    from layerwise.measures import MEASURES, measures_of

    if "all" in names and len(names) > 1:
        raise InputError("--measure all stands alone: it is every measure that the model and the pairs allow")
    every = [MEASURES[name] for name in MEASURES if MEASURES[name].of == "model"]
    named = every if "all" in names else [MEASURES[name] for name in dict.fromkeys(names)]

    def named_or_default(subject: str, *, wanted: bool) -> list["Measure"]:
        default = [measure for measure in measures_of(subject) if measure.default and wanted]
        return [measure for measure in named if measure.of == subject] or default

    on_model = named_or_default("model", wanted=not (named or against or trainings))
    on_models = named_or_default("models", wanted=against and not on_model)
    return [*on_model, *on_models, *named_or_default("trainings", wanted=trainings)]


def _check_subjects(model: str | None, against: str | None, trainings: Sequence[Path], names: Sequence[str]) -> None:
    """Raise for measures of subjects that were not given."""
    from layerwise.measures import MEASURES

    subjects = {name: MEASURES[name].of for name in names}
    for name, subject in subjects.items():
        if subject == "trainings" and not trainings:
            raise InputError(f"--measure {name} is of trainings; name their folders by --train")
        if subject == "models" and against is None:
            raise InputError(f"--measure {name} is of two models; name the other by --against")
    of_model = [f"--measure {name}" for name, subject in subjects.items() if subject != "trainings"]
    if model is None and (of_model or against or not trainings):
        what = of_model[0] if of_model else "--against" if against else "analyze"
        raise InputError(f"{what} is of a model, and none was named; give a folder, a hub name or 'default'")
    if model is not None and against is not None and Path(against) == Path(model):
        raise InputError(f"{model}: a model against itself says nothing; give another one to --against")


def _check_options(selected: Sequence["Measure"], **options: str | None) -> None:
    """Raise for options that no selected measure uses."""
    from layerwise.measures import MEASURES

    def figures(measure: "Measure") -> list[str]:
        return [figure.name for figure in measure.figures if figure.name]

    for option, value in options.items():
        readers = [name for name in MEASURES if option in MEASURES[name].options]
        if option == "figure":
            readers = [name for name in MEASURES if figures(MEASURES[name])]
        if value is not None and not any(measure.name in readers for measure in selected):
            asked = ", ".join(readers)
            raise InputError(
                f"--{option} is for --measure {asked}, which is not asked for; add it, or leave --{option}"
            )
    if options["figure"] is not None:
        check_known(options["figure"], [name for measure in selected for name in figures(measure)], "figure")


def _numbers(layers: str | None) -> list[int] | None:
    try:
        return None if layers is None else [int(part) for part in layers.split(",")]
    except ValueError as error:
        raise InputError(f"--layers {layers!r}: give layer numbers with commas between, such as 1,6,-1") from error


def _pairs(name: str | None, columns: tuple[str, str], named: dict[str, Any]) -> "TaskRows":
    from layerwise.data import demo_rows, load_pairs

    if name is None:
        return demo_rows()
    return load_pairs(name, columns=columns, **named)


def _check_graded(measures: Sequence["Measure"], pairs: "TaskRows") -> None:
    """Raise for pairs without scores before a model is loaded."""
    for measure in measures:
        if measure.graded and pairs.gold is None:
            raise InputError(
                f"{pairs.source}: the pairs have no scores, which {measure.name} needs; name them by --score"
            )


def _load(names: Sequence[str], pairs: "TaskRows", loading: dict[str, Any]) -> dict[str, "ModelOnPairs"]:
    """Load models, by short names."""
    from layerwise.measures import ModelOnPairs, short_names
    from layerwise.model import LayerModel

    bar = sys.stderr.isatty()
    subjects = [ModelOnPairs(LayerModel.load(name, **loading), pairs, show_progress_bar=bar) for name in names]
    paths = [subject.name if name == "default" else name for name, subject in zip(names, subjects, strict=True)]
    return dict(zip(short_names(paths), subjects, strict=True))


def _measure(
    subjects: dict[str, "ModelOnPairs"], measures: Sequence["Measure"], options: dict[str, Any], *, strict: bool
) -> tuple[list[Result], dict[str, str]]:
    """The results, and by name why a measure is left out; with `strict`, and of two models, none may be."""
    results, left_out = [], {}
    for measure in measures:
        try:
            if measure.of == "models":
                values = {"": measure(*subjects.values(), **options)}
            else:
                values = {name: measure(subject, **options) for name, subject in subjects.items()}
        except LayerwiseError as error:
            if strict or measure.of == "models":
                raise
            left_out[measure.name] = str(error)
        else:
            results.append(Result(measure, values))
    return results, left_out


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
    """Limit rows and columns to the screen, and count the hidden ones."""
    columns = list(rows[0])[: min(_MOST_COLUMNS, screen_width() // _COLUMN_WIDTH)]
    digits, letters = (3, 48) if len(columns) <= _FEW_COLUMNS else (2, 24)
    print_table(columns, [[_cell(row[name], digits, letters) for name in columns] for row in rows[:_MOST_ROWS]])
    hidden = {"rows": len(rows) - _MOST_ROWS, "columns": len(rows[0]) - len(columns)}
    more = " and ".join(f"{count:,} more {what}" for what, count in hidden.items() if count > 0)
    if more:
        print_line(f"… {more}: --json shows all, --out writes them to a file.")


def _cell(value: Any, digits: int, letters: int) -> str:
    """Numbers with few digits, long texts truncated; nothing for None and NaN."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 10 else decimals(value, digits)
    text = str(value)
    return text if len(text) <= letters else text[: letters - 1] + "…"
