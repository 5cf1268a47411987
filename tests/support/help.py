"""The commands of the command line, as click sees them."""

from typing import Any

from typer.main import get_command

from layerwise.cli.app import app


def all_commands() -> dict[str, Any]:
    """Every command by its path, the groups too; "" is the program."""
    root: Any = get_command(app)
    context = type(root).context_class(root, info_name="layerwise")
    commands = {"": root}
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        commands[name] = command
        if hasattr(command, "commands"):
            inner = type(command).context_class(command, info_name=name, parent=context)
            commands |= {f"{name} {each}": command.get_command(inner, each) for each in command.list_commands(inner)}
    return commands
