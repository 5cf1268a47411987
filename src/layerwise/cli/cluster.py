"""`layerwise cluster VECTORS -o FILE`: groups of rows by k-means."""

from typing import Annotated

import typer

from layerwise.cli.index import Vectors
from layerwise.cli.options import AsJson, Overwrite
from layerwise.cli.screen import counting, print_json, print_line, print_table
from layerwise.stores import place_of, without_secrets


def cluster(
    vectors: Vectors,
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", metavar="PATH", help="*.parquet, *.csv, *.tsv or *.jsonl: every row with its cluster."
        ),
    ],
    clusters: Annotated[
        int | None, typer.Option("--clusters", "-k", help="How many; without, the square root of half the rows.")
    ] = None,
    nearest: Annotated[int, typer.Option(min=1, help="Rows to show of each, nearest to its centre.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the first centres.")] = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Group rows by spherical k-means, and show the rows nearest to each centre."""
    from layerwise.embed import VectorFiles  # takes seconds
    from layerwise.index import check_table, clusters_of, write_table

    place = place_of(out)
    check_table(place, overwrite=overwrite)
    files = VectorFiles.of(vectors)
    with counting("Clustering", files.rows) as progress:
        result = clusters_of(files, clusters, nearest=nearest, seed=seed, progress=progress)
    write_table(files, {"cluster": result.labels, "cosine": result.cosines}, place)
    shown = sorted({int(row) for rows in result.nearest for row in rows})
    carried = dict(zip(shown, files.take(shown), strict=True))
    groups = [
        {"cluster": number, "size": int(size), "nearest": [{"position": int(row), **carried[int(row)]} for row in rows]}
        for number, (size, rows) in enumerate(zip(result.sizes, result.nearest, strict=True))
    ]
    groups.sort(key=lambda group: -int(str(group["size"])))
    if as_json:
        print_json({"out": without_secrets(out), "rows": files.rows, "clusters": groups})
        return
    print_table(("cluster", "size", "nearest to the centre"), [_row(group) for group in groups])
    print_line(f"{files.rows:,} rows in {len(groups)} clusters: {without_secrets(out)}")


def _row(group: dict[str, object]) -> tuple[str, str, str]:
    rows: list[dict[str, object]] = group["nearest"]  # type: ignore[assignment]
    texts = [str(next((v for k, v in row.items() if k not in ("position", "row")), row["position"])) for row in rows]
    return str(group["cluster"]), str(group["size"]), "\n".join(" ".join(text.split())[:100] for text in texts)
