"""The command `layerwise`: its commands, and what becomes of errors."""

import sys
from typing import Annotated, Any

import typer

from layerwise.cli import (
    analyze,
    cache,
    cluster,
    compare,
    data,
    dedup,
    demo,
    doctor,
    embed,
    evaluate,
    explain,
    fit,
    index,
    info,
    multitask,
    predict,
    query,
    recipes,
    report,
    schema,
    search,
    serve,
    train,
)
from layerwise.cli.examples import examples_of
from layerwise.cli.group import Group
from layerwise.cli.screen import say_error, show_log
from layerwise.cli.signals import orderly_stop
from layerwise.errors import OUT_OF_MEMORY, LayerwiseError, is_memory_shortage
from layerwise.version import __version__

app = typer.Typer(
    name="layerwise",
    cls=Group,
    help="Sentence embeddings from every layer of a transformer encoder.\n\n"
    "Tab completes commands and options after `layerwise --install-completion` (bash, zsh, fish, PowerShell).",
    epilog=examples_of(""),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("info")(info.info)
app.command("search")(search.search)
app.command("embed")(embed.embed)
app.add_typer(index.app, name="index")
app.command("query")(query.query)
app.command("dedup")(dedup.dedup)
app.command("cluster")(cluster.cluster)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("explain")(explain.explain)
app.command("analyze")(analyze.analyze)
app.command("report")(report.report)
app.command("fit")(fit.fit)
app.command("train")(train.train)
app.command("multitask")(multitask.multitask)
app.command("predict")(predict.predict)
app.command("serve")(serve.serve)
app.command("recipes")(recipes.recipes)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.command("schema")(schema.schema)
app.add_typer(cache.app, name="cache")
app.add_typer(data.app, name="data")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"layerwise {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool, typer.Option("--version", metavar="", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    show_log()


# click's, of which typer has its own copy in some versions
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run a command; a user's mistake, a disk's fault or a lack of memory is one line and exit code 2."""
    try:
        with orderly_stop():
            sys.exit(app(standalone_mode=False, prog_name="layerwise") or 0)
    except LayerwiseError as error:
        say_error(str(error))
        sys.exit(2)
    except _UsageError as error:
        _show_usage(error)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output went away, e.g. `| head`
        sys.stderr.close()
        sys.exit(1)
    except (MemoryError, OSError, RuntimeError, ImportError) as error:
        if is_memory_shortage(error):
            say_error(OUT_OF_MEMORY)
        elif isinstance(error, OSError):
            where = error.filename or "a file"
            say_error(f"{where}: {error.strerror or error}; check the path, its permissions and the free space")
        else:
            raise
        sys.exit(2)


def _show_usage(error: Any) -> None:
    """One line about an option or argument; without any argument, the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    command = error.ctx.command_path if error.ctx else "layerwise"
    say_error(f"{error.format_message().rstrip('.')}; see `{command} --help`")
