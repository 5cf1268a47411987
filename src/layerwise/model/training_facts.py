"""Facts about a training (recipe, data, seeds, scores, protocol), kept with the model as the trainer gives them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from layerwise.errors import InputError


def checked_facts(facts: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy as JSON will give it back, so that saving and loading change nothing."""
    if facts is None:
        return {}
    if not isinstance(facts, Mapping):
        raise InputError(f"training is {facts!r}; give a dict of facts, such as {{'recipe': 'simcse', 'seed': 1}}")
    try:
        copied: dict[str, Any] = json.loads(json.dumps(dict(facts), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"training holds what JSON can't: {error}; give texts, numbers, lists and dicts") from error
    return copied


def fact_rows(facts: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Nested facts as rows of a table, such as ("scores.STS-B", "80.1"); lists of plain values in one row."""
    return tuple(_rows(facts, ""))


def _rows(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _rows(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for number, item in enumerate(value):
            yield from _rows(item, f"{key}.{number}")
    elif key:
        yield key, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    if value is None or value == {}:
        return "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
