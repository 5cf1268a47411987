"""`layerwise cache`: what is cached on disk, and clearing it."""

from typing import TYPE_CHECKING, Annotated

import typer

from layerwise.cli.group import Group
from layerwise.cli.options import AsJson
from layerwise.cli.screen import human_bytes, print_json, print_line, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from layerwise.encoder import CacheEntry

app = typer.Typer(cls=Group, help="Show or clear the layer views cached on disk.", invoke_without_command=True)


@app.callback()
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the layer views cached on disk."""
    if context.invoked_subcommand:
        return
    from layerwise.encoder import ViewCache

    cache = ViewCache()
    entries = list(cache.entries())
    views = sum(entry.bytes for entry in entries)
    graphs = sum(path.stat().st_size for path in _graphs())
    results = _results()
    results_bytes = sum(path.stat().st_size for path in results)
    if as_json:
        rows = [{"name": e.name, "bytes": e.bytes, **e.manifest} for e in entries]
        sizes = {"bytes": views, "onnx_bytes": graphs, "results": len(results), "results_bytes": results_bytes}
        print_json({"folder": str(cache.folder), **sizes, "entries": rows})
        return
    if entries:
        print_table(("entry", "model", "pooling", "sentences", "size"), [_row(entry) for entry in entries])
    print_line(f"{len(entries)} entries, {human_bytes(views)} in {cache.folder}")
    if graphs:
        print_line(f"ONNX graphs: {human_bytes(graphs)}")
    if results:
        print_line(f"Results of evaluations: {len(results)}, {human_bytes(results_bytes)}")


@app.command("clear")
def clear(
    prefix: Annotated[str, typer.Argument(help="Only entries whose name starts so; without, all.")] = "",
    as_json: AsJson = False,
) -> None:
    """Remove layer views (and, without a prefix, graphs and results); they are made again when needed."""
    import shutil

    from layerwise.encoder import ViewCache, graphs_folder

    freed = ViewCache().clear(prefix)
    if not prefix:
        freed += sum(path.stat().st_size for path in (*_graphs(), *_results(), *_remembered()))
        shutil.rmtree(graphs_folder(), ignore_errors=True)
        for path in (*_results(), *_remembered()):
            path.unlink(missing_ok=True)
    if as_json:
        print_json({"freed_bytes": freed})
    else:
        print_line(f"{human_bytes(freed)} freed")


def _graphs() -> "list[Path]":
    from layerwise.encoder import graphs_folder

    return sorted(graphs_folder().glob("*.onnx"))


def _results() -> "list[Path]":
    from layerwise.evaluate import ResultStore

    return sorted(ResultStore().folder.glob("*.json"))


def _remembered() -> "list[Path]":
    """Return the cached facts of models and rows."""
    from layerwise.evaluate import ResultStore

    store = ResultStore()
    return sorted(path for folder in (store.memory, store.rows) if folder for path in folder.glob("*.json"))


def _row(entry: "CacheEntry") -> tuple[str, ...]:
    key = entry.manifest.get("key", {})
    shape = key.get("shape", ["unfinished"])
    label = str(entry.manifest.get("label", ""))
    return entry.name[:12], label, key.get("pooling", ""), str(shape[0]), human_bytes(entry.bytes)
