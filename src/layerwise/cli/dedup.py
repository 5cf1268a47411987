"""`layerwise dedup VECTORS -o FILE`: near duplicates."""

from typing import Annotated

import typer

from layerwise.cli.index import Vectors
from layerwise.cli.options import AsJson, Overwrite
from layerwise.cli.screen import counting, print_json, print_line
from layerwise.stores import place_of, without_secrets


def dedup(
    vectors: Vectors,
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", metavar="PATH", help="*.parquet, *.csv, *.tsv or *.jsonl: every row with its representative."
        ),
    ],
    threshold: Annotated[float, typer.Option(help="The least cosine of two duplicates.")] = 0.95,
    kind: Annotated[
        str, typer.Option(help="flat: exact; ivf: faster, may miss some; auto: by the number of rows.")
    ] = "auto",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Find near duplicates: of each group, the first row is kept and represents the others."""
    from layerwise.embed import VectorFiles  # takes seconds
    from layerwise.index import check_table, find_duplicates, write_table

    place = place_of(out)
    check_table(place, overwrite=overwrite)
    files = VectorFiles.of(vectors)
    with counting("Comparing", files.rows) as progress:
        duplicates = find_duplicates(files, threshold=threshold, kind=kind, progress=progress)
    kept, sizes = duplicates.kept, duplicates.sizes
    columns = {
        "kept": kept,
        "representative": files.row_numbers()[duplicates.representatives],
        "cosine": duplicates.cosines,
        "group_size": sizes,
    }
    write_table(files, columns, place)
    groups = int((sizes[kept] > 1).sum())
    facts = {"out": without_secrets(out), "rows": files.rows, "kept": int(kept.sum()), "duplicates": int((~kept).sum())}
    if as_json:
        print_json(facts | {"groups": groups, "threshold": threshold, "kind": duplicates.kind})
        return
    print_line(
        f"{facts['duplicates']:,} of {files.rows:,} rows are near duplicates (cosine {threshold:g} or more), in "
        f"{groups:,} groups; {facts['kept']:,} rows are kept: {without_secrets(out)}"
    )
