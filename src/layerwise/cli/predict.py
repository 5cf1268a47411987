"""`layerwise predict MODEL --task NAME INPUT -o OUT`: labels and probabilities, or numbers, for a file's rows."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.loading import check_model
from layerwise.cli.options import AsJson, Delimiter, Device, Encoding, InputFormat, Overwrite
from layerwise.cli.screen import counting, print_json, print_line, say_error
from layerwise.errors import InputError


def predict(
    model: Annotated[str, typer.Argument(help="A model folder that `layerwise multitask` wrote.")],
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="Text, CSV, TSV, JSONL, Parquet, or - for standard input.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A file *.csv, *.tsv, *.jsonl or *.parquet.")],
    task: Annotated[str | None, typer.Option(help="One of the model's tasks; not needed where there is one.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="The columns of the texts, such as text or left,right; else as in training.")
    ] = None,
    input_format: InputFormat = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    overwrite: Overwrite = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Predict every row of a file: its columns, predicted_label and a probability for each class."""
    from layerwise.data import RowSource

    names = tuple(name.strip() for name in columns.split(",") if name.strip()) if columns else ()
    check_model(model)
    RowSource.of(source, names[:1], format=input_format)
    from layerwise.predict import Predictor, checked_writer, predict_file  # takes seconds

    checked_writer(source, out.expanduser(), overwrite=overwrite)
    try:
        predictor = Predictor.load(model, device=device)
        chosen = task or _only_task(model, list(predictor.heads))
        with counting("Embedding", unit="texts") as progress:
            result = predict_file(
                predictor,
                chosen,
                source,
                out,
                columns=names,
                format=input_format,
                encoding=encoding,
                delimiter=delimiter,
                overwrite=overwrite,
                progress=progress,
            )
    except KeyboardInterrupt as stopped:
        say_error(f"interrupted; nothing was written to {out}")
        raise typer.Exit(130) from stopped
    if as_json:
        print_json(asdict(result))
        return
    counts = ", ".join(f"{name}: {count:,}" for name, count in result.counts.items())
    print_line(f"{result.rows:,} rows{f' ({counts})' if counts else ''}: {result.out}")


def _only_task(model: str, names: list[str]) -> str:
    if len(names) > 1:
        raise InputError(f"{model}: has the tasks {', '.join(names)}; say which with --task")
    return names[0]
