"""`layerwise fit MODEL TEXT -o OUT`: whitening, flow or removed components, fitted on text and saved with the model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerwise.cli.folders import check_free
from layerwise.cli.loading import Loading, loads_model
from layerwise.cli.options import AsJson, Delimiter, Encoding, InputFormat, Mix, Model
from layerwise.cli.screen import counting, print_json, print_line
from layerwise.errors import InputError, MissingColumnError
from layerwise.registry import check_known

if TYPE_CHECKING:
    from collections.abc import Callable

    from layerwise.postprocess import Postprocess


KINDS = ("whitening", "components", "flow")


@loads_model
def fit(
    model: Model,
    source: Annotated[str, typer.Argument(metavar="TEXT", help="Sentences: text, CSV, TSV, JSONL, Parquet, or -.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder for the model.")],
    kind: Annotated[str, typer.Option("--with", help="whitening, components (removed) or flow.")] = "whitening",
    dimensions: Annotated[int | None, typer.Option(help="Whitening: keep so many dimensions.")] = None,
    components: Annotated[int, typer.Option(help="Components: remove so many.")] = 1,
    epochs: Annotated[int, typer.Option(help="Flow: how often each sentence is seen.")] = 5,
    seed: Annotated[int, typer.Option(help="Flow: of its weights and batches.")] = 0,
    column: Annotated[str, typer.Option(help="The column that holds the text.")] = "text",
    input_format: InputFormat = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    limit: Annotated[int | None, typer.Option(help="Only the first so many sentences.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace what is in OUT.")] = False,
    mix: Mix = None,
    as_json: AsJson = False,
    *,
    loading: Loading,
) -> None:
    """Fit a baseline of this field on unlabelled sentences. What it was fitted on is recorded with the model."""
    check_known(kind, KINDS, "transformation")
    if limit is not None and limit < 2:
        raise InputError(f"--limit {limit} is not possible; give 2 or more sentences")
    for option, value, least in (("components", components, 1), ("epochs", epochs, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"--{option} {value} is not possible; give {least} or more")
    if dimensions is not None and kind != "whitening":
        raise InputError(f"--dimensions is for whitening, not for {kind}")
    check_free(out, overwrite)
    texts = _read(source, column, limit, format=input_format, encoding=encoding, delimiter=delimiter)
    from layerwise.model import LayerModel  # takes seconds: the mistakes above are reported first
    from layerwise.postprocess import FittedOn

    loaded = LayerModel.load(model, mix=mix, **loading)
    # What is fitted comes before normalising and truncation; cosine needs no length of 1.
    base = loaded.replaced(normalize=False, truncate_dim=None)
    embeddings = base.encode(texts, show_progress_bar=sys.stderr.isatty())
    record = FittedOn.of(texts, source=Path(source).name)
    with counting("Fitting", epochs if kind == "flow" else None, unit="epochs") as progress:
        fitted = _make(kind, dimensions, components, epochs, seed, progress).fit(embeddings, fitted_on=record)
    finished = base.with_postprocess(fitted)
    finished.save(out, overwrite=overwrite)
    facts = {"saved": str(out), "fitted": fitted.fitted_on_.facts(), "width": finished.width}
    if as_json:
        print_json(facts)
        return
    print_line(f"{fitted.name} fitted on {record}; saved in {out}, embeddings of {facts['width']} numbers")


def _read(source: str, column: str, limit: int | None, **reading: str | None) -> list[str]:
    from itertools import islice

    from layerwise.data import RowSource, text_of

    rows = RowSource.of(source, (column,), **reading)
    try:
        texts = [text for row in islice(rows, limit) if (text := text_of(rows, row, 0)).strip()]
    except MissingColumnError as error:
        raise InputError(f"{error}; name the column of the text by --column") from error
    if len(texts) < 2:
        raise InputError(f"{source}: {len(texts)} sentences are too few to fit on; give thousands")
    return texts


def _make(
    kind: str, dimensions: int | None, components: int, epochs: int, seed: int, progress: "Callable[[int], None]"
) -> "Postprocess":
    from layerwise.postprocess import Flow, RemoveComponents, Whitening

    if kind == "whitening":
        return Whitening(dimensions)
    if kind == "components":
        return RemoveComponents(components)
    return Flow(epochs=epochs, seed=seed, progress=lambda *_: progress(1))
