"""`layerwise index build VECTORS -o FOLDER` and `layerwise index load VECTORS --to TABLE`: make vectors searchable."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.group import Group
from layerwise.cli.loading import check_model
from layerwise.cli.options import AsJson
from layerwise.cli.screen import counting, human_bytes, print_json, print_line
from layerwise.stores import refuse_url

if TYPE_CHECKING:
    from layerwise.embed import VectorFiles

app = typer.Typer(cls=Group, help="Make the vectors of `layerwise embed` searchable.", no_args_is_help=True)

Vectors = Annotated[
    str,
    typer.Argument(metavar="VECTORS", help="What `layerwise embed` wrote: a folder, *.parquet or *.npy, or its URL."),
]


@app.callback()
def _group() -> None:
    """Make the vectors of `layerwise embed` searchable."""


@app.command("build")
def build(
    vectors: Vectors,
    out: Annotated[str, typer.Option("--out", "-o", metavar="PATH", help="The folder of the index.")],
    kind: Annotated[str, typer.Option(help="flat, hnsw, ivf, pq, or auto: by the size of the vectors.")] = "auto",
    similarity: Annotated[str, typer.Option(help="cosine or dot.")] = "cosine",
    recall: Annotated[float, typer.Option(help="The recall@10 that sets the effort of a search.")] = 0.95,
    queries: Annotated[int, typer.Option(help="Rows held out to measure it, a tenth of all at most.")] = 256,
    model: Annotated[
        str | None, typer.Option(help="The model that made the vectors, where they do not say (one *.npy file).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the rows that are drawn.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar="", help="Replace an index.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build a FAISS index, and measure its recall on rows that are held out."""
    check_model(model)
    from layerwise.embed import VectorFiles  # takes seconds
    from layerwise.index import build_index

    refuse_url(out, "an index")
    files = VectorFiles.of(vectors)
    settings = _recorded(files, model) if model else None
    with counting("Indexing", 2 * files.rows) as progress:
        result = build_index(
            files,
            out,
            kind=kind,
            similarity=similarity,
            recall=recall,
            queries=queries,
            seed=seed,
            overwrite=overwrite,
            settings=settings,
            progress=progress,
        )
    if as_json:
        print_json(asdict(result))
        return
    print_line(
        f"{result.rows:,} vectors of {result.width} numbers in {result.seconds:.1f} s, {result.kind}, "
        f"{human_bytes(result.bytes)}: {result.out}"
    )
    if result.recall is None:
        print_line("Recall was not measured: there are too few vectors to hold some out.")
        return
    print_line(f"Recall@10 on {result.queries} held-out rows: {result.recall:.3f} (effort {result.effort}).")
    if result.recall < recall:
        print_line(f"That is below the wanted {recall:g}: choose another --kind, such as hnsw or flat.")


@app.command("load")
def load(
    vectors: Vectors,
    to: Annotated[str, typer.Option(metavar="URL", help="postgresql://host/db/table")],
    id_column: Annotated[
        str | None, typer.Option("--id", help="The carried column that tells rows apart; else the input's row number.")
    ] = None,
    similarity: Annotated[str, typer.Option(help="cosine or dot.")] = "cosine",
    recall: Annotated[float, typer.Option(help="The recall@10 that sets the effort of a search.")] = 0.95,
    model: Annotated[
        str | None, typer.Option(help="The model that made the vectors, where they do not say (one *.npy file).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load vectors into a table of PostgreSQL with pgvector; rows of the same id are replaced. Stopped, it resumes."""
    check_model(model)
    from layerwise.embed import VectorFiles  # takes seconds
    from layerwise.index import load_vectors

    files = VectorFiles.of(vectors)
    settings = _recorded(files, model) if model else None
    with counting("Loading", files.rows) as progress:
        result = load_vectors(
            files, to, id_column=id_column, similarity=similarity, recall=recall, settings=settings, progress=progress
        )
    if as_json:
        print_json(asdict(result))
        return
    before = f" ({result.resumed:,} were there already)" if result.resumed else ""
    print_line(f"{result.rows:,} vectors of {result.width} numbers in {result.seconds:.1f} s{before}: {result.table}")
    if result.recall is None:
        print_line("Recall was not measured: the table has too few vectors.")
        return
    print_line(
        f"Recall@10 against exact search, on {result.queries} means of two rows: {result.recall:.3f} "
        f"(effort {result.effort})."
    )
    if result.recall < recall:
        print_line(f"That is below the wanted {recall:g}, with the highest effort that pgvector has.")


def _recorded(files: "VectorFiles", name: str) -> dict[str, Any]:
    """Return the manifest with the given model, which must be the one that made the vectors."""
    from layerwise.embed import ModelChoice
    from layerwise.index import load_model_of

    made_by = load_model_of(str(files.place), files.settings, files.width, name=name)
    if "model" in files.settings:
        return files.settings
    record = {"loading": ModelChoice(name).record(), "mix": str(made_by.mix), "backend": made_by.encoder.arithmetic}
    return {**files.settings, **record, "model": made_by.digest()}
