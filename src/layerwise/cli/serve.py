"""`layerwise serve MODEL ...`: embeddings over HTTP, and a page to try them."""

import os
from pathlib import Path
from typing import Annotated

import typer

from layerwise.cli.options import Device, Revision, TrustRemoteCode
from layerwise.cli.screen import print_line, show_log
from layerwise.extras import require


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL[=NAME]...", help="Folders, hub names or 'default', each with a name if you like."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; 127.0.0.1 without.")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 8000 without, 0 for any free one.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that serve, each with the models in its memory; 1 without.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="A file of keys that clients must send, one a line.")] = None,
    without_keys: Annotated[
        bool, typer.Option("--without-keys", metavar="", help="Serve a public address without keys.")
    ] = False,
    index: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="An index, vectors, or a table of PostgreSQL to search (repeat)."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file of settings; flags and LAYERWISE_SERVE_* come before it.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name that a local server answers to as well (repeat).")
    ] = None,
    cors: Annotated[list[str] | None, typer.Option(help="An origin whose pages may call the server (repeat).")] = None,
    fill_ms: Annotated[float | None, typer.Option(help="How long a batch waits for more texts; 2 ms without.")] = None,
    max_queue_tokens: Annotated[int | None, typer.Option(help="Tokens that may wait; beyond them 429.")] = None,
    max_body_bytes: Annotated[int | None, typer.Option(help="Of a request.")] = None,
    max_inputs: Annotated[int | None, typer.Option(help="Texts of a request.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of a request.")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds until a request is answered.")] = None,
    drain: Annotated[float | None, typer.Option(help="Seconds for requests in flight after SIGTERM.")] = None,
    device: Device = None,
    dtype: Annotated[str | None, typer.Option(help="Numbers inside the encoder: float32, bfloat16 or float16.")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Refuse texts of more tokens, or cut them if asked to.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="torch or onnx; without, onnx on a CPU where it is installed.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="float, or int8: on a CPU, faster with a small, measured loss.")
    ] = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Serve embeddings over HTTP as OpenAI's API does, with any layers per request, and a page to try them."""
    given = {name: value for name, value in locals().items() if name != "config"}
    flags = {name: value for name, value in given.items() if value is not None and value is not False and value != []}
    require("serve", "`layerwise serve`", "fastapi", "uvicorn", "prometheus_client", "orjson", "httptools")
    from layerwise.serve.settings import read_serve_settings

    if keys is not None:
        flags["keys"] = str(keys)
    settings = read_serve_settings(flags, os.environ, config)
    if settings.workers > 1:
        from layerwise.serve import run_workers

        raise typer.Exit(run_workers(settings, on_start=_say_address, prepare=show_log))
    from layerwise.serve.listening import bound_socket

    with bound_socket(settings) as bound:  # a port in use is told before anything is loaded
        from layerwise.serve import create_app, load_served, run_server  # takes seconds

        served = load_served(settings)
        names = (*served.models, *served.indexes)
        app = create_app(served, settings)
        run_server(app, settings, bound=bound, on_start=lambda address: _say_address(address, names))


def _say_address(address: str, names: tuple[str, ...]) -> None:
    print_line(f"{address} serves {', '.join(names)}")
