"""The format of recipes: TOML files, found by name or path, that extend each other and are parsed to settings.

    extends = "sg"            # a shipped recipe, or a file in the same folder
    [train]
    learning_rate = 1e-4      # only the differences

Tables are merged key by key, [[objective]] tables by their name or task. `--set train.learning_rate=1e-4` changes one
value.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from layerwise.errors import InputError, LayerwiseError
from layerwise.extras import require
from layerwise.registry import check_known, did_you_mean, unknown
from layerwise.settings import Settings, parse_toml, read_toml

EXTENDS = "extends"
DESCRIPTION = ("name", "about", "reached")  # never inherited: they are about one recipe
Tables = dict[str, Any]
R = TypeVar("R", bound=Settings)


@dataclass(frozen=True)
class RecipeSource:
    """The tables of a recipe merged with those it extends, and their origin.

    Args:
        tables: The TOML tables.
        name: The recipe's name in errors.
        folders: The folders of the recipe's file and of the files that it extends; empty for shipped recipes.
    """

    tables: Tables
    name: str
    folders: tuple[Path, ...] = ()

    def locate(self, file: str, data: str | None = None) -> str:
        """Resolve a file named in the recipe: unchanged if its path or `data` has it, otherwise in `folders`."""
        candidates = [Path(file).expanduser(), *([Path(data).expanduser() / file] if data else [])]
        match = next((folder / file for folder in self.folders if (folder / file).is_file()), None)
        return file if match is None or any(path.is_file() for path in candidates) else str(match)


@dataclass(frozen=True)
class ListedTable:
    """A kind of [[TABLE]].

    Args:
        key: The key that identifies a table.
        grows: `--set TABLE.NAME.key=value` adds a table if there is none of that name.
        removable: A recipe that extends another removes a table by weight = 0.
    """

    key: str
    grows: bool = False
    removable: bool = False


@dataclass(frozen=True)
class RecipeFormat(Generic[R]):
    """The recipes of one kind of training.

    Args:
        recipe: The settings class.
        folder: The folder of the shipped recipes, beside this module.
        tables: The names of [TABLE]s, fields of `recipe`, in the order in which they are written.
        listed: The names of [[TABLE]]s; `recipe` has them in the plural.
    """

    recipe: type[R]
    folder: str
    tables: tuple[str, ...]
    listed: Mapping[str, ListedTable]

    def names(self) -> list[str]:
        """Return the names of the shipped recipes."""
        files = (path.name for path in self._shipped.iterdir())
        return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))

    def read(self, name_or_file: str | Path, sets: Sequence[str] = ()) -> RecipeSource:
        """Read the tables of a recipe, merged with those it extends and with overrides."""
        source = self._resolve(str(name_or_file))
        if not sets:
            return source
        return RecipeSource(self.override(source.tables, sets), f"{source.name}, changed by --set", source.folders)

    def load(self, name_or_file: str | Path, sets: Sequence[str] = (), *, data: str | None = None) -> R:
        """Load a recipe by name or file, with overrides; `data` is the folder of the files that it names."""
        return self.parse(self.read(name_or_file, sets), data=data)

    def parse(self, source: RecipeSource, *, data: str | None = None) -> R:  # noqa: ARG002 - for recipes with files
        """Convert a recipe to settings."""
        return self.settings(source.tables, where=source.name)

    def settings(self, tables: Tables, *, where: str, **values: Any) -> R:
        """Build settings from tables and parsed values; errors start with `where`."""
        try:
            for key in tables:
                check_known(key, (*DESCRIPTION, *self.tables, *self.listed), "key")
            plural = {f"{name}s": _list_of_tables(tables, name) for name in self.listed}
            single = {key: value for key, value in tables.items() if key not in self.listed}
            return self.recipe(**{"name": Path(where).stem} | single | plural | values)
        except LayerwiseError as error:
            raise InputError(f"{where}: {error}") from error

    def toml(self, recipe: R) -> str:
        """Serialise a recipe to TOML, with all settings including defaults."""
        require("train", "writing a recipe", "tomli_w")
        import tomli_w

        values = recipe.model_dump(exclude_none=True)  # TOML has no null
        text = tomli_w.dumps({name: values[name] for name in (*DESCRIPTION, *self.tables)})
        listed = ((name, table) for name in self.listed for table in values[f"{name}s"])
        return text + "".join(_table_toml(f"[[{name}]]", name, table) for name, table in listed)

    def notes(self, name: str) -> str:
        """Return the comments in the file of a shipped recipe and in those that it extends."""
        text = (self._shipped / f"{name}.toml").read_text(encoding="utf-8")
        lines = [line.strip() for line in text.splitlines() if "#" in line]
        notes = [f"# {name}.toml:", *(line if line.startswith("#") else f"# {line}" for line in lines)] if lines else []
        parent = tomllib.loads(text).get(EXTENDS)
        return "".join(f"{note}\n" for note in notes) + (self.notes(parent) if parent else "")

    def override(self, tables: Tables, sets: Sequence[str]) -> Tables:
        """Override single values of tables: "train.steps=100", "objective.sscl.layers=[-2]"."""
        changed = deepcopy(tables)
        for text in sets:
            path, equals, value = (part.strip() for part in text.partition("="))
            parts = path.split(".")
            if not equals or not all(parts):
                raise InputError(f"--set {text!r}: write table.key=value, such as train.learning_rate=1e-4")
            parsed = _toml_value(value)
            is_text = not isinstance(parsed, str) and self._is_text(parts)  # such as model.pooler=6
            self._table_of(changed, parts, text)[parts[-1]] = value if is_text else parsed
        return changed

    def _resolve(self, name: str, chain: Mapping[str, str] = MappingProxyType({})) -> RecipeSource:
        """Merge a recipe with those it extends; `chain` maps the identities of extending recipes to their names."""
        is_file = name.endswith(".toml")
        identity = str(Path(name).expanduser().resolve()) if is_file else name
        if identity in chain:
            names = [*chain.values(), name]
            raise InputError(f"{names[0]}: extends itself: {' -> '.join(names)}; remove one extends of these")
        tables, where = self._read_one(name, extended_by="".join(list(chain.values())[-1:]))
        _check_tables(tables, self.tables, self.listed, where)
        folders = (Path(name).expanduser().parent,) if is_file else ()
        parent = tables.pop(EXTENDS, None)
        if parent is None:
            return RecipeSource(tables, where, folders)
        if not isinstance(parent, str) or not parent:
            raise InputError(f"{where}: extends is {parent!r}; expected the name of a recipe, or a file *.toml")
        if parent.endswith(".toml") and folders:
            parent = str(folders[0] / Path(parent).expanduser())
        base = self._resolve(parent, {**chain, identity: name})
        return RecipeSource(self._merge(base.tables, tables), where, (*folders, *base.folders))

    def _read_one(self, name: str, *, extended_by: str = "") -> tuple[Tables, str]:
        """Read the tables of one file or shipped recipe, and its name in errors."""
        prefix = f"{extended_by}: extends: " if extended_by else ""
        if name.endswith(".toml"):
            if not Path(name).expanduser().is_file():
                raise InputError(f"{prefix}{name}: no such recipe file; `layerwise recipes` lists the shipped recipes")
            return read_toml(name), name
        known = self.names()
        if name not in known:
            if Path(name).expanduser().is_file():
                raise InputError(f"{prefix}{name}: the name of a recipe file must end in .toml; rename it")
            raise InputError(f"{prefix}{unknown('recipe', name, known, more='; or give a file *.toml')}")
        text = (self._shipped / f"{name}.toml").read_text(encoding="utf-8")
        return parse_toml(text, f"{name}.toml"), f"{name}.toml"

    def _merge(self, base: Tables, changes: Tables) -> Tables:
        """Merge the changes of an extending recipe into the base."""
        merged = {key: value for key, value in base.items() if key not in DESCRIPTION}
        for key, value in changes.items():
            if key in self.listed:
                merged[key] = _merge_listed(base.get(key, []), value, self.listed[key])
            else:
                merged[key] = {**base.get(key, {}), **value} if isinstance(value, dict) else value
        return merged

    def _kind(self, table: str) -> type[Settings]:
        return cast(type[Settings], self.recipe.model_fields[table].annotation)

    def _is_text(self, parts: Sequence[str]) -> bool:
        """Whether a key of a [TABLE] has the type str."""
        if len(parts) != 2 or parts[0] not in self.tables:
            return False
        field = self._kind(parts[0]).model_fields.get(parts[1])
        return field is not None and field.annotation is str

    def _table_of(self, tables: Tables, parts: Sequence[str], text: str) -> Tables:
        """Return the table of a dotted key; listed ones are identified by name."""
        if parts[0] in self.listed and len(parts) == 3:
            return self._listed_table(tables, parts[0], parts[1], text)
        if parts[0] in self.tables and len(parts) == 2:
            table: Tables = tables.setdefault(parts[0], {})
            return table
        if parts[0] in DESCRIPTION and len(parts) == 1:
            return tables
        keys = [f"{name}.{key}" for name in self.tables for key in self._kind(name).model_fields]
        matches = [key for key in keys if len(parts) == 1 and key.endswith(f".{parts[0]}")]
        guess = did_you_mean(matches[0] if matches else ".".join(parts), keys)
        known = ", ".join([*self.tables, *(f"{name}.NAME" for name in self.listed)])
        raise InputError(f"--set {text!r}: no such table.{guess} Known: {known}")

    def _listed_table(self, tables: Tables, kind: str, name: str, text: str) -> Tables:
        listed: list[Tables] = tables.setdefault(kind, [])
        named = {str(table.get(self.listed[kind].key)): table for table in listed}
        if name not in named:
            if not self.listed[kind].grows:
                raise InputError(f"--set {text!r}: {unknown(kind, name, named)}")
            named[name] = {self.listed[kind].key: name}
            listed.append(named[name])
        return named[name]

    @property
    def _shipped(self) -> Any:
        return resources.files("layerwise.train.recipes") / self.folder


def _check_tables(tables: Tables, single: Sequence[str], listed: Iterable[str], where: str) -> None:
    """Raise for values that must be tables, before they are merged."""
    for name in single:
        if not isinstance(tables.get(name, {}), dict):
            raise InputError(f"{where}: {name} is {tables[name]!r}; expected a table of settings, [{name}]")
    for name in listed:
        try:
            _list_of_tables(tables, name)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error


def _list_of_tables(tables: Tables, name: str) -> list[Tables]:
    listed = tables.get(name, [])
    if not isinstance(listed, list) or not all(isinstance(table, dict) for table in listed):
        raise InputError(f"{name}s are written as [[{name}]] tables, in double brackets")
    return listed


def _merge_listed(base: Sequence[Tables], changes: Sequence[Tables], kind: ListedTable) -> list[Tables]:
    """Merge tables of the same name, or remove them by weight = 0; append others.

    A duplicate table is left to the validation of the recipe.
    """
    merged, key = [dict(table) for table in base], kind.key
    indices = {table[key]: index for index, table in enumerate(base) if isinstance(table.get(key), str)}
    for table in changes:
        index = indices.pop(table.get(key), None)
        if index is None:
            merged.append(table)
        else:
            merged[index] |= table
    return [table for table in merged if not (kind.removable and table.get("weight") == 0)]


def _table_toml(header: str, path: str, table: Mapping[str, Any]) -> str:
    """Serialise a table with its header, then nested tables."""
    import tomli_w

    nested = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    flat = {key: value for key, value in table.items() if key not in nested}
    parts = [_table_toml(f"[{path}.{key}]", f"{path}.{key}", value) for key, value in nested.items()]
    return f"\n{header}\n{tomli_w.dumps(flat)}{''.join(parts)}"


def _toml_value(text: str) -> Any:
    """Parse a TOML value; anything else is a str."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
