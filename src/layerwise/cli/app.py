"""The command `layerwise`: its commands, and what becomes of errors."""

import logging
import sys
from typing import Annotated

import typer

from layerwise.cli import (
    analyze,
    cache,
    compare,
    data,
    demo,
    embed,
    evaluate,
    fit,
    info,
    multitask,
    predict,
    recipes,
    report,
    search,
    train,
)
from layerwise.cli.screen import say_error
from layerwise.errors import LayerwiseError, printable
from layerwise.version import __version__

app = typer.Typer(
    name="layerwise",
    help="Sentence embeddings from every layer of a transformer encoder.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("info")(info.info)
app.command("search")(search.search)
app.command("embed")(embed.embed)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("analyze")(analyze.analyze)
app.command("report")(report.report)
app.command("fit")(fit.fit)
app.command("train")(train.train)
app.command("multitask")(multitask.multitask)
app.command("predict")(predict.predict)
app.command("recipes")(recipes.recipes)
app.command("demo")(demo.demo)
app.add_typer(cache.app, name="cache")
app.add_typer(data.app, name="data")


class _Printable(logging.Formatter):
    """Messages may hold texts and names of files: control characters are written out."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the host's name
        return printable(super().formatMessage(record))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"layerwise {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(_Printable("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[shown])
    logging.getLogger("layerwise").setLevel(logging.INFO)


def main() -> None:
    """Run a command; a user's mistake is one line and exit code 2."""
    try:
        app()
    except LayerwiseError as error:
        say_error(str(error))
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output went away, e.g. `| head`
        sys.stderr.close()
        sys.exit(1)
