"""Commands whose options are the fields of a settings model: its validators hold the rules, its fields the help."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from layerwise.settings import Settings


def collects(options: type[Settings]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose parameter `options` becomes one option for each field of a settings model.

    Typer reads a command's signature: a field is annotated as a parameter of a command would be.
    """
    hints = get_type_hints(options, include_extras=True)
    fields = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=_as_list(hints[name]), default=_default(field))
        for name, field in options.model_fields.items()
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        others = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for parameter in signature(command).parameters.values()
            if parameter.name != "options"
        ]

        @wraps(command)
        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in options.model_fields}
            command(options(**values), **given)

        run.__signature__ = signature(command).replace(parameters=[*fields, *others])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*fields, *others)}
        return run

    return decorate


def _as_list(hint: Any) -> Any:
    """The hint of an option or argument that repeats, which is a tuple in settings and a list to Typer."""
    if get_origin(hint) is Annotated and get_args(hint)[0] == tuple[str, ...]:
        return Annotated[list[str], *get_args(hint)[1:]]
    return hint


def _default(field: Any) -> Any:
    return Parameter.empty if field.is_required() else field.default
