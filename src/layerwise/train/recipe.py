"""Recipes: TOML files of exactly the settings in `layerwise.train.settings`, shipped with the package or the user's.

Unknown keys and values of the wrong kind are refused with the place and the nearest known word. `overridden` changes
single values, as the command line's `--set train.learning_rate=1e-4` does.
"""

import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from layerwise.errors import InputError, LayerwiseError
from layerwise.train.settings import DataSettings, DevSettings, ModelSettings, OptimiserSettings, Recipe
from layerwise.train.terms import TERMS

_TABLES = {"data": DataSettings, "model": ModelSettings, "train": OptimiserSettings, "dev": DevSettings}
_TEXTS = ("name", "about", "reached")
Tables = dict[str, Any]
Place = Callable[[Tables, Sequence[str], str], Tables]


def recipe_names() -> list[str]:
    """The recipes of the package."""
    return sorted(path.name.removesuffix(".toml") for path in _shipped().iterdir() if path.name.endswith(".toml"))


def load_recipe(name_or_file: str | Path, sets: Sequence[str] = ()) -> Recipe:
    """A recipe by its name or file, with `sets` such as "train.learning_rate=1e-4" put in.

    >>> load_recipe("simcse-unsup", ["train.batch_size=128"]).train.batch_size
    128
    """
    text, where = recipe_text(name_or_file)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where}: not TOML: {error}") from error
    return parse_recipe(overridden(tables, sets), where=where)


