"""`layerwise schema COMMAND`: the JSON schema of what a command prints with --json."""

from typing import Annotated

import typer

from layerwise.cli.schemas import COMMANDS, schema_of
from layerwise.cli.screen import print_json, print_line
from layerwise.registry import check_known


def schema(
    command: Annotated[
        list[str] | None, typer.Argument(help="Such as search, or index build; without, their names are listed.")
    ] = None,
) -> None:
    """Print the JSON schema (draft 2020-12) of a command's --json."""
    if not command:
        for known in COMMANDS:
            print_line(known)
        return
    name = " ".join(command)
    check_known(name, COMMANDS, "command with --json")
    print_json(schema_of(name))
