"""Temporary, for `layerwise.multitask`; see `layerwise.train.recipes` for new code.

What recipes of all kinds have in common: TOML files of exactly the settings of some frozen values.

A `RecipeFormat` says which values; it finds recipes by name or file, puts single values in, as the command line's
`--set train.learning_rate=1e-4` does, and refuses unknown keys and values of the wrong kind with the place and the
nearest known word.
"""

import re
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from layerwise.errors import InputError, LayerwiseError
from layerwise.registry import did_you_mean
from layerwise.train.settings_toml import toml_lines

TEXTS = ("name", "about", "reached")
Tables = dict[str, Any]


@dataclass(frozen=True)
class RecipeFormat:
    """One kind of recipes.

    Args:
        package: Its folder `recipes` holds those that are shipped.
        tables: [NAME] -> the kind of its settings, in the order in which they are written.
        listed: What [[LISTED]] tables are called; each has a name.
        grows: `--set LISTED.NAME.key=value` adds a table where none has that name.
    """

    package: str
    tables: Mapping[str, type]
    listed: str
    grows: bool = False

    def names(self) -> list[str]:
        """The recipes of the package."""
        files = (path.name for path in self._shipped.iterdir())
        return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))

    def text(self, name_or_file: str | Path) -> tuple[str, str]:
        """The TOML text of a recipe, and what errors call it."""
        name = str(name_or_file)
        if name.endswith(".toml"):
            path = Path(name).expanduser()
            if not path.is_file():
                raise InputError(f"{path}: no such recipe file; `layerwise recipes` lists those of the package")
            return _read(path), str(path)
        known = self.names()
        if name not in known:
            if Path(name).expanduser().is_file():
                raise InputError(f"{name}: a recipe file's name ends in .toml; rename it")
            guess = did_you_mean(name, known)
            raise InputError(f"Unknown recipe {name!r}.{guess} Known: {', '.join(known)}; or give a file *.toml")
        return (self._shipped / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml"

    def read(self, name_or_file: str | Path, sets: Sequence[str] = ()) -> tuple[Tables, str]:
        """The tables of a recipe with values put in, and what errors call it."""
        text, where = self.text(name_or_file)
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            single = re.search(rf"^\s*\[{self.listed}\]", text, re.MULTILINE)
            hint = f"; write [[{self.listed}]], in double brackets" if single else ""
            raise InputError(f"{where}: not TOML: {error}{hint}") from error
        self._check_tables(tables, where)
        return self.overridden(tables, sets), f"{where}, changed by --set" if sets else where

    def overridden(self, tables: Tables, sets: Sequence[str]) -> Tables:
        """Tables with values put in: "train.steps=100", "objective.sscl.layers=[-2]", "model.encoder=some/model"."""
        found = {key: _copied(value) for key, value in tables.items()}
        for text in sets:
            path, equals, value = text.partition("=")
            parts = path.strip().split(".")
            if not equals or not all(parts):
                raise InputError(f"--set {text!r}: write table.key=value, such as train.learning_rate=1e-4")
            given = toml_value(value.strip())
            wants_text = not isinstance(given, str) and self._is_text(parts)  # such as model.pooler=6
            self._place(found, parts, text)[parts[-1]] = value.strip() if wants_text else given
        return found

    def settings(self, tables: Tables, where: str) -> dict[str, Any]:
        """Words and values of all but the listed tables, by the names of a recipe's fields."""
        known_keys(tables, {*self.tables, *TEXTS, self.listed}, where)
        found: dict[str, Any] = {
            name: settings_of(kind, tables.get(name, {}), where, f"[{name}]") for name, kind in self.tables.items()
        }
        found |= {name: _checked_text(tables[name], f"{where}: {name}") for name in TEXTS if name in tables}
        return {"name": Path(where).stem} | found

    def listed_tables(self, tables: Tables, where: str) -> list[Tables]:
        """The [[LISTED]] tables."""
        found = tables.get(self.listed, [])
        if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
            raise InputError(f"{where}: {self.listed}s are [[{self.listed}]] tables, in double brackets")
        return found

    def toml(self, recipe: Any, listed: Sequence[Mapping[str, Any]]) -> str:
        """A TOML text from which the same recipe is read again; every setting stands in it, defaults too."""
        parts = [toml_lines({name: getattr(recipe, name) for name in TEXTS})]
        parts += [f"[{name}]\n{toml_lines(asdict(getattr(recipe, name)))}" for name in self.tables]
        parts += [f"[[{self.listed}]]\n{toml_lines(table)}" for table in listed]
        return "\n".join(parts)

    def _is_text(self, parts: Sequence[str]) -> bool:
        """Whether a setting of a table that is not listed is a text."""
        kind = self.tables.get(parts[0])
        return kind is not None and len(parts) == 2 and get_type_hints(kind).get(parts[1]) is str

    def _check_tables(self, tables: Tables, where: str) -> None:
        """Refuse what is no table and must be one: values are put into it next."""
        for name in self.tables:
            if not isinstance(tables.get(name, {}), dict):
                raise InputError(f"{where}: [{name}]: expected a table of settings")
        self.listed_tables(tables, where)

    def _place(self, tables: Tables, parts: Sequence[str], text: str) -> Tables:
        """The table that a dotted key is in; listed ones are known by their names."""
        if parts[0] == self.listed and len(parts) == 3:
            return self._listed_place(tables, parts[1], text)
        if parts[0] in self.tables and len(parts) == 2:
            table: Tables = tables.setdefault(parts[0], {})
            return table
        if parts[0] in TEXTS and len(parts) == 1:
            return tables
        keys = [f"{name}.{field.name}" for name, kind in self.tables.items() for field in fields(kind)]
        tableless = [key for key in keys if len(parts) == 1 and key.endswith(f".{parts[0]}")]
        guess = did_you_mean(tableless[0] if tableless else ".".join(parts), keys)
        known = ", ".join([*self.tables, f"{self.listed}.NAME"])
        raise InputError(f"--set {text!r}: no such table.{guess} Known: {known}")

    def _listed_place(self, tables: Tables, name: str, text: str) -> Tables:
        listed: list[Tables] = tables.setdefault(self.listed, [])
        named = {str(table.get("name")): table for table in listed}
        if name not in named:
            if not self.grows:
                guess = did_you_mean(name, list(named))
                raise InputError(f"--set {text!r}: no {self.listed} {name!r}.{guess} Known: {', '.join(named)}")
            named[name] = {"name": name}
            listed.append(named[name])
        return named[name]

    @property
    def _shipped(self) -> Any:
        return resources.files(self.package) / "recipes"


def beside(recipe: str | Path, file: str, data: str | None = None) -> str:
    """A file that a user's recipe names: as it is, or, where neither its path nor `data` has it, beside the recipe."""
    near, given = Path(recipe).expanduser().parent / file, [Path(file).expanduser()]
    given += [Path(data).expanduser() / file] if data else []
    own = str(recipe).endswith(".toml") and near.is_file() and not any(path.is_file() for path in given)
    return str(near) if own else file


def said_of(where: str, error: LayerwiseError) -> InputError:
    """The same error, with the recipe's name before it if it is not there yet."""
    return InputError(str(error) if str(error).startswith(where) else f"{where}: {error}")


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


def _checked_text(value: Any, where: str) -> str:
    """A value that must be a text."""
    if not isinstance(value, str):
        raise InputError(f"{where} is {value!r}; expected text")
    return value


def toml_value(text: str) -> Any:
    """A TOML value; what is none is taken as a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value


def _read(path: Path) -> str:
    """A file as text; one line where it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: can't be read as UTF-8 text: {error}; give a TOML file") from error
