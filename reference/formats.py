"""The pages of the recipe and task formats, from the models that validate the files."""

import inspect
import re
from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from layerwise.data import KINDS, Source, Task, TextFile
from layerwise.predict import TaskObjective
from layerwise.settings import Settings
from layerwise.train import (
    MULTITASK_RECIPES,
    RECIPES,
    TERMS,
    DataSettings,
    DevSettings,
    MixingSettings,
    ModelSettings,
    MultitaskDev,
    MultitaskModel,
    OptimiserSettings,
)

_RECIPES = """# Recipes

A recipe is a TOML file of the tables below. Keys that are not given have the defaults; a key that does not exist, or a
value of another type, is refused with a suggestion. `extends = "simcse-unsup"` starts from another recipe, and
`--set table.key=value` changes one value. How recipes are used: [training](../train.md), [several
tasks](../multitask.md).

"""
_TASKS = """# Tasks

A task file has `[[task]]` tables; one declaration serves `evaluate`, `search`, `report`, `train --dev` and `multitask`.
Examples: [evaluation](../evaluate.md#data).

"""
_NAMES = {int: "whole number", float: "number", str: "text", bool: "true or false", dict: "table", type(None): "none"}
CONTRASTIVE = {"[data]": DataSettings, "[model]": ModelSettings, "[train]": OptimiserSettings, "[dev]": DevSettings}
MULTITASK = {
    "[model]": MultitaskModel,
    "[mixing]": MixingSettings,
    "[train]": OptimiserSettings,
    "[dev]": MultitaskDev,
    "[[objective]]": TaskObjective,
}


def recipes_page() -> str:
    """Tables of both kinds of recipes, then the recipes that are shipped."""
    parts = [_RECIPES, "## Contrastive training (`layerwise train`)\n\n"]
    parts += [_section(f"`{header}`", kind) for header, kind in CONTRASTIVE.items()]
    parts += [_section(f"`[[objective]]` {name}", TERMS[name]) for name in TERMS]
    parts += ["## Several tasks (`layerwise multitask`)\n\nTasks are [`[[task]]` tables](tasks.md).\n\n"]
    parts += [_section(f"`{header}`", kind) for header, kind in MULTITASK.items()]
    return "".join(parts) + _shipped()


def tasks_page() -> str:
    """The keys of a task, its kinds, and the tables in it."""
    rows = [
        f"| `{name}` | {_columns(kind.columns)} | {', '.join(f'`{m}`' for m in kind.metrics)} |\n"
        for name, kind in ((name, KINDS[name]) for name in KINDS)
    ]
    kinds = f"## Kinds\n\n| kind | columns | metrics, the first is the default |\n|---|---|---|\n{''.join(rows)}\n"
    tables = {"`[[task]]`": Task, "`queries`, `corpus`": TextFile, "`source`": Source}
    return _TASKS + "".join(_section(title, kind, level="##") for title, kind in tables.items()) + kinds


def descriptions(kind: type[Settings]) -> dict[str, str]:
    """Key -> what its docstring, or that of the class that it comes from, says about it."""
    texts: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if isinstance(parent, type) and issubclass(parent, Settings):
            texts |= dict(_attributes(inspect.cleandoc(parent.__doc__ or "")))
    return texts


def fields(kind: type[Settings]) -> dict[str, FieldInfo]:
    """The keys of a table; the name of an objective is the name of its section."""
    return {name: field for name, field in kind.model_fields.items() if not (name == "name" and kind in _terms())}


def _terms() -> list[type[Settings]]:
    return [TERMS[name] for name in TERMS]


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    section = re.search(r"^Attributes:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    for key, told in re.findall(r"^    (\w+): ((?:.|\n(?!    \w+: ))*)", section[1] if section else "", re.MULTILINE):
        yield key, " ".join(told.split())


def _section(title: str, kind: type[Settings], level: str = "###") -> str:
    about, texts = _prose((kind.__doc__ or "").strip()), descriptions(kind)
    rows = [
        f"| `{name}` | {_type(field)} | {_default(field)} | {_cell(texts[name])} |\n"
        for name, field in fields(kind).items()
    ]
    return f"{level} {title}\n\n{about}\n\n| key | type | default | |\n|---|---|---|---|\n{''.join(rows)}\n"


def _prose(docstring: str) -> str:
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(one for one in paragraphs if not one.startswith(("Attributes:", ">>>")))


def _type(field: FieldInfo) -> str:
    bounds = [f"{word} {getattr(one, key):g}" for one in field.metadata for key, word in _BOUNDS if hasattr(one, key)]
    return _cell(", ".join([_name(field.annotation), *bounds]))


_BOUNDS = (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below"))


def _name(kind: Any) -> str:
    """A type as a reader of TOML knows it."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f'`"{one}"`' if one else '`""`' for one in inner)
    if origin in (Union, UnionType):
        return " or ".join(_name(one) for one in inner if one is not type(None))
    if origin is tuple:
        return f"list of {_name(inner[0])}" if ... in inner else f"list of {len(inner)} values: {_name(inner[0])}"
    if origin is dict or (isinstance(kind, type) and issubclass(kind, Settings)):
        return "table"
    if hasattr(kind, "__metadata__"):
        return _name(inner[0])
    return _NAMES[kind]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "" if value is None or value == {} else f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    """A default as TOML has it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


def _columns(columns: Any) -> str:
    return ", ".join(f"`{place}` = {column}" for place, column in columns.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _shipped() -> str:
    lines = ["## Shipped recipes\n", "| recipe | | reached |", "|---|---|---|"]
    for format_ in (RECIPES, MULTITASK_RECIPES):
        recipes = (format_.load(name) for name in format_.names())
        lines += [f"| `{recipe.name}` | {_cell(recipe.about)} | {_cell(recipe.reached)} |" for recipe in recipes]
    return "\n".join(lines) + "\n"
