"""`layerwise report MODEL`: everything about a model's layers as one HTML file."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from layerwise.cli.loading import Loading, loads_model
from layerwise.cli.options import (
    AsJson,
    DataFolder,
    DrawSeed,
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
from layerwise.errors import InputError


@loads_model
def report(
    model: Model,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file.")] = Path("report.html"),
    against: Annotated[str | None, typer.Option(help="Another model, compared on the same pairs.")] = None,
    pairs: PairsOrTask = None,
    left: LeftColumn = "sentence1",
    right: RightColumn = "sentence2",
    score: ScoreColumn = None,
    split: TaskSplit = "test",
    limit: MostPairs = 1000,
    seed: DrawSeed = 0,
    trainings: Trainings = None,
    data: DataFolder = None,
    as_json: AsJson = False,
    *,
    loading: Loading,
) -> None:
    """Write a report that opens in a browser: which layers, how much better, how sure, and why."""
    from layerwise.measures import Material, TextPairs, pairs_of, training_curves
    from layerwise.model.layer_model import LayerModel
    from layerwise.report.build import build_page, command_line
    from layerwise.report.findings import check_two, find_out, gather
    from layerwise.report.page import write_page

    began = time.perf_counter()
    _check_out(out)
    if against is not None:
        check_two(model, against)
    curves = training_curves(trainings or ())
    whole = pairs_of(pairs, columns=(left, right), score=score, split=split, data=data) if pairs else TextPairs.demo()
    drawn = whole.limited(limit, seed=seed)
    models = {name: LayerModel.load(name, **loading) for name in ([model] if against is None else [model, against])}
    try:
        found = [
            find_out(
                Material(loaded, drawn, show_progress_bar=sys.stderr.isatty()),
                loaded.encoder.name if name == "default" else name,
                seed=seed,
            )
            for name, loaded in models.items()
        ]
        gathered = gather(found[0], found[1] if against else None, curves)
    except KeyboardInterrupt as stopped:
        say_error("interrupted; no report was written, but encoded views are kept: the same command goes on faster")
        raise typer.Exit(130) from stopped
    columns = _given(("--left", left, "sentence1"), ("--right", right, "sentence2"), ("--score", score, None))
    source = _given(("--pairs", pairs, None), ("--split", split, "test"), ("--data", data, None))
    how = _given(
        ("--max-length", loading["max_length"], None),
        ("--dtype", loading["dtype"], "float32"),
        ("--backend", loading["backend"], "torch"),
    )
    chosen = [*source, *columns, "--limit", str(limit), "--seed", str(seed), *how]
    others = _given(("--against", against, None), *(("--train", folder, None) for folder in trainings or ()))
    commands = [
        command_line("report", model, *others, *chosen, "-o", out.name),
        command_line("analyze", model, "--measure", "all", *chosen),
    ]
    if pairs and Path(pairs).is_file() and found[0].scores is not None:
        commands.append(command_line("search", model, pairs, *columns, "--save", "best"))
    page = build_page(gathered, commands)
    write_page(page, out)
    _tell(out, page.answer, time.perf_counter() - began, demo=pairs is None, as_json=as_json)


def _given(*options: tuple[str, Any, Any]) -> list[str]:
    """Options (name, value, usual value) as they are typed; those of the usual value are left out."""
    return [word for name, value, usual in options if value != usual for word in (name, str(value))]


def _check_out(out: Path) -> None:
    if out.is_dir():
        raise InputError(f"{out}: is a folder; name a file for --out, such as {out / 'report.html'}")
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{out}: a report is an HTML file; name one that ends in .html")
    if not all(folder.is_dir() for folder in out.absolute().parents if folder.exists()):
        raise InputError(f"{out}: a file stands where its folder should be; name another place for --out")


def _tell(out: Path, answer: tuple[str, ...], seconds: float, *, demo: bool, as_json: bool) -> None:
    size = out.stat().st_size
    if as_json:
        print_json({"report": str(out), "bytes": size, "seconds": round(seconds, 1), "answer": list(answer)})
        return
    for sentence in answer:
        print_line(sentence)
    if demo:
        print_line("A demonstration on pairs written for it; give --pairs for your own, or a task such as stsb.")
    print_line(f"wrote {out} ({human_bytes(size)}, {seconds:.0f} s); open it in a browser")
