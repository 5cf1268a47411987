"""Groups of commands whose help shows flags as flags, and ends in examples."""

import shutil
from typing import Any
from weakref import WeakKeyDictionary

from typer.core import TyperGroup, TyperOption

from layerwise.cli.examples import examples_of

_NARROW = 80  # columns
_DECLARED: "WeakKeyDictionary[TyperOption, str | None]" = WeakKeyDictionary()  # options live as long as their command


class Group(TyperGroup):
    """A group; `--help` and its like are not shown as options of a <bool>, and the help ends in examples."""

    def get_params(self, ctx: Any) -> Any:
        """The group's own options."""
        return _hide_types(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _hide_types(command.get_params(ctx))
            command.epilog = examples_of(f"{_path(ctx)} {cmd_name}".strip())
        return command


def _path(context: Any) -> str:
    """The groups that lead to a command, such as "index"; the program's name is none of them."""
    return f"{_path(context.parent)} {context.info_name}".strip() if context.parent else ""


def _hide_types(options: Any) -> Any:
    """Flags have no type; on a narrow screen the types of all options make room, for names must not be cut."""
    narrow = shutil.get_terminal_size().columns < _NARROW
    for option in options:
        if isinstance(option, TyperOption):
            declared = _DECLARED.setdefault(option, option.metavar)
            option.metavar = "" if option.is_flag or narrow else declared
    return options