def recipe_text(name_or_file: str | Path) -> tuple[str, str]:
    """The TOML text of a recipe, and what errors call it."""
    name = str(name_or_file)
    if name.endswith(".toml"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise InputError(f"{path}: no such recipe file; `layerwise recipes` lists those of the package")
        return read_recipe_file(path), str(path)
    if name not in recipe_names():
        if Path(name).expanduser().is_file():
            raise InputError(f"{name}: a recipe file's name ends in .toml; rename it")
        raise InputError(
            f"Unknown recipe {name!r}.{did_you_mean(name, recipe_names())} Known: {', '.join(recipe_names())}"
        )
    return (_shipped() / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml"


def read_recipe_file(path: Path) -> str:
    """A file as text; one line where it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: can't be read as UTF-8 text: {error}; give a TOML file") from error


def parse_recipe(tables: Tables, *, where: str = "recipe") -> Recipe:
    """From the tables of a TOML file."""
    known_keys(tables, {*_TABLES, *_TEXTS, "objective"}, where)
    given: dict[str, Any] = {
        name: settings_of(kind, tables.get(name, {}), where, f"[{name}]") for name, kind in _TABLES.items()
    }
    given |= {name: checked_text(tables[name], f"{where}: {name}") for name in _TEXTS if name in tables}
    given.setdefault("name", Path(where).stem)
    try:
        return Recipe(**given, objectives=_objectives(tables.get("objective", []), where))
    except LayerwiseError as error:
        raise InputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error


def overridden(tables: Tables, sets: Sequence[str], place: Place | None = None) -> Tables:
    """Tables with values put in: "train.steps=100", "objective.sscl.layers=[-2]", "model.encoder=bert-base-uncased".

    `place` finds the table of a dotted key, for recipes with other tables than these.
    """
    found = {key: _copied(value) for key, value in tables.items()}
    for text in sets:
        path, equals, value = text.partition("=")
        parts = path.strip().split(".")
        if not equals or not all(parts):
            raise InputError(f"--set {text!r}: write table.key=value, such as train.learning_rate=1e-4")
        (place or _place)(found, parts, text)[parts[-1]] = toml_value(value.strip())
    return found


def _place(tables: Tables, parts: Sequence[str], text: str) -> Tables:
    """The table that a dotted key is in; objectives are known by their names, and a new one is added."""
    if parts[0] == "objective" and len(parts) == 3:
        objectives: list[Tables] = tables.setdefault("objective", [])
        named = next((table for table in objectives if table.get("name") == parts[1]), None)
        if named is None:
            named = {"name": parts[1]}
            objectives.append(named)
        return named
    if parts[0] in _TABLES and len(parts) == 2:
        table: Tables = tables.setdefault(parts[0], {})
        return table
    if parts[0] in _TEXTS and len(parts) == 1:
        return tables
    known = [*_TABLES, "objective.NAME"]
    tables_with = [name for name, kind in _TABLES.items() if parts[0] in {field.name for field in fields(kind)}]
    meant = f"{tables_with[0]}.{parts[0]}" if tables_with and len(parts) == 1 else ""  # a key without its table
    guess = f" Did you mean {meant!r}?" if meant else did_you_mean(parts[0], known)
    raise InputError(f"--set {text!r}: no such table;{guess} known: {', '.join(known)}")


def toml_value(text: str) -> Any:
    """A TOML value; what is none is taken as a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _objectives(tables: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{where}: objectives are [[objective]] tables, in double brackets")
    found = []
    for table in tables:
        name = table.get("name")
        if not isinstance(name, str):
            raise InputError(f"{where}: an [[objective]] has no name; known: {', '.join(TERMS)}")
        rest = {key: value for key, value in table.items() if key != "name"}
        if rest.get("weight") == 0:  # so that --set can leave an objective out
            TERMS[name]
            continue
        found.append(settings_of(TERMS[name], rest, where, f"objective {name!r}"))
    return tuple(found)


def settings_of(kind: type, table: Any, file: str, name: str) -> Any:
    """A frozen value from a table: keys and kinds of values are checked here, the rest by the value itself."""
    where = f"{file}: {name}"
    if not isinstance(table, dict) or not is_dataclass(kind):
        raise InputError(f"{where}: expected a table of settings")
    hints = get_type_hints(kind)
    known_keys(table, {field.name for field in fields(kind)}, where)
    values = {key: _converted(value, hints[key], f"{where}: {key}") for key, value in table.items()}
    try:
        return kind(**values)
    except LayerwiseError as error:
        said = str(error)  # most of these errors name the table themselves
        raise InputError(f"{file}: {said}" if said.startswith(name) else f"{where}: {said}") from error


def _converted(value: Any, hint: Any, where: str) -> Any:
    """A TOML value as a field's type; a whole number does for a float, a list for a tuple."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for kind in kinds:
        if get_origin(kind) is tuple and isinstance(value, list | tuple):
            inner = get_args(kind)[0]
            return tuple(_converted(item, inner, where) for item in value)
        if get_origin(kind) is Mapping and isinstance(value, Mapping):
            inner = get_args(kind)[1]
            return {key: _converted(item, inner, f"{where}.{key}") for key, item in value.items()}
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(kind, type) and isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
            return value
    names = " or ".join(_kind_name(kind) for kind in kinds if kind is not type(None))
    raise InputError(f"{where} is {value!r}; expected {names}")


def _kind_name(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "a list of " + _kind_name(get_args(kind)[0])
    if get_origin(kind) is Mapping:
        return "a table of " + _kind_name(get_args(kind)[1])
    return {str: "text", int: "a whole number", float: "a number", bool: "true or false"}.get(kind, str(kind))


def known_keys(table: Mapping[str, Any], known: set[str], where: str) -> None:
    """Refuse a key that is not known."""
    for key in table:
        if key not in known:
            listed = ", ".join(sorted(known))
            raise InputError(f"{where}: unknown key {key!r}.{did_you_mean(key, sorted(known))} Known: {listed}")


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The nearest known word, as a sentence; nothing where none is near."""
    close = get_close_matches(word, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def checked_text(value: Any, where: str) -> str:
    """A value that must be a text."""
    if not isinstance(value, str):
        raise InputError(f"{where} is {value!r}; expected text")
    return value


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value


def _shipped() -> Any:
    return resources.files(__package__) / "recipes"
