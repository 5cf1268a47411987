"""Groups of commands whose help shows flags as flags."""

from typing import Any

from typer.core import TyperGroup


class Group(TyperGroup):
    """A group; `--help` and its like, its own and those of its commands, are not shown as options of a <bool>."""

    def get_params(self, ctx: Any) -> Any:
        """The group's own options."""
        return _hide_types_of_flags(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _hide_types_of_flags(command.get_params(ctx))
        return command


def _hide_types_of_flags(options: Any) -> Any:
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options
