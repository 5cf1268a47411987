"""The page of the command line, from the commands themselves."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from layerwise.cli.app import app

_HEAD = """# Command line

Every command with its arguments and options, from the commands themselves. `layerwise COMMAND --help` shows the same.
A mistake is one line on standard error and exit code 2; `--json` prints one JSON value on standard output.

"""


def command_line_page() -> str:
    """A section for each command, in the order of `layerwise --help`."""
    return _HEAD + "\n".join(_section(path, command, context) for path, command, context in commands())


def commands() -> Iterator[tuple[str, Any, Any]]:
    """Each command that does something: how it is called, the command, its context."""
    root = typer.main.get_command(app)
    yield from _commands_of(root, root.context_class(root, info_name="layerwise"))


def _commands_of(group: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = command.context_class(command, info_name=name, parent=context)
        if hasattr(command, "list_commands"):
            if command.invoke_without_command:
                yield inner.command_path, command, inner
            yield from _commands_of(command, inner)
        else:
            yield inner.command_path, command, inner


def _section(path: str, command: Any, context: Any) -> str:
    arguments = [_row(one, context) for one in command.get_params(context) if one.param_type_name == "argument"]
    options = [
        _row(one, context)
        for one in command.get_params(context)
        if one.param_type_name == "option" and not one.hidden and one.name != "help"
    ]
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"## {path}", _prose(command.help or ""), f"```text\n{path} {usage}\n```"]
    parts += [_table("argument", arguments), _table("option", options), _prose(command.epilog or "")]
    return "\n\n".join(filter(None, parts)) + "\n"


def _prose(text: str) -> str:
    """Help as Markdown: a paragraph that begins with the mark \\b keeps its lines."""
    paragraphs = inspect.cleandoc(text.split("\f")[0]).split("\n\n")
    return "\n\n".join(_kept(one) if "\b" in one else _escaped(one) for one in paragraphs if one.strip())


def _kept(paragraph: str) -> str:
    lines = [line for line in paragraph.replace("\b", "").splitlines() if line.strip()]
    return "```text\n" + "\n".join(lines) + "\n```"


def _row(parameter: Any, context: Any) -> tuple[str, str]:
    if parameter.param_type_name == "argument":
        names = f"`{parameter.get_usage_pieces(context)[0]}`"
        needed = ""
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        value = "" if getattr(parameter, "is_flag", False) else parameter.display_type_rich(context)
        names += f" `{value}`" if value else ""
        needed = " Required." if parameter.required else ""
    return names, f"{_escaped(parameter.help or '')}{needed}{_default(parameter)}"


def _default(parameter: Any) -> str:
    value = parameter.default
    if value in (None, False, True, "", ()) or callable(value) or "Sentinel" in type(value).__name__:
        return ""
    listed = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f" Default: `{listed}`." if listed else ""


def _escaped(text: str) -> str:
    return re.sub(r"([<|*])", r"\\\1", text)


def _table(head: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    lines = [f"| {head} | |", "|---|---|", *(f"| {' '.join(a.split())} | {' '.join(b.split())} |" for a, b in rows)]
    return "\n".join(lines)
