"""`layerwise predict MODEL --task NAME INPUT -o OUT`: labels and probabilities, or numbers, for a file's rows."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.options import AsJson, Device
from layerwise.cli.screen import print_json, print_line, say_error


def predict(
    model: Annotated[str, typer.Argument(help="A model folder that `layerwise multitask` wrote.")],
    source: Annotated[str, typer.Argument(metavar="INPUT", help="Text, CSV, TSV, JSONL or Parquet.")],
    task: Annotated[str, typer.Option(help="One of the model's tasks.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A file *.csv, *.jsonl or *.parquet.")],
    columns: Annotated[
        str | None, typer.Option(help="Those of the texts, such as text or left,right; else as in training.")
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Predict every row of a file: its columns are kept, predicted_label and a probability for each class added."""
    from layerwise.multitask.predict_file import checked_writer, predict_file

    names = tuple(name.strip() for name in columns.split(",") if name.strip()) if columns else ()
    checked_writer(source, out.expanduser())  # before the model is loaded
    from layerwise.multitask.predictor import Predictor

    try:
        found = predict_file(Predictor.load(model, device=device), task, source, out, columns=names)
    except KeyboardInterrupt as stopped:
        say_error(f"interrupted; nothing was written to {out}")
        raise typer.Exit(130) from stopped
    if as_json:
        print_json(asdict(found))
        return
    counts = ", ".join(f"{name}: {count:,}" for name, count in found.counts.items())
    print_line(f"{found.rows:,} rows{f' ({counts})' if counts else ''}: {found.out}")
