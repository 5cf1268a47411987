"""A recipe as TOML, the other way round than `layerwise.train.recipe`: what was run, overrides included."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from layerwise.train.settings import Recipe


def recipe_toml(recipe: Recipe) -> str:
    """A TOML text that `parse_recipe` makes the same recipe of; every setting stands in it, defaults too."""
    texts = {name: getattr(recipe, name) for name in ("name", "about", "reached")}
    parts = [toml_lines(texts)]
    parts += [f"[{name}]\n{toml_lines(asdict(getattr(recipe, name)))}" for name in ("data", "model")]
    parts += [f"[[objective]]\n{toml_lines({'name': term.name, **asdict(term)})}" for term in recipe.objectives]
    parts += [f"[{name}]\n{toml_lines(asdict(getattr(recipe, name)))}" for name in ("train", "dev")]
    return "\n".join(parts)


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
