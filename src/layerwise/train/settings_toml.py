"""Temporary, for `layerwise.multitask` (see `layerwise.train.recipes` for new code). Settings as TOML."""

import json
from collections.abc import Mapping
from typing import Any


def toml_lines(table: Mapping[str, Any]) -> str:
    """A setting a line; TOML has no null, and what is not there is none."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in table.items() if value is not None)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON lets it stand, TOML does not
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_value(part)}" for key, part in value.items()) + "}"
    return repr(value)
