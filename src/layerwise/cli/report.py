"""`layerwise report MODEL`: everything about a model's layers as one HTML file."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from layerwise.cli.inputs import check_file, check_pairs, check_split
from layerwise.cli.loading import Loading, loads_model
from layerwise.cli.options import (
    AsJson,
    DataFolder,
    Delimiter,
    DrawSeed,
    Encoding,
    LeftColumn,
    Model,
    MostPairs,
    PairsOrTask,
    RightColumn,
    ScoreColumn,
    TaskSplit,
    Trainings,
)
from layerwise.cli.screen import human_bytes, print_json, print_line, say_error
from layerwise.cli.search_options import read_prompts
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.files import check_writable


@loads_model
def report(
    model: Model,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file.")] = Path("report.html"),
    against: Annotated[str | None, typer.Option(help="Another model, compared on the same pairs.")] = None,
    pairs: PairsOrTask = None,
    left: LeftColumn = "sentence1",
    right: RightColumn = "sentence2",
    score: ScoreColumn = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    split: TaskSplit = None,
    limit: MostPairs = 1000,
    seed: DrawSeed = 0,
    trainings: Trainings = None,
    prompts: Annotated[
        str | None,
        typer.Option(help="Show prompts and token poolings too: auto, names by commas, or a file (see search)."),
    ] = None,
    tasks: Annotated[
        Path | None, typer.Option(help="Show every layer on tasks: a result of evaluate --layers each -o FILE.json.")
    ] = None,
    data: DataFolder = None,
    as_json: AsJson = False,
    *,
    loading: Loading,
) -> None:
    """Write a report that opens in a browser: which layers, how much better, how sure, and why."""
    require("report", "`layerwise report`", "jinja2", "matplotlib")
    from layerwise.data import demo_rows, is_pair_file, load_pairs

    start, out = time.perf_counter(), out.expanduser()
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{out}: a report is an HTML file; name one that ends in .html")
    check_writable(out)
    if against is not None and Path(model) == Path(against):
        raise InputError(f"{model}: a model against itself says nothing; give another one to --against")
    check_split(split, data, pairs)
    role = split or "test"
    if pairs is not None:
        check_pairs(pairs)
    if tasks is not None:
        check_file(tasks, "give a result of `layerwise evaluate MODEL --layers each -o FILE.json`")
    from layerwise.measures import ModelOnPairs  # takes seconds: the mistakes above are reported first
    from layerwise.model import LayerModel
    from layerwise.report import (
        build_page,
        check_same_model,
        command_line,
        measure_model,
        measure_trainings,
        measure_views,
        read_matrix,
        report_data,
        write_page,
    )

    evaluation, matrix = (None, None) if tasks is None else read_matrix(tasks)
    curves = measure_trainings(trainings or ())
    whole = (
        load_pairs(
            pairs,
            columns=(left, right),
            score=score,
            split=role,
            data=data,
            encoding=encoding,
            delimiter=delimiter,
        )
        if pairs
        else demo_rows()
    )
    drawn = whole.limited(limit, seed=seed)
    if prompts is not None and drawn.gold is None:
        raise InputError("--prompts searches views, which needs graded pairs; give --pairs with a column of scores")
    chosen_prompts = read_prompts(prompts)
    models = {name: LayerModel.load(name, **loading) for name in ([model] if against is None else [model, against])}
    if evaluation is not None and tasks is not None:
        check_same_model(evaluation, models[model], tasks)
    try:
        results = [
            measure_model(
                ModelOnPairs(loaded, drawn, show_progress_bar=sys.stderr.isatty()),
                loaded.encoder.name if name == "default" else name,
                seed=seed,
            )
            for name, loaded in models.items()
        ]
        model_results, *baseline = results
        measured = replace(report_data(model_results, *baseline, trainings=curves, seed=seed), matrix=matrix)
        if chosen_prompts is not None:
            measured = replace(measured, views=measure_views(model_results.subject, chosen_prompts, seed=seed))
    except KeyboardInterrupt as stopped:
        say_error("interrupted; no report was written, but encoded views are cached: the same command will be faster")
        raise typer.Exit(130) from stopped
    columns = _typed(
        ("--left", left, "sentence1"),
        ("--right", right, "sentence2"),
        ("--score", score, None),
        ("--encoding", encoding, None),
        ("--delimiter", delimiter, None),
    )
    source = _typed(("--pairs", pairs, None), ("--split", split, None), ("--data", data, None))
    how = _typed(
        ("--max-length", loading["max_length"], None),
        ("--dtype", loading["dtype"], "float32"),
        ("--backend", loading["backend"], None),
        ("--precision", loading["precision"], "float"),
    )
    chosen = [*source, *columns, "--limit", str(limit), "--seed", str(seed), *how]
    compared = [("--against", against, None), ("--prompts", prompts, None), ("--tasks", tasks, None)]
    others = _typed(*compared, *(("--train", folder, None) for folder in trainings or ()))
    commands = [
        command_line("report", model, *others, *chosen, "-o", out.name),
        command_line("analyze", model, "--measure", "all", *chosen),
    ]
    if pairs and drawn.gold is not None:
        rows = [] if is_pair_file(pairs) else ["--split", role, *_typed(("--data", data, None))]
        same = [*rows, *columns, "--limit", str(limit), "--seed", str(seed), *how]
        commands.append(command_line("search", model, pairs, *same, "--save", "best"))
    page = build_page(measured, commands)
    write_page(page, out)
    _show(out, page.answer, time.perf_counter() - start, demo=pairs is None, as_json=as_json)


def _typed(*options: tuple[str, Any, Any]) -> list[str]:
    """Options (name, value, default) as they are typed; those of the default value are left out."""
    return [word for name, value, default in options if value != default for word in (name, str(value))]


def _show(out: Path, answer: tuple[str, ...], seconds: float, *, demo: bool, as_json: bool) -> None:
    size = out.stat().st_size
    if as_json:
        print_json({"report": str(out), "bytes": size, "seconds": round(seconds, 1), "answer": list(answer)})
        return
    for sentence in answer:
        print_line(sentence)
    if demo:
        print_line("A demonstration on pairs written for it; give --pairs for your own, or a task such as stsb.")
    print_line(f"wrote {out} ({human_bytes(size)}, {seconds:.0f} s); open it in a browser")
