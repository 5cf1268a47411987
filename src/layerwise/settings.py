"""Settings: frozen values, validated on creation, with one-line errors.

A value that exists is valid. Whatever builds one (Python, a TOML table, `--set`), a mistake is an `InputError` that
names the table, the key, the value and what was expected:

    [data] max_length is 2; expected 3 or more
    [model] Unknown head 'mpl'. Did you mean 'mlp'? Known: none, mlp, linear, mlp-bn
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from layerwise.errors import InputError
from layerwise.registry import did_you_mean, unknown


class Settings(BaseModel):
    """The base class of all settings. Values are not coerced ("3" is no number), except lists to tuples.

    `label` begins every error: "[data]", "objective 'sg':"; it may be empty.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)
    label: ClassVar[str] = "settings:"

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(_message(type(self), values, error).strip()) from None

    @model_validator(mode="before")
    @classmethod
    def _tuples(cls, values: Any) -> Any:
        return {key: _as_tuple(value) for key, value in values.items()} if isinstance(values, Mapping) else values

    @classmethod
    def labelled(cls, values: Mapping[str, Any]) -> str:  # noqa: ARG003 - for those whose label is a name
        """Return the prefix of errors about these values."""
        return cls.label

    def replaced(self, **changes: Any) -> Self:
        """The same settings with some values changed, checked again."""
        return type(self)(**{name: getattr(self, name) for name in type(self).model_fields} | changes)


S = TypeVar("S", bound=Settings)


def parse_settings(kind: type[S], table: Any, *, file: str = "") -> S:
    """Settings from a table of a TOML or JSON file, whose name begins every error."""
    where = f"{file}: " if file else ""
    if not isinstance(table, Mapping):
        raise InputError(f"{where}{kind.label.rstrip(':')}: expected a table of settings")
    try:
        return kind(**table)
    except InputError as error:
        raise InputError(f"{where}{error}") from error


def read_toml(path: str | Path, *, remedy: str = "give a TOML file") -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return parse_toml(Path(path).expanduser().read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; {remedy}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text ({error.reason}); {remedy}") from error


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The tables of a TOML text; `name` begins an error."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        listed = re.search(r"^\s*\[(objective|task)\]", text, re.MULTILINE)
        hint = f"; write [[{listed[1]}]], in double brackets" if listed else ""
        raise InputError(f"{name}: is not TOML: {error}{hint}") from error


def _as_tuple(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_as_tuple, value))
    if isinstance(value, dict):
        return {key: _as_tuple(item) for key, item in value.items()}
    return value


def _message(kind: type[Settings], values: Mapping[str, Any], error: ValidationError) -> str:
    """Format the first validation error in one line."""
    first = error.errors(include_url=False)[0]
    label, key = kind.labelled(values), ".".join(map(str, first["loc"]))
    context = first.get("ctx", {})
    if first["type"] == "value_error":
        text = str(context["error"])
        return text if text.startswith(label) else f"{label} {text}"
    if first["type"] == "extra_forbidden":
        return f"{label} {_unknown_key(kind, key)}"
    if first["type"] == "missing":
        return f"{label} {key} is missing; give {key} = ..."
    if first["type"] == "literal_error":
        known = re.findall(r"'([^']*)'", context["expected"]) or [context["expected"]]
        return f"{label} {unknown(key, first['input'], known)}"
    return f"{label} {key} is {_shown(first['input'])}; expected {_expected(first['type'], context)}"


def _unknown_key(kind: type[Settings], key: str) -> str:
    known = sorted(kind.model_fields)
    return f"unknown key {key!r}.{did_you_mean(key, known)} Known: {', '.join(known)}"


def _shown(value: Any) -> str:
    return repr(list(value) if isinstance(value, tuple) else value)


def _expected(kind: str, context: Mapping[str, Any]) -> str:
    """Describe the expected value of a field."""
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return words.format(context[key])
    return _TYPES.get(kind, kind.replace("_", " "))


_BOUNDS = {
    "greater_than": ("gt", "a number above {}"),
    "greater_than_equal": ("ge", "{} or more"),
    "less_than": ("lt", "a number below {}"),
    "less_than_equal": ("le", "{} or less"),
    "too_short": ("min_length", "{} or more values"),
    "too_long": ("max_length", "at most {} values"),
    "string_too_short": ("min_length", "a text of {} or more characters"),
}
_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a table",
    "mapping_type": "a table",
    "model_type": "a table of settings",
}
